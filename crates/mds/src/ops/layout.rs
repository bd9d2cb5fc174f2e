//! SetLayout and GetLayout.

use proto::attr::A_INLINE;
use proto::layout::LayoutSpec;
use proto::mds::Res;
use proto::{Errno, Fid, FileKind};

use crate::namespace::Run;
use crate::txn::Step;

pub(super) fn set(r: &mut Run<'_>, fid: Fid, spec: &LayoutSpec) -> Step<Res> {
    let fid = r.fid(fid)?;
    spec.check().map_err(|_| Errno::EINVAL)?;
    if spec.stripe_offset >= 0 && !r.osts.exists(spec.stripe_offset as u32) {
        return Err(Errno::EINVAL.into());
    }
    let inode = r.txn.inode(fid)?;
    match inode.kind() {
        FileKind::Dir => {}
        // A file with data or objects has its layout for good.
        FileKind::File if inode.layout.is_some() || inode.size > 0 => {
            return Err(Errno::EEXIST.into());
        }
        FileKind::File => {}
        _ => return Err(Errno::EINVAL.into()),
    }
    let now = r.txn.now;
    let reset = inode.is_dir() && *spec == LayoutSpec::DEFAULT;
    let i = r.txn.edit(fid)?;
    i.spec = (!reset).then(|| spec.clone());
    i.touch(now);
    Ok(Res::Attr { attr: i.attr(fid) })
}

pub(super) fn get(r: &mut Run<'_>, fid: Fid) -> Step<Res> {
    let fid = r.fid(fid)?;
    let inode = r.txn.inode(fid)?;
    let inline = inode.flags & A_INLINE != 0;
    let layout = if inline { None } else { inode.layout.clone() };
    Ok(Res::LayoutInfo { layout, spec: inode.spec.clone() })
}
