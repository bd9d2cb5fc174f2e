//! Close: the last one of an unlinked file destroys it.

use proto::attr::A_SIZE_LAGS;
use proto::mds::{O_WRITE, Res, SizeReport};
use proto::{Errno, Fid};

use super::report;
use crate::keys;
use crate::namespace::Run;
use crate::txn::Step;

pub(super) fn run(r: &mut Run<'_>, fid: Fid, handle: u64, rep: Option<&SizeReport>) -> Step<Res> {
    let fid = r.fid(fid)?;
    if r.opens.fid(r.session, handle) != Some(fid) {
        return Err(Errno::EBADF.into());
    }
    let last_writer = r.opens.flags(fid, r.session, handle) & O_WRITE != 0
        && !r.opens.writes(fid, r.session, handle)
        && !r.opens.written_elsewhere(fid, r.session);
    // An inode that vanished is damage elsewhere; the handle still closes.
    let Some(inode) = r.txn.find(fid)? else {
        r.opens.close(r.session, handle);
        return Err(Errno::ESTALE.into());
    };
    if let Some(rep) = rep {
        report::apply(r, fid, rep, last_writer)?;
    } else if last_writer && inode.flags & A_SIZE_LAGS != 0 && r.opens.unmark(fid) {
        r.txn.edit(fid)?.flags &= !A_SIZE_LAGS;
    }
    let attr = r.txn.inode(fid)?.attr(fid);
    r.opens.close(r.session, handle);
    if last_writer {
        r.opens.end_write(fid, r.session);
    }
    closed(r, fid)?;
    Ok(Res::Attr { attr })
}

/// After a close: an unlinked file nobody has open goes.
pub(crate) fn closed(r: &mut Run<'_>, fid: Fid) -> Step<()> {
    let Some(inode) = r.txn.find(fid)? else { return Ok(()) };
    if inode.nlink == 0 && !r.opens.is_open(fid) {
        r.txn.set_raw(keys::of(keys::ORPHAN, fid), None);
        r.destroy(fid, &inode);
    }
    Ok(())
}
