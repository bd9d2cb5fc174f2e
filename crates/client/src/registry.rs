//! The files that have state in memory.
//!
//! Role: one [`Inode`] per FID as long as anybody needs it, and for a while after, so that late
//! answers meet what is known; of a file that was removed for a moment only. Never does: I/O; a shard is locked for a
//! look-up only.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use parking_lot::Mutex;
use proto::{Attr, Fid};
use rustc_hash::FxHashMap as HashMap;

use crate::config::CACHED_INODES;
use crate::inode::{Idle, Inode, Place};

const SHARDS: usize = 16;
/// Closed and clean files that are kept with their data, at most.
pub(crate) const IDLE_MAX: usize = 32_768;
/// Bytes of such data, at most.
const IDLE_BYTES: usize = 64 << 20;
/// Closed and clean files of which the attributes are kept, about 1 KiB each, at most.
const BARE_MAX: usize = 32_768;
/// More of each that wait for [`Registry::trim`]: who closes a file does not look at others, which the
/// processor's cache has forgotten.
const TRIM_LATER: usize = 1024;
/// Bytes of data that wait so.
const TRIM_LATER_BYTES: usize = 4 << 20;

/// Removed files that wait for [`Registry::trim`]; more leave with the idle ones.
const GONE_MAX: usize = 65_536;

/// Files nobody needs; one that is needed again is found in its queue later, and passed over.
struct Queues {
    limits: Limits,
    full: VecDeque<(Fid, usize)>,
    bytes: usize,
    bare: VecDeque<Fid>,
    /// Removed since the last trim, and before it.
    gone: [Vec<Fid>; 2],
}

/// Of what is idle (invariant 8).
struct Limits {
    full: usize,
    bytes: usize,
    bare: usize,
}

impl Queues {
    fn within(limits: Limits) -> Queues {
        let (full, bytes, bare, gone) = Default::default();
        Queues { limits, full, bytes, bare, gone }
    }

    fn push(&mut self, fid: Fid, bytes: usize) {
        self.bytes += bytes;
        self.full.push_back((fid, bytes));
    }

    fn pop(&mut self) -> Option<Fid> {
        let (fid, bytes) = self.full.pop_front()?;
        self.bytes -= bytes;
        Some(fid)
    }

    /// Takes out those idle for longest, if there are more than the limits, and these, allow.
    fn surplus(&mut self, more: usize, more_bytes: usize) -> [Option<(Fid, Idle)>; 2] {
        let many = self.full.len() > self.limits.full + more
            || self.bytes > self.limits.bytes + more_bytes;
        let full = if many { self.pop() } else { None };
        let many = self.bare.len() > self.limits.bare + more;
        let bare = if many { self.bare.pop_front() } else { None };
        [full.map(|fid| (fid, Idle::Full)), bare.map(|fid| (fid, Idle::Bare))]
    }
}

pub(crate) struct Registry {
    shards: [Mutex<HashMap<Fid, Arc<Inode>>>; SHARDS],
    idle: Mutex<Queues>,
    count: AtomicUsize,
}

impl Registry {
    /// None yet. Of a client that knows fewer inodes than usual fewer files are kept, too.
    pub(crate) fn within(inodes: usize) -> Registry {
        let usual = CACHED_INODES as usize;
        let part = |most: usize| most * inodes.min(usual) / usual;
        let limits = Limits { full: part(IDLE_MAX), bytes: part(IDLE_BYTES), bare: part(BARE_MAX) };
        Registry {
            shards: Default::default(),
            idle: Mutex::new(Queues::within(limits)),
            count: AtomicUsize::new(0),
        }
    }

    fn shard(&self, fid: Fid) -> &Mutex<HashMap<Fid, Arc<Inode>>> {
        let mixed = (u64::from(fid.oid) ^ fid.seq).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        &self.shards[(mixed >> 60) as usize % SHARDS]
    }

    pub(crate) fn find(&self, fid: Fid) -> Option<Arc<Inode>> {
        self.shard(fid).lock().get(&fid).cloned()
    }

