//! Which pending requests were interrupted, and who wants to know.
//!
//! The common case is no interrupt and no hook at all: then answering a request costs one atomic load here.

use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Interrupts remembered for requests that have no hook; beyond this number the oldest are dropped.
pub const INTERRUPTED_MAX: usize = 1024;

/// An interrupt that another thread notes down while the request is just being answered is never taken back; it is dropped
/// once the kernel has counted this much further (by 2 for each request).
const STALE: u64 = 1 << 24;

type Hook = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct State {
    hooks: HashMap<u64, Hook>,
    interrupted: VecDeque<u64>,
}

/// Interrupts of one session. Never calls a hook with its lock held.
#[derive(Default)]
pub(crate) struct Interrupts {
    /// Number of entries in the state, so that the lock is only taken when there are any.
    entries: AtomicUsize,
    state: Mutex<State>,
}

impl Interrupts {
    fn locked<R>(&self, change: impl FnOnce(&mut State) -> R) -> R {
        let mut state = self.state.lock();
        let result = change(&mut state);
        self.entries.store(state.hooks.len() + state.interrupted.len(), Ordering::Release);
        result
    }

    pub(crate) fn is_interrupted(&self, unique: u64) -> bool {
        self.entries.load(Ordering::Acquire) != 0 && self.state.lock().interrupted.contains(&unique)
    }

    /// The kernel says that the caller of `unique` was signalled.
    pub(crate) fn interrupt(&self, unique: u64) {
        let hook = self.locked(|s| {
            if s.interrupted.len() == INTERRUPTED_MAX {
                s.interrupted.pop_front();
            }
            s.interrupted.push_back(unique);
            s.hooks.remove(&unique)
        });
        if let Some(hook) = hook {
            hook();
        }
    }

    /// Has `hook` called by a later interrupt; false, and the hook is dropped, if there was one already.
    ///
    /// Must precede `done` of the request, or the hook stays here for ever.
    pub(crate) fn register(&self, unique: u64, hook: Hook) -> bool {
        self.locked(|s| {
            let fresh = !s.interrupted.contains(&unique);
            if fresh {
                s.hooks.insert(unique, hook);
            }
            fresh
        })
    }

    /// The request is being answered: forget it.
    pub(crate) fn done(&self, unique: u64) {
        if self.entries.load(Ordering::Acquire) == 0 {
            return;
        }
        let hook = self.locked(|s| {
            s.interrupted.retain(|&u| u != unique && unique < u.saturating_add(STALE));
            s.hooks.remove(&unique)
        });
        drop(hook);
    }
}

#[cfg(test)]
mod tests;
