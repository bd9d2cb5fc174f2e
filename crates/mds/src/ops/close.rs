//! Close: the last one of an unlinked file destroys it.

use proto::attr::A_SIZE_LAGS;
use proto::mds::{O_WRITE, Res, SizeReport};
use proto::{Errno, Fid};

use super::report;
use crate::keys;
use crate::namespace::{Effect, Run};
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
        r.then(Effect::Close(r.session, handle));
        return Ok(Res::Failed { errno: Errno::ESTALE.0 as u16 });
    };
    if let Some(rep) = rep {
        report::apply(r, fid, rep, last_writer)?;
    } else if last_writer && inode.flags & A_SIZE_LAGS != 0 && r.opens.is_marked(fid) {
        r.then(Effect::Unmark(fid));
        r.txn.edit(fid)?.flags &= !A_SIZE_LAGS;
    }
    let attr = r.txn.inode(fid)?.attr(fid);
    r.then(Effect::Close(r.session, handle));
    if last_writer {
        r.then(Effect::EndWrite(fid, r.session));
    }
    closed(r, fid, Some(handle))?;
    Ok(Res::Attr { attr })
}

/// After the close of a handle (or of a whole session): an unlinked file nobody has open goes.
pub(crate) fn closed(r: &mut Run<'_>, fid: Fid, handle: Option<u64>) -> Step<()> {
    let Some(inode) = r.txn.find(fid)? else { return Ok(()) };
    let open = match handle {
        Some(h) => r.opens.is_open_but(fid, r.session, h),
        None => r.opens.is_open(fid),
    };
    if inode.nlink == 0 && !open {
        r.then(Effect::Moved(fid));
        r.txn.set_raw(keys::of(keys::ORPHAN, fid), None);
        r.destroy(fid, &inode);
    }
    Ok(())
}
