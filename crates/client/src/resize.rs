//! Cutting, growing, punching and reserving.
//!
//! Role: a smaller size is durable on the MDT before the objects lose bytes that may have been
//! synced; until the cut itself is durable the inode keeps the mark of a writer, so that after a
//! crash the objects say how long the file is: it is as before or as after, never zeros or stale
//! bytes (invariant 2). Where the objects cannot be cut the file keeps the length it had, whatever the MDT
//! was told: what shows it shorter would show the rest again when it grows. Everything else: objects
//! first, then the MDT, so that a size on the MDT never promises bytes the objects do not have. `io` is
//! held exclusively throughout.

use std::sync::Arc;

use bytes::Bytes;
use proto::attr::{S_ATIME, S_ATIME_NOW, S_MTIME, S_MTIME_NOW, S_OPENED, S_SIZE};
use proto::mds::{Cred, Op, Res, SizeReport};
use proto::oss::{P_HOLE, P_TRUNCATE, P_ZERO, Written};
use proto::{Attr, Errno, Layout, SetAttr, TimeSpec};

use crate::Data;
use crate::core::{Core, now};
use crate::file::FallocMode;
use crate::gather::Gather;
use crate::inode::{Inline, Inode, Place, State};
use crate::mdt::{last, own_cred};
use crate::talk::talk;
use crate::write::{At, How, check_range};

impl Core {
    /// Changes attributes of a file that has state here; with S_SIZE its data too.
    pub(crate) fn set_file(
        self: &Arc<Core>,
        cred: &Cred,
        inode: &Arc<Inode>,
        set: SetAttr,
    ) -> Result<Attr, Errno> {
        if set.valid & S_SIZE == 0 {
            return self.set_times(cred, inode, set);
        }
        check_range(set.size, 0)?;
        let _io = inode.io.write();
        self.roam(inode)?;
        self.tell_late(inode)?;
        self.resize(cred, inode, set)
    }

    /// No size: what is to be told of times is told or made void first.
    fn set_times(
        self: &Arc<Core>,
        cred: &Cred,
        inode: &Arc<Inode>,
        set: SetAttr,
    ) -> Result<Attr, Errno> {
        // Told later it would undo what is set now; and what comes after it tells itself, at once.
        if set.valid & (S_MTIME | S_MTIME_NOW) != 0 {
            self.leases.end_late(inode.fid);
            // Bytes that come to their OSTs later would move it, too.
            self.let_out(inode)?;
        }
        self.tell_late(inode)?;
        let asked = self.asked();
        let _talk = talk(inode);
        let changes = inode.st.lock().changes;
        let attr = attr_of(self.mdt.one(cred, Op::SetAttr { fid: inode.fid, set: set.clone() })?)?;
        {
            let mut guard = inode.st.lock();
            let st = &mut *guard;
            st.unsynced = true;
            if set.valid & (S_MTIME | S_MTIME_NOW) != 0 && st.changes == changes {
                // Data written before arrives later, and must not move the time again.
                st.mtime = st.mtime.map(|_| attr.mtime);
            }
            if set.valid & (S_ATIME | S_ATIME_NOW) != 0 {
                st.atime = None;
            }
        }
        self.settle(attr, asked)
    }

