//! ReadInline and WriteInline: data that lives with the metadata.

use bytes::{Bytes, BytesMut};
use proto::attr::A_INLINE;
use proto::mds::Res;
use proto::{Errno, Fid, FileKind, MAX_FILE_SIZE, TimeSpec};

use super::setattr::set_inline;
use crate::namespace::Run;
use crate::txn::Step;

pub(super) fn read(r: &mut Run<'_>, fid: Fid) -> Step<Res> {
    let fid = r.fid(fid)?;
    let inode = r.txn.inode(fid)?;
    if inode.kind() != FileKind::File {
        return Err(Errno::EINVAL.into());
    }
    let inline = inode.flags & A_INLINE != 0;
    let data = match inline {
        true if inode.blocks == 0 => Some(Bytes::new()),
        true => Some(r.txn.inline(fid)?),
        false => None,
    };
    let layout = if inline { None } else { inode.layout.clone() };
    r.current = fid;
    Ok(Res::Inline { attr: inode.attr(fid), data, layout })
}

pub(super) fn write(
    r: &mut Run<'_>,
    fid: Fid,
    offset: u64,
    data: &Bytes,
    cut: Option<u64>,
    mtime: Option<TimeSpec>,
) -> Step<Res> {
    let fid = r.fid(fid)?;
    let inode = r.txn.inode(fid)?;
    if inode.kind() != FileKind::File {
        return Err(Errno::EINVAL.into());
    }
    let end = offset.saturating_add(data.len() as u64);
    if inode.flags & A_INLINE == 0 || end > u64::from(r.dom_limit) {
        return Err(Errno::EFBIG.into());
    }
    if cut.is_some_and(|c| c > MAX_FILE_SIZE) {
        return Err(Errno::EFBIG.into());
    }
    // Its data is on the way into objects: a change here would be lost.
    if r.moved_elsewhere(fid) {
        return Err(Errno::EAGAIN.into());
    }
    let covers = offset == 0 && cut.is_some_and(|c| c <= data.len() as u64);
    let old = match inode.blocks == 0 || covers {
        true => Bytes::new(),
        false => r.txn.inline(fid)?,
    };
    set_inline(r, fid, splice(&old, offset, data, cut))?;
    let now = r.txn.now;
    let i = r.txn.edit(fid)?;
    let size = cut.unwrap_or(i.size);
    i.size = if data.is_empty() { size } else { size.max(end) };
    // As with a report: the writer knows when the data changed, and a time that is known here
    // already was set by hand after that.
    let told = mtime == Some(i.mtime);
    i.mtime = mtime.unwrap_or(now);
    let ctime = if told { i.ctime } else { i.ctime.max(i.mtime.min(now)) };
    i.touch(if mtime.is_some() { ctime } else { now });
    Ok(Res::Attr { attr: i.attr(fid) })
}

/// `old`, cut, with `data` at `offset`; gaps are zeros.
fn splice(old: &Bytes, offset: u64, data: &Bytes, cut: Option<u64>) -> Bytes {
    let keep = cut.map_or(old.len(), |c| old.len().min(c.min(usize::MAX as u64) as usize));
    let offset = offset as usize;
    if offset == 0 && data.len() >= keep {
        return data.clone();
    }
    if data.is_empty() {
        return old.slice(..keep);
    }
    let mut b = BytesMut::with_capacity(keep.max(offset + data.len()));
    b.extend_from_slice(&old[..keep]);
    if b.len() < offset + data.len() {
        b.resize(offset + data.len(), 0);
    }
    b[offset..offset + data.len()].copy_from_slice(data);
    b.freeze()
}
