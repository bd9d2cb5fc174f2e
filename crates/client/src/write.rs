//! Writing.
//!
//! Role: bytes of a file that is this client's alone (`owns`) go into memory and later to their
//! servers, also those of O_DIRECT, which promises nothing about when they arrive; those of a file
//! others use (but see [`crate::lockahead`]), and of O_DIRECT with O_SYNC, go through before the call returns.
//! Files begin inline and move to objects when they outgrow the MDT's limit. Never does: hold a lock of state
//! over an RPC.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use bytes::Bytes;
use proto::attr::A_INLINE;
use proto::mds::{Op, Res, SizeReport};
use proto::oss::{W_DIRECT, W_SYNC};
use proto::{Attr, Errno, Layout, MAX_FILE_SIZE};

use crate::Data;
use crate::core::{Core, now};
use crate::cut::{self, Apart};
use crate::gather::Gather;
use crate::inode::{AsOf, Inline, Inode, Place, State};
use crate::late;
use crate::lockahead::Followed;
use crate::mdt::{last, own_cred};
use crate::push::Way;
use crate::ranges::{Buf, COPY_BELOW};
use crate::talk::talk;

/// How often a file that another client moves to objects is asked for again.
const MOVE_TRIES: u32 = 500;
/// Pause between two tries.
const MOVE_PAUSE: Duration = Duration::from_millis(10);
/// It grows to this.
const MOVE_PAUSE_MAX: Duration = Duration::from_millis(100);

/// Where a write goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum At {
    Offset(u64),
    End,
}

/// How a write is done.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct How<'a> {
    pub(crate) direct: bool,
    pub(crate) sync: bool,
    /// The blocks of who writes.
    pub(crate) steps: Followed<'a>,
}

/// What the first look at the state decided.
enum Next {
    Done(u64),
    /// The file must get objects first.
    Grow(u64),
    /// Bytes go through now, at this offset.
    Through(u64),
    /// Others may use the file.
    Shared,
}

impl Core {
    /// Writes all of `data`; where it began.
    pub(crate) fn write(
        self: &Arc<Core>,
        inode: &Arc<Inode>,
        at: At,
        data: Data<'_>,
        how: How<'_>,
    ) -> Result<u64, Errno> {
        let len = data.as_slice().len() as u64;
        if let At::Offset(offset) = at {
            check_range(offset, len)?;
        }
        if len == 0 {
            return Ok(0);
        }
        // Memory is full of what lost servers do not take: after the time a request has, an error.
        let patience = self.options.request_timeout;
        if self.budget.may_lack_room() && self.lacks_osts_of(inode) {
            let lost = || self.lacks_osts_of(inode).then(|| self.held_for_lost());
            if !self.budget.room_for_lost(patience, lost) {
                return Err(Errno::EIO);
            }
        }
        let lane = inode.st.lock().lane();
        if !self.budget.room(lane, patience * 2, || self.held_for_lost(), || self.push_all()) {
            return Err(Errno::EIO);
        }
        let mut data = Some(data);
        let _end = (at == At::End).then(|| inode.end.lock());
        loop {
            let io = inode.io.read();
            self.load(inode)?;
            match self.write_cached(inode, at, &mut data, how)? {
                Next::Done(offset) => return Ok(offset),
                Next::Through(offset) => {
                    let bytes = bytes_of(&mut data);
                    self.write_through(inode, offset, bytes, how)?;
                    let mut st = inode.st.lock();
                    st.size = st.size.max(offset + len);
                    st.mtime = Some(now());
                    st.changes += 1;
                    st.own_changes += 1;
                    st.unreported = true;
                    return Ok(offset);
                }
                Next::Shared => {
                    let wish = match (at, &data) {
                        (At::Offset(offset), Some(data)) => {
                            let wish = how.steps.and_then(|steps| steps.lock().seen(offset, len));
                            if self.write_ahead(inode, offset, data, how.sync, wish.as_ref())? {
                                return Ok(offset);
                            }
                            wish
                        }
                        _ => None,
                    };
                    drop(io);
                    let bytes = bytes_of(&mut data);
                    // Others may append, too.
                    let _end = match at {
                        At::End => Some(self.lock_end(inode.fid)?),
                        At::Offset(_) => None,
                    };
                    match self.write_shared(inode, at, &bytes, how)? {
                        Some(offset) => {
                            self.wrote_through(inode, wish);
                            return Ok(offset);
                        }
                        None => data = Some(Data::Owned(bytes)),
                    }
                }
                Next::Grow(end) => {
                    drop(io);
                    let _moving = inode.io.write();
                    self.grow(inode, end)?;
                }
            }
        }
    }

