//! Whether the target itself keeps its clients waiting, for its disk.
//!
//! Role: what clients do before they give back a lease may wait for the target's store, which makes nothing durable, or
//! reads nothing, for a while: a disk that stands still, or has no room. That time is not the clients': nobody is
//! evicted for it (invariant 5 is about those who do not answer). Never does: wait, ask the disk.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// A disk that takes no longer for something keeps nobody waiting.
const SLOW: Duration = Duration::from_secs(1);

/// What may be waited for.
#[derive(Clone, Copy)]
pub enum Of {
    /// A group that the store has and has not made durable.
    Commit,
    /// What readers fetch.
    Load,
}

/// See the module. Times are milliseconds since it was made, plus one; 0: never.
pub struct Pace {
    made: Instant,
    since: [AtomicU64; 2],
    behind: AtomicU64,
}

impl Pace {
    /// Nothing is waited for.
    pub fn new() -> Pace {
        let since = [AtomicU64::new(0), AtomicU64::new(0)];
        Pace { made: Instant::now(), since, behind: AtomicU64::new(0) }
    }

    fn at(&self, now: Instant) -> u64 {
        now.saturating_duration_since(self.made).as_millis() as u64 + 1
    }

    /// Something is waited for from now on, if nothing was.
    pub fn waits(&self, of: Of, now: Instant) {
        let _ = self.since[of as usize].compare_exchange(0, self.at(now), SeqCst, SeqCst);
    }

    /// Something has come; whether more is waited for.
    pub fn came(&self, of: Of, more: bool, now: Instant) {
        let next = if more { self.at(now) } else { 0 };
        let since = self.since[of as usize].swap(next, SeqCst);
        if since != 0 && self.at(now) - since > SLOW.as_millis() as u64 {
            self.behind.fetch_max(self.at(now), SeqCst);
        }
    }

    /// Until when it was behind; now, if it is.
    pub fn behind_until(&self, now: Instant) -> Option<Instant> {
        let is = |since: &AtomicU64| {
            let since = since.load(SeqCst);
            since != 0 && self.at(now).saturating_sub(since) > SLOW.as_millis() as u64
        };
        if self.since.iter().any(is) {
            return Some(now);
        }
        let at = self.behind.load(SeqCst);
        (at != 0).then(|| self.made + Duration::from_millis(at - 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_takes_long_counts_and_as_long_as_it_does() {
        let pace = Pace::new();
        let at = |ms| pace.made + Duration::from_millis(ms);
        assert_eq!(pace.behind_until(at(5000)), None);
        pace.waits(Of::Commit, at(5000));
        pace.waits(Of::Commit, at(5900));
        assert_eq!(pace.behind_until(at(5900)), None);
        pace.came(Of::Commit, true, at(5900));
        assert_eq!(pace.behind_until(at(6800)), None, "each takes less than a second");
        assert_eq!(pace.behind_until(at(7000)), Some(at(7000)));
        pace.came(Of::Commit, false, at(9000));
        assert_eq!(pace.behind_until(at(20_000)), Some(at(9000)));
        pace.waits(Of::Load, at(20_000));
        pace.came(Of::Commit, false, at(22_000));
        assert_eq!(pace.behind_until(at(22_000)), Some(at(22_000)), "both count");
        pace.came(Of::Load, false, at(22_500));
        assert_eq!(pace.behind_until(at(30_000)), Some(at(22_500)));
    }
}
