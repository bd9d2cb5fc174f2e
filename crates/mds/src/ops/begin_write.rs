//! BeginWrite: a file gets objects.

use proto::attr::{A_INLINE, A_SIZE_LAGS};
use proto::layout::{DEFAULT_STRIPE_SIZE, Layout, LayoutSpec};
use proto::mds::Res;
use proto::{Errno, Fid, FileKind};

use crate::namespace::{Effect, Run};
use crate::txn::Step;

pub(super) fn run(r: &mut Run<'_>, fid: Fid, size_hint: u64) -> Step<Res> {
    let fid = r.fid(fid)?;
    let inode = r.txn.inode(fid)?;
    if inode.kind() != FileKind::File {
        return Err(Errno::EINVAL.into());
    }
    let moves = inode.flags & A_INLINE != 0 && inode.blocks > 0;
    if moves && r.moved_elsewhere(fid) {
        return Err(Errno::EAGAIN.into());
    }
    let mut old = inode.layout.clone();
    // A move that was begun and not finished left bytes in its objects: this one gets new ones.
    if moves && let Some(layout) = old.take() {
        r.discard(fid, layout);
    }
    let anew = old.is_none();
    let layout = match old {
        Some(layout) => layout,
        None => choose(r, &inode.spec, inode.next_layout, size_hint)?,
    };
    let clean = inode.flags & A_SIZE_LAGS == 0 || anew;
    if clean || (inode.flags & A_INLINE != 0 && !moves) {
        let i = r.txn.edit(fid)?;
        if anew {
            i.layout = Some(layout.clone());
            i.next_layout = layout.generation + 1;
        }
        i.flags |= A_SIZE_LAGS;
        if !moves {
            i.flags &= !A_INLINE;
        }
        i.version += 1;
    }
    if moves {
        r.then(Effect::Move(fid, r.session));
    }
    // One that was marked before is of writers who may have gone without a word.
    if clean {
        r.then(Effect::Mark(fid));
    }
    r.then(Effect::BeginWrite(fid, r.session));
    let attr = r.txn.inode(fid)?.attr(fid);
    Ok(Res::Layout { attr, layout })
}

/// A layout by wish, free space and load.
fn choose(
    r: &Run<'_>,
    spec: &Option<LayoutSpec>,
    generation: u32,
    size_hint: u64,
) -> Result<Layout, Errno> {
    let spec = spec.clone().unwrap_or(LayoutSpec::DEFAULT);
    let stripe_size = if spec.stripe_size == 0 { DEFAULT_STRIPE_SIZE } else { spec.stripe_size };
    let osts = r.osts.choose(&spec, size_hint)?;
    Ok(Layout { generation, stripe_size, osts })
}
