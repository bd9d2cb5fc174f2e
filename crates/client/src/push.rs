//! Sending dirty data.
//!
//! Role: dirty -> in flight -> unstable. Two writes that overlap are never in flight together, so that
//! the later one wins. What makes it durable is in [`crate::commit`].

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use proto::oss::{W_SYNC, Written};
use proto::{Errno, Layout};

use crate::commit::COMMIT_AT;
use crate::core::Core;
use crate::cut::{self, Apart, Rpc};
use crate::inode::{Inode, Place, State, Taken};
use crate::ost::{CHECKSUM_TRIES, Ost, Permit};
use crate::ranges::Buf;

/// Small bytes of a file that wait for neighbours before they are sent as they are.
pub(crate) const GATHER_BYTES: u64 = 16 << 20;
/// Chunks of a file in which small bytes wait for neighbours; where less than 64 MiB may be dirty at all, three quarters of that.
pub(crate) const GATHER_CHUNKS: usize = 48;
/// Rounds of a drain before writers are held up.
const DRAIN_ROUNDS: u32 = 2;

/// How a write goes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Way {
    /// `W_*`.
    pub(crate) flags: u8,
    /// The writer waits and hears of a failure itself.
    pub(crate) told: bool,
    /// Several pieces go together.
    pub(crate) list: bool,
}

/// Dirty bytes of a file at which sending begins: one full RPC for each stripe, within reason.
pub(crate) fn push_at(layout: &Layout, max_rpc: u64) -> u64 {
    max_rpc * layout.count().clamp(1, 8)
}

impl Core {
    /// Each takes memory for all of it, whatever it holds.
    fn gather_chunks(&self) -> usize {
        GATHER_CHUNKS.min(self.options.max_dirty_mb as usize * 3 / 4).max(1)
    }

    fn max_rpc(&self) -> u64 {
        u64::from(self.options.max_rpc_bytes.clamp(4096, proto::MAX_BULK))
    }

    /// Dirty data grew: begins to send when there is enough of it.
    pub(crate) fn maybe_push(self: &Arc<Core>, inode: &Arc<Inode>, st: &mut State) {
        let Place::Striped(layout) = &st.place else { return };
        let enough = st.dirty.ripe() >= push_at(layout, self.max_rpc());
        let scattered = st.dirty.bytes() - st.dirty.ripe() >= GATHER_BYTES
            || st.dirty.slabs() >= self.gather_chunks()
            || (!st.dirty.is_empty() && self.budget.tight(st.lane()).0);
        st.push_all |= scattered;
        if enough || scattered {
            self.want_push(inode, st);
        }
    }

    /// Sends what is dirty and does not overlap what is in flight: `all` of it, or what is worth
    /// an RPC, so that neighbours still to come gather first. Waits for permits only, for those of lost OSTs
    /// not longer than `until` (none: not at all): what did not go then stays dirty, and `false` is returned.
    pub(crate) fn push(
        self: &Arc<Core>,
        inode: &Arc<Inode>,
        all: bool,
        until: Option<Instant>,
    ) -> bool {
        let (layout, rpcs) = {
            let mut st = inode.st.lock();
            let Place::Striped(layout) = &st.place else { return true };
            let layout = layout.clone();
            let rpcs = self.take_dirty(&mut st, &layout, all);
            (layout, rpcs)
        };
        self.send_all(inode, &layout, rpcs, Way::default(), until)
    }

    /// What the only dirty bytes of a file are to be synced by: a single write that is durable when it is answered, and
    /// saves the COMMIT. Not where more is on its way or uncommitted, nor where the MDT must be told of a size or of
    /// others: that would wait for the disk after this, and it waits beside a COMMIT. Whether it is on its way.
    pub(crate) fn push_stable(self: &Arc<Core>, inode: &Arc<Inode>) -> bool {
        let (layout, rpcs) = {
            let mut st = inode.st.lock();
            let Place::Striped(layout) = &st.place else { return false };
            let busy = !st.flight.is_empty() || !st.unstable.is_empty() || !st.cut.is_empty();
            let told = st.attr.size == st.size && self.owns(&st);
            if busy || !told || !is_one_write(&st, layout, self.max_rpc()) {
                return false;
            }
            let layout = layout.clone();
            let rpcs = self.take_dirty(&mut st, &layout, true);
            (layout, rpcs)
        };
        let way = Way { flags: W_SYNC, ..Way::default() };
        self.send_all(inode, &layout, rpcs, way, None)
    }

