//! What this client may believe while others share the files: leases per inode (invariant 3).
//!
//! Role: a table of what the MDT granted and has not called back, in the order of questions, grants,
//! call-backs and own changes. A grant counts only if nothing of that inode was called back, or
//! changed here, since it was asked for. What was learned is the truth only if its lease is held
//! now and was held all the time since the question was asked, or came with the same answer:
//! whoever keeps something notes that [`Mark`] and asks [`Leases::fresh`] before each use.
//! While a change made here is on its way, its inode's data and attributes are not believed: others may
//! see it changed already. What the MDT grants of them meanwhile counts only with the answer to that
//! very change, which is about what it left.
//! Assumptions: the MDT notes a grant before it answers and bounds how many there are; what this
//! table has lost the MDT may still list, which costs a call-back at most. Under the SOLE lease
//! nothing here is asked. Never does: I/O, waiting.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use proto::mds::{
    LS_ATTR, LS_DIRX, LS_LATE, LS_LAYOUT, LS_LOOKUP, LS_OPEN, LS_READ, LS_WRITE, Lease,
};
use proto::{Fid, FileKind};
use rustc_hash::FxHashMap as HashMap;

/// How long what was granted is believed after the MDT last surely knew this client (invariant 3). An
/// MDT gives a client at least 20 seconds to answer a call-back before others get what it had; the
/// rest is for clocks that differ.
pub(crate) const BELIEF: Duration = Duration::from_secs(18);

const SHARDS: usize = 64;
/// Inodes remembered in a shard before those without a lease are dropped (invariant 8); the MDT
/// grants a client 100,000 over all shards.
const PER_SHARD: usize = 4096;
/// What a change made here makes doubtful of its own inode.
const CHANGED: u8 = LS_ATTR | LS_LAYOUT | LS_READ;
/// With all of these it is the only one that may change a file, and knows what it is: it goes on believing. Who has the
/// right without the knowledge ([`Leases::granted`] left it out) might get it from an answer of before the change.
const KNOWS_ALONE: u8 = LS_WRITE | LS_ATTR | LS_READ;

/// What who makes an inode has of it: what an MDT grants for it.
pub(crate) fn of_maker(kind: FileKind) -> u8 {
    match kind {
        FileKind::Dir => LS_LOOKUP | LS_ATTR | LS_DIRX,
        _ => LS_ATTR | LS_OPEN | LS_LAYOUT | LS_READ | LS_WRITE,
    }
}

/// A point in the order of events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Mark(u64);

impl Mark {
    /// What was learned at this mark is never believed.
    pub(crate) const NEVER: Mark = Mark(0);
}

/// Leases under which something is learned.
const LEARNED: [u8; 4] = [LS_LOOKUP, LS_ATTR, LS_READ, LS_LATE];

/// Of one inode.
#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    bits: u8,
    /// When something was last called back, or changed here.
    stamp: u64,
    /// When the right to tell late last ended here: that alone is not taken from answers asked before.
    late_ended: u64,
    /// Since when each of [`LEARNED`] is held.
    since: [u64; 4],
    /// Writes of others are told here, whatever is changed from here: `LS_READ` was not called back since it was
    /// granted.
    watched: bool,
    /// When that was last called back.
    called: u64,
    /// Messages on their way that change it.
    changing: u32,
}

/// What came with one answer.
#[derive(Debug, Default)]
pub(crate) struct Got {
    leases: Vec<Lease>,
    mark: Mark,
}

impl Got {
    /// The mark of what the answer told of an inode, which was asked at `asked` and is learned
    /// under these leases.
    pub(crate) fn mark(&self, fid: Fid, bits: u8, asked: Mark) -> Mark {
        let found = self.leases.binary_search_by_key(&fid, |l| l.fid).ok();
        let came = found.is_some_and(|at| self.leases[at].bits & bits == bits);
        if came { self.mark } else { asked }
    }

