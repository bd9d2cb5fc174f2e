//! Tries two ways of doing the same kind of work, and keeps to the faster one.
//!
//! All threads go the same way for an epoch, and the bytes all of them move in it are what counts: a thread
//! alone may be fast at the expense of others. Short jobs are not worth a trial and go the common way.

use parking_lot::Mutex;
use std::time::Instant;

/// Bytes moved before anything is tried.
pub const TRIAL_AFTER: u64 = 4 << 30;
/// Bytes of an epoch.
pub const EPOCH: u64 = 256 << 20;
/// Epochs of a trial, the common way first; the first one is not counted.
pub const EPOCHS: u32 = 5;
/// Bytes after which it is tried again: disks and caches fill.
pub const TRIAL_AGAIN: u64 = 64 << 30;
/// How much faster the uncommon way must be.
const MARGIN: f64 = 1.15;

#[derive(Default)]
struct State {
    /// Bytes since the last decision, or of this epoch.
    bytes: u64,
    epoch: Option<(u32, Instant)>,
    /// Of each way: seconds its epochs took.
    seconds: [f64; 2],
    other: bool,
    tried: bool,
    never: bool,
}

impl State {
    /// Settled for the time being.
    fn rests(&self) -> bool {
        let rest = if self.tried { TRIAL_AGAIN } else { TRIAL_AFTER };
        self.epoch.is_none() && self.bytes < rest
    }
}

/// One decision.
#[derive(Default)]
pub struct Trial(Mutex<State>);

impl Trial {
    /// Whether the uncommon way is to be gone now.
    pub fn other(&self) -> bool {
        let state = self.0.lock();
        match state.epoch {
            _ if state.never => false,
            Some((n, _)) => n % 2 == 1,
            None => state.other,
        }
    }

    /// Whether the way may change soon.
    pub fn open(&self) -> bool {
        let state = self.0.lock();
        !state.never && !state.rests()
    }

    /// Whether it was decided before.
    pub fn settled(&self) -> bool {
        let state = self.0.lock();
        state.never || state.tried && state.epoch.is_none()
    }

    /// Notes that bytes were moved, whichever way; `now` is the time.
    pub fn moved(&self, bytes: u64, now: Instant) {
        let mut state = self.0.lock();
        state.bytes += bytes;
        if state.never || state.rests() {
            return;
        }
        let Some((n, since)) = state.epoch else {
            *state = State { epoch: Some((0, now)), tried: state.tried, ..State::default() };
            return;
        };
        if state.bytes < EPOCH {
            return;
        }
        let took = now.saturating_duration_since(since).as_secs_f64() / state.bytes as f64;
        if n > 0 {
            state.seconds[n as usize % 2] += took;
        }
        state.bytes = 0;
        state.epoch = Some((n + 1, now));
        if n + 1 == EPOCHS {
            let other = state.seconds[0] > state.seconds[1] * MARGIN;
            *state = State { other, tried: true, ..State::default() };
        }
    }

    /// It cannot be done.
    pub fn never(&self) {
        self.0.lock().never = true;
    }
}

#[cfg(test)]
mod tests {
    use super::{EPOCH, EPOCHS, TRIAL_AFTER, TRIAL_AGAIN, Trial};
    use std::time::{Duration, Instant};

    /// A trial in which epochs of the two ways take so many milliseconds.
    fn tried(common: u64, other: u64) -> (Trial, Instant) {
        let (trial, mut now) = (Trial::default(), Instant::now());
        assert!(!trial.other() && !trial.open());
        trial.moved(TRIAL_AFTER, now);
        for n in 0..EPOCHS {
            assert!(trial.open());
            assert_eq!(trial.other(), n % 2 == 1);
            now += Duration::from_millis(if trial.other() { other } else { common });
            trial.moved(EPOCH, now);
        }
        assert!(!trial.open());
        (trial, now)
    }

    #[test]
    fn the_faster_way_is_kept_and_tried_again_later() {
        for (common, other, want) in [(100, 50, true), (100, 200, false), (100, 95, false)] {
            let (trial, now) = tried(common, other);
            assert_eq!(trial.other(), want);
            trial.moved(TRIAL_AGAIN, now);
            assert!(trial.open());
            assert!(!trial.other(), "a trial begins the common way");
        }
    }

    #[test]
    fn what_cannot_be_done_is_not_tried() {
        let (trial, now) = tried(100, 50);
        trial.never();
        trial.moved(TRIAL_AGAIN, now);
        assert!(!trial.other() && !trial.open());
    }
}
