//! Tries two ways of doing the same kind of work, and keeps to the faster one.
//!
//! All threads go the same way for an epoch, and the bytes all of them move in it are what counts: a thread
//! alone may be fast at the expense of others. Short jobs are not worth a trial and go the common way: past the
//! page cache where that is known to be faster, else through it.

use parking_lot::Mutex;
use std::time::Instant;

/// Bytes moved before anything is tried.
pub const TRIAL_AFTER: u64 = 4 << 30;
/// Bytes of an epoch.
pub const EPOCH: u64 = 256 << 20;
/// Epochs of a trial, the common way first and last; the first one is not counted.
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
    /// Of the common and of the uncommon way: seconds its epochs took.
    seconds: [f64; 2],
    /// The uncommon way was faster.
    uncommon: bool,
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

/// One decision: whether to pass by the page cache.
pub struct Trial {
    /// The common way does.
    common: bool,
    state: Mutex<State>,
}

impl Trial {
    /// `common`: what is done until it was tried.
    pub fn new(common: bool) -> Self {
        Self { common, state: Mutex::default() }
    }

    /// Whether to pass by the page cache now.
    pub fn direct(&self) -> bool {
        let state = self.state.lock();
        let uncommon = match state.epoch {
            _ if state.never => return false,
            Some((n, _)) => n % 2 == 1,
            None => state.uncommon,
        };
        uncommon != self.common
    }

    /// Whether the way may change soon.
    pub fn open(&self) -> bool {
        let state = self.state.lock();
        !state.never && !state.rests()
    }

    /// Whether it was decided before.
    pub fn settled(&self) -> bool {
        let state = self.state.lock();
        state.never || state.tried && state.epoch.is_none()
    }

    /// Notes that bytes were moved, whichever way; `now` is the time.
    pub fn moved(&self, bytes: u64, now: Instant) {
        let mut state = self.state.lock();
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
            let uncommon = state.seconds[0] > state.seconds[1] * MARGIN;
            *state = State { uncommon, tried: true, ..State::default() };
        }
    }

    /// The page cache cannot be passed by.
    pub fn never(&self) {
        self.state.lock().never = true;
    }
}

#[cfg(test)]
mod tests {
    use super::{EPOCH, EPOCHS, TRIAL_AFTER, TRIAL_AGAIN, Trial};
    use std::time::{Duration, Instant};

    /// A trial in which epochs of the two ways take so many milliseconds.
    fn tried(direct: bool, common: u64, uncommon: u64) -> (Trial, Instant) {
        let (trial, mut now) = (Trial::new(direct), Instant::now());
        assert!(trial.direct() == direct && !trial.open());
        trial.moved(TRIAL_AFTER, now);
        for n in 0..EPOCHS {
            assert!(trial.open());
            assert_eq!(trial.direct() == direct, n % 2 == 0);
            now += Duration::from_millis(if trial.direct() == direct { common } else { uncommon });
            trial.moved(EPOCH, now);
        }
        assert!(!trial.open());
        (trial, now)
    }

    #[test]
    fn the_faster_way_is_kept_and_tried_again_later() {
        for direct in [false, true] {
            for (common, uncommon, change) in [(100, 50, true), (100, 200, false), (100, 95, false)]
            {
                let (trial, now) = tried(direct, common, uncommon);
                assert_eq!(trial.direct() != direct, change);
                trial.moved(TRIAL_AGAIN, now);
                assert!(trial.open());
                assert_eq!(trial.direct(), direct, "a trial begins the common way");
            }
        }
    }

    #[test]
    fn what_cannot_be_done_is_not_tried() {
        for direct in [false, true] {
            let (trial, now) = tried(direct, 100, 50);
            trial.never();
            trial.moved(TRIAL_AGAIN, now);
            assert!(!trial.direct() && !trial.open());
        }
    }
}
