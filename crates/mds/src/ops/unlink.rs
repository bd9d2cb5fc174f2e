//! Unlink and rmdir.

use proto::mds::Res;
use proto::{Errno, Fid, FileKind};

use super::check_name;
use crate::namespace::Run;
use crate::txn::Step;

pub(super) fn run(r: &mut Run<'_>, dir: Fid, name: &[u8], rmdir: bool) -> Step<Res> {
    check_name(name)?;
    match name {
        b"." => return Err(Errno::EINVAL.into()),
        b".." => return Err(Errno::ENOTEMPTY.into()),
        _ => {}
    }
    let dir = r.fid(dir)?;
    r.txn.dir(dir)?;
    let dent = r.txn.entry(dir, name)?.ok_or(Errno::ENOENT)?;
    let is_dir = dent.kind == FileKind::Dir;
    match (rmdir, is_dir) {
        (true, false) => return Err(Errno::ENOTDIR.into()),
        (false, true) => return Err(Errno::EISDIR.into()),
        _ => {}
    }
    let inode = r.txn.inode(dent.fid)?;
    // A directory's size counts its entries.
    if is_dir && inode.size > 0 {
        return Err(Errno::ENOTEMPTY.into());
    }
    r.txn.set_entry(dir, name, None);
    r.touch_dir(dir, -1, -i64::from(is_dir))?;
    let attr = r.drop_link(dent.fid, dir, name)?;
    r.current = dent.fid;
    Ok(Res::Attr { attr })
}
