//! Whether small writes are done by the thread that received them.
//!
//! Role: such a thread serves many sessions and must not wait. A write to the page cache takes it about as
//! long as to give it to another thread, but where the disk is behind the kernel holds writers up. So each is
//! timed, and after one that took long all go to the pool for a while, ever longer as long as that goes on.
//! Never does: look at a clock, hold a lock.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// What takes longer did wait: several times what a processor that is shared may take.
const LONG: Duration = Duration::from_millis(10);
/// How long all go to the pool after one that took long, for the first time and at most.
const REST: Duration = Duration::from_secs(1);
const MAX_REST: Duration = Duration::from_secs(64);
/// If the next one took long before so many times that are over, it is doubled.
const FORGIVEN: u32 = 4;

/// See the module. Times are those since some moment.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    /// When the last one that took long had ended, and the rest since, microseconds.
    slow: AtomicU64,
    rest: AtomicU64,
}

impl Pace {
    /// Whether nothing took long lately.
    pub(crate) fn is_quick(&self, now: Duration) -> bool {
        let rest = self.rest();
        rest.is_zero() || now >= self.slow() + rest
    }

    /// One has ended that took so long. Of several that end at once some may be missed.
    pub(crate) fn took(&self, now: Duration, time: Duration) {
        if time < LONG {
            return;
        }
        let last = self.rest();
        let again = !last.is_zero() && now < self.slow() + FORGIVEN * last;
        let rest = if again { (2 * last).min(MAX_REST) } else { REST };
        self.slow.store(now.as_micros() as u64, Relaxed);
        self.rest.store(rest.as_micros() as u64, Relaxed);
    }

    fn slow(&self) -> Duration {
        Duration::from_micros(self.slow.load(Relaxed))
    }

    fn rest(&self) -> Duration {
        Duration::from_micros(self.rest.load(Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICK: Duration = Duration::from_millis(1);

    #[test]
    fn after_one_that_took_long_all_rest_ever_longer_until_it_is_forgiven() {
        let pace = Pace::default();
        pace.took(Duration::ZERO, LONG - TICK);
        assert!(pace.is_quick(Duration::ZERO), "it was quick");
        let mut now = 10 * REST;
        for times in 0..9 {
            pace.took(now, LONG);
            let rest = (REST * (1 << times)).min(MAX_REST);
            assert!(!pace.is_quick(now) && !pace.is_quick(now + rest - TICK), "after {times}");
            now += rest;
            assert!(pace.is_quick(now), "after {times}");
        }
        now += FORGIVEN * MAX_REST;
        pace.took(now, LONG);
        assert!(!pace.is_quick(now + REST - TICK) && pace.is_quick(now + REST));
    }
}
