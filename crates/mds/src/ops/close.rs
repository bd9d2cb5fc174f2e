//! Close: the last one of an unlinked file destroys it.

use proto::attr::{A_INLINE, A_SIZE_LAGS};
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
    let goes_on = r.opens.writes(fid, r.session, handle);
    let written = goes_on || r.opens.written_elsewhere(fid, r.session);
    let ends_writing = r.opens.flags(fid, r.session, handle) & O_WRITE != 0 && !goes_on;
    let last_writer = ends_writing && !written;
    // An inode that vanished is damage elsewhere; the handle still closes.
    if r.txn.find(fid)?.is_none() {
        r.then(Effect::Close(r.session, handle));
        return Ok(Res::Failed { errno: Errno::ESTALE.0 as u16 });
    }
    if let Some(rep) = rep {
        // Also of a handle that only read: a file is cut by its name, too.
        report::apply(r, fid, rep, !written)?;
    }
    if last_writer {
        end_mark(r, fid)?;
    }
    let attr = r.txn.inode(fid)?.attr(fid);
    r.then(Effect::Close(r.session, handle));
    if ends_writing {
        r.then(Effect::EndWrite(fid, r.session));
    }
    closed(r, fid, Some(handle))?;
    Ok(Res::Attr { attr })
}

/// Nobody goes on writing: the size is the truth if all who wrote have told what they did, the last
/// of them with this close.
fn end_mark(r: &mut Run<'_>, fid: Fid) -> Step<()> {
    let marked = r.opens.is_marked(fid) && !r.opens.writing_elsewhere(fid, r.session);
    if marked && r.txn.inode(fid)?.flags & (A_SIZE_LAGS | A_INLINE) == A_SIZE_LAGS {
        r.then(Effect::Unmark(fid));
        let i = r.txn.edit(fid)?;
        i.flags &= !A_SIZE_LAGS;
        i.version += 1;
    }
    Ok(())
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
