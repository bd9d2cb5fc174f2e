//! Random sources and destinations: all kinds of files, odd names, holes, links, lists, attributes,
//! directories that may not be written or read.

use crate::random::Random;
use anyhow::Result;
use rustix::fs::{AtFlags, CWD, FileType, Mode, Timespec, Timestamps, XattrFlags};
use rustix::fs::{mknodat, setxattr, utimensat};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, PermissionsExt, chown, lchown, symlink};
use std::path::{Path, PathBuf};

/// Names both sides use, so that they meet.
pub const NAMES: &[&[u8]] =
    &[b"a", b"b", b"c", b"d", b"e", b"it's", b"x y", b"n\nl", b"\xc3\xa4", b"-v", b"#"];

/// Files in a source.
const FILES: usize = 22;
/// Files in a destination.
const THERE: usize = 7;

/// Gives a file to the user whose cp is run.
pub fn give(path: &Path, user: bool) -> Result<()> {
    if user {
        lchown(path, Some(super::PLAIN_USER), Some(super::PLAIN_USER))?;
    }
    Ok(())
}

/// Makes the source tree.
pub fn source(root: &Path, random: &mut Random, user: bool) -> Result<()> {
    fill(root, random, user, FILES, true)
}

/// Makes what is at the destination before.
pub fn destination(root: &Path, random: &mut Random, user: bool) -> Result<()> {
    give(root, user)?;
    let count = random.index(THERE);
    fill(&root.join("dst"), random, user, count, false)
}

fn fill(root: &Path, random: &mut Random, user: bool, count: usize, full: bool) -> Result<()> {
    std::fs::create_dir(root)?;
    let mut dirs = vec![root.to_path_buf()];
    let mut files: Vec<PathBuf> = Vec::new();
    for _ in 0..count {
        let dir = dirs[random.index(dirs.len())].clone();
        let path = dir.join(OsStr::from_bytes(NAMES[random.index(NAMES.len())]));
        if path.symlink_metadata().is_ok() {
            continue;
        }
        match random.below(20) {
            0..4 => {
                std::fs::create_dir(&path)?;
                dirs.push(path);
            }
            4..7 => link(&path, random)?,
            7..9 if !files.is_empty() => {
                std::fs::hard_link(&files[random.index(files.len())], &path)?
            }
            9 if full => mknodat(CWD, &path, FileType::Fifo, Mode::from_raw_mode(0o640), 0)?,
            10 if full && !user => {
                let null = rustix::fs::makedev(1, 3);
                mknodat(CWD, &path, FileType::CharacterDevice, Mode::from_raw_mode(0o666), null)?;
            }
            _ => {
                file(&path, random)?;
                files.push(path);
            }
        }
    }
    for path in files.iter().chain(dirs.iter().rev()) {
        decorate(path, random, user)?;
    }
    Ok(())
}

fn link(path: &Path, random: &mut Random) -> Result<()> {
    let name = OsStr::from_bytes(NAMES[random.index(NAMES.len())]);
    match random.below(5) {
        0 => symlink("nowhere", path)?,
        1 => symlink("..", path)?,
        2 => symlink(path.file_name().unwrap_or_default(), path)?,
        _ => symlink(name, path)?,
    }
    Ok(())
}

/// Small, empty, with holes in front, between and behind, or larger than a chunk of the copy.
fn file(path: &Path, random: &mut Random) -> Result<()> {
    let file = std::fs::File::create(path)?;
    match random.below(8) {
        0 => {}
        1 => {
            let size = (random.below(6) + 1) * 65_536 + random.below(3) * 77;
            for _ in 0..random.below(4) {
                let at = random.below(size);
                let length = random.index(20_000);
                file.write_all_at(&random.bytes(length), at)?;
            }
            file.set_len(size.max(file.metadata()?.len()))?;
        }
        2 => {
            let length = 70_000 + random.index(200_000);
            file.write_all_at(&random.bytes(length), 0)?;
        }
        3 => file.write_all_at(&[0; 20_000], 0)?,
        _ => {
            let length = random.index(9_000);
            file.write_all_at(&random.bytes(length), 0)?;
        }
    }
    Ok(())
}

fn decorate(path: &Path, random: &mut Random, user: bool) -> Result<()> {
    let dir = path.is_dir();
    if random.below(6) == 0 {
        setxattr(path, "user.note", &random.bytes(9), XattrFlags::empty())?;
    }
    if random.below(8) == 0 {
        setxattr(path, "system.posix_acl_access", &list(random), XattrFlags::empty())?;
        if dir {
            setxattr(path, "system.posix_acl_default", &list(random), XattrFlags::empty())?;
        }
    }
    match random.below(6) {
        // Another's, which the user may or may not read.
        0 => chown(path, Some(1234), Some(2345))?,
        1 => chown(path, None, Some(2345))?,
        _ => give(path, user)?,
    }
    if random.below(3) == 0 {
        let modes: &[u32] = if dir {
            &[0o755, 0o700, 0o500, 0o555, 0o2775, 0o1777, 0o711]
        } else {
            &[0o644, 0o600, 0o400, 0o4755, 0o2755, 0o6777, 0o000, 0o666]
        };
        std::fs::set_permissions(
            path,
            std::fs::Permissions::from_mode(modes[random.index(modes.len())]),
        )?;
    }
    let seconds = 1_000_000_000 + random.below(4) as i64 * 1000;
    let when = Timespec { tv_sec: seconds, tv_nsec: random.below(2) as i64 * 123_456_789 };
    let times = Timestamps { last_access: when, last_modification: when };
    utimensat(CWD, path, &times, AtFlags::empty())?;
    Ok(())
}

/// An access control list: owner, a named user, group, mask, others.
fn list(random: &mut Random) -> Vec<u8> {
    const NONE: u32 = u32::MAX;
    let named = random.below(8) as u16;
    let mut bytes = 2u32.to_le_bytes().to_vec();
    for (tag, perm, id) in
        [(1u16, 7u16, NONE), (2, named, 4321), (4, 5, NONE), (16, 5 | named, NONE), (32, 4, NONE)]
    {
        bytes.extend_from_slice(&tag.to_le_bytes());
        bytes.extend_from_slice(&perm.to_le_bytes());
        bytes.extend_from_slice(&id.to_le_bytes());
    }
    bytes
}
