//! Permissions: mode and POSIX access control lists, as `cp --preserve=mode` carries them over.

use super::place::Place;
use rustix::io::Errno;
use std::ffi::CStr;

pub const ACCESS: &CStr = c"system.posix_acl_access";
pub const DEFAULT: &CStr = c"system.posix_acl_default";

/// Set-user-ID, set-group-ID, sticky: not part of a list.
const SPECIAL: u32 = 0o7000;

/// What could not be done.
pub enum Failed {
    /// The list of the source could not be read.
    Read(Errno),
    Write(Errno),
}

/// The file system has no lists, or this file has none.
fn none(e: Errno) -> bool {
    matches!(e, Errno::NODATA | Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL)
}

/// Gives `dst` the mode and the lists of `src`; what it inherited from its directory goes.
pub fn copy(src: Place, dst: Place, perm: u32, dir: bool) -> Result<(), Failed> {
    let access = read(src, ACCESS)?;
    let default = if dir { read(src, DEFAULT)? } else { None };
    set(dst, perm, access.as_deref()).map_err(Failed::Write)?;
    if dir { put_default(dst, default.as_deref()) } else { Ok(()) }
}

/// Gives `dst` these permissions and no list.
pub fn plain(dst: Place, perm: u32) -> Result<(), Errno> {
    set(dst, perm, None)
}

/// As a list, where there can be one: unlike chmod(2) it leaves a set-group-ID bit that a directory has
/// inherited.
fn set(dst: Place, perm: u32, list: Option<&[u8]>) -> Result<(), Errno> {
    if perm & SPECIAL != 0 {
        dst.set_mode(perm)?;
    }
    match dst.set_xattr(ACCESS, list.unwrap_or(&minimal(perm))) {
        // Nothing but the mode is to be kept, and that can be.
        Err(e) if none(e) && list.is_none() => dst.set_mode(perm),
        result => result,
    }
}

/// The list that says what nine bits of permissions say: version 2, then tag, permissions and no
/// identifier for owner, group and others (acl(5), linux/posix_acl_xattr.h).
fn minimal(perm: u32) -> [u8; 28] {
    let mut list = [0xff; 28];
    list[..4].copy_from_slice(&2u32.to_le_bytes());
    for (entry, (tag, shift)) in list[4..].chunks_exact_mut(8).zip([(1u16, 6), (4, 3), (32, 0)]) {
        entry[..2].copy_from_slice(&tag.to_le_bytes());
        entry[2..4].copy_from_slice(&((perm >> shift & 7) as u16).to_le_bytes());
    }
    list
}

fn read(src: Place, name: &CStr) -> Result<Option<Vec<u8>>, Failed> {
    match src.xattr(name) {
        Ok(list) => Ok(Some(list)),
        Err(e) if none(e) => Ok(None),
        Err(e) => Err(Failed::Read(e)),
    }
}

fn put_default(dst: Place, list: Option<&[u8]>) -> Result<(), Failed> {
    let result = match list {
        Some(list) => dst.set_xattr(DEFAULT, list),
        None => match dst.remove_xattr(DEFAULT) {
            Err(e) if none(e) => Ok(()),
            result => result,
        },
    };
    result.map_err(Failed::Write)
}