    /// What came of an inode.
    fn bits(&self, fid: Fid) -> u8 {
        let found = self.leases.binary_search_by_key(&fid, |l| l.fid).ok();
        found.map_or(0, |at| self.leases[at].bits)
    }

    /// What came with another part of the answer is added.
    pub(crate) fn add(&mut self, other: Got) {
        self.leases.extend(other.leases);
        self.leases.sort_unstable_by_key(|l| l.fid);
        self.mark = self.mark.max(other.mark);
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Leases {
    /// Whether leases are asked for at all.
    on: bool,
    /// The session with the MDT is lost: nobody could call anything back.
    away: AtomicBool,
    /// When it was last heard. None: it cannot be lost without `away`.
    heard: OnceLock<Arc<net::Heard>>,
    clock: AtomicU64,
    /// Stamp of what is not in the table: of anything dropped, or older.
    floor: AtomicU64,
    shards: Vec<Mutex<HashMap<Fid, Entry>>>,
}

fn too_long_ago(heard: &Arc<net::Heard>) -> bool {
    heard.silence() >= BELIEF
}

impl Leases {
    pub(crate) fn new(on: bool) -> Leases {
        let shards = (0..SHARDS).map(|_| Mutex::default()).collect();
        let (clock, floor) = (AtomicU64::new(1), AtomicU64::new(1));
        let away = AtomicBool::new(false);
        Leases { on, away, heard: OnceLock::new(), clock, floor, shards }
    }

    /// The session whose server grants them.
    pub(crate) fn heard_by(&self, heard: Arc<net::Heard>) {
        // One session all the client's life.
        let _ = self.heard.set(heard);
    }

    fn shard(&self, fid: Fid) -> &Mutex<HashMap<Fid, Entry>> {
        let mixed = (u64::from(fid.oid) ^ fid.seq).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        &self.shards[(mixed >> 56) as usize % SHARDS]
    }

    fn tick(&self) -> u64 {
        self.clock.fetch_add(1, SeqCst) + 1
    }

    /// Whether leases are asked for.
    pub(crate) fn on(&self) -> bool {
        self.on
    }

    /// To be taken before something is asked.
    pub(crate) fn mark(&self) -> Mark {
        Mark(self.clock.load(SeqCst))
    }

    /// What is noted of an inode; never older than what was dropped.
    fn entry<'a>(&self, shard: &'a mut HashMap<Fid, Entry>, fid: Fid) -> &'a mut Entry {
        if shard.len() >= PER_SHARD && !shard.contains_key(&fid) {
            self.floor.fetch_max(self.tick(), SeqCst);
            shard.retain(|_, e| e.bits != 0 || e.watched || e.changing > 0);
        }
        shard.entry(fid).or_insert_with(|| {
            let stamp = self.floor.load(SeqCst);
            let (late_ended, called, since) = (stamp, stamp, [stamp; 4]);
            Entry { bits: 0, stamp, late_ended, since, watched: false, called, changing: 0 }
        })
    }

    /// Takes what an answer to a question of `mark` granted; what of it counts. `own`: what the same message
    /// changed ([`Leases::changing`]).
    pub(crate) fn granted(&self, mut leases: Vec<Lease>, mark: Mark, own: &[Fid]) -> Got {
        leases.retain_mut(|lease| {
            let mut shard = self.shard(lease.fid).lock();
            let entry = self.entry(&mut shard, lease.fid);
            if self.on && lease.bits & LS_READ != 0 && entry.called <= mark.0 {
                entry.watched = true;
            }
            if !self.on || entry.stamp > mark.0 {
                return false;
            }
            if entry.late_ended > mark.0 {
                lease.bits &= !LS_LATE;
            }
            if entry.changing > u32::from(own.contains(&lease.fid)) {
                lease.bits &= !CHANGED;
            }
            let new = lease.bits & !entry.bits;
            entry.bits |= lease.bits;
            for (since, bit) in entry.since.iter_mut().zip(LEARNED) {
                if new & bit != 0 {
                    *since = self.tick();
                }
            }
            true
        });
        leases.sort_unstable_by_key(|l| l.fid);
        Got { leases, mark: Mark(self.tick()) }
    }

