//! The limit of written bytes that are only here (invariant 8).
//!
//! Role: counts bytes not yet taken by an OST (`dirty`) and taken but not committed (`unstable`) over all
//! files; writers wait while either is above its limit. Each lane has a part of it for itself, so that a
//! slow OST keeps nobody waiting who writes elsewhere; all of it together is twice the limit at most. What
//! only lost OSTs could take keeps nobody waiting either; it has a limit of its own, a quarter of the other.
//! Never does: flush.

use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use rustc_hash::FxHashMap as HashMap;

use crate::lane::Lane;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) dirty: u64,
    pub(crate) unstable: u64,
}

impl Held {
    pub(crate) fn add(&mut self, other: Held) {
        self.dirty += other.dirty;
        self.unstable += other.unstable;
    }

    fn change(&mut self, old: Held, new: Held) {
        self.dirty = (self.dirty + new.dirty).saturating_sub(old.dirty);
        self.unstable = (self.unstable + new.unstable).saturating_sub(old.unstable);
    }

    fn without(self, other: Held) -> Held {
        Held {
            dirty: self.dirty.saturating_sub(other.dirty),
            unstable: self.unstable.saturating_sub(other.unstable),
        }
    }
}

/// Part of the limit of dirty bytes that those may take which only lost OSTs could.
const LOST_PART: u64 = 4;

/// How soon who waits looks again whether something is still lost.
const LOOK: Duration = Duration::from_millis(100);

/// Part of a limit that is each lane's own.
const LANE_PART: u64 = 4;

#[derive(Default)]
struct Inner {
    all: Held,
    /// Those that hold anything.
    lanes: HashMap<Lane, Held>,
}

impl Inner {
    fn lane(&self, lane: Lane) -> Held {
        self.lanes.get(&lane).copied().unwrap_or_default()
    }

    fn change(&mut self, lane: Lane, old: Held, new: Held) {
        let held = self.lanes.entry(lane).or_default();
        held.change(old, new);
        if *held == Held::default() {
            self.lanes.remove(&lane);
        }
    }
}

pub(crate) struct Budget {
    inner: Mutex<Inner>,
    changed: Condvar,
    limit: Held,
}

impl Budget {
    pub(crate) fn new(options: &crate::Options) -> Budget {
        let mib = |mb: u32| u64::from(mb.max(1)) << 20;
        let limit =
            Held { dirty: mib(options.max_dirty_mb), unstable: mib(options.max_uncommitted_mb) };
        Budget { inner: Mutex::default(), changed: Condvar::new(), limit }
    }

    /// A file's share went from one to another.
    pub(crate) fn change(&self, (old_lane, old): (Lane, Held), (new_lane, new): (Lane, Held)) {
        if (old_lane, old) == (new_lane, new) {
            return;
        }
        let mut inner = self.inner.lock();
        inner.all.change(old, new);
        if old_lane == new_lane {
            inner.change(new_lane, old, new);
        } else {
            inner.change(old_lane, old, Held::default());
            inner.change(new_lane, Held::default(), new);
        }
        drop(inner);
        if new.dirty < old.dirty || new.unstable < old.unstable || old_lane != new_lane {
            self.changed.notify_all();
        }
    }

    pub(crate) fn held(&self) -> Held {
        self.inner.lock().all
    }

    fn over(&self, held: Held) -> bool {
        held.dirty > self.limit.dirty || held.unstable > self.limit.unstable
    }

    /// Whether a lane may not have more.
    fn is_full(&self, inner: &Inner, lane: Lane) -> bool {
        let fits = |all, own, limit| all <= limit || (own < limit / LANE_PART && all < limit * 2);
        let (all, own, limit) = (inner.all, inner.lane(lane), self.limit);
        !fits(all.dirty, own.dirty, limit.dirty)
            || !fits(all.unstable, own.unstable, limit.unstable)
    }

    /// Whether it is time for a lane to send, and to commit, without being asked: half of a limit is used,
    /// and not by others.
    pub(crate) fn tight(&self, lane: Lane) -> (bool, bool) {
        let inner = self.inner.lock();
        let (all, own, lanes) = (inner.all, inner.lane(lane), inner.lanes.len() as u64);
        let is = |all, own, limit| all > limit / 2 && own * 2 * lanes >= all;
        let limit = self.limit;
        (is(all.dirty, own.dirty, limit.dirty), is(all.unstable, own.unstable, limit.unstable))
    }

