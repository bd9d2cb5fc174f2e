//! When the server last surely knew a session.
//!
//! Role: who believes something only while the server could call it back must stop in time when it
//! is cut off, or was stopped, before the server gives it up. A moment counts once something *sent*
//! at that moment was answered: bytes that wait in a socket while the process is stopped are old.
//! Assumptions: transports keep order, so that whatever the server said before an answer is here
//! before it. The clock goes on while the machine sleeps.

use rustix::time::{ClockId, clock_gettime};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// See the module. Clones of its `Arc` outlive transports, not the session.
#[derive(Debug)]
pub struct Heard {
    /// Nanoseconds of the clock; [`ALWAYS`] for a server in this process.
    answered: AtomicU64,
}

/// Of a server that cannot be cut off.
const ALWAYS: u64 = u64::MAX;

impl Heard {
    /// Of a session that begins now; `local`: within this process.
    pub fn new(local: bool) -> Heard {
        Heard { answered: AtomicU64::new(if local { ALWAYS } else { now() }) }
    }

    /// For how long nothing newer was answered.
    pub fn silence(&self) -> Duration {
        match self.answered.load(Relaxed) {
            ALWAYS => Duration::ZERO,
            answered => Duration::from_nanos(now().saturating_sub(answered)),
        }
    }

    /// What was sent at `moment` has been answered; a moment that has not come yet is none of ours.
    pub fn answered(&self, moment: u64) {
        if moment <= now() {
            self.answered.fetch_max(moment, Relaxed);
        }
    }

    /// For tests: as if nothing had been answered for this long.
    pub fn pretend(&self, silence: Duration) {
        self.answered.store(now().saturating_sub(silence.as_nanos() as u64), Relaxed);
    }
}

/// Now, as a moment for [`Heard::answered`].
pub(crate) fn now() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    (now.tv_sec as u64).saturating_mul(1_000_000_000).saturating_add(now.tv_nsec as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_counts_from_the_newest_answered_moment() {
        let heard = Heard::new(false);
        let long = Duration::from_secs(100);
        heard.pretend(long);
        assert!(heard.silence() >= long);
        let moment = now();
        heard.answered(moment);
        let silence = heard.silence().as_nanos() as u64;
        assert!(silence <= now() - moment);
        heard.answered(moment - 1_000_000);
        assert!(heard.silence().as_nanos() as u64 <= now() - moment, "an older answer comes late");
        heard.pretend(long);
        heard.answered(u64::MAX - 1);
        assert!(heard.silence() >= long, "a moment that has not come is nobody's");
    }

    #[test]
    fn a_server_in_this_process_is_always_heard() {
        let heard = Heard::new(true);
        assert_eq!(heard.silence(), Duration::ZERO);
    }
}