    /// Sets the size (and whatever else `set` says).
    fn resize(
        self: &Arc<Core>,
        cred: &Cred,
        inode: &Arc<Inode>,
        set: SetAttr,
    ) -> Result<Attr, Errno> {
        let asked = self.asked();
        self.load(inode)?;
        let old = self.size_now(inode)?;
        let layout = match &inode.st.lock().place {
            Place::Striped(layout) => Some(layout.clone()),
            _ => None,
        };
        let _talk = talk(inode);
        let size = set.size;
        let shrinks = layout.filter(|_| size < old);
        let mut ops = vec![Op::SetAttr { fid: inode.fid, set: set.clone() }];
        if shrinks.is_some() {
            ops.push(Op::BeginWrite { fid: inode.fid, size_hint: size });
        } else if let Some(report) = self.size_report(inode, size) {
            ops.push(Op::Report { fid: inode.fid, report });
        }
        let set_size = || last(self.mdt.compound(cred, ops.clone())?);
        let attr = match self.patiently(set_size)? {
            Res::Layout { attr, .. } => attr,
            other => attr_of(other)?,
        };
        // Not before: what the MDT refuses has no effect.
        self.cut_memory(inode, size);
        {
            let mut guard = inode.st.lock();
            let st = &mut *guard;
            st.unsynced = true;
            st.changes += 1;
            st.changed_as_of(asked.of(&attr));
            st.learn(&attr, asked.epoch);
            st.size = size;
            st.mtime = st.mtime.map(|_| attr.mtime);
            if set.valid & (S_ATIME | S_ATIME_NOW) != 0 {
                st.atime = None;
            }
            if self.owns(st) && st.blocks.iter().any(Option::is_none) {
                st.unreported = true;
            }
        }
        let attr = match shrinks {
            Some(layout) => {
                let shortened = self.shorten(inode, &layout, size, old)?;
                if !self.owns(&inode.st.lock()) {
                    self.tell_cut(inode, attr.mtime)?;
                }
                shortened.unwrap_or(attr)
            }
            None => attr,
        };
        self.settle(attr, asked)
    }

    /// The objects of a file that others use, too, were cut: who read one before that, and after the MDT had
    /// the new size, hears of it.
    fn tell_cut(&self, inode: &Inode, mtime: TimeSpec) -> Result<(), Errno> {
        let report =
            SizeReport { size: 0, exact: false, blocks: None, mtime: Some(mtime), atime: None };
        attr_of(self.mdt.one(&own_cred(), Op::Report { fid: inode.fid, report })?).map(drop)
    }

    /// What the MDT hears of a new size of a striped file, when its blocks are known.
    fn size_report(&self, inode: &Inode, size: u64) -> Option<SizeReport> {
        let st = inode.st.lock();
        let known = matches!(st.place, Place::Striped(_)) && self.owns(&st);
        let blocks = st.blocks_known().filter(|_| known)?;
        Some(SizeReport { size, exact: true, blocks: Some(blocks), mtime: None, atime: None })
    }

    /// Cuts the objects of a file whose smaller size is durable on the MDT. Holds the right to talk.
    fn shorten(
        self: &Arc<Core>,
        inode: &Arc<Inode>,
        layout: &Layout,
        size: u64,
        old: u64,
    ) -> Result<Option<Attr>, Errno> {
        self.cut_objects(inode, layout, size, old).inspect_err(|_| self.uncut(inode, old))?;
        if inode.st.lock().opens > 0 {
            // The mark stays as long as the file is written; close and fsync commit the cut.
            let mut st = inode.st.lock();
            st.unreported |= self.owns(&st);
            return Ok(None);
        }
        self.commit(inode)?;
        let Some(report) = self.size_report(inode, size) else { return Ok(None) };
        attr_of(self.mdt.one(&own_cred(), Op::Report { fid: inode.fid, report })?).map(Some)
    }

    /// Not all objects could be cut: some are as long as they were. The MDT, which has the mark of a writer, hears of the
    /// length they make, as of a write.
    fn uncut(&self, inode: &Inode, old: u64) {
        let mut st = inode.st.lock();
        if self.owns(&st) {
            st.size = st.size.max(old);
            st.blocks.fill(None);
            st.unreported = true;
        }
    }

    /// Shortens the objects that reach beyond `size`.
    fn cut_objects(
        self: &Arc<Core>,
        inode: &Inode,
        layout: &Layout,
        size: u64,
        old: u64,
    ) -> Result<(), Errno> {
        let reaches =
            |stripe: u16| layout.object_size(stripe, size) < layout.object_size(stripe, old);
        let note = || {
            let stripes = 0..layout.osts.len() as u16;
            inode.st.lock().note_cut(stripes.filter(|stripe| reaches(*stripe)));
        };
        note();
        let done = self.each_object(inode, layout, P_TRUNCATE, |stripe| {
            reaches(stripe).then(|| (layout.object_size(stripe, size), 0))
        });
        // Again: a commit may have come before the cut.
        note();
        done
    }

