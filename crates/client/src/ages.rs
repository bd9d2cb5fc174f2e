//! What of a table goes when there is too much in it.
//!
//! Role: a coarse clock that moves as things come: each notes it when it is used, and those of the oldest times go until a
//! quarter of the table is free. So one pass over the table pays for many that come. Never does: hold what it judges.

use std::collections::BTreeMap;

/// Ticks in which a table fills.
const TICKS: usize = 16;

/// When something was used, as [`Ages`] counts.
pub(crate) type Tick = u32;

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Ages {
    /// How much there may be (invariant 8).
    most: usize,
    now: Tick,
    /// What came since the clock moved.
    came: usize,
}

impl Ages {
    /// Of a table of so many at most.
    pub(crate) fn within(most: usize) -> Ages {
        Ages { most, now: 0, came: 0 }
    }

    /// How much there may be.
    pub(crate) fn most(&self) -> usize {
        self.most
    }

    /// What whoever uses something notes.
    pub(crate) fn now(&self) -> Tick {
        self.now
    }

    /// One more is in the table; what whoever put it there notes.
    pub(crate) fn more(&mut self) -> Tick {
        self.came += 1;
        if self.came > self.most / TICKS {
            self.came = 0;
            // Not in any client's life to its end.
            self.now = self.now.saturating_add(1);
        }
        self.now
    }

    /// Of a table that holds too much, by when it was used and how much it is: what was used before this goes.
    pub(crate) fn keep_from(&self, all: impl Iterator<Item = (Tick, usize)>) -> Tick {
        let mut sums = BTreeMap::<Tick, usize>::new();
        all.for_each(|(tick, much)| *sums.entry(tick).or_default() += much);
        let mut left: usize = sums.values().sum();
        for (tick, much) in sums {
            if left <= self.most - self.most / 4 {
                return tick;
            }
            left -= much;
        }
        // All of it is of one time.
        self.now.saturating_add(1)
    }
}