    /// Whether so much is dirty that some of it may be too much for lost OSTs.
    pub(crate) fn may_lack_room(&self) -> bool {
        self.held().dirty > self.limit.dirty / LOST_PART
    }

    /// Waits until what waits for lost OSTs, as `lost` tells (None: they are back), leaves room for more
    /// of it; false after `patience`.
    pub(crate) fn room_for_lost(
        &self,
        patience: Duration,
        lost: impl Fn() -> Option<Held>,
    ) -> bool {
        let until = Instant::now() + patience;
        while lost().is_some_and(|held| held.dirty > self.limit.dirty / LOST_PART) {
            if Instant::now() >= until {
                return false;
            }
            self.changed.wait_for(&mut self.inner.lock(), LOOK);
        }
        true
    }

    /// Waits until there is room for more in a lane, calling `push` before each wait; false when nothing
    /// moved for `patience`. What waits for lost OSTs (`lost`) does not count.
    pub(crate) fn room(
        &self,
        lane: Lane,
        patience: Duration,
        lost: impl Fn() -> Held,
        mut push: impl FnMut(),
    ) -> bool {
        let mut since = Instant::now();
        loop {
            let (seen, full) = {
                let inner = self.inner.lock();
                (inner.all, self.is_full(&inner, lane))
            };
            if !full || !self.over(seen.without(lost())) {
                return true;
            }
            push();
            let mut inner = self.inner.lock();
            if inner.all == seen {
                self.changed.wait_for(&mut inner, LOOK);
            }
            if inner.all != seen {
                since = Instant::now();
            } else if since.elapsed() > patience {
                return false;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn budget() -> Budget {
        let options =
            crate::Options { max_dirty_mb: 64, max_uncommitted_mb: 64, ..Default::default() };
        Budget::new(&options)
    }

    /// Whether more is taken at once.
    fn takes(budget: &Budget, lane: Lane) -> bool {
        budget.room(lane, Duration::ZERO, Held::default, || ())
    }

    fn hold(budget: &Budget, lane: Lane, dirty: u64, unstable: u64) {
        let more = Held { dirty: dirty * MIB, unstable: unstable * MIB };
        budget.change((lane, Held::default()), (lane, more));
    }

    #[test]
    fn who_writes_elsewhere_has_a_part_for_himself() {
        for (dirty, unstable) in [(1u64, 0u64), (0, 1)] {
            let budget = budget();
            let add = |lane, mib| hold(&budget, lane, dirty * mib, unstable * mib);
            add(Lane::Ost(0), 64);
            assert!(takes(&budget, Lane::Ost(0)));
            add(Lane::Ost(0), 1);
            assert!(!takes(&budget, Lane::Ost(0)));
            for lane in [Lane::Ost(1), Lane::Mdt, Lane::Many] {
                assert!(takes(&budget, lane));
                add(lane, 15);
                assert!(takes(&budget, lane));
                add(lane, 1);
                assert!(!takes(&budget, lane), "its part is used");
            }
            add(Lane::Ost(2), 15);
            assert!(!takes(&budget, Lane::Ost(3)), "twice the limit is all there is");
        }
    }

    #[test]
    fn a_file_that_moves_takes_its_share_along() {
        let budget = budget();
        let share = Held { dirty: 80 * MIB, unstable: 0 };
        budget.change((Lane::Mdt, Held::default()), (Lane::Mdt, share));
        assert!(!takes(&budget, Lane::Mdt));
        budget.change((Lane::Mdt, share), (Lane::Ost(1), share));
        assert!(takes(&budget, Lane::Mdt) && !takes(&budget, Lane::Ost(1)));
        budget.change((Lane::Ost(1), share), (Lane::Ost(1), Held::default()));
        assert_eq!(budget.held(), Held::default());
        assert!(budget.inner.lock().lanes.is_empty());
    }

    #[test]
    fn only_who_has_much_must_hurry() {
        let budget = budget();
        hold(&budget, Lane::Ost(0), 40, 0);
        hold(&budget, Lane::Ost(1), 2, 0);
        assert_eq!(budget.tight(Lane::Ost(0)), (true, false));
        assert_eq!(budget.tight(Lane::Ost(1)), (false, false));
        hold(&budget, Lane::Ost(1), 30, 0);
        assert_eq!(budget.tight(Lane::Ost(1)), (true, false));
    }
}
