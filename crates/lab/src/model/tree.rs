//! A whole tree as comparable data, and the comparison. Not compared: directory sizes and link
//! counts, block counts, inode numbers (only which names share one), readdir order, and times that
//! nobody set (times near the present must only be near the present on both sides).

use super::op::{Raw, StatView};
use crate::sys;
use rustix::fs::{self as rfs, AtFlags, CWD, FileType, Mode, OFlags};
use rustix::io::Errno;
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Files above this are read by data segments only.
const READ_WHOLE: u64 = 16 << 20;
/// mtimes closer to now than this were not set by the generator (which stays well away).
const NEAR_NOW_SECONDS: i64 = 3 * 86_400;

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Entry {
    pub stat: StatView,
    /// First path (in order) with the same inode, for hard links.
    pub same_as: Option<Raw>,
    /// Seconds and nanoseconds, or None when near the present.
    pub mtime: Option<(i64, i64)>,
    pub content: Option<Result<u32, i32>>,
    pub target: Option<Raw>,
    pub xattrs: BTreeMap<Raw, Result<Raw, i32>>,
    pub unreadable: Option<i32>,
}

impl Entry {
    /// A name that is listed but cannot be looked at.
    fn unreadable(error: Errno) -> Entry {
        let (mode, uid, gid) = (0, 0, 0);
        let stat = StatView { mode, uid, gid, nlink: None, size: None, rdev: None, btime: false };
        let (xattrs, unreadable) = (BTreeMap::new(), Some(error.raw_os_error()));
        Entry { stat, same_as: None, mtime: None, content: None, target: None, xattrs, unreadable }
    }
}

pub type Tree = BTreeMap<Raw, Entry>;

/// Extended attributes a file system may show of itself (layouts, labels); they are no user data.
pub fn is_own_attribute(name: &[u8]) -> bool {
    let security =
        name.starts_with(b"security.") && name != b"security.lab" && name != b"security.capability";
    security
        || name.starts_with(b"lustre.")
        || name.starts_with(b"pinstripe.")
        || [&b"trusted.lov"[..], b"trusted.lma", b"trusted.link"].contains(&name)
}

/// The names of a listxattr answer that count, sorted.
pub fn xattr_names(list: &[u8]) -> Vec<(Raw, u8)> {
    let mut names: Vec<_> = list
        .split(|&b| b == 0)
        .filter(|n| !n.is_empty() && !is_own_attribute(n))
        .map(|n| (Raw::new(n), 0))
        .collect();
    names.sort();
    names
}

