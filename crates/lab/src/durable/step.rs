//! The writer's steps: each changes something and syncs it, except where its name says otherwise.

use crate::pattern;
use crate::sys::{Aligned, Mapping};
use rustix::fs::{self as rfs, OFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

/// How data is made durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Sync {
    Fsync,
    Fdatasync,
    /// Written through a descriptor opened with O_SYNC.
    OpenSync,
    /// With O_DSYNC.
    OpenDsync,
    /// With O_DIRECT and fdatasync, where offset and length allow; else fdatasync.
    Direct,
    /// Through a shared mapping and msync(MS_SYNC), where the range lies in the file; else fsync.
    Msync,
    Syncfs,
}

/// A step on paths relative to the run's directory. Contents follow [`pattern`] with the
/// generation; `seed` of the pattern is the generation too, since it is unique in a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Step {
    Mkdir {
        path: String,
    },
    Rmdir {
        path: String,
    },
    /// Creates, writes, syncs the file; syncs the directory only if `name_sync`.
    Create {
        path: String,
        len: u64,
        generation: u64,
        sync: Sync,
        name_sync: bool,
    },
    Write {
        path: String,
        off: u64,
        len: u64,
        generation: u64,
        sync: Sync,
    },
    /// A write that nothing syncs.
    Unsynced {
        path: String,
        off: u64,
        len: u64,
        generation: u64,
    },
    Truncate {
        path: String,
        len: u64,
    },
    Rename {
        from: String,
        to: String,
    },
    /// Writes and syncs `path.new`, renames it over `path`, syncs the directory.
    Replace {
        path: String,
        len: u64,
        generation: u64,
    },
    Unlink {
        path: String,
    },
    Link {
        from: String,
        to: String,
    },
    Symlink {
        target: String,
        path: String,
    },
    Xattr {
        path: String,
        generation: u64,
    },
    Chmod {
        path: String,
        mode: u32,
    },
    /// `count` files `path0`, `path1`... of `len` bytes, then one syncfs.
    Batch {
        path: String,
        count: u32,
        len: u64,
        generation: u64,
    },
}

/// The bytes a step writes at `off`.
pub(crate) fn data(off: u64, len: u64, generation: u64) -> Vec<u8> {
    pattern::make(len as usize, generation, generation, off)
}

/// The value of the attribute `user.durable`.
pub(crate) fn value(generation: u64) -> String {
    format!("generation {generation}")
}

fn sync_parent(path: &Path) -> io::Result<()> {
    File::open(path.parent().unwrap_or(Path::new(".")))?.sync_all()
}

/// Does a step below `top`.
pub(crate) fn perform(top: &Path, step: &Step) -> io::Result<()> {
    let at = |path: &String| top.join(path);
    match step {
        Step::Mkdir { path } => {
            std::fs::create_dir(at(path))?;
            sync_parent(&at(path))
        }
        Step::Rmdir { path } => {
            std::fs::remove_dir(at(path))?;
            sync_parent(&at(path))
        }
        Step::Create { path, len, generation, sync, name_sync } => {
            File::create_new(at(path))?;
            put(&at(path), 0, &data(0, *len, *generation), *sync)?;
            if *name_sync { sync_parent(&at(path)) } else { Ok(()) }
        }
        Step::Write { path, off, len, generation, sync } => {
            put(&at(path), *off, &data(*off, *len, *generation), *sync)
        }
        Step::Unsynced { path, off, len, generation } => OpenOptions::new()
            .write(true)
            .open(at(path))?
            .write_all_at(&data(*off, *len, *generation), *off),
        Step::Truncate { path, len } => {
            let file = OpenOptions::new().write(true).open(at(path))?;
            file.set_len(*len)?;
            file.sync_all()
        }
        Step::Replace { path, len, generation } => {
            let new = at(&format!("{path}.new"));
            let file = File::create(&new)?;
            file.write_all_at(&data(0, *len, *generation), 0)?;
            file.sync_all()?;
            std::fs::rename(&new, at(path))?;
            sync_parent(&new)
        }
        Step::Batch { path, count, len, generation } => {
            for n in 0..*count {
                let file = File::create_new(at(&format!("{path}{n}")))?;
                file.write_all_at(&data(0, *len, *generation + u64::from(n)), 0)?;
            }
            Ok(rfs::syncfs(File::open(top)?)?)
        }
        _ => name_step(top, step),
    }
}

fn name_step(top: &Path, step: &Step) -> io::Result<()> {
    let at = |path: &String| top.join(path);
    match step {
        Step::Rename { from, to } => {
            std::fs::rename(at(from), at(to))?;
            sync_parent(&at(to))?;
            sync_parent(&at(from))
        }
        Step::Unlink { path } => {
            std::fs::remove_file(at(path))?;
            sync_parent(&at(path))
        }
        Step::Link { from, to } => {
            std::fs::hard_link(at(from), at(to))?;
            sync_parent(&at(to))
        }
        Step::Symlink { target, path } => {
            std::os::unix::fs::symlink(target, at(path))?;
            sync_parent(&at(path))
        }
        Step::Xattr { path, generation } => {
            let file = File::open(at(path))?;
            let flags = rfs::XattrFlags::empty();
            rfs::fsetxattr(&file, c"user.durable", value(*generation).as_bytes(), flags)?;
            file.sync_all()
        }
        Step::Chmod { path, mode } => {
            let file = File::open(at(path))?;
            file.set_permissions(PermissionsExt::from_mode(*mode))?;
            file.sync_all()
        }
        _ => Err(Errno::INVAL.into()),
    }
}

fn put(path: &Path, off: u64, data: &[u8], sync: Sync) -> io::Result<()> {
    let flags = match sync {
        Sync::OpenSync => OFlags::SYNC,
        Sync::OpenDsync => OFlags::DSYNC,
        Sync::Direct if (off | data.len() as u64).is_multiple_of(4096) => OFlags::DIRECT,
        _ => OFlags::empty(),
    };
    let mut options = OpenOptions::new();
    let file = options.read(true).write(true).custom_flags(flags.bits() as i32).open(path)?;
    let end = off + data.len() as u64;
    if sync == Sync::Msync && !data.is_empty() && end <= file.metadata()?.len() {
        let base = off & !4095;
        let mut map = Mapping::new(file.as_fd(), base, (end - base) as usize, true)
            .map_err(io::Error::from_raw_os_error)?;
        map.write((off - base) as usize, data);
        return map.sync().map_err(io::Error::from_raw_os_error);
    }
    match flags == OFlags::DIRECT {
        true => file.write_all_at(&Aligned::filled(data), off)?,
        false => file.write_all_at(data, off)?,
    }
    match sync {
        Sync::OpenSync | Sync::OpenDsync => Ok(()),
        Sync::Fdatasync | Sync::Direct => file.sync_data(),
        Sync::Fsync | Sync::Msync => file.sync_all(),
        Sync::Syncfs => Ok(rfs::syncfs(&file)?),
    }
}
