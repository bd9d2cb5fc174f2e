//! How long to wait between attempts to come back.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Waits between attempts: none before the first, then `first`, doubling up to `most`; each is
/// multiplied by what `jitter` returns for the attempt (0.0 to 1.0 of it is taken off).
#[derive(Clone)]
pub struct Backoff {
    /// Wait before the second attempt.
    pub first: Duration,
    /// Longest wait.
    pub most: Duration,
    /// Share of a wait to leave out, 0.0 to 1.0, by attempt; keeps clients of a restarted server
    /// from coming all at once.
    pub jitter: Arc<dyn Fn(u32) -> f64 + Send + Sync>,
}

impl fmt::Debug for Backoff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Backoff({:?}..{:?})", self.first, self.most)
    }
}

impl Default for Backoff {
    fn default() -> Backoff {
        Backoff {
            first: Duration::from_millis(10),
            most: Duration::from_secs(2),
            jitter: Arc::new(|_| rand::random::<f64>() / 2.0),
        }
    }
}

impl Backoff {
    /// The wait before attempt number `attempt` (from 0).
    pub fn delay(&self, attempt: u32) -> Duration {
        let Some(doublings) = attempt.checked_sub(1) else { return Duration::ZERO };
        let full = self.first.saturating_mul(1 << doublings.min(20)).min(self.most);
        full.mul_f64(1.0 - (self.jitter)(attempt).clamp(0.0, 1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_limit_and_jitter_shortens() {
        let ms = Duration::from_millis;
        let mut b = Backoff { first: ms(10), most: ms(50), jitter: Arc::new(|_| 0.0) };
        let waits: Vec<_> = (0..6).map(|n| b.delay(n)).collect();
        assert_eq!(waits, [ms(0), ms(10), ms(20), ms(40), ms(50), ms(50)]);
        assert_eq!(b.delay(u32::MAX), ms(50));
        b.jitter = Arc::new(|_| 0.5);
        assert_eq!(b.delay(1), ms(5));
        b.jitter = Arc::new(|_| 7.0);
        assert_eq!(b.delay(9), ms(0));
    }
}