    /// Cuts what is dirty and does not overlap what is in flight into RPCs; it is in flight from now on.
    fn take_dirty(&self, st: &mut State, layout: &Layout, all: bool) -> Vec<Rpc> {
        let flight = &st.flight;
        let taken = st.dirty.extract(|at, end, ripe| (all || ripe) && !flight.overlaps(at, end));
        let runs = taken.into_iter().map(|(at, seg)| (at, seg.data.into_bytes())).collect();
        let rpcs = cut::writes(layout, runs, self.max_rpc(), std::mem::take(&mut st.apart));
        let parts = rpcs.iter().flat_map(|rpc| &rpc.parts);
        let now = self.leases.mark();
        parts.for_each(|(at, bytes)| st.take_off(*at, bytes, true, now));
        st.dirty_since = if st.dirty.is_empty() { None } else { st.dirty_since };
        st.account(&self.budget);
        rpcs
    }

    /// Sends what was taken; see [`Core::push`].
    fn send_all(
        self: &Arc<Core>,
        inode: &Arc<Inode>,
        layout: &Layout,
        rpcs: Vec<Rpc>,
        way: Way,
        until: Option<Instant>,
    ) -> bool {
        let mut left = Vec::new();
        for rpc in rpcs {
            match self.stripe(layout, rpc.stripe).map(|ost| (ost.permit_by(until), ost)) {
                Ok((Some(permit), ost)) => {
                    self.send_to((&ost, permit), inode, layout, rpc, way, |_| ());
                }
                Ok((None, _)) => left.push(rpc),
                Err(_) => self.send(inode, layout, rpc, way, |_| ()),
            }
        }
        let went = left.is_empty();
        if !went {
            self.take_back(inode, left);
        }
        went
    }

    /// What was to be sent is dirty again.
    fn take_back(&self, inode: &Inode, rpcs: Vec<Rpc>) {
        let mut st = inode.st.lock();
        let mut runs = Vec::new();
        for (at, bytes) in rpcs.iter().flat_map(|rpc| &rpc.parts) {
            let taken = st.flight.remove(*at, at + bytes.len() as u64);
            runs.extend(taken.into_iter().map(|(at, seg)| (at, seg.data)));
        }
        // Unless they belong to a move into objects that was undone meanwhile.
        if matches!(st.place, Place::Striped(_)) {
            self.return_to_dirty(&mut st, runs);
        }
        st.account(&self.budget);
        inode.landed.notify_all();
    }

    /// What was in flight has to be sent once more.
    fn return_to_dirty(&self, st: &mut State, runs: Vec<(u64, Buf)>) {
        if runs.is_empty() {
            return;
        }
        st.again(runs);
        st.returned += 1;
        st.push_all = true;
        st.dirty_since.get_or_insert(self.tick_now());
    }

    /// Sends one write that is in flight already; `heard` gets its outcome.
    pub(crate) fn send(
        self: &Arc<Core>,
        inode: &Arc<Inode>,
        layout: &Layout,
        rpc: Rpc,
        way: Way,
        heard: impl FnOnce(Result<(), Errno>) + Send + 'static,
    ) {
        match self.stripe(layout, rpc.stripe) {
            Ok(ost) => self.send_to((&ost, ost.permit()), inode, layout, rpc, way, heard),
            Err(e) => {
                self.land(inode, rpc.stripe, 0, way, &rpc.ranges(), Err(e));
                heard(Err(e));
            }
        }
    }

    fn send_to(
        self: &Arc<Core>,
        (ost, permit): (&Ost, Permit),
        inode: &Arc<Inode>,
        layout: &Layout,
        rpc: Rpc,
        way: Way,
        heard: impl FnOnce(Result<(), Errno>) + Send + 'static,
    ) {
        let ranges = rpc.ranges();
        let object = layout.object(inode.fid, rpc.stripe);
        let parts: Vec<Bytes> = rpc.parts.into_iter().map(|(_, b)| b).collect();
        let (core, inode) = (self.clone(), inode.clone());
        let (stripe, index) = (rpc.stripe, ost.index);
        let way = Way { list: rpc.pieces.len() > 1, ..way };
        ost.write(permit, object, rpc.pieces, parts, way.flags, move |result| {
            let outcome = result.as_ref().map(|_| ()).map_err(|e| told(*e));
            core.land(&inode, stripe, index, way, &ranges, result);
            heard(outcome);
        });
    }