    /// Punches the objects for which `range` gives one, in parallel.
    fn each_object(
        self: &Arc<Core>,
        inode: &Inode,
        layout: &Layout,
        how: u8,
        range: impl Fn(u16) -> Option<(u64, u64)>,
    ) -> Result<(), Errno> {
        let gather = Gather::new();
        for stripe in 0..layout.osts.len() as u16 {
            let Some((a, b)) = range(stripe) else { continue };
            let ticket = gather.ticket();
            let object = layout.object(inode.fid, stripe);
            match self.stripe(layout, stripe) {
                Ok(ost) => {
                    gather.asks(&ost.session);
                    ost.punch(object, a, b, how, move |r| ticket.put((stripe, r)));
                }
                Err(e) => ticket.put((stripe, Err(e))),
            }
        }
        self.note_blocks(inode, gather.wait())
    }

    fn note_blocks(
        &self,
        inode: &Inode,
        answers: Vec<(u16, Result<Written, Errno>)>,
    ) -> Result<(), Errno> {
        let mut st = inode.st.lock();
        let mut outcome = Ok(());
        for (stripe, answer) in answers {
            match answer {
                Ok(w) => {
                    if let Some(b) = st.blocks.get_mut(usize::from(stripe)) {
                        *b = Some(w.blocks);
                    }
                }
                Err(e) => outcome = Err(e),
            }
        }
        outcome
    }

    /// fallocate(2).
    pub(crate) fn fallocate(
        self: &Arc<Core>,
        inode: &Arc<Inode>,
        mode: FallocMode,
        offset: u64,
        len: u64,
    ) -> Result<(), Errno> {
        if len == 0 {
            return Err(Errno::EINVAL);
        }
        check_range(offset, len)?;
        let end = offset + len;
        let _io = inode.io.write();
        self.roam(inode)?;
        self.load(inode)?;
        let size = self.size_now(inode)?;
        match mode {
            FallocMode::Punch | FallocMode::ZeroKeepSize => {
                self.zero(inode, mode, offset, end.min(size))
            }
            FallocMode::Zero => {
                self.zero(inode, mode, offset, end.min(size))?;
                self.reserve(inode, offset.max(size), end, size, false)
            }
            FallocMode::Allocate => self.reserve(inode, offset, end, size, false),
            FallocMode::KeepSize => self.reserve(inode, offset, end, size, true),
        }?;
        // Linux counts it as a change of data, whatever came of it.
        let now = SetAttr { valid: S_MTIME_NOW | S_OPENED, ..SetAttr::none() };
        self.set_times(&own_cred(), inode, now).map(drop)
    }

    /// Reserves space, and grows the file to `end` unless `keep`.
    fn reserve(
        self: &Arc<Core>,
        inode: &Arc<Inode>,
        offset: u64,
        end: u64,
        size: u64,
        keep: bool,
    ) -> Result<(), Errno> {
        if end <= offset {
            return Ok(());
        }
        if end > self.dom_limit() {
            self.grow(inode, end)?;
        }
        let layout = match &inode.st.lock().place {
            Place::Striped(layout) => Some(layout.clone()),
            _ => None,
        };
        if let Some(layout) = layout {
            let gather = Gather::new();
            for stripe in 0..layout.osts.len() as u16 {
                let (a, b) = (layout.object_size(stripe, offset), layout.object_size(stripe, end));
                if a >= b {
                    continue;
                }
                let ticket = gather.ticket();
                let object = layout.object(inode.fid, stripe);
                match self.stripe(&layout, stripe) {
                    Ok(ost) => {
                        gather.asks(&ost.session);
                        ost.allocate(object, a, b, keep, move |r| ticket.put((stripe, r)));
                    }
                    Err(e) => ticket.put((stripe, Err(e))),
                }
            }
            self.note_blocks(inode, gather.wait())?;
            let mut st = inode.st.lock();
            st.unreported |= self.owns(&st);
            st.ahead.invalidate(offset, end);
        }
        if !keep && end > size {
            self.resize(&own_cred(), inode, SetAttr::size(end))?;
        }
        Ok(())
    }

