//! Giving back leases that are called back.
//!
//! Role: nothing that rests on them is believed from when this begins, and what was done under them goes to the servers
//! before they are given back. That is the work of the thread that hears of call-backs, but for files whose bytes may be
//! on their way to or from OSTs: each OST has a thread of its own for these while there are any, so that one that is slow or
//! lost keeps only what has something to ask of it; files that ask nothing have a thread, too. What takes longer than
//! [`PATIENCE`] is put off ([`Op::PutOff`]): the MDT has the rest at once, and calls back other leases meanwhile. Limits: a
//! thread for each OST, one for files that lie on several, and one for those that ask none; what waits for them is bounded
//! by what an MDT has under way. Never does: give back what the servers were not told of while
//! they answer.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use net::CallReply;
use parking_lot::{Condvar, Mutex};
use proto::Fid;
use proto::mds::{LS_ATTR, LS_LATE, LS_OPEN, LS_WRITE, Lease, LeaseRecall, Op, Unwatched};
use proto::wire::{List, Wire};
use rustc_hash::{FxHashMap as HashMap, FxHashSet as HashSet};

use crate::core::Core;
use crate::inode::{Inode, State};
use crate::lane::Lane;
use crate::mdt::own_cred;

/// How long a call-back is worked on before what is left of it is put off. An OST that has owed an answer for so long is
/// not waited for at all.
const PATIENCE: Duration = Duration::from_secs(1);
/// How many times a request's time a lost OST is waited for, and the most there may be of it. An MDT lets itself be put off for
/// five minutes; then it evicts this client, which would lose more than what is told too late.
const REQUESTS: u32 = 4;
const MOST: Duration = Duration::from_secs(240);

/// What each thread has to do; one that has nothing left ends.
#[derive(Default)]
pub(crate) struct Givers {
    lanes: Mutex<HashMap<Lane, Vec<(Arc<Round>, Group)>>>,
    ended: Condvar,
}

impl Givers {
    /// One thing more; whether a thread must be found for it.
    fn add(&self, lane: Lane, round: &Arc<Round>, group: Group) -> bool {
        let mut lanes = self.lanes.lock();
        let new = !lanes.contains_key(&lane);
        lanes.entry(lane).or_default().push((Arc::clone(round), group));
        new
    }

    /// All there is to do by now; empty: the thread ends.
    fn take(&self, lane: Lane) -> Vec<(Arc<Round>, Group)> {
        let mut lanes = self.lanes.lock();
        let waiting = lanes.get_mut(&lane).map(std::mem::take).unwrap_or_default();
        if waiting.is_empty() {
            lanes.remove(&lane);
            self.ended.notify_all();
        }
        waiting
    }

    /// Waits until all that was called back so far is given back.
    pub(crate) fn wait(&self) {
        let mut lanes = self.lanes.lock();
        while !lanes.is_empty() {
            self.ended.wait(&mut lanes);
        }
    }
}

/// What of a call-back concerns files of one OST, or of several.
#[derive(Default)]
struct Group {
    leases: Vec<Lease>,
    owned: Vec<Arc<Inode>>,
    shown: Vec<Arc<Inode>>,
    /// Written behind among others.
    ahead: Vec<Arc<Inode>>,
    /// By others.
    written: Vec<Fid>,
}

impl Group {
    fn add(&mut self, other: Group) {
        self.leases.extend(other.leases);
        self.owned.extend(other.owned);
        self.shown.extend(other.shown);
        self.ahead.extend(other.ahead);
        self.written.extend(other.written);
    }

    fn fids(&self) -> impl Iterator<Item = Fid> {
        let shown = self.shown.iter().map(|inode| inode.fid);
        self.leases.iter().map(|l| l.fid).chain(shown).chain(self.written.iter().copied())
    }
}

/// A call-back at work.
struct Round {
    /// Until when lost OSTs are waited for.
    until: Instant,
    left: Mutex<Left>,
    changed: Condvar,
}

struct Left {
    fids: HashMap<Lane, HashSet<Fid>>,
    /// The answer, once it is put off: whoever does the last part gives it.
    answer: Option<(CallReply, Vec<u8>)>,
}

impl Round {
    fn done(&self, lane: Lane) {
        let mut left = self.left.lock();
        left.fids.remove(&lane);
        let answer = if left.fids.is_empty() { left.answer.take() } else { None };
        drop(left);
        self.changed.notify_all();
        if let Some((reply, body)) = answer {
            reply.send(0, body);
        }
    }

