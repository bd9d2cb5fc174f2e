//! Bytes of a shared file that this client keeps to, and may write behind.
//!
//! Role: a file that several have open, one of them for writing, is served directly: each write goes through to the OSTs. A
//! writer whose blocks lie at even distances, or follow each other, is taken to go on so ([`Steps`]). Then this client
//! promises the MDT to touch nothing of the file but such blocks; if all others that have it open have promised the like of
//! others, what is written there waits in memory and goes out many blocks in a message. Size and times are told late
//! ([`crate::late`]) under the same `LS_LATE`, and its call-back lets the bytes out first: so whoever opens the file, looks
//! at it, or wants to go anywhere else finds them with the OSTs (invariant 3).
//! Assumptions: whatever else touches objects of a file calls [`Core::roam`] first, holding `io`; promises are made and
//! extended holding `io`, too. What the MDT took is in force until it has answered that it is not. Never does: hold back
//! what was promised only; write behind where `LS_LATE` was called back since it was asked for.

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use proto::mds::{LS_LATE, MAX_STRIDES, Op, Res};
use proto::wire::List;
use proto::{Errno, Stride};

use crate::Data;
use crate::core::{Core, now};
use crate::inode::{Inode, Place, State};
use crate::late::{TOLD_EVERY, Unsaid};
use crate::leases::Mark;
use crate::mdt::own_cred;
use crate::ranges::{Buf, COPY_BELOW};
use crate::write::keeps;

/// Blocks at one distance after which a writer is taken to go on.
const HITS: u32 = 4;
/// How far ahead a writer without gaps keeps bytes for itself, bytes: that is tried first, then less, then what it writes.
const RANGES: [u64; 2] = [64 << 20, 4 << 20];
/// Writes that went through after which it is asked for, at first and at the latest.
const ASK_FROM: u32 = 2;
const ASK_EVERY: u32 = 4096;
/// At the latest where it was promised already and others had not promised yet.
const ASK_KEPT: u32 = 64;
/// The first time after somebody went elsewhere, and after it was called back.
const ASK_AFTER_ROAMING: u32 = 64;
const ASK_AFTER_RECALL: u32 = 16;
/// So many writes under a grant, and it was worth it.
const PAID: u32 = 256;

/// The blocks of one writer. What it writes without a gap is one block, however many requests that takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Steps {
    /// The block it is at, and in how many requests more than one.
    start: u64,
    end: u64,
    more: u32,
    /// Where the first of equal blocks was, their length and distance, and how many came after each other.
    first: u64,
    len: u64,
    step: u64,
    hits: u32,
}

impl Steps {
    /// Something is written: the pattern it is part of, once there is one.
    pub(crate) fn seen(&mut self, at: u64, len: u64) -> Option<Stride> {
        let (done, step) = (self.end - self.start, at.checked_sub(self.start));
        if done > 0 && at == self.end {
            self.more += 1;
        } else {
            match step.filter(|step| done > 0 && *step >= done) {
                Some(step) if (done, step) == (self.len, self.step) => self.hits += 1,
                Some(step) => {
                    (self.first, self.len, self.step, self.hits) = (self.start, done, step, 1);
                }
                None => (self.len, self.step, self.hits) = (0, 0, 0),
            }
            (self.start, self.more) = (at, 0);
        }
        self.end = at.saturating_add(len);
        let stride = Stride { start: self.first, len: self.len, step: self.step };
        if self.hits >= HITS && stride.holds(at, len) {
            return Some(stride);
        }
        (self.more >= HITS).then(|| Stride::range(at, RANGES[0]))
    }
}

/// Of one file.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    /// What the MDT took; with `bound` and nothing here it is not known what.
    strides: Vec<Stride>,
    bound: bool,
    /// Since when nobody else touches these, if `LS_LATE` was held all the time.
    granted: Option<Mark>,
    /// Somebody is asking the MDT: one at a time.
    asking: bool,
    /// What writers have shown.
    wished: Vec<Stride>,
    /// Long ranges were in others' way.
    narrow: bool,
    /// Writes that went through since it was asked for, and after how many it will be.
    through: u32,
    every: u32,
    /// Writes under the grant.
    behind: u32,
}

/// What a writer may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum May {
    /// The file is nobody's: it goes through.
    Roam,
    /// It keeps to what was promised, and goes through.
    Through,
    /// It may wait.
    Wait,
    /// It lies outside.
    Outside,
}

impl Kept {
    /// Whether anything is promised.
    pub(crate) fn is_bound(&self) -> bool {
        self.bound
    }

    fn holds(&self, at: u64, len: u64) -> bool {
        self.strides.iter().any(|s| s.holds(at, len))
    }