    /// Makes `[offset, end)` read as zeros; within the file's size.
    fn zero(
        self: &Arc<Core>,
        inode: &Arc<Inode>,
        mode: FallocMode,
        offset: u64,
        end: u64,
    ) -> Result<(), Errno> {
        if end <= offset {
            return Ok(());
        }
        let layout = {
            let mut guard = inode.st.lock();
            let st = &mut *guard;
            let owned = self.owns(st);
            match &mut st.place {
                Place::Striped(layout) => Some(layout.clone()),
                Place::Inline(inline) if owned => {
                    zero_inline(inline, offset, end);
                    st.touched(now(), self.tick_now());
                    st.account(&self.budget);
                    return Ok(());
                }
                _ => None,
            }
        };
        let Some(layout) = layout else {
            // Inline and shared: zeros are written like any bytes, where there can be any.
            let end = end.min(self.dom_limit());
            if end <= offset {
                return self.report_shared(inode, 0);
            }
            let data = Data::Owned(vec![0; (end - offset) as usize].into());
            return self.write_inline_shared(inode, offset, data);
        };
        {
            let mut st = inode.st.lock();
            loop {
                st.dirty.remove(offset, end);
                if !st.flight.overlaps(offset, end) {
                    break;
                }
                inode.landed.wait(&mut st);
            }
            st.unstable.remove(offset, end);
            st.ahead.invalidate(offset, end);
            st.account(&self.budget);
        }
        let how = if mode == FallocMode::Punch { P_HOLE } else { P_ZERO };
        self.each_object(inode, &layout, how, |stripe| {
            let (a, b) = (layout.object_size(stripe, offset), layout.object_size(stripe, end));
            (a < b).then_some((a, b))
        })?;
        let mut st = inode.st.lock();
        if !self.owns(&st) {
            drop(st);
            return self.report_shared(inode, 0);
        }
        st.unreported = true;
        st.touched(now(), self.tick_now());
        if st.dirty.is_empty() {
            st.dirty_since = None;
        }
        Ok(())
    }

    fn write_inline_shared(
        self: &Arc<Core>,
        inode: &Arc<Inode>,
        offset: u64,
        data: Data<'_>,
    ) -> Result<(), Errno> {
        let op = Op::WriteInline {
            fid: inode.fid,
            offset,
            data: match data {
                Data::Owned(b) => b,
                Data::Slice(s) => bytes::Bytes::copy_from_slice(s),
            },
            cut: None,
            mtime: Some(now()),
        };
        attr_of(self.mdt.one(&own_cred(), op)?).map(|_| ())
    }

    /// SEEK_DATA and SEEK_HOLE.
    pub(crate) fn seek(
        self: &Arc<Core>,
        inode: &Arc<Inode>,
        offset: u64,
        hole: bool,
    ) -> Result<u64, Errno> {
        let _io = inode.io.write();
        self.roam(inode)?;
        self.load(inode)?;
        let size = self.size_now(inode)?;
        if offset >= size {
            return Err(Errno::ENXIO);
        }
        let layout = match &inode.st.lock().place {
            Place::Striped(layout) => layout.clone(),
            Place::Inline(inline) => {
                let data = inline.data.len() as u64;
                return match hole {
                    true => Ok(offset.max(data)),
                    false if offset < data => Ok(offset),
                    false => Err(Errno::ENXIO),
                };
            }
            Place::Unknown if hole => return Ok(size),
            Place::Unknown => return Ok(offset),
        };
        // An error is told by fsync and close; what did not arrive is not asked for in vain.
        let _ = self.drain(inode);
        let found = match hole {
            true => self.seek_hole(inode, &layout, offset, size)?,
            false => self.seek_data(inode, &layout, offset)?.filter(|at| *at < size),
        };
        found.ok_or(Errno::ENXIO)
    }