    /// Waits for what does not belong to these, for so long at most.
    fn wait(&self, slow: &HashSet<Lane>, patience: Duration) {
        let until = Instant::now() + patience;
        let mut left = self.left.lock();
        while left.fids.keys().any(|lane| !slow.contains(lane)) {
            if self.changed.wait_until(&mut left, until).timed_out() {
                return;
            }
        }
    }

    /// Answers, now or when the last part is done: what is left then.
    fn answer(&self, reply: CallReply, body: Vec<u8>) -> Vec<Fid> {
        let mut left = self.left.lock();
        if !left.fids.is_empty() {
            left.answer = Some((reply, body));
            return left.fids.values().flatten().copied().collect();
        }
        drop(left);
        reply.send(0, body);
        Vec::new()
    }
}

impl State {
    /// Whether something of a file with objects cannot be told before OSTs have answered. What they took and did not
    /// commit need not be.
    fn asks_osts(&self) -> bool {
        let counts = (self.unreported || self.blocks_due) && self.blocks_known().is_none();
        let sends = !self.dirty.is_empty() || !self.flight.is_empty() || !self.cut.is_empty();
        sends || counts || self.unsaid.is_some() || self.talking
    }
}

impl Core {
    /// The MDT wants leases back: nothing that rests on them is believed from when it is answered, and
    /// files that are open here only are open there too.
    pub(crate) fn give_back(self: &Arc<Core>, recall: LeaseRecall, reply: CallReply) {
        let (rest, groups) = self.stop_believing(&recall);
        let lanes: Vec<Lane> = groups.keys().copied().collect();
        let fids = groups.iter().map(|(lane, group)| (*lane, group.fids().collect())).collect();
        let left = Mutex::new(Left { fids, answer: None });
        let until =
            Instant::now() + self.options.request_timeout.saturating_mul(REQUESTS).min(MOST);
        let round = Arc::new(Round { until, left, changed: Condvar::new() });
        groups.into_iter().for_each(|(lane, group)| self.leave(&round, lane, group));
        let unwatched = self.give(rest, until);
        self.counters.recalls.fetch_add(1, SeqCst);
        let slow = lanes.into_iter().filter(|lane| self.is_slow(*lane)).collect();
        round.wait(&slow, PATIENCE);
        let body = match unwatched.is_empty() {
            true => Vec::new(),
            false => Unwatched { fids: List(unwatched.clone()) }.to_bytes(),
        };
        let left = round.answer(reply, body);
        if !left.is_empty() {
            tracing::debug!(count = left.len(), "given back later: OSTs are slow or lost");
            let op = Op::PutOff { call: recall.call, left: List(left), unwatched: List(unwatched) };
            // Without it the MDT waits for all of it.
            self.mdt.submit(&own_cred(), vec![op], |_| {});
        }
    }

    /// Takes leases out of what is believed, and finds what must be told before they are given back.
    fn stop_believing(self: &Arc<Core>, recall: &LeaseRecall) -> (Group, HashMap<Lane, Group>) {
        let (mut rest, mut groups) = (Group::default(), HashMap::<Lane, Group>::default());
        let (mut read, mut late) = (Vec::new(), Vec::new());
        self.tell_while_owned(&recall.back.0);
        for lease in &recall.back.0 {
            self.leases.recalled(lease.fid, lease.bits);
            // Waits for an operation that still believed in it: it is logged by then.
            self.mdt.wb.recalled(lease.fid, lease.bits);
        }
        let opened = recall.back.0.iter().filter(|l| l.bits & (LS_WRITE | LS_OPEN) != 0);
        let opened: Vec<_> = opened.map(|l| l.fid).collect();
        self.mdt.come_clean(&opened);
        for lease in &recall.back.0 {
            let Some(inode) = self.registry.find(lease.fid) else {
                rest.leases.push(lease.clone());
                continue;
            };
            // Also if it was not believed to be held any more: what was written while it was may be here
            // still, and must not come out over what others write from now on.
            let shared = lease.bits == LS_WRITE && self.stays_known(&inode);
            let owned = lease.bits & LS_WRITE != 0 && !shared;
            if owned {
                self.leases.let_go(lease.fid);
            }
            let group = match self.lane_to_wait_for(&inode, owned) {
                Some(lane) => groups.entry(lane).or_default(),
                None => &mut rest,
            };
            group.leases.push(lease.clone());
            if owned {
                group.owned.push(inode.clone());
            }
            {
                // Waits for who still believed in it.
                let mut st = inode.st.lock();
                st.ahead.clear();
                st.direct_reads = 0;
                if lease.bits & LS_LATE != 0 {
                    st.kept.recalled();
                    // Out of what waits in memory first; then it is told when that came.
                    match st.is_untold() {
                        true => group.ahead.push(inode.clone()),
                        false => late.push(inode.clone()),
                    }
                }
                // Told later, when it was read would undo a time that is set by hand now.
                if lease.bits & LS_ATTR != 0 && st.atime.is_some() {
                    read.push(inode.clone());
                }
            }
            if lease.bits & LS_OPEN != 0
                && let Err(e) = self.pin(&inode)
            {
                tracing::warn!(fid = %inode.fid, error = %e, "a file that is open is not kept");
            }
        }
        for inode in recall.glimpse.0.iter().filter_map(|fid| self.registry.find(*fid)) {
            match self.lane_to_wait_for(&inode, false) {
                Some(lane) => groups.entry(lane).or_default().shown.push(inode),
                None => rest.shown.push(inode),
            }
        }
        for fid in &recall.written.0 {
            let inode = self.registry.find(*fid);
            match inode.and_then(|inode| self.lane_to_wait_for(&inode, false)) {
                Some(lane) => groups.entry(lane).or_default().written.push(*fid),
                None => rest.written.push(*fid),
            }
        }
        for inode in late {
            if let Err(e) = self.tell_late(&inode) {
                tracing::warn!(fid = %inode.fid, error = %e, "what was written is not told");
            }
        }
        self.tell_read(&read);
        let attrs = recall.back.0.iter().filter(|l| l.bits & LS_ATTR != 0);
        self.tell_looks_of(attrs.map(|l| l.fid));
        (rest, groups)
    }

