//! Extended attributes; ACLs are kept in step with the mode.

use bytes::Bytes;
use proto::acl::{self, Acl};
use proto::attr::*;
use proto::mds::Res;
use proto::{Errno, Fid, FileKind, XATTR_NAME_MAX, XATTR_SIZE_MAX};

use crate::namespace::Run;
use crate::record::{F_DEFAULT_ACL, Xattr, Xattrs};
use crate::txn::Step;

/// Bytes of all attributes of one inode; above it ENOSPC, as on ext4.
pub(crate) const MAX_TOTAL: usize = 256 << 10;
/// `XATTR_CREATE` of setxattr(2).
const CREATE: u32 = 1;
/// `XATTR_REPLACE` of setxattr(2).
const REPLACE: u32 = 2;

fn check_name(name: &[u8]) -> Result<(), Errno> {
    if name.is_empty() || name.len() > XATTR_NAME_MAX {
        return Err(Errno::ERANGE);
    }
    let spaces: [&[u8]; 3] = [b"user.", b"trusted.", b"security."];
    if name == acl::ACCESS || name == acl::DEFAULT {
        return Ok(());
    }
    match spaces.iter().find_map(|s| name.strip_prefix(*s)) {
        None => Err(Errno::EOPNOTSUPP),
        Some(b"") => Err(Errno::EINVAL),
        Some(_) => Ok(()),
    }
}

pub(super) fn get(r: &mut Run<'_>, fid: Fid, name: &[u8]) -> Step<Res> {
    check_name(name)?;
    let fid = r.fid(fid)?;
    let inode = r.txn.inode(fid)?;
    let xattrs = r.txn.xattrs(fid, &inode)?;
    let x = xattrs.list.0.iter().find(|x| x.name == name).ok_or(Errno::ENODATA)?;
    Ok(Res::Data { data: x.value.clone() })
}

pub(super) fn list(r: &mut Run<'_>, fid: Fid) -> Step<Res> {
    let fid = r.fid(fid)?;
    let inode = r.txn.inode(fid)?;
    let mut names = Vec::new();
    for x in &r.txn.xattrs(fid, &inode)?.list.0 {
        names.extend(&x.name);
        names.push(0);
    }
    Ok(Res::Data { data: names.into() })
}

pub(super) fn set(r: &mut Run<'_>, fid: Fid, name: &[u8], value: &Bytes, flags: u32) -> Step<Res> {
    check_name(name)?;
    if value.len() > XATTR_SIZE_MAX {
        return Err(Errno::E2BIG.into());
    }
    let fid = r.fid(fid)?;
    let inode = r.txn.inode(fid)?;
    let mut xattrs = r.txn.xattrs(fid, &inode)?;
    let found = xattrs.list.0.binary_search_by(|x| x.name.as_slice().cmp(name));
    match found {
        Ok(_) if flags & CREATE != 0 => return Err(Errno::EEXIST.into()),
        Err(_) if flags & REPLACE != 0 => return Err(Errno::ENODATA.into()),
        _ => {}
    }
    let value = match name {
        acl::ACCESS | acl::DEFAULT => set_acl(r, fid, name == acl::DEFAULT, value)?,
        _ => Some(value.clone()),
    };
    match (found, value) {
        (Ok(at), Some(value)) => xattrs.list.0[at].value = value,
        (Err(at), Some(value)) => xattrs.list.0.insert(at, Xattr { name: name.to_vec(), value }),
        (Ok(at), None) => drop(xattrs.list.0.remove(at)),
        (Err(_), None) => {}
    }
    finish(r, fid, &xattrs)
}

pub(super) fn remove(r: &mut Run<'_>, fid: Fid, name: &[u8]) -> Step<Res> {
    check_name(name)?;
    let fid = r.fid(fid)?;
    let inode = r.txn.inode(fid)?;
    let mut xattrs = r.txn.xattrs(fid, &inode)?;
    let acl = name == acl::ACCESS || name == acl::DEFAULT;
    match xattrs.list.0.iter().position(|x| x.name == name) {
        Some(at) => drop(xattrs.list.0.remove(at)),
        // To have no ACL is what was asked for.
        None if acl => return Ok(Res::Attr { attr: inode.attr(fid) }),
        None => return Err(Errno::ENODATA.into()),
    }
    let i = r.txn.edit(fid)?;
    match name {
        acl::ACCESS => i.flags &= !A_HAS_ACL,
        acl::DEFAULT => i.flags &= !F_DEFAULT_ACL,
        _ => {}
    }
    finish(r, fid, &xattrs)
}

fn finish(r: &mut Run<'_>, fid: Fid, xattrs: &Xattrs) -> Step<Res> {
    let total: usize = xattrs.list.0.iter().map(|x| x.name.len() + x.value.len() + 8).sum();
    if total > MAX_TOTAL {
        return Err(Errno::ENOSPC.into());
    }
    r.txn.set_xattrs(fid, xattrs)?;
    let now = r.txn.now;
    let i = r.txn.edit(fid)?;
    i.touch(now);
    Ok(Res::Attr { attr: i.attr(fid) })
}

/// Checks an ACL and brings the mode in step; what is to be stored, if anything.
fn set_acl(r: &mut Run<'_>, fid: Fid, default: bool, value: &Bytes) -> Step<Option<Bytes>> {
    let i = r.txn.edit(fid)?;
    if i.kind() == FileKind::Symlink {
        return Err(Errno::EOPNOTSUPP.into());
    }
    let acl = Acl::decode(value)?;
    if default {
        if !i.is_dir() {
            return Err(Errno::EACCES.into());
        }
        i.flags &= !F_DEFAULT_ACL;
        i.flags |= if acl.is_some() { F_DEFAULT_ACL } else { 0 };
        return Ok(acl.map(|_| value.clone()));
    }
    i.flags &= !A_HAS_ACL;
    let Some(acl) = acl else { return Ok(None) };
    i.mode = (i.mode & !0o777) | acl.mode();
    if acl.is_minimal() {
        return Ok(None);
    }
    i.flags |= A_HAS_ACL;
    Ok(Some(value.clone()))
}
