//! SetAttr: mode, owner, size, times. Whether the caller may is decided by its kernel.

use bytes::Bytes;
use proto::attr::*;
use proto::mds::Res;
use proto::{Errno, Fid, FileKind, MAX_FILE_SIZE};

use crate::keys;
use crate::namespace::Run;
use crate::txn::Step;
use proto::acl::{self, Acl};

pub(super) fn run(r: &mut Run<'_>, fid: Fid, set: &SetAttr) -> Step<Res> {
    let fid = r.fid(fid)?;
    let old = r.txn.inode(fid)?;
    // Nothing at all is asked by chown(-1, -1), which moves ctime.
    let asked = set.valid == 0 || set.valid & !(S_KILL_SUID | S_OPENED) != 0;
    let kills = set.valid & S_KILL_SUID != 0 && kill_suid(old.mode) != old.mode;
    if !asked && !kills {
        return Ok(Res::Attr { attr: old.attr(fid) });
    }
    if set.valid & S_SIZE != 0 {
        resize(r, fid, set.size)?;
    }
    if set.valid & S_MODE != 0 {
        follow_acl(r, fid, set.mode)?;
    }
    let now = r.txn.now;
    let i = r.txn.edit(fid)?;
    if set.valid & S_MODE != 0 {
        i.mode = (i.mode & !0o7777) | (set.mode & 0o7777);
    }
    if set.valid & S_UID != 0 {
        i.uid = set.uid;
    }
    if set.valid & S_GID != 0 {
        i.gid = set.gid;
    }
    if set.valid & S_KILL_SUID != 0 {
        i.mode = kill_suid(i.mode);
    }
    if set.valid & S_ATIME != 0 {
        i.atime = set.atime;
    }
    if set.valid & S_ATIME_NOW != 0 {
        i.atime = now;
    }
    if set.valid & S_MTIME != 0 {
        i.mtime = set.mtime;
    }
    if set.valid & S_MTIME_NOW != 0 || (set.valid & S_SIZE != 0 && set.valid & S_MTIME == 0) {
        i.mtime = now;
    }
    i.touch(now);
    if set.valid & S_CTIME != 0 {
        i.ctime = set.ctime;
    }
    Ok(Res::Attr { attr: i.attr(fid) })
}

/// Mode bits a write or a change of owner takes away.
pub(crate) fn kill_suid(mode: u32) -> u32 {
    let mode = mode & !0o4000;
    // Without group execution the bit means mandatory locking and stays.
    if mode & 0o010 != 0 { mode & !0o2000 } else { mode }
}

fn resize(r: &mut Run<'_>, fid: Fid, size: u64) -> Step<()> {
    let i = r.txn.inode(fid)?;
    match i.kind() {
        FileKind::File => {}
        FileKind::Dir => return Err(Errno::EISDIR.into()),
        _ => return Err(Errno::EINVAL.into()),
    }
    if size > MAX_FILE_SIZE {
        return Err(Errno::EFBIG.into());
    }
    if i.flags & A_INLINE != 0 && r.moved_elsewhere(fid) {
        return Err(Errno::EAGAIN.into());
    }
    if i.flags & A_INLINE != 0 && i.blocks > 0 && size < i.size {
        let data = r.txn.inline(fid)?;
        if (size as usize) < data.len() {
            let left = data.slice(..size as usize);
            set_inline(r, fid, left)?;
        }
    }
    r.txn.edit(fid)?.size = size;
    Ok(())
}

/// Stores inline data and its blocks; none leaves no record.
pub(super) fn set_inline(r: &mut Run<'_>, fid: Fid, data: Bytes) -> Step<()> {
    let blocks = data.len().div_ceil(512) as u64;
    let value = (!data.is_empty()).then_some(data);
    r.txn.set_blob(keys::of(keys::INLINE, fid), value);
    r.txn.edit(fid)?.blocks = blocks;
    Ok(())
}

/// A chmod changes the access ACL with the mode.
fn follow_acl(r: &mut Run<'_>, fid: Fid, mode: u32) -> Step<()> {
    let i = r.txn.inode(fid)?;
    if i.flags & A_HAS_ACL == 0 {
        return Ok(());
    }
    let mut xattrs = r.txn.xattrs(fid, &i)?;
    if let Some(x) = xattrs.list.0.iter_mut().find(|x| x.name == acl::ACCESS)
        && let Some(mut acl) = Acl::decode(&x.value)?
    {
        acl.chmod(mode);
        x.value = Bytes::from(acl.encode());
        r.txn.set_xattrs(fid, &xattrs)?;
    }
    Ok(())
}