    /// A write to a file that is this client's alone; holds `io` shared.
    fn write_cached(
        self: &Arc<Core>,
        inode: &Arc<Inode>,
        at: At,
        data: &mut Option<Data<'_>>,
        how: How<'_>,
    ) -> Result<Next, Errno> {
        let len = data.as_ref().map_or(0, |d| d.as_slice().len()) as u64;
        let mut guard = inode.st.lock();
        while guard.draining > 0 {
            inode.landed.wait(&mut guard);
        }
        let st = &mut *guard;
        let offset = match at {
            At::Offset(offset) => offset,
            At::End => st.size,
        };
        check_range(offset, len)?;
        let end = offset + len;
        if !self.owns(st) {
            return Ok(Next::Shared);
        }
        match &mut st.place {
            Place::Unknown => return Err(Errno::EIO),
            Place::Inline(_) if end > self.dom_limit() => return Ok(Next::Grow(end)),
            Place::Inline(inline) => {
                if let Some(data) = data.take() {
                    State::write_inline(inline, offset, data.as_slice());
                }
                st.touched(now(), self.tick_now());
            }
            Place::Striped(_) if how.direct && how.sync => {
                // Reserved at once, so that two appends never meet.
                if at == At::End {
                    st.size = end;
                }
                st.ahead.invalidate(offset, end);
                return Ok(Next::Through(offset));
            }
            Place::Striped(_) => {
                match data.take() {
                    Some(Data::Owned(b)) if keeps(offset, &b) => {
                        st.dirty.insert(offset, Buf::Shared(b), ());
                    }
                    Some(other) => st.dirty.insert_copy(offset, other.as_slice(), ()),
                    None => {}
                }
                st.ahead.invalidate(offset, end);
                st.unreported = true;
                st.touched(now(), self.tick_now());
            }
        }
        st.size = st.size.max(end);
        st.account(&self.budget);
        self.maybe_push(inode, st);
        Ok(Next::Done(offset))
    }

    /// Sends bytes of a striped file and waits until its OSTs have them.
    fn write_through(
        self: &Arc<Core>,
        inode: &Arc<Inode>,
        offset: u64,
        data: Bytes,
        how: How<'_>,
    ) -> Result<(), Errno> {
        let end = offset + data.len() as u64;
        let max = u64::from(self.options.max_rpc_bytes.clamp(4096, proto::MAX_BULK));
        let (layout, rpcs) = loop {
            let mut guard = inode.st.lock();
            let st = &mut *guard;
            let Place::Striped(layout) = &st.place else { return Err(Errno::EIO) };
            let layout = layout.clone();
            if st.flight.overlaps(offset, end) {
                inode.landed.wait(&mut guard);
                continue;
            }
            // Older bytes that were never sent are overwritten here; the rest goes later.
            st.dirty.remove(offset, end);
            st.take_off(offset, &data, false, self.leases.mark());
            st.ahead.invalidate(offset, end);
            st.account(&self.budget);
            break (layout.clone(), cut::writes(&layout, vec![(offset, data)], max, Apart::Singly));
        };
        let flags = if how.direct { W_DIRECT } else { 0 } | if how.sync { W_SYNC } else { 0 };
        let way = Way { flags, told: true, ..Way::default() };
        let gather = Gather::new();
        for rpc in rpcs {
            let ticket = gather.ticket();
            if let Ok(ost) = self.stripe(&layout, rpc.stripe) {
                gather.asks(&ost.session);
            }
            self.send(inode, &layout, rpc, way, move |r| ticket.put(r));
        }
        self.options.pauses.point();
        let outcome = gather.wait().into_iter().collect::<Result<Vec<()>, Errno>>();
        self.options.pauses.point();
        outcome.map(|_| ())
    }

