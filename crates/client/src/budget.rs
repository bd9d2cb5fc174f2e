//! The limit of written bytes that are only here (invariant 8).
//!
//! Role: counts bytes not yet taken by an OST (`dirty`) and taken but not committed
//! (`unstable`) over all files; writers wait while either is above its limit. What only lost OSTs could take
//! keeps nobody waiting who writes elsewhere; it has a limit of its own, a quarter of the other. Never does:
//! flush.

use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

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

pub(crate) struct Budget {
    held: Mutex<Held>,
    changed: Condvar,
    limit: Held,
}

impl Budget {
    pub(crate) fn new(options: &crate::Options) -> Budget {
        let mib = |mb: u32| u64::from(mb.max(1)) << 20;
        let limit =
            Held { dirty: mib(options.max_dirty_mb), unstable: mib(options.max_uncommitted_mb) };
        Budget { held: Mutex::default(), changed: Condvar::new(), limit }
    }

    /// A file's share went from `old` to `new`.
    pub(crate) fn change(&self, old: Held, new: Held) {
        if old == new {
            return;
        }
        let mut held = self.held.lock();
        held.dirty = (held.dirty + new.dirty).saturating_sub(old.dirty);
        held.unstable = (held.unstable + new.unstable).saturating_sub(old.unstable);
        drop(held);
        if new.dirty < old.dirty || new.unstable < old.unstable {
            self.changed.notify_all();
        }
    }

    pub(crate) fn held(&self) -> Held {
        *self.held.lock()
    }

    fn over(&self, held: Held) -> bool {
        held.dirty > self.limit.dirty || held.unstable > self.limit.unstable
    }

    /// Whether it is time to send without being asked: half of a limit is used.
    pub(crate) fn tight(&self) -> Held {
        let held = self.held();
        Held {
            dirty: u64::from(held.dirty > self.limit.dirty / 2),
            unstable: u64::from(held.unstable > self.limit.unstable / 2),
        }
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
            self.changed.wait_for(&mut self.held.lock(), LOOK);
        }
        true
    }

    /// Waits until there is room, calling `push` before each wait; false when nothing moved for
    /// `patience`. What waits for lost OSTs (`lost`) does not count.
    pub(crate) fn room(
        &self,
        patience: Duration,
        lost: impl Fn() -> Held,
        mut push: impl FnMut(),
    ) -> bool {
        let mut seen = self.held();
        let mut since = Instant::now();
        while self.over(seen) && self.over(seen.without(lost())) {
            push();
            let mut held = self.held.lock();
            if *held == seen {
                self.changed.wait_for(&mut held, LOOK);
            }
            if *held != seen {
                since = Instant::now();
            } else if since.elapsed() > patience {
                return false;
            }
            seen = *held;
        }
        true
    }
}
