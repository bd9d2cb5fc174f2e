//! Pauses for tests: schedules that are rare turn up often.
//!
//! Role: a client that was given [`Pauses`] sleeps now and then where it is about to ask, or to act on
//! an answer, so that call-backs, answers and other threads come in between. Which of the points
//! reached sleeps, and for how long, follows from a seed. Without them a point costs one comparison.
//! Never does: anything else; a point never lies under a lock of state.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// See the module; by default there are none.
#[derive(Clone, Debug, Default)]
pub struct Pauses(Option<Arc<Seeded>>);

#[derive(Debug)]
struct Seeded {
    seed: u64,
    one_in: u32,
    longest: Duration,
    reached: AtomicU64,
}

impl Pauses {
    /// One of `one_in` points (at least 1) sleeps, for up to `longest`.
    pub fn seeded(seed: u64, one_in: u32, longest: Duration) -> Pauses {
        let (one_in, reached) = (one_in.max(1), AtomicU64::new(0));
        Pauses(Some(Arc::new(Seeded { seed, one_in, longest, reached })))
    }

    /// A schedule may turn here.
    pub(crate) fn point(&self) {
        if let Some(time) = self.0.as_ref().and_then(|seeded| seeded.next()) {
            std::thread::sleep(time);
        }
    }
}

impl Seeded {
    /// How long the next point sleeps.
    fn next(&self) -> Option<Duration> {
        let n = self.reached.fetch_add(1, Relaxed);
        let mut random = StdRng::seed_from_u64(self.seed.wrapping_add(n));
        random.random_ratio(1, self.one_in).then(|| self.longest.mul_f64(random.random()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_follow_from_the_seed_and_are_as_many_as_wished() {
        let longest = Duration::from_millis(3);
        let times = |seed: u64| -> Vec<Option<Duration>> {
            let Pauses(Some(seeded)) = Pauses::seeded(seed, 8, longest) else { panic!("none") };
            (0..8000).map(|_| seeded.next()).collect()
        };
        let one = times(1);
        assert_eq!(one, times(1));
        assert_ne!(one, times(2));
        let slept: Vec<Duration> = one.into_iter().flatten().collect();
        assert!((800..1200).contains(&slept.len()), "{} of 8000", slept.len());
        assert!(slept.iter().all(|t| *t <= longest), "{slept:?}");
        let mean = slept.iter().sum::<Duration>() / slept.len() as u32;
        assert!(mean > longest / 3 && mean < longest * 2 / 3, "{mean:?}");
    }
}