/// Reads the tree under `top`, `top` itself as ".".
pub fn read(top: &Path) -> io::Result<Tree> {
    let dir = rfs::openat(CWD, top, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let mut walk = Walk { tree: Tree::new(), inodes: HashMap::new() };
    let now = rfs::fstat(&dir).map(|_| now_seconds())?;
    walk.dir(dir.as_fd(), &Raw::new("."), now)?;
    Ok(walk.tree)
}

fn now_seconds() -> i64 {
    rustix::time::clock_gettime(rustix::time::ClockId::Realtime).tv_sec
}

struct Walk {
    tree: Tree,
    inodes: HashMap<u64, Raw>,
}

impl Walk {
    fn dir(&mut self, dir: BorrowedFd<'_>, path: &Raw, now: i64) -> io::Result<()> {
        let mut names = Vec::new();
        // Not Dir::read_from, which needs the right to search.
        for entry in rfs::Dir::new(dir.try_clone_to_owned()?)? {
            let name = entry?.file_name().to_bytes().to_vec();
            if name != b"." && name != b".." {
                names.push(name);
            }
        }
        names.sort();
        for name in names {
            let full = Raw([path.0.as_slice(), b"/", name.as_slice()].concat());
            self.entry(dir, &Raw(name), full, now)?;
        }
        Ok(())
    }

    fn entry(&mut self, dir: BorrowedFd<'_>, name: &Raw, full: Raw, now: i64) -> io::Result<()> {
        let mask = rfs::StatxFlags::BASIC_STATS | rfs::StatxFlags::BTIME;
        let stat = match rfs::statx(dir, name.c(), AtFlags::SYMLINK_NOFOLLOW, mask) {
            Ok(stat) => stat,
            Err(e) => {
                self.tree.insert(full, Entry::unreadable(e));
                return Ok(());
            }
        };
        let kind = FileType::from_raw_mode(u32::from(stat.stx_mode));
        let near = (stat.stx_mtime.tv_sec - now).abs() < NEAR_NOW_SECONDS;
        let first = self.inodes.entry(stat.stx_ino).or_insert_with(|| full.clone());
        let mut entry = Entry {
            stat: super::apply::view(&stat),
            same_as: (*first != full).then(|| first.clone()),
            mtime: (!near).then_some((stat.stx_mtime.tv_sec, i64::from(stat.stx_mtime.tv_nsec))),
            content: kind.is_file().then(|| content(dir, name).map_err(Errno::raw_os_error)),
            target: None,
            xattrs: attributes(dir, name),
            unreadable: None,
        };
        if kind.is_symlink() {
            let target = rfs::readlinkat(dir, name.c(), Vec::new())?;
            entry.target = Some(Raw(target.into_bytes()));
        }
        let mut below = None;
        if kind.is_dir() {
            match open_dir(dir, name) {
                Ok(fd) => below = Some(fd),
                Err(e) => entry.unreadable = Some(e.raw_os_error()),
            }
        }
        self.tree.insert(full.clone(), entry);
        below.map_or(Ok(()), |fd| self.dir(fd.as_fd(), &full, now))
    }
}

fn open_dir(dir: BorrowedFd<'_>, name: &Raw) -> Result<OwnedFd, Errno> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rfs::openat(dir, name.c(), flags, Mode::empty())
}

/// CRC over the non-zero 4 KiB blocks with their positions, so that holes and zeros are equal.
fn content(dir: BorrowedFd<'_>, name: &Raw) -> Result<u32, Errno> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file = rfs::openat(dir, name.c(), flags, Mode::empty())?;
    let size = rfs::fstat(&file)?.st_size as u64;
    let mut crc = 0;
    let mut at = 0;
    while at < size {
        let mut end = size;
        if size > READ_WHOLE {
            let Ok(data) = sys::lseek(file.as_fd(), at as i64, libc::SEEK_DATA) else { break };
            at = data as u64 & !4095;
            let hole = sys::lseek(file.as_fd(), data, libc::SEEK_HOLE)
                .map_err(Errno::from_raw_os_error)? as u64;
            // Where exactly a hole begins is the file system's choice; what is read is not.
            end = hole.next_multiple_of(4096).min(size);
        }
        crc = segment(file.as_fd(), at, end, crc)?;
        at = end.max(at + 1).next_multiple_of(4096);
    }
    Ok(crc)
}

fn segment(file: BorrowedFd<'_>, from: u64, to: u64, mut crc: u32) -> Result<u32, Errno> {
    let mut buffer = vec![0u8; 256 << 10];
    let mut at = from;
    while at < to {
        // Not beyond the segment: what follows is counted with its own.
        let want = ((to.next_multiple_of(4096) - at) as usize).min(buffer.len());
        let mut got = 0;
        while got < want {
            match rustix::io::pread(file, &mut buffer[got..want], at + got as u64)? {
                0 => break,
                n => got += n,
            }
        }
        for (i, block) in buffer[..got].chunks(4096).enumerate() {
            if block.iter().any(|&b| b != 0) {
                let pos = at + i as u64 * 4096;
                crc = crc32c::crc32c_append(crc, &pos.to_le_bytes());
                crc = crc32c::crc32c_append(crc, block);
            }
        }
        if got < want {
            break;
        }
        at += got as u64;
    }
    Ok(crc)
}

fn attributes(dir: BorrowedFd<'_>, name: &Raw) -> BTreeMap<Raw, Result<Raw, i32>> {
    use std::os::fd::AsRawFd;
    let mut path = format!("/proc/self/fd/{}/", dir.as_raw_fd()).into_bytes();
    path.extend_from_slice(&name.0);
    let path = Raw(path).c();
    let mut room = vec![0u8; 70_000];
    let names = match rfs::llistxattr(path.as_c_str(), &mut room[..]) {
        Ok(len) => xattr_names(&room[..len]),
        Err(_) => return BTreeMap::new(),
    };
    let mut out = BTreeMap::new();
    for (name, _) in names {
        let value = rfs::lgetxattr(path.as_c_str(), name.c(), &mut room[..])
            .map(|len| Raw::new(&room[..len]))
            .map_err(Errno::raw_os_error);
        out.insert(name, value);
    }
    out
}

/// The first differences of two trees in words, at most `limit` of them.
pub fn compare(under_test: &Tree, reference: &Tree, limit: usize) -> Vec<String> {
    let mut out = Vec::new();
    for (path, want) in reference {
        match under_test.get(path) {
            None => out.push(format!("{path:?} is missing")),
            Some(have) if have != want => {
                out.push(format!("{path:?} differs:\n    has  {have:?}\n    want {want:?}"));
            }
            Some(_) => {}
        }
    }
    for path in under_test.keys().filter(|p| !reference.contains_key(*p)) {
        out.push(format!("{path:?} should not be there"));
    }
    out.truncate(limit);
    out
}

/// Removes a tree whatever the modes in it (as far as the caller may).
pub fn remove(top: &Path) -> io::Result<()> {
    let (parent, name) = match (top.parent(), top.file_name()) {
        (Some(parent), Some(name)) => (parent, Raw::new(name.as_bytes())),
        _ => return Err(io::Error::other("no parent")),
    };
    let parent = rfs::openat(CWD, parent, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    remove_at(parent.as_fd(), &name)
}

fn remove_at(dir: BorrowedFd<'_>, name: &Raw) -> io::Result<()> {
    match rfs::unlinkat(dir, name.c(), AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => return Ok(()),
        Err(Errno::ISDIR | Errno::PERM) => {}
        Err(e) => return Err(e.into()),
    }
    let _ = rfs::chmodat(dir, name.c(), Mode::from_raw_mode(0o700), AtFlags::empty());
    let below = open_dir(dir, name)?;
    let mut names = Vec::new();
    for entry in rfs::Dir::read_from(&below)? {
        names.push(Raw::new(entry?.file_name().to_bytes()));
    }
    for inner in names.iter().filter(|n| n.0 != b"." && n.0 != b"..") {
        remove_at(below.as_fd(), inner)?;
    }
    rfs::unlinkat(dir, name.c(), AtFlags::REMOVEDIR)?;
    Ok(())
}
