//! Lookup: a name of a directory to its inode.

use proto::mds::Res;
use proto::{Errno, Fid};

use super::check_name;
use crate::namespace::Run;
use crate::txn::Step;

pub(super) fn run(r: &mut Run<'_>, dir: Fid, name: &[u8]) -> Step<Res> {
    check_name(name)?;
    let dir = r.fid(dir)?;
    let d = r.txn.dir(dir)?;
    let fid = match name {
        b"." => dir,
        b".." => d.home.as_ref().map_or(dir, |h| h.dir),
        _ => r.txn.entry(dir, name)?.ok_or(Errno::ENOENT)?.fid,
    };
    // An entry without its inode is damage, not absence.
    let inode = r.txn.find(fid)?.ok_or_else(|| {
        tracing::error!(%dir, %fid, name = %name.escape_ascii(), "entry without an inode; run fsck");
        Errno::EIO
    })?;
    r.current = fid;
    Ok(Res::Entry { attr: inode.attr(fid), created: false, open: None })
}
