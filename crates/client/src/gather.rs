//! Waiting for several answers.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};

/// How soon it is seen that waiting is of no use.
const LOOK: Duration = Duration::from_millis(100);

struct Inner<T> {
    got: Mutex<(Vec<T>, usize)>,
    more: Condvar,
}

/// Collects answers that come on other threads.
pub(crate) struct Gather<T>(Arc<Inner<T>>);

/// Delivers one answer; dropped undelivered it counts as one that gave nothing.
pub(crate) struct Ticket<T>(Arc<Inner<T>>);

impl<T> Gather<T> {
    pub(crate) fn new() -> Gather<T> {
        Gather(Arc::new(Inner { got: Mutex::new((Vec::new(), 0)), more: Condvar::new() }))
    }

    pub(crate) fn ticket(&self) -> Ticket<T> {
        self.0.got.lock().1 += 1;
        Ticket(self.0.clone())
    }

    /// Waits until all tickets are gone, or it is of no use any more; whether they are gone.
    pub(crate) fn come_unless(&self, useless: impl Fn() -> bool) -> bool {
        let mut got = self.0.got.lock();
        while got.1 > 0 {
            self.0.more.wait_for(&mut got, LOOK);
            if got.1 > 0 && MutexGuard::unlocked(&mut got, &useless) {
                return false;
            }
        }
        true
    }

    /// What was delivered until now.
    pub(crate) fn so_far(self) -> Vec<T> {
        std::mem::take(&mut self.0.got.lock().0)
    }

    /// Waits until all tickets are gone; what they delivered.
    pub(crate) fn wait(self) -> Vec<T> {
        let mut got = self.0.got.lock();
        while got.1 > 0 {
            self.0.more.wait(&mut got);
        }
        std::mem::take(&mut got.0)
    }
}

impl<T> Ticket<T> {
    pub(crate) fn put(self, value: T) {
        self.0.got.lock().0.push(value);
    }
}

impl<T> Drop for Ticket<T> {
    fn drop(&mut self) {
        let mut got = self.0.got.lock();
        got.1 -= 1;
        if got.1 == 0 {
            self.0.more.notify_all();
        }
    }
}