    /// Adds what a writer has shown; those shown first give way.
    fn wish(&mut self, stride: &Stride) {
        if self.wished.contains(stride) {
            return;
        }
        let mut new = stride.clone();
        if new.step == 0 {
            new.len = if self.narrow { new.len.min(RANGES[1]) } else { new.len };
            // Ranges that meet or touch are one.
            let (mut start, mut end) = (new.start, new.start + new.len);
            self.wished.sort_unstable_by_key(|s| s.start);
            self.wished.retain(|s| {
                let joins = s.step == 0 && s.start <= end && s.start + s.len >= start;
                if joins {
                    (start, end) = (start.min(s.start), end.max(s.start + s.len));
                }
                !joins
            });
            new = Stride::range(start, end - start);
        } else {
            // The same blocks, seen from a later one on.
            let (len, step) = (new.len, new.step);
            let same = |s: &Stride| (s.len, s.step) == (len, step) && s.meets(&new);
            let old = self.wished.extract_if(.., |s| same(s)).map(|s| s.start).min();
            new.start = old.map_or(new.start, |old| old.min(new.start));
        }
        if self.wished.len() >= MAX_STRIDES {
            self.wished.remove(0);
        }
        self.wished.push(new);
    }

    /// `LS_LATE` is called back: what is written goes through from now on.
    pub(crate) fn recalled(&mut self) {
        if self.granted.take().is_some() {
            self.wait_for(if self.behind >= PAID { ASK_FROM } else { ASK_AFTER_RECALL });
        }
    }

    /// It is asked for again after so many writes, or after twice as many as the last time.
    fn wait_for(&mut self, least: u32) {
        let paid = self.behind >= PAID;
        self.every = if paid { least } else { (self.every * 2).clamp(least, ASK_EVERY) };
        (self.through, self.behind) = (0, 0);
    }
}

impl Core {
    fn may(&self, st: &State, at: u64, len: u64) -> May {
        let kept = &st.kept;
        // Asked under this lock: a call-back takes the lease first, and then what is noted here.
        let granted = |mark| self.leases.fresh(st.attr.fid, LS_LATE, mark);
        match kept.bound {
            false => May::Roam,
            true if !kept.holds(at, len) && self.owns(st) => May::Roam,
            true if !kept.holds(at, len) => May::Outside,
            true if kept.granted.is_some_and(granted) => May::Wait,
            true => May::Through,
        }
    }

    /// A write of this client to a file that others use, too, is to be done; `wish`: the pattern it is part of. Whether it is
    /// done, and waits in memory. If not it may go through. Holds `io`.
    pub(crate) fn write_ahead(
        self: &Arc<Core>,
        inode: &Arc<Inode>,
        at: u64,
        data: &Data<'_>,
        sync: bool,
        wish: Option<&Stride>,
    ) -> Result<bool, Errno> {
        let len = data.as_slice().len() as u64;
        loop {
            let mut guard = inode.st.lock();
            match self.may(&guard, at, len) {
                May::Wait if !sync => {}
                May::Outside => {
                    drop(guard);
                    let goes_on = wish.is_some_and(|wish| wish.holds(at, len));
                    if !(goes_on && self.extend(inode, at, len)?) {
                        self.roam(inode)?;
                    }
                    continue;
                }
                May::Roam | May::Through | May::Wait => return Ok(false),
            }
            // Who drains, or tells the whole truth of the size, waits for nobody.
            if guard.draining > 0 || guard.exactly {
                inode.landed.wait(&mut guard);
                continue;
            }
            let st = &mut *guard;
            if !matches!(st.place, Place::Striped(_)) {
                return Ok(false);
            }
            // A block that is complete has no neighbours to be gathered with.
            let alone = wish.is_some_and(|wish| wish.step > 0 && wish.len == len);
            match data {
                Data::Owned(b) if keeps(at, b) => st.dirty.insert(at, Buf::Shared(b.clone()), ()),
                data if alone && data.as_slice().len() >= COPY_BELOW => {
                    let copy = Bytes::copy_from_slice(data.as_slice());
                    st.dirty.insert(at, Buf::Shared(copy), ());
                }
                data => st.dirty.insert_copy(at, data.as_slice(), ()),
            }
            st.ahead.invalidate(at, at + len);
            st.kept.behind = st.kept.behind.saturating_add(1);
            st.wrote_among_others(Unsaid { end: at + len, mtime: now() });
            st.dirty_since.get_or_insert(self.tick_now());
            st.account(&self.budget);
            self.maybe_push(inode, st);
            let lately = st.told_at.is_some_and(|told| told.elapsed() < TOLD_EVERY);
            drop(guard);
            if !lately {
                // How long the file is it cannot say: no OST has these bytes.
                self.report_shared(inode, 0)?;
            }
            return Ok(true);
        }
    }

    /// Whether a write lies within what this client has promised to keep to.
    pub(crate) fn keeps_to(&self, inode: &Inode, at: u64, len: u64) -> bool {
        let kept = &inode.st.lock().kept;
        kept.bound && kept.holds(at, len)
    }

    /// A write went through; `wish`: the pattern it is part of.
    pub(crate) fn wrote_through(self: &Arc<Core>, inode: &Arc<Inode>, wish: Option<Stride>) {
        let Some(wish) = wish else { return };
        let asks = {
            let mut st = inode.st.lock();
            let kept = &mut st.kept;
            kept.wish(&wish);
            kept.through += 1;
            kept.every = kept.every.max(ASK_FROM);
            kept.through >= kept.every
        };
        // Under it the MDT grants.
        if asks && self.leases.has(inode.fid, LS_LATE) {
            self.ask_ahead(inode);
        }
    }

