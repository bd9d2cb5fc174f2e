//! How many threads may be busy at once.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Shares of `--threads`: workers always get theirs (there are never more of them than threads),
/// helpers of one file only what nobody else uses.
pub struct Budget {
    used: AtomicUsize,
    threads: OnceLock<usize>,
    count: Box<dyn Fn() -> usize + Send + Sync>,
}

/// A share, given back when dropped.
pub struct Share<'a>(&'a Budget);

impl Budget {
    /// `count` is asked when the number of threads matters for the first time.
    pub fn new(count: impl Fn() -> usize + Send + Sync + 'static) -> Self {
        Self { used: AtomicUsize::new(0), threads: OnceLock::new(), count: Box::new(count) }
    }

    pub fn threads(&self) -> usize {
        *self.threads.get_or_init(|| (self.count)())
    }

    pub fn worker(&self) -> Share<'_> {
        self.used.fetch_add(1, Ordering::Relaxed);
        Share(self)
    }

    pub fn helper(&self) -> Option<Share<'_>> {
        let take = |used: usize| (used < self.threads()).then_some(used + 1);
        self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).ok().map(|_| Share(self))
    }
}

impl Drop for Share<'_> {
    fn drop(&mut self) {
        self.0.used.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn helpers_get_what_workers_leave() {
        let budget = Budget::new(|| 2);
        let worker = budget.worker();
        let helper = budget.helper();
        assert!(helper.is_some() && budget.helper().is_none());
        drop(helper);
        let second = budget.worker();
        assert!(budget.helper().is_none());
        drop((worker, second));
        assert!(budget.helper().is_some());
    }
}