    /// An inode is made here, in a directory nobody else has anything of: nobody can have anything of it
    /// either. From when it is believed.
    pub(crate) fn born(&self, fid: Fid, kind: FileKind) -> Mark {
        let mut shard = self.shard(fid).lock();
        let entry = self.entry(&mut shard, fid);
        entry.bits |= of_maker(kind);
        entry.watched = of_maker(kind) & LS_READ != 0;
        entry.since = [self.tick(); 4];
        Mark(self.tick())
    }

    /// The MDT made it: what it did not grant with the answer is not held.
    pub(crate) fn confirm(&self, fid: Fid, got: &Got) {
        let missing = !got.bits(fid);
        if missing & LS_READ != 0
            && let Some(entry) = self.shard(fid).lock().get_mut(&fid)
        {
            entry.watched = false;
        }
        if self.shard(fid).lock().get(&fid).is_some_and(|e| e.bits & missing != 0) {
            self.stamp(fid, missing, 0);
        }
    }

    /// What is held of an inode, as if an answer had brought it just now.
    pub(crate) fn held(&self, fid: Fid) -> Got {
        let bits = self.find(fid).map_or(0, |e| e.bits);
        Got { leases: vec![Lease { fid, bits }], mark: self.mark() }
    }

    /// Whether nobody else has anything of an inode: it may be changed here first.
    pub(crate) fn excludes(&self, fid: Fid) -> bool {
        let bits = self.find(fid).map_or(0, |e| e.bits);
        let all = |wanted: u8| bits & wanted == wanted;
        all(LS_ATTR | LS_WRITE) || all(LS_ATTR | LS_LOOKUP | LS_DIRX)
    }

    fn find(&self, fid: Fid) -> Option<Entry> {
        if !self.on || self.away.load(SeqCst) || self.heard.get().is_some_and(too_long_ago) {
            return None;
        }
        self.shard(fid).lock().get(&fid).copied()
    }

    /// For how long what is held is believed if the MDT is not heard again; None: it is not.
    pub(crate) fn left(&self) -> Option<Duration> {
        if !self.on || self.away.load(SeqCst) {
            return None;
        }
        let silence = self.heard.get().map_or(Duration::ZERO, |heard| heard.silence());
        BELIEF.checked_sub(silence).filter(|left| !left.is_zero())
    }

    /// Whether these leases are held, and have been since `mark`: what was learned then is the truth
    /// now.
    pub(crate) fn fresh(&self, fid: Fid, bits: u8, mark: Mark) -> bool {
        let Some(entry) = self.find(fid) else { return false };
        let before = |(since, bit): (u64, u8)| bits & bit == 0 || since <= mark.0;
        entry.bits & bits == bits && entry.since.into_iter().zip(LEARNED).all(before)
    }

    /// Whether these leases are held.
    pub(crate) fn has(&self, fid: Fid, bits: u8) -> bool {
        self.find(fid).is_some_and(|e| e.bits & bits == bits)
    }

    /// Whether the MDT calls back before a write of anybody else to a file returns.
    pub(crate) fn watches(&self, fid: Fid) -> bool {
        self.find(fid).is_some_and(|e| e.watched)
    }

    /// What was watched is no longer, from before the MDT is told so.
    pub(crate) fn unwatch(&self, fid: Fid) {
        let mut shard = self.shard(fid).lock();
        let entry = self.entry(&mut shard, fid);
        (entry.watched, entry.called) = (false, self.tick());
    }

