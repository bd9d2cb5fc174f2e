//! The one thread of a process that watches deadlines.
//!
//! Role: whoever has deadlines registers, is asked after the earliest of them has passed, and says
//! when to ask again. Assumptions: ticks are quick. Never does: I/O.

use parking_lot::{Condvar, Mutex};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

/// Ticks are at least this far apart, so that many short deadlines cost one pass.
pub(crate) const MIN_TICK: Duration = Duration::from_millis(5);

/// Something with deadlines.
pub(crate) trait Kept: Send + Sync {
    /// Acts on what is due; returns the next deadline.
    fn tick(&self, now: Instant) -> Option<Instant>;
}

#[derive(Default)]
struct State {
    kept: Vec<Weak<dyn Kept>>,
    next: Option<Instant>,
}

/// The thread's mailbox.
pub(crate) struct Keeper {
    state: Mutex<State>,
    earlier: Condvar,
}

/// The keeper of this process.
pub(crate) fn keeper() -> &'static Keeper {
    static KEEPER: OnceLock<Keeper> = OnceLock::new();
    static STARTED: OnceLock<()> = OnceLock::new();
    let keeper = KEEPER.get_or_init(|| Keeper { state: Mutex::default(), earlier: Condvar::new() });
    STARTED.get_or_init(|| {
        let thread = std::thread::Builder::new().name("net-keeper".into());
        if let Err(e) = thread.spawn(|| keeper.run()) {
            tracing::error!("deadlines will not be kept: no thread: {e}");
        }
    });
    keeper
}

impl Keeper {
    /// Watches `kept` until it is dropped.
    pub(crate) fn add(&self, kept: &Arc<dyn Kept>) {
        self.state.lock().kept.push(Arc::downgrade(kept));
        self.at(Instant::now());
    }

    /// Makes sure that there is a tick soon after `deadline`.
    pub(crate) fn at(&self, deadline: Instant) {
        let mut state = self.state.lock();
        if state.next.is_none_or(|next| deadline < next) {
            state.next = Some(deadline);
            self.earlier.notify_one();
        }
    }

    fn run(&self) {
        loop {
            let kept = self.wait();
            let now = Instant::now();
            // A deadline named while the ticks run wins over what they return: see `at`.
            let next = kept.iter().filter_map(|k| k.upgrade()?.tick(now)).min();
            if let Some(next) = next {
                self.at(next.max(now + MIN_TICK));
            }
        }
    }

    fn wait(&self) -> Vec<Weak<dyn Kept>> {
        let mut state = self.state.lock();
        loop {
            match state.next {
                Some(next) if next <= Instant::now() => break,
                Some(next) => {
                    self.earlier.wait_until(&mut state, next);
                }
                None => self.earlier.wait(&mut state),
            }
        }
        state.next = None;
        state.kept.retain(|k| k.strong_count() > 0);
        state.kept.clone()
    }
}