    /// A write while others may use the file: nothing is cached. None: it is this client's alone by now.
    fn write_shared(
        self: &Arc<Core>,
        inode: &Arc<Inode>,
        at: At,
        data: &Bytes,
        how: How<'_>,
    ) -> Result<Option<u64>, Errno> {
        let len = data.len() as u64;
        for _ in 0..MOVE_TRIES {
            let io = inode.io.read();
            let offset = match at {
                // Where it keeps to what it promised it need not end that.
                At::Offset(offset) if self.keeps_to(inode, offset, len) => {
                    self.let_out(inode)?;
                    offset
                }
                At::Offset(offset) => {
                    self.roam(inode)?;
                    offset
                }
                At::End => {
                    self.roam(inode)?;
                    self.size_now(inode)?
                }
            };
            check_range(offset, len)?;
            if matches!(inode.st.lock().place, Place::Striped(_)) {
                self.write_through(inode, offset, data.clone(), how)?;
                // Who appends has everybody find the new end at the MDT.
                if at == At::End || !self.tells_late(inode, offset + len) {
                    self.report_shared(inode, offset + len)?;
                }
                return Ok(Some(offset));
            }
            drop(io);
            // No other write meanwhile: should this file become this client's alone, theirs would begin
            // with what was there before.
            let _io = inode.io.write();
            if self.owns(&inode.st.lock()) {
                return Ok(None);
            }
            if offset + len <= self.dom_limit() {
                match self.write_inline(inode, offset, data) {
                    Ok(()) => return Ok(Some(offset)),
                    Err(Errno::EFBIG | Errno::EAGAIN) => {}
                    Err(e) => return Err(e),
                }
            }
            self.grow(inode, offset + len)?;
        }
        Err(Errno::EIO)
    }

    /// Writes bytes that live with the metadata; EFBIG if they do not. Holds `io` exclusively.
    fn write_inline(
        self: &Arc<Core>,
        inode: &Inode,
        offset: u64,
        data: &Bytes,
    ) -> Result<(), Errno> {
        let (fid, data, mtime) = (inode.fid, data.clone(), Some(now()));
        let op = Op::WriteInline { fid, offset, data, cut: None, mtime };
        let life = self.life.load(SeqCst);
        let answer = self.mdt.one(&own_cred(), op)?;
        self.options.pauses.point();
        match answer {
            Res::Attr { attr } => {
                let mut st = inode.st.lock();
                st.changed_as_of(AsOf { life, version: attr.version });
                st.learn(&attr, 0);
                st.size = attr.size;
                st.place = Place::Unknown;
                st.unsynced = true;
                Ok(())
            }
            _ => Err(Errno::EPROTO),
        }
    }