    /// A file has lost its last name; nothing of it is needed once it is closed.
    pub(crate) fn gone(&self, fid: Fid) {
        let mut q = self.idle.lock();
        if q.gone[0].len() < GONE_MAX {
            q.gone[0].push(fid);
        }
    }

    /// The state of a file; made from `attr` when there is none.
    pub(crate) fn get(&self, attr: &Attr) -> Arc<Inode> {
        let mut shard = self.shard(attr.fid).lock();
        let entry = shard.entry(attr.fid);
        entry
            .or_insert_with(|| {
                self.count.fetch_add(1, Relaxed);
                Arc::new(Inode::new(attr.clone()))
            })
            .clone()
    }

    pub(crate) fn len(&self) -> usize {
        self.count.load(Relaxed)
    }

    /// All files with state.
    pub(crate) fn all(&self) -> Vec<Arc<Inode>> {
        self.shards.iter().flat_map(|s| s.lock().values().cloned().collect::<Vec<_>>()).collect()
    }

    /// Those of which something would be lost. Few of the many that are kept: the others are not touched but for this.
    pub(crate) fn unclean(&self) -> Vec<Arc<Inode>> {
        let unclean = |inode: &&Arc<Inode>| !inode.st.lock().is_clean();
        let of = |s: &Mutex<HashMap<Fid, Arc<Inode>>>| {
            s.lock().values().filter(unclean).cloned().collect::<Vec<_>>()
        };
        self.shards.iter().flat_map(of).collect()
    }

    /// A file may not be needed any more: of the longest idle ones first the data goes, then, much
    /// later, what else is known of them.
    pub(crate) fn rest(&self, inode: &Arc<Inode>) {
        let bytes = {
            let mut st = inode.st.lock();
            if st.opens == 0 {
                // Whoever read ahead is gone; the room is others'.
                st.ahead.clear();
            }
            if st.opens == 0 && st.attr.nlink == 0 {
                self.gone(inode.fid);
            }
            let bytes = st.inline_bytes();
            let queued = match st.idle {
                Idle::No => false,
                Idle::Full => true,
                Idle::Bare => bytes == 0,
            };
            if st.opens > 0 || queued || !st.is_clean() {
                return;
            }
            st.idle = Idle::Full;
            bytes
        };
        let surplus = {
            let mut q = self.idle.lock();
            q.push(inode.fid, bytes);
            q.surplus(TRIM_LATER, TRIM_LATER_BYTES)
        };
        surplus.into_iter().flatten().for_each(|(fid, from)| self.retire(fid, from));
    }

    /// Lets go of what is beyond the limits, and of the files that were removed before the last time; these.
    pub(crate) fn trim(&self) -> Vec<Fid> {
        let mut gone = {
            let mut q = self.idle.lock();
            let since = std::mem::take(&mut q.gone[0]);
            std::mem::replace(&mut q.gone[1], since)
        };
        gone.retain(|fid| self.part(*fid));
        self.trim_idle();
        gone
    }

    fn trim_idle(&self) {
        // Those that are held for a moment come again.
        for _ in 0..2 * TRIM_LATER {
            let surplus = self.idle.lock().surplus(0, 0);
            if surplus == [None; 2] {
                return;
            }
            surplus.into_iter().flatten().for_each(|(fid, from)| self.retire(fid, from));
        }
    }

    /// Lets go of a removed file, unless somebody still needs it: then it rests later. Whether nothing is known of it.
    fn part(&self, fid: Fid) -> bool {
        let mut shard = self.shard(fid).lock();
        let Some(inode) = shard.get(&fid) else { return true };
        let needed = {
            let st = inode.st.lock();
            st.opens > 0 || !st.is_clean() || st.attr.nlink > 0
        };
        if needed || Arc::strong_count(inode) > 1 {
            return false;
        }
        shard.remove(&fid);
        self.count.fetch_sub(1, Relaxed);
        true
    }

