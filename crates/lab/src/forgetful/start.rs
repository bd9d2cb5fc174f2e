//! Mounting the mirror and ending it.

use super::journal::{Entry, Recorder};
use super::mirror::Mirror;
use super::nodes::{Nodes, ROOT};
use crate::sys;
use fuser::{BackgroundSession, MountOption};
use rustix::fs::{self as rfs, AtFlags, CWD, FileType, Mode, OFlags};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// Bytes of a file found at the start that go into one journal entry.
const PIECE: usize = 1 << 20;

pub struct Options {
    /// Holds the live data; nobody else may change it while mounted.
    pub backing: PathBuf,
    pub mountpoint: PathBuf,
    /// A new file, not inside `backing`.
    pub journal: PathBuf,
    /// Kept up to date with the number of journaled operations (8 bytes, little-endian).
    pub seq_file: Option<PathBuf>,
}

/// A mounted mirror; dropping it unmounts.
pub struct Mounted {
    session: Option<BackgroundSession>,
}

impl Mounted {
    /// True once somebody else has unmounted it.
    pub fn is_over(&self) -> bool {
        self.session.as_ref().is_none_or(|s| s.guard.is_finished())
    }

    /// Unmounts and waits until the last request is journaled.
    pub fn unmount(mut self) {
        if let Some(session) = self.session.take() {
            session.join();
        }
    }
}

/// Mounts the mirror. What the backing holds already counts as durable. Needs root (or a
/// fusermount3 that allows `allow_other`).
pub fn mount(options: &Options) -> io::Result<Mounted> {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum })?;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = rfs::openat(CWD, &options.backing, flags, Mode::empty())?;
    let mut nodes = Nodes::new(root)?;
    let mut journal = Recorder::create(&options.journal, options.seq_file.as_deref())?;
    record_tree(&mut nodes, &mut journal)?;
    let mirror = Mirror::new(nodes, journal);
    let options_of_mount = [
        MountOption::FSName("pinstripe-lab".into()),
        MountOption::Subtype("forgetful".into()),
        MountOption::DefaultPermissions,
        MountOption::AllowOther,
        MountOption::Dev,
        MountOption::Suid,
    ];
    let session = fuser::spawn_mount2(mirror, &options.mountpoint, &options_of_mount)?;
    Ok(Mounted { session: Some(session) })
}

/// Journals what is there at the start, as durable.
fn record_tree(nodes: &mut Nodes, journal: &mut Recorder) -> io::Result<()> {
    let root = nodes.open(ROOT, OFlags::RDONLY | OFlags::DIRECTORY)?;
    let stat = rfs::fstat(&root)?;
    let (mode, uid, gid) = (Some(stat.st_mode & 0o7777), Some(stat.st_uid), Some(stat.st_gid));
    journal.add(&Entry::Attr { id: ROOT, mode, uid, gid }, &[])?;
    record_dir(nodes, journal, ROOT, root)?;
    journal.add(&Entry::SyncAll, &[])
}

fn record_dir(
    nodes: &mut Nodes,
    journal: &mut Recorder,
    parent: u64,
    dir: OwnedFd,
) -> io::Result<()> {
    for entry in rfs::Dir::read_from(&dir)? {
        let entry = entry?;
        let name = entry.file_name();
        if name == c"." || name == c".." {
            continue;
        }
        let stat = rfs::statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW)?;
        let (id, new) = nodes.id(stat.st_ino);
        if !new {
            journal.add(&Entry::Link { id, parent, name: name.to_bytes().into() }, &[])?;
            continue;
        }
        let kind = FileType::from_raw_mode(stat.st_mode);
        let target = match kind.is_symlink() {
            true => rfs::readlinkat(&dir, name, Vec::new())?.into_bytes(),
            false => Vec::new(),
        };
        let (mode, uid, gid) = (stat.st_mode, stat.st_uid, stat.st_gid);
        let (name_bytes, rdev) = (name.to_bytes().to_vec(), stat.st_rdev as u32);
        let made = Entry::Create { parent, name: name_bytes, id, mode, uid, gid, rdev, target };
        journal.add(&made, &[])?;
        if kind.is_dir() || kind.is_file() {
            let file = rfs::openat(&dir, name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
            record_xattrs(journal, id, file.as_fd())?;
            match kind.is_dir() {
                true => record_dir(nodes, journal, id, file)?,
                false => record_data(journal, id, file.as_fd(), stat.st_size as u64)?,
            }
        }
    }
    Ok(())
}

fn record_xattrs(journal: &mut Recorder, id: u64, file: BorrowedFd<'_>) -> io::Result<()> {
    let mut room = vec![0u8; 70_000];
    let Ok(len) = rfs::flistxattr(file, &mut room[..]) else { return Ok(()) };
    let mut value = vec![0u8; 70_000];
    for name in room[..len].split(|&b| b == 0).filter(|n| !n.is_empty()) {
        let len = rfs::fgetxattr(file, OsStr::from_bytes(name), &mut value[..])?;
        let (name, value) = (name.to_vec(), value[..len].to_vec());
        journal.add(&Entry::SetXattr { id, name, value }, &[])?;
    }
    Ok(())
}

fn record_data(journal: &mut Recorder, id: u64, file: BorrowedFd<'_>, size: u64) -> io::Result<()> {
    let mut at = 0;
    while at < size {
        let Ok(data) = sys::lseek(file, at as i64, libc::SEEK_DATA) else { break };
        let hole = sys::lseek(file, data, libc::SEEK_HOLE).map_err(io::Error::from_raw_os_error)?;
        at = data as u64;
        while at < hole as u64 {
            let mut piece = vec![0; PIECE.min((hole as u64 - at) as usize)];
            let count = rustix::io::pread(file, &mut piece[..], at)?;
            if count == 0 {
                break;
            }
            let entry = Entry::Write { id, off: at, len: count as u32, durable: true };
            journal.add(&entry, &piece[..count])?;
            at += count as u64;
        }
        at = hole as u64;
    }
    journal.add(&Entry::Truncate { id, size }, &[])
}
