//! When the name of a directory may be kept among others.
//!
//! Role: a name that the kernel was told again takes up to a second to be taken back from it
//! ([`crate::names`]), for which somebody else waits. So after it was called back it rests, each time
//! longer, and one that was new a moment ago is not kept either: what is made in one place and used in
//! another at once must not wait. Times are those since the start of [`crate::nodes::Nodes`].
//! Never does: look at a clock.

use std::time::Duration;

/// How long a name rests when it was called back for the first time; each time it is doubled.
const REST: Duration = Duration::from_secs(30);
/// It is doubled so often at most.
const MAX_DOUBLED: u32 = 4;
/// After this long without a call-back the doubling begins anew.
const FORGIVEN: Duration = Duration::from_secs(1200);
/// Of a directory that is known for less the name is not kept when it is told again.
const SETTLED: Duration = Duration::from_secs(5);

/// Of one directory.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rest {
    /// When the kernel was told of it first.
    since: Duration,
    /// When its name was called back last, and how often it had been before.
    called_back: Option<(Duration, u32)>,
}

impl Rest {
    /// Of a directory that the kernel is told of now.
    pub fn new(now: Duration) -> Rest {
        Rest { since: now, called_back: None }
    }

    /// Its name is called back.
    pub fn begin(&mut self, now: Duration) {
        let times = match self.called_back {
            Some((at, times)) if now.saturating_sub(at) < FORGIVEN => times.saturating_add(1),
            _ => 0,
        };
        self.called_back = Some((now, times));
    }

    /// Whether the name may be kept. `again`: the kernel may know it.
    pub fn is_over(&self, now: Duration, again: bool) -> bool {
        let settled = now.saturating_sub(self.since) >= SETTLED;
        let rested = self.called_back.is_none_or(|(at, times)| {
            now.saturating_sub(at) >= REST * (1 << times.min(MAX_DOUBLED))
        });
        rested && (!again || settled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEVER: Duration = Duration::ZERO;
    const TICK: Duration = Duration::from_millis(1);

    #[test]
    fn what_is_told_again_is_kept_once_it_has_settled() {
        let (now, rest) = (REST, Rest::new(REST));
        assert!(rest.is_over(now, false) && !rest.is_over(now, true));
        assert!(!rest.is_over(now + SETTLED - TICK, true) && rest.is_over(now + SETTLED, true));
    }

    #[test]
    fn each_call_back_doubles_the_rest_up_to_a_limit_until_it_is_forgiven() {
        let mut rest = Rest::new(NEVER);
        let mut now = REST;
        for times in 0..MAX_DOUBLED + 3 {
            rest.begin(now);
            let length = REST * (1 << times.min(MAX_DOUBLED));
            assert!(!rest.is_over(now + length - TICK, false), "after {times}");
            now += length;
            assert!(rest.is_over(now, false) && rest.is_over(now, true), "after {times}");
        }
        now += FORGIVEN;
        rest.begin(now);
        assert!(!rest.is_over(now + REST - TICK, false) && rest.is_over(now + REST, false));
    }
}