    /// Lets go of the data of a file nobody holds, or of all of it; a busy one loses its place
    /// among the idle.
    fn retire(&self, fid: Fid, from: Idle) {
        let mut shard = self.shard(fid).lock();
        let Some(inode) = shard.get(&fid) else { return };
        let mut st = inode.st.lock();
        if st.idle != from {
            return;
        }
        st.idle = Idle::No;
        if st.opens > 0 || !st.is_clean() {
            return;
        }
        if Arc::strong_count(inode) > 1 {
            // Held for a moment: its turn comes again.
            st.idle = Idle::Full;
            let bytes = st.inline_bytes();
            drop(st);
            return self.idle.lock().push(fid, bytes);
        }
        if from == Idle::Full && !matches!(st.place, Place::Striped(_)) {
            st.place = Place::Unknown;
            st.idle = Idle::Bare;
            drop(st);
            return self.idle.lock().bare.push_back(fid);
        }
        drop(st);
        shard.remove(&fid);
        self.count.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filling::tests::attr;

    #[test]
    fn idle_files_stay_within_the_limits_also_while_nobody_trims() {
        let half = CACHED_INODES as usize / 2;
        assert_eq!(bound(2 * half), IDLE_MAX + BARE_MAX);
        assert_eq!(bound(half), (IDLE_MAX + BARE_MAX) / 2);
        assert_eq!(bound(4 * half), IDLE_MAX + BARE_MAX);
    }

    /// How many stay of more than that.
    fn bound(inodes: usize) -> usize {
        let registry = Registry::within(inodes);
        let limit = {
            let idle = registry.idle.lock();
            idle.limits.full + idle.limits.bare
        };
        let rest = |n: usize| {
            let fid = Fid { seq: 7, oid: n as u32, ver: 0 };
            let inode = registry.get(&Attr { fid, ..attr() });
            registry.rest(&inode);
        };
        (1..=limit + 4 * TRIM_LATER).for_each(rest);
        // One is on its way from those with data to those without.
        assert_eq!(registry.len(), limit + 2 * TRIM_LATER + 1);
        for _ in 0..4 {
            registry.trim();
        }
        assert_eq!(registry.len(), limit);
        let first = Fid { seq: 7, oid: 1, ver: 0 };
        assert!(registry.find(first).is_none(), "the longest idle ones go first");
        let last = Fid { seq: 7, oid: (limit + 4 * TRIM_LATER) as u32, ver: 0 };
        assert!(registry.find(last).is_some());
        limit
    }

    #[test]
    fn what_is_to_be_synced_is_what_would_be_lost() {
        let registry = Registry::within(CACHED_INODES as usize);
        let fids: Vec<_> = (1..=100).map(|oid| Fid { seq: 7, oid, ver: 0 }).collect();
        let all: Vec<_> =
            fids.iter().map(|fid| registry.get(&Attr { fid: *fid, ..attr() })).collect();
        assert!(registry.unclean().is_empty());
        all[3].st.lock().unreported = true;
        all[70].st.lock().mtime = Some(proto::TimeSpec::default());
        let mut found: Vec<_> = registry.unclean().iter().map(|inode| inode.fid).collect();
        found.sort();
        assert_eq!(found, [fids[3], fids[70]]);
    }

    #[test]
    fn nothing_stays_of_a_removed_file_once_it_is_closed() {
        let registry = Registry::within(CACHED_INODES as usize);
        let [there, removed, open] = [1, 2, 3].map(|oid| Fid { seq: 7, oid, ver: 0 });
        for fid in [there, removed, open] {
            let inode = registry.get(&Attr { fid, ..attr() });
            registry.rest(&inode);
        }
        let known = |fid| registry.get(&Attr { fid, ..attr() });
        for fid in [removed, open] {
            known(fid).st.lock().attr.nlink = 0;
            registry.gone(fid);
        }
        known(open).st.lock().opens = 1;
        assert_eq!(registry.trim(), [], "a late answer may still come");
        assert_eq!(registry.trim(), [removed]);
        assert!(registry.find(removed).is_none() && registry.len() == 2);
        known(open).st.lock().opens = 0;
        registry.rest(&known(open));
        assert_eq!(registry.trim(), []);
        assert_eq!(registry.trim(), [open]);
        assert!(registry.find(there).is_some() && registry.len() == 1);
        registry.gone(open);
        assert_eq!(
            [registry.trim(), registry.trim()],
            [vec![], vec![open]],
            "its leases may be left"
        );
    }
}
