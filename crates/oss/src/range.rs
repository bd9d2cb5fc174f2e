//! Locks on byte ranges of one object: writers that touch a common block take turns.
//!
//! A block's bytes and its checksum must change in the same order; disjoint writers run beside
//! each other. The list is as long as there are threads at work on the object, so a scan is cheap.

use parking_lot::{Condvar, Mutex};

/// The ranges of one object that are being changed.
#[derive(Default, Debug)]
pub(crate) struct RangeLock {
    held: Mutex<Vec<(u64, u64)>>,
    freed: Condvar,
}

/// Holds a range until dropped.
pub(crate) struct RangeGuard<'a> {
    lock: &'a RangeLock,
    range: (u64, u64),
}

impl RangeLock {
    /// Waits until nothing of `[start, end)` is held, then holds it.
    pub(crate) fn lock(&self, start: u64, end: u64) -> RangeGuard<'_> {
        let mut held = self.held.lock();
        while held.iter().any(|(s, e)| start < *e && *s < end) {
            self.freed.wait(&mut held);
        }
        held.push((start, end));
        RangeGuard { lock: self, range: (start, end) }
    }
}

impl Drop for RangeGuard<'_> {
    fn drop(&mut self) {
        let mut held = self.lock.held.lock();
        if let Some(i) = held.iter().position(|r| *r == self.range) {
            held.swap_remove(i);
        }
        drop(held);
        self.lock.freed.notify_all();
    }
}