    fn seek_data(
        self: &Arc<Core>,
        inode: &Inode,
        layout: &Layout,
        offset: u64,
    ) -> Result<Option<u64>, Errno> {
        let mut first: Option<u64> = None;
        for stripe in 0..layout.osts.len() as u16 {
            let object = layout.object(inode.fid, stripe);
            let from = layout.object_size(stripe, offset);
            if let Some(at) = self.stripe(layout, stripe)?.seek(object, from, false)? {
                let at = layout.file_offset(stripe, at);
                first = Some(first.map_or(at, |f| f.min(at)));
            }
        }
        Ok(first)
    }

    /// The first byte that lies in a hole of its object; the end of the file is one.
    fn seek_hole(
        self: &Arc<Core>,
        inode: &Inode,
        layout: &Layout,
        offset: u64,
        size: u64,
    ) -> Result<Option<u64>, Errno> {
        // Up to where each object is known to be data.
        let mut data_to = vec![0u64; layout.osts.len()];
        for e in layout.extents(offset, size - offset) {
            let known = &mut data_to[usize::from(e.stripe)];
            if *known <= e.object_offset {
                let object = layout.object(inode.fid, e.stripe);
                let ost = self.stripe(layout, e.stripe)?;
                *known = ost.seek(object, e.object_offset, true)?.unwrap_or(e.object_offset);
            }
            if *known < e.object_offset + e.len {
                return Ok(Some(e.file_offset + known.saturating_sub(e.object_offset)));
            }
        }
        Ok(Some(size))
    }

    /// copy_file_range(2) through this client's memory; bytes copied.
    pub(crate) fn copy(
        self: &Arc<Core>,
        from: (&Arc<Inode>, u64),
        to: (&Arc<Inode>, u64),
        len: u64,
        how: How<'_>,
    ) -> Result<u64, Errno> {
        check_range(from.1, len)?;
        check_range(to.1, len)?;
        // Up to where the source ends now: within one file the copy itself may move its end.
        let size = {
            let _io = from.0.io.read();
            self.size_now(from.0)?
        };
        let len = len.min(size.saturating_sub(from.1));
        let stream = parking_lot::Mutex::default();
        let mut done = 0;
        while done < len {
            let step = (len - done).min(COPY_STEP);
            let data: Bytes =
                match self.read(from.0, &stream, (from.1 + done, step), false, &|| None) {
                    Ok(parts) if parts.is_empty() => break,
                    Ok(parts) => parts.concat().into(),
                    Err(e) if done == 0 => return Err(e),
                    Err(_) => break,
                };
            let n = data.len() as u64;
            let at = At::Offset(to.1 + done);
            match self.write(to.0, at, Data::Owned(data), how) {
                Ok(_) => done += n,
                Err(e) if done == 0 => return Err(e),
                Err(_) => break,
            }
        }
        Ok(done)
    }
}

/// Bytes copied at once by copy_file_range.
const COPY_STEP: u64 = 1 << 20;

/// Zeros a part of inline data.
fn zero_inline(inline: &mut Inline, offset: u64, end: u64) {
    let end = end.min(inline.data.len() as u64);
    if offset < end {
        let zeros = vec![0; (end - offset) as usize];
        State::write_inline(inline, offset, &zeros);
    }
}

pub(crate) fn attr_of(res: Res) -> Result<Attr, Errno> {
    match res {
        Res::Attr { attr } | Res::Entry { attr, .. } => Ok(attr),
        _ => Err(Errno::EPROTO),
    }
}