    /// Promises to keep to what writers have shown. Nobody touches the file meanwhile: not even what was not promised yet.
    fn ask_ahead(&self, inode: &Inode) {
        let Some(_io) = inode.io.try_write() else { return };
        let _asking = Asking::begin(inode);
        let wished = {
            let mut st = inode.st.lock();
            if st.is_untold() || self.owns(&st) {
                return;
            }
            st.kept.wait_for(ASK_FROM);
            st.kept.wished.clone()
        };
        if let Err(e) = self.promise(inode, wished) {
            tracing::debug!(fid = %inode.fid, error = %e, "no promise of what is written");
        }
        let kept = &mut inode.st.lock().kept;
        kept.every = if kept.bound { kept.every.min(ASK_KEPT) } else { kept.every };
        kept.narrow = kept.granted.is_none();
        if kept.narrow {
            kept.wished.retain(|s| s.step != 0);
        }
    }

    /// A writer goes on behind what was promised, and takes that with it. Whether it may.
    fn extend(&self, inode: &Inode, at: u64, len: u64) -> Result<bool, Errno> {
        let _asking = Asking::begin(inode);
        for ahead in RANGES.into_iter().chain([0]) {
            let wished = {
                let kept = &mut inode.st.lock().kept;
                if !kept.bound || kept.holds(at, len) {
                    return Ok(true);
                }
                // What is not known is not added to.
                if kept.strides.is_empty() {
                    return Ok(false);
                }
                kept.wished.clone_from(&kept.strides);
                kept.wish(&Stride::range(at, ahead.max(len)));
                // None of it gave way: others are writing there.
                if !kept.strides.iter().all(|s| kept.wished.iter().any(|w| covers(w, s))) {
                    return Ok(false);
                }
                kept.wished.clone()
            };
            if self.promise(inode, wished)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Asks the MDT to take a promise instead of the one before; whether it did. For who is asking.
    fn promise(&self, inode: &Inode, strides: Vec<Stride>) -> Result<bool, Errno> {
        let mark = self.leases.mark();
        let op = Op::LockAhead { fid: inode.fid, strides: List(strides.clone()) };
        let answer = self.mdt.one(&own_cred(), op);
        self.options.pauses.point();
        let kept = &mut inode.st.lock().kept;
        match answer {
            Ok(Res::LockAhead { kept: true, granted }) => {
                (kept.bound, kept.strides) = (true, strides);
                kept.granted = granted.then_some(mark);
                Ok(true)
            }
            Ok(Res::LockAhead { .. }) => Ok(false),
            // It may have been taken.
            other => {
                (kept.bound, kept.granted) = (true, None);
                kept.strides.clear();
                other.and(Err(Errno::EPROTO))
            }
        }
    }

    /// Objects of this file are to be touched anywhere: what was promised ends, for which all wait that rest on it, and what
    /// was written behind is with the OSTs. Holds `io`.
    pub(crate) fn roam(self: &Arc<Core>, inode: &Arc<Inode>) -> Result<(), Errno> {
        let bound = {
            let st = inode.st.lock();
            if !st.kept.bound && !st.is_untold() {
                return Ok(());
            }
            st.kept.bound && !self.owns(&st)
        };
        if bound {
            let _asking = Asking::begin(inode);
            self.end_promise(inode)?;
        }
        self.let_out(inode)
    }

    /// For who is asking.
    fn end_promise(self: &Arc<Core>, inode: &Arc<Inode>) -> Result<(), Errno> {
        {
            let kept = &mut inode.st.lock().kept;
            if !kept.bound {
                return Ok(());
            }
            // What is written from now on goes through.
            kept.granted = None;
        }
        self.let_out(inode)?;
        let op = Op::LockAhead { fid: inode.fid, strides: List(Vec::new()) };
        self.mdt.one(&own_cred(), op)?;
        self.options.pauses.point();
        let kept = &mut inode.st.lock().kept;
        kept.bound = false;
        kept.strides.clear();
        kept.wished.clear();
        kept.wait_for(ASK_AFTER_ROAMING);
        Ok(())
    }
}

/// Whether all of one's blocks are the other's, too.
fn covers(outer: &Stride, inner: &Stride) -> bool {
    outer.step == inner.step && outer.start <= inner.start && outer.holds(inner.start, inner.len)
}

/// Somebody asks the MDT about a file: one at a time.
struct Asking<'a>(&'a Inode);

impl Asking<'_> {
    fn begin(inode: &Inode) -> Asking<'_> {
        let mut st = inode.st.lock();
        while std::mem::replace(&mut st.kept.asking, true) {
            inode.landed.wait(&mut st);
        }
        Asking(inode)
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        self.0.st.lock().kept.asking = false;
        self.0.landed.notify_all();
    }
}

/// Where a writer's blocks are followed.
pub(crate) type Followed<'a> = Option<&'a Mutex<Steps>>;

#[cfg(test)]
mod tests;