    /// A write was answered.
    fn land(
        self: &Arc<Core>,
        inode: &Arc<Inode>,
        stripe: u16,
        ost: u32,
        way: Way,
        ranges: &[(u64, u64)],
        result: Result<Written, Errno>,
    ) {
        let mut st = inode.st.lock();
        let id = st.next_id;
        st.next_id += 1;
        let (mut failed, mut again) = (false, Vec::new());
        // Unless it belongs to a move into objects, whose mover waits.
        let unanswered =
            result == Err(Errno::ETIMEDOUT) && !way.told && matches!(st.place, Place::Striped(_));
        for (a, b) in ranges {
            for (at, seg) in st.flight.remove(*a, *b) {
                match &result {
                    Ok(_) if way.flags & W_SYNC != 0 => {
                        // What was read ahead meanwhile may be older, and nothing lies over it any more.
                        let end = at + seg.data.len();
                        st.unstable.remove(at, end);
                        st.ahead.invalidate(at, end);
                    }
                    Ok(w) => {
                        let taken = Taken { id, ost, verifier: w.verifier };
                        st.unstable.insert(at, seg.data, taken);
                        st.unstable_since.get_or_insert(self.tick_now());
                    }
                    // It goes again when the OST is back (invariant 1); who waits is told by the drain.
                    Err(_) if unanswered => again.push((at, seg.data)),
                    // Damaged on the way: it goes again, and comes out right or is told.
                    Err(Errno::EBADMSG) if !way.told && st.damaged < CHECKSUM_TRIES => {
                        again.push((at, seg.data));
                    }
                    // What there is no room for must not take along what could have been written.
                    Err(Errno::ENOSPC | Errno::EFBIG) if way.list => {
                        again.push((at, seg.data));
                        st.apart = Apart::Singly;
                    }
                    // The plain way has a COMMIT, and what that fails for can be sent once more.
                    Err(_) if !way.told && way.flags & W_SYNC != 0 => again.push((at, seg.data)),
                    Err(_) => failed = true,
                }
            }
        }
        self.return_to_dirty(&mut st, again);
        st.damaged = if result == Err(Errno::EBADMSG) { st.damaged + 1 } else { 0 };
        let beside = st.kept.is_bound() && !self.owns(&st);
        if let (Ok(w), Some(b)) = (&result, st.blocks.get_mut(usize::from(stripe))) {
            // Of a file that others write this is soon no longer so.
            *b = Some(w.blocks).filter(|_| !beside);
        }
        if beside && result.is_ok() && !way.told {
            st.landed_among_others();
        }
        if let (true, Err(e)) = (failed, &result) {
            tracing::warn!(fid = %inode.fid, error = %e, "a write failed");
            if !way.told {
                st.fail(told(*e));
            }
        }
        st.account(&self.budget);
        if st.push_all || st.dirty.ripe() >= self.max_rpc() {
            self.want_push(inode, &mut st);
        }
        if st.unstable.bytes() >= COMMIT_AT
            || (!st.unstable.is_empty() && self.budget.tight(st.lane()).1)
        {
            self.want_commit(inode, &mut st);
        }
        inode.landed.notify_all();
    }

    /// Sends all dirty data and waits for the answers; an error that came meanwhile, which is among the file's
    /// failures, too. Writers that never pause do not keep it from ending, nor do OSTs that are lost for longer
    /// than a request waits: what did not go to them by then stays dirty, and is a failure.
    pub(crate) fn drain(self: &Arc<Core>, inode: &Arc<Inode>) -> Result<(), Errno> {
        self.drain_by(inode, Instant::now() + self.options.request_timeout)
    }

    /// The same; lost OSTs are not waited for any longer than until then.
    pub(crate) fn drain_by(
        self: &Arc<Core>,
        inode: &Arc<Inode>,
        until: Instant,
    ) -> Result<(), Errno> {
        let before = inode.st.lock().failures;
        let mut holding = false;
        for round in 1.. {
            let went = self.push(inode, true, Some(until));
            let mut st = inode.st.lock();
            // Not for what is sent from now on.
            let (upto, returned) = (st.next_sent, st.returned);
            while st.flight.runs().any(|(_, seg)| seg.tag.id < upto) {
                inode.landed.wait(&mut st);
            }
            // What was in flight is dirty again, or somebody has sent it once more since.
            let missing = st.returned != returned && !(st.dirty.is_empty() && st.flight.is_empty());
            let went = went && !(missing && Instant::now() >= until);
            if !went {
                st.fail(Errno::EIO);
            }
            if (st.dirty.is_empty() && !missing) || !went {
                if holding {
                    st.draining -= 1;
                    inode.landed.notify_all();
                }
                let failed = st.failure.filter(|_| st.failures != before);
                return failed.map_or(Ok(()), Err);
            }
            // What overlapped something on its way is dirty still, among newer bytes: no more of them.
            if round == DRAIN_ROUNDS {
                st.draining += 1;
                holding = true;
            }
        }
        Ok(())
    }
}

/// As who waited for it hears of it.
fn told(e: Errno) -> Errno {
    if e == Errno::ETIMEDOUT { Errno::EIO } else { e }
}

/// Whether all that is dirty lies in one stripe's unit, and goes in one RPC.
fn is_one_write(st: &State, layout: &Layout, max_rpc: u64) -> bool {
    let mut runs = st.dirty.runs().map(|(at, seg)| (at, at + seg.data.len()));
    let Some((start, end)) = runs.next() else { return false };
    let end = runs.last().map_or(end, |(_, end)| end);
    let mut extents = layout.extents(start, end - start);
    st.dirty.bytes() <= max_rpc && extents.next().is_some() && extents.next().is_none()
}