    /// Tells the MDT what a write without a lease did.
    pub(crate) fn report_shared(&self, inode: &Arc<Inode>, end: u64) -> Result<(), Errno> {
        let report =
            SizeReport { size: end, exact: false, blocks: None, mtime: Some(now()), atime: None };
        let (grew, own_changes) = {
            let mut st = inode.st.lock();
            // A size that was the whole truth before this write would undo it, if it overtook. Who tells
            // it waits for nobody.
            while st.exactly {
                inode.landed.wait(&mut st);
            }
            st.unsynced = true;
            if let Place::Striped(_) = st.place {
                st.blocks_due = true;
                st.blocks.fill(None);
                st.changes += 1;
            }
            let now = Instant::now();
            st.told_at = Some(now);
            let asks = st.asked_at.is_none_or(|t| now - t >= late::ASKED_EVERY);
            let grew = st.size < end || asks;
            st.asked_at = if grew { Some(now) } else { st.asked_at };
            st.size = st.size.max(end);
            st.reporting += 1;
            (grew, st.own_changes)
        };
        let op = Op::Report { fid: inode.fid, report };
        let (life, epoch) = (self.life.load(SeqCst), self.epoch());
        let told = match grew {
            true => self.mdt.one(&own_cred(), op),
            // Waited for: on its way it could be overtaken by another mount's truncation, and undo that.
            false => self.mdt.aside(op).and_then(last),
        };
        self.options.pauses.point();
        let mut st = inode.st.lock();
        st.reporting -= 1;
        match told? {
            // Answers of several may come in any order.
            Res::Attr { attr } if !grew => {
                st.changed_as_of(AsOf { life, version: attr.version });
                st.learn(&attr, epoch);
                Ok(())
            }
            Res::Attr { attr } => {
                st.changed_as_of(AsOf { life, version: attr.version });
                // It may have been alone with the file, and have written more, in between.
                let told = st.own_changes == own_changes && !st.is_behind();
                if told && !self.owns(&st) {
                    st.unreported = false;
                }
                st.learn(&attr, 0);
                // It may have become this client's alone, and have grown since. What is to be told late the MDT does not know.
                let late = st.unsaid.map_or(0, |late| late.end);
                let size = attr.size.max(late);
                st.size = if self.owns(&st) { st.size.max(size) } else { size };
                Ok(())
            }
            _ => Err(Errno::EPROTO),
        }
    }

    /// Gives an inline file objects; holds `io` exclusively.
    pub(crate) fn grow(self: &Arc<Core>, inode: &Arc<Inode>, hint: u64) -> Result<(), Errno> {
        self.load(inode)?;
        self.let_out(inode)?;
        // Inline bytes on their way to the MDT arrive before it decides whether it holds any.
        let _talk = talk(inode);
        let mut old = match &inode.st.lock().place {
            Place::Striped(_) => return Ok(()),
            Place::Unknown => return Err(Errno::EIO),
            Place::Inline(inline) => inline.clone(),
        };
        let life = self.life.load(SeqCst);
        let (attr, layout) = self.begin_write(inode, hint)?;
        let stored = attr.flags & A_INLINE != 0;
        self.options.pauses.point();
        let owned = self.owns(&inode.st.lock());
        self.options.pauses.point();
        if !owned {
            // Nobody else changes it from here on.
            let theirs = match stored {
                true => self.mdt.one(&own_cred(), Op::ReadInline { fid: inode.fid })?,
                false => Res::Done {},
            };
            let theirs = match theirs {
                Res::Inline { data: Some(data), .. } => data.to_vec(),
                _ => Vec::new(),
            };
            old = old.over(theirs);
        }
        let failures = {
            let mut st = inode.st.lock();
            st.place_as_of = AsOf { life, version: attr.version };
            st.moving = stored;
            st.attr = attr;
            st.blocks = vec![Some(0); layout.osts.len()];
            st.place = Place::Striped(layout);
            st.unsynced = true;
            st.unreported = true;
            if !owned {
                // Others may have changed it since it was loaded.
                let untold = old.dirty.map_or(0, |(_, end)| end);
                st.size = st.attr.size.max(untold);
            }
            // What the MDT never held and others may have written objects over is not sent again.
            let from = if owned || stored { Some(0) } else { old.dirty.map(|(a, _)| a) };
            if let Some(from) = from.filter(|from| *from < old.data.len() as u64) {
                st.dirty.insert_copy(from, &old.data[from as usize..], ());
                st.dirty_since.get_or_insert(self.tick_now());
            }
            st.account(&self.budget);
            st.failures
        };
        if !stored {
            return Ok(());
        }
        self.drop_inline(inode, failures).inspect_err(|_| self.ungrow(inode, old))
    }

