//! DropInline: the data of a file that grew is in its objects now.

use proto::attr::A_INLINE;
use proto::mds::{Res, SizeReport};
use proto::{Errno, Fid};

use super::report;
use crate::keys;
use crate::namespace::{Effect, Run};
use crate::txn::Step;

pub(super) fn run(r: &mut Run<'_>, fid: Fid, rep: &SizeReport) -> Step<Res> {
    let fid = r.fid(fid)?;
    let inode = r.txn.inode(fid)?;
    if inode.layout.is_none() {
        return Err(Errno::EINVAL.into());
    }
    if inode.flags & A_INLINE != 0 {
        // After a restart nobody is known to move it: then the layout still is the mover's.
        if r.movers.get(&fid).is_some_and(|s| *s != r.session) {
            return Err(Errno::EAGAIN.into());
        }
        if inode.blocks > 0 {
            r.txn.set_blob(keys::of(keys::INLINE, fid), None);
        }
        let i = r.txn.edit(fid)?;
        i.flags &= !A_INLINE;
        i.blocks = 0;
        i.version += 1;
    }
    report::apply(r, fid, rep, false)?;
    r.then(Effect::Moved(fid));
    let attr = r.txn.inode(fid)?.attr(fid);
    Ok(Res::Attr { attr })
}
