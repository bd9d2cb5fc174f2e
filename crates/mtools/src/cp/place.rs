//! A file of the source or the destination, by descriptor where one is open, else by name: system calls
//! on attributes, none of which follows a symbolic link, but for [`Place::Behind`].

use rustix::fs::{AtFlags, CWD, Gid, Mode, Timestamps, Uid, XattrFlags};
use rustix::io::{Errno, Result};
use std::ffi::{CStr, CString};
use std::fs::File;
use std::path::Path;

/// Bytes for the names or a value of extended attributes asked for at first.
const FIRST_ROOM: usize = 1024;
/// Linux' own limits are 64 KiB each; a growing attribute is asked for again until then.
const MOST_ROOM: usize = 1 << 20;

#[derive(Clone, Copy)]
pub enum Place<'a> {
    Open(&'a File, &'a Path),
    Name(&'a Path),
    /// To be read from only: what the name leads to.
    Behind(&'a Path),
}

impl<'a> Place<'a> {
    /// A source that is no symbolic link, or is copied as what it is.
    pub fn source(path: &'a Path, link: bool) -> Self {
        if link { Place::Name(path) } else { Place::Behind(path) }
    }

    pub fn path(&self) -> &'a Path {
        match self {
            Place::Open(_, path) | Place::Name(path) | Place::Behind(path) => path,
        }
    }

    pub fn set_times(&self, times: &Timestamps) -> Result<()> {
        match self {
            Place::Open(file, _) => rustix::fs::futimens(file, times),
            Place::Name(path) | Place::Behind(path) => {
                rustix::fs::utimensat(CWD, *path, times, AtFlags::SYMLINK_NOFOLLOW)
            }
        }
    }

    pub fn set_owner(&self, uid: Option<u32>, gid: Option<u32>) -> Result<()> {
        let (uid, gid) = (uid.map(Uid::from_raw), gid.map(Gid::from_raw));
        match self {
            Place::Open(file, _) => rustix::fs::fchown(file, uid, gid),
            Place::Name(path) | Place::Behind(path) => {
                rustix::fs::chownat(CWD, *path, uid, gid, AtFlags::SYMLINK_NOFOLLOW)
            }
        }
    }

    /// Never for a symbolic link, which has no permissions of its own.
    pub fn set_mode(&self, perm: u32) -> Result<()> {
        let mode = Mode::from_raw_mode(perm);
        match self {
            Place::Open(file, _) => rustix::fs::fchmod(file, mode),
            Place::Name(path) | Place::Behind(path) => {
                rustix::fs::chmodat(CWD, *path, mode, AtFlags::empty())
            }
        }
    }

    pub fn xattr_names(&self) -> Result<Vec<CString>> {
        let all = grow(|room| match self {
            Place::Open(file, _) => rustix::fs::flistxattr(file, room),
            Place::Name(path) => rustix::fs::llistxattr(*path, room),
            Place::Behind(path) => rustix::fs::listxattr(*path, room),
        })?;
        Ok(all
            .split(|b| *b == 0)
            .filter(|name| !name.is_empty())
            .filter_map(|name| CString::new(name).ok())
            .collect())
    }

    pub fn xattr(&self, name: &CStr) -> Result<Vec<u8>> {
        grow(|room| match self {
            Place::Open(file, _) => rustix::fs::fgetxattr(file, name, room),
            Place::Name(path) => rustix::fs::lgetxattr(*path, name, room),
            Place::Behind(path) => rustix::fs::getxattr(*path, name, room),
        })
    }

    pub fn set_xattr(&self, name: &CStr, value: &[u8]) -> Result<()> {
        match self {
            Place::Open(file, _) => rustix::fs::fsetxattr(file, name, value, XattrFlags::empty()),
            Place::Name(path) | Place::Behind(path) => {
                rustix::fs::lsetxattr(*path, name, value, XattrFlags::empty())
            }
        }
    }

    pub fn remove_xattr(&self, name: &CStr) -> Result<()> {
        match self {
            Place::Open(file, _) => rustix::fs::fremovexattr(file, name),
            Place::Name(path) | Place::Behind(path) => rustix::fs::lremovexattr(*path, name),
        }
    }
}

fn grow(mut ask: impl FnMut(&mut [u8]) -> Result<usize>) -> Result<Vec<u8>> {
    let mut room = FIRST_ROOM;
    loop {
        let mut buffer = vec![0; room];
        match ask(&mut buffer) {
            Ok(len) => {
                buffer.truncate(len);
                return Ok(buffer);
            }
            Err(Errno::RANGE) if room < MOST_ROOM => room *= 8,
            Err(e) => return Err(e),
        }
    }
}