    /// The MDT wants something back; what of it was held.
    pub(crate) fn recalled(&self, fid: Fid, bits: u8) -> u8 {
        if bits & LS_READ != 0 {
            self.unwatch(fid);
        }
        let had = self.stamp(fid, bits, 0);
        if bits & LS_WRITE != 0
            && let Some(entry) = self.shard(fid).lock().get_mut(&fid).filter(|e| e.changing > 0)
        {
            // Others may see the change from now on.
            entry.bits &= !CHANGED;
        }
        had
    }

    /// This client changes, or has just changed, an inode: what it knew of data and attributes is
    /// no longer so, unless it is the only one that may change them and knows them.
    pub(crate) fn changed(&self, fid: Fid) {
        if self.on {
            self.stamp(fid, CHANGED, KNOWS_ALONE);
        }
    }

    /// A message that changes an inode is about to be sent; ends with [`Leases::change_ended`].
    pub(crate) fn changing(&self, fid: Fid) {
        self.changed(fid);
        let mut shard = self.shard(fid).lock();
        self.entry(&mut shard, fid).changing += 1;
    }

    /// It was answered, or is lost. `told`: what came with the answer is of after the change, and is known; older
    /// attributes are known by their version.
    pub(crate) fn change_ended(&self, fid: Fid, told: bool) {
        if !told {
            self.changed(fid);
        }
        if let Some(entry) = self.shard(fid).lock().get_mut(&fid) {
            entry.changing = entry.changing.saturating_sub(1);
        }
    }

    /// This client is no longer the only one that may change a file's data, or does not want to be;
    /// whether it was.
    pub(crate) fn let_go(&self, fid: Fid) -> bool {
        self.on && self.stamp(fid, CHANGED | LS_WRITE, 0) & LS_WRITE != 0
    }

    /// An inode is gone, at the MDT, too, which lists nothing of it any more.
    pub(crate) fn gone(&self, fid: Fid) {
        if self.on && self.shard(fid).lock().contains_key(&fid) {
            self.unwatch(fid);
            self.stamp(fid, u8::MAX, 0);
        }
    }

    /// A handle to write with is being closed: with the last one the right to tell late ends. Of what else
    /// an answer on its way brings nothing does: the MDT goes on listing it, and would call back what nobody
    /// here believes to have.
    pub(crate) fn end_late(&self, fid: Fid) {
        if self.on {
            let mut shard = self.shard(fid).lock();
            let entry = self.entry(&mut shard, fid);
            entry.bits &= !LS_LATE;
            entry.late_ended = self.tick();
        }
    }

    /// Takes bits away, except beside all those of `beside`, if any; which of them were there.
    fn stamp(&self, fid: Fid, bits: u8, beside: u8) -> u8 {
        let mut shard = self.shard(fid).lock();
        let entry = self.entry(&mut shard, fid);
        if beside != 0 && entry.bits & beside == beside {
            return 0;
        }
        let had = entry.bits & bits;
        entry.bits &= !bits;
        entry.stamp = self.tick();
        had
    }

    /// The session is lost, or back.
    pub(crate) fn away(&self, now: bool) {
        self.away.store(now, SeqCst);
    }

    /// Nothing is held any more, and nothing asked before counts.
    pub(crate) fn clear(&self) {
        self.floor.fetch_max(self.tick(), SeqCst);
        for shard in &self.shards {
            let mut shard = shard.lock();
            let changing = |e: Entry| (e.changing > 0).then_some(e.changing);
            let left: Vec<(Fid, u32)> =
                shard.iter().filter_map(|(fid, e)| Some((*fid, changing(*e)?))).collect();
            shard.clear();
            for (fid, changing) in left {
                self.entry(&mut shard, fid).changing = changing;
            }
        }
    }

    /// Inodes with leases.
    pub(crate) fn len(&self) -> usize {
        self.shards.iter().map(|s| s.lock().values().filter(|e| e.bits != 0).count()).sum()
    }
}

#[cfg(test)]
mod tests;
