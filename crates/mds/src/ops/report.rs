//! Report: what a writer did to size, blocks and times.

use proto::attr::{A_INLINE, A_SIZE_LAGS};
use proto::mds::{Res, SizeReport};
use proto::{Errno, Fid, FileKind, TimeSpec};

use crate::namespace::{Effect, Run};
use crate::txn::Step;

pub(super) fn run(r: &mut Run<'_>, fid: Fid, rep: &SizeReport) -> Step<Res> {
    let fid = r.fid(fid)?;
    // While the reporter goes on writing the mark stays: its next bytes may outgrow this report.
    let done = !r.opens.writes(fid, r.session, 0) && !r.opens.written_elsewhere(fid, r.session);
    apply(r, fid, rep, done)?;
    let attr = r.txn.inode(fid)?.attr(fid);
    Ok(Res::Attr { attr })
}

/// Applies a report; `done`: nobody goes on writing, an exact size is the truth.
pub(super) fn apply(r: &mut Run<'_>, fid: Fid, rep: &SizeReport, done: bool) -> Step<()> {
    let old = r.txn.inode(fid)?;
    // A directory's size counts its entries, a symlink's its target.
    let file = old.kind() == FileKind::File;
    if !file && rep.mtime.is_some() {
        return Err(Errno::EINVAL.into());
    }
    let elsewhere =
        r.opens.writing_elsewhere(fid, r.session) || r.opens.written_elsewhere(fid, r.session);
    let exact = rep.exact && !elsewhere;
    let clears = exact && done && old.flags & A_SIZE_LAGS != 0;
    let mut new = (*old).clone();
    if file && new.flags & A_INLINE == 0 {
        new.size = if exact { rep.size } else { new.size.max(rep.size) };
        // Of several writers each counted at another moment.
        let least = if exact { 0 } else { new.blocks };
        new.blocks = rep.blocks.map_or(new.blocks, |b| b.max(least));
    }
    // Told late, in any order: of several writers the last one counts. What was set by hand to a time
    // to come gives way; to any other time it was set after all that is told later than that.
    let late = |t: TimeSpec| !exact && t < old.mtime && old.mtime <= old.ctime;
    if let Some(t) = rep.mtime {
        new.mtime = if late(t) { old.mtime } else { t };
    }
    if let Some(t) = rep.atime {
        // Told late: what was set by hand meanwhile, or read by another, stands.
        new.atime = new.atime.max(t);
    }
    if clears {
        new.flags &= !A_SIZE_LAGS;
    }
    if exact && !done {
        // What comes after this report comes with another: a close without one ends the mark.
        r.then(Effect::Mark(fid));
    }
    if new == *old {
        return Ok(());
    }
    // A time that is known here already came with what moved ctime then (it was set by hand).
    let told = rep.mtime == Some(old.mtime);
    let changed = !told && (new.size != old.size || new.mtime != old.mtime);
    new.version += 1;
    if changed {
        // The inode changed when its data did, which the writer knows, not when this came.
        // (A time set by hand may lie in the future.)
        let now = r.txn.now;
        new.ctime = new.ctime.max(rep.mtime.map_or(now, |t| t.min(now)));
    }
    if clears {
        r.then(Effect::Unmark(fid));
        r.then(Effect::EndWrite(fid, r.session));
    }
    *r.txn.edit(fid)? = new;
    Ok(())
}