    /// Of a file whose bytes may be on their way to or from OSTs: where to. It is not given back before that is over.
    fn lane_to_wait_for(&self, inode: &Inode, owned: bool) -> Option<Lane> {
        // Somebody reads or writes it, or moves it to OSTs. If not, its state shows all that was done while it was
        // believed to be owned: what asks nothing of OSTs is not kept by one that hangs. Whoever begins just now may
        // ask, and keep it nevertheless; so that is a thread's work, too.
        let busy = inode.io.try_write().is_none();
        let (lane, asks) = {
            let st = inode.st.lock();
            (Lane::of(&st.place), st.asks_osts())
        };
        match lane {
            Some(lane) if lane != Lane::Mdt => {
                if asks || busy {
                    Some(lane)
                } else {
                    owned.then_some(Lane::Mdt)
                }
            }
            _ => busy.then_some(Lane::Many),
        }
    }

    /// Whether nobody should wait for what goes there.
    fn is_slow(&self, lane: Lane) -> bool {
        let osts = self.osts.read();
        match lane {
            Lane::Mdt => false,
            Lane::Ost(index) => {
                osts.get(&index).is_none_or(|ost| ost.is_lost() || ost.owes(PATIENCE))
            }
            Lane::Many => osts.values().any(|ost| ost.is_lost() || ost.owes(PATIENCE)),
        }
    }

    /// The thread of the lane does it.
    fn leave(self: &Arc<Core>, round: &Arc<Round>, lane: Lane, group: Group) {
        if !self.givers.add(lane, round, group) {
            return;
        }
        let core = Arc::clone(self);
        let work = move || core.work_off(lane);
        if let Err(e) = std::thread::Builder::new().name("client-giver".into()).spawn(work) {
            tracing::warn!(error = %e, "no thread to give leases back: others are given back later");
            self.work_off(lane);
        }
    }

    /// What waits is done together, so that it waits for a lost OST together, too.
    fn work_off(self: &Arc<Core>, lane: Lane) {
        loop {
            let (mut all, mut rounds) = (Group::default(), Vec::new());
            for (round, group) in self.givers.take(lane) {
                rounds.push(round);
                all.add(group);
            }
            let Some(until) = rounds.iter().map(|round: &Arc<Round>| round.until).min() else {
                return;
            };
            // One that is asked about twice is told of once.
            for files in [&mut all.owned, &mut all.shown, &mut all.ahead] {
                files.sort_by_key(|inode| inode.fid);
                files.dedup_by_key(|inode| inode.fid);
            }
            // A watch that is not given up now is with the next call-back.
            self.give(all, until);
            rounds.iter().for_each(|round| round.done(lane));
        }
    }

    /// When this returns the servers know what was done under leases, and nothing of it is cached; what others wrote
    /// that nobody watches any more.
    fn give(self: &Arc<Core>, group: Group, until: Instant) -> Vec<Fid> {
        for inode in group.ahead {
            let drained = self.drain_by(&inode, until);
            if let Err(e) = self.tell_late(&inode).and(drained) {
                tracing::warn!(fid = %inode.fid, error = %e, "what was written behind is not all there");
            }
        }
        self.disown(group.owned, until);
        self.show_all(group.shown, until);
        self.announce(|l| l.recalled(&group.leases));
        self.written(&group.written)
    }
}
