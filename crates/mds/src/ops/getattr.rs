//! GetAttr and ReadLink.

use bytes::Bytes;
use proto::mds::Res;
use proto::{Errno, Fid, FileKind};

use crate::namespace::Run;
use crate::txn::Step;

pub(super) fn run(r: &mut Run<'_>, fid: Fid) -> Step<Res> {
    let fid = r.fid(fid)?;
    let attr = r.txn.inode(fid)?.attr(fid);
    r.current = fid;
    Ok(Res::Attr { attr })
}

pub(super) fn readlink(r: &mut Run<'_>, fid: Fid) -> Step<Res> {
    let fid = r.fid(fid)?;
    let inode = r.txn.inode(fid)?;
    if inode.kind() != FileKind::Symlink {
        return Err(Errno::EINVAL.into());
    }
    Ok(Res::Data { data: Bytes::copy_from_slice(&inode.target) })
}