    /// Asks for objects. Lost OSTs are waited for as long as by a write that has its objects.
    fn begin_write(&self, inode: &Inode, hint: u64) -> Result<(Attr, Arc<Layout>), Errno> {
        let op = Op::BeginWrite { fid: inode.fid, size_hint: hint };
        match self.patiently(|| self.mdt.one(&own_cred(), op.clone()))? {
            Res::Layout { attr, layout } => Ok((attr, Arc::new(layout))),
            _ => Err(Errno::EPROTO),
        }
    }

    /// EAGAIN passes: another client moves the file to objects, or no OST answers the MDT.
    pub(crate) fn patiently<T>(
        &self,
        mut ask: impl FnMut() -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        let until = Instant::now() + self.options.request_timeout;
        let mut pause = MOVE_PAUSE;
        loop {
            match ask() {
                Err(Errno::EAGAIN) if Instant::now() >= until => return Err(Errno::EIO),
                Err(Errno::EAGAIN) => std::thread::sleep(pause),
                other => return other,
            }
            pause = (pause * 2).min(MOVE_PAUSE_MAX);
        }
    }

    /// Moves what the MDT holds into objects, durably.
    fn drop_inline(self: &Arc<Core>, inode: &Arc<Inode>, failures: u64) -> Result<(), Errno> {
        self.options.pauses.point();
        self.drain(inode)?;
        self.options.pauses.point();
        self.commit(inode)?;
        self.options.pauses.point();
        let report = {
            let st = inode.st.lock();
            if st.failures != failures {
                return Err(st.failure.unwrap_or(Errno::EIO));
            }
            SizeReport {
                size: st.size,
                exact: self.owns(&st),
                blocks: st.blocks_known(),
                mtime: st.mtime,
                atime: None,
            }
        };
        let op = Op::DropInline { fid: inode.fid, report };
        match self.mdt.one(&own_cred(), op)? {
            Res::Attr { attr } => {
                let mut st = inode.st.lock();
                (st.place_as_of.version, st.moving) = (attr.version, false);
                st.attr = attr;
                Ok(())
            }
            _ => Err(Errno::EPROTO),
        }
    }

    /// The move failed: the MDT still has the data.
    fn ungrow(&self, inode: &Arc<Inode>, old: Inline) {
        let mut st = inode.st.lock();
        st.dirty.remove(0, MAX_FILE_SIZE);
        st.unstable.remove(0, MAX_FILE_SIZE);
        (st.place, st.moving) = (Place::Inline(old), false);
        st.account(&self.budget);
    }

    /// Dirty data of all files shall go out.
    pub(crate) fn push_all(self: &Arc<Core>) {
        for inode in self.registry.all() {
            let mut st = inode.st.lock();
            let inline = matches!(&st.place, Place::Inline(i) if i.dirty.is_some());
            if !st.dirty.is_empty() || inline {
                st.push_all = true;
                self.want_push(&inode, &mut st);
            }
            if !st.unstable.is_empty() {
                self.want_commit(&inode, &mut st);
            }
        }
    }
}

/// EFBIG for what no file may hold.
pub(crate) fn check_range(offset: u64, len: u64) -> Result<(), Errno> {
    match offset.checked_add(len) {
        Some(end) if end <= MAX_FILE_SIZE => Ok(()),
        _ => Err(Errno::EFBIG),
    }
}

/// Whether owned bytes are kept as they are: large, and whole pages, so that they can go to the
/// disk without a copy. Others are gathered with their neighbours.
pub(crate) fn keeps(offset: u64, bytes: &Bytes) -> bool {
    const PAGE: usize = 4096;
    let whole = offset.is_multiple_of(PAGE as u64) && bytes.len().is_multiple_of(PAGE);
    whole && bytes.len() >= COPY_BELOW
}

fn bytes_of(data: &mut Option<Data<'_>>) -> Bytes {
    match data.take() {
        Some(Data::Owned(b)) => b,
        Some(Data::Slice(s)) => Bytes::copy_from_slice(s),
        None => Bytes::new(),
    }
}
