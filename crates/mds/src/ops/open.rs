//! Open: a handle that keeps the file alive, and what the caller needs to read it.

use proto::attr::{A_INLINE, A_SIZE_LAGS};
use proto::mds::*;
use proto::{Errno, Fid, FileKind};

use super::setattr::{kill_suid, set_inline};
use crate::namespace::{Effect, Run};
use crate::opens::Holder;
use crate::txn::Step;

pub(super) fn run(r: &mut Run<'_>, fid: Fid, flags: u32, handle: u64) -> Step<Res> {
    let fid = r.fid(fid)?;
    let mut inode = r.txn.inode(fid)?;
    if inode.is_dir() && flags & (O_WRITE | O_TRUNC) != 0 {
        return Err(Errno::EISDIR.into());
    }
    let file = inode.kind() == FileKind::File;
    if file && flags & O_TRUNC != 0 {
        truncate(r, fid)?;
        inode = r.txn.inode(fid)?;
    }
    let striped = file && inode.flags & A_INLINE == 0 && inode.layout.is_some();
    let mark = striped && flags & O_WRITE != 0 && inode.flags & A_SIZE_LAGS == 0;
    if mark {
        let i = r.txn.edit(fid)?;
        i.flags |= A_SIZE_LAGS;
        // Or an answer of before, taken in late, would hide it.
        i.version += 1;
        inode = r.txn.inode(fid)?;
    }
    let want_inline = file && inode.flags & A_INLINE != 0 && flags & O_NO_INLINE == 0;
    let inline = match want_inline {
        true if inode.blocks == 0 => Some(bytes::Bytes::new()),
        true => Some(r.txn.inline(fid)?),
        false => None,
    };
    if mark {
        r.then(Effect::Mark(fid));
    }
    let handle = if handle == 0 { r.opens.handle() } else { handle };
    if r.opens.fid(r.session, handle).is_some_and(|f| f != fid) {
        return Err(Errno::EBADF.into());
    }
    let shared = r.opens.written_elsewhere(fid, r.session)
        || (flags & O_WRITE != 0 && r.opens.open_elsewhere(fid, r.session));
    r.then(Effect::Open(fid, Holder { session: r.session, handle, flags }));
    r.current = fid;
    let layout = if striped { inode.layout.clone() } else { None };
    let open = OpenInfo { handle, inline, layout, shared };
    Ok(Res::Opened { attr: inode.attr(fid), open })
}

/// The open of a file that was just made.
pub(super) fn fresh(r: &mut Run<'_>, fid: Fid, flags: u32) -> OpenInfo {
    let handle = r.opens.handle();
    r.then(Effect::Open(fid, Holder { session: r.session, handle, flags }));
    OpenInfo { handle, inline: Some(bytes::Bytes::new()), layout: None, shared: false }
}

/// O_TRUNC. Alone, the file sheds its objects and is inline again; else its layout stays.
pub(super) fn truncate(r: &mut Run<'_>, fid: Fid) -> Step<()> {
    let inode = r.txn.inode(fid)?;
    if r.moved_elsewhere(fid) {
        return Err(Errno::EAGAIN.into());
    }
    let alone = !r.opens.open_elsewhere(fid, r.session);
    let keeps = inode.layout.is_some() && inode.flags & A_INLINE == 0 && !alone;
    if inode.flags & A_INLINE != 0 && inode.blocks > 0 {
        set_inline(r, fid, bytes::Bytes::new())?;
    }
    if !keeps {
        if let Some(layout) = inode.layout.clone() {
            r.discard(fid, layout);
        }
        r.then(Effect::Moved(fid));
        r.then(Effect::Unmark(fid));
        r.then(Effect::EndWrite(fid, r.session));
    }
    let now = r.txn.now;
    let i = r.txn.edit(fid)?;
    if !keeps {
        i.layout = None;
        i.flags = (i.flags | A_INLINE) & !A_SIZE_LAGS;
        i.blocks = 0;
    }
    i.size = 0;
    i.mode = kill_suid(i.mode);
    i.mtime = now;
    i.touch(now);
    Ok(())
}
