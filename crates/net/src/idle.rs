//! Memory for bulk that is kept to be used again, as fresh memory costs a page fault for every 4 KiB.
//!
//! Role: keeps a number of things, and tells which of them nobody needed for a while. Never does: keep more than it was
//! made for (invariant 8); know the time.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// What of its limit each kind keeps in this process, in hundredths.
static PERCENT: AtomicUsize = AtomicUsize::new(100);

/// From now on each kind keeps so many hundredths of what it was made for, at most all: where memory is scarce.
pub fn keep_percent(percent: usize) {
    PERCENT.store(percent.min(100), Relaxed);
}

/// Things of one kind that are not in use.
pub struct Idle<T> {
    things: Vec<T>,
    /// The least there were since [`Idle::unused`].
    least: usize,
    most: usize,
}

impl<T> Idle<T> {
    /// Keeps at most so many.
    pub const fn new(most: usize) -> Idle<T> {
        Idle { things: Vec::new(), least: 0, most }
    }

    /// One to be used; the last that was kept.
    pub fn take(&mut self) -> Option<T> {
        let thing = self.things.pop();
        self.least = self.least.min(self.things.len());
        thing
    }

    /// Keeps one, unless there are enough: then it comes back.
    #[must_use = "it is freed when dropped, best without a lock"]
    pub fn keep(&mut self, thing: T) -> Option<T> {
        if self.things.len() >= self.most * PERCENT.load(Relaxed) / 100 {
            return Some(thing);
        }
        self.things.push(thing);
        None
    }

    /// Those nobody needed since this was last called.
    #[must_use = "they are freed when dropped, best without a lock"]
    pub fn unused(&mut self) -> Vec<T> {
        let left = self.things.len() - self.least.min(self.things.len());
        let unused = self.things.split_off(left);
        self.least = left;
        unused
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.things.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.things.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_while_did_not_need_is_given_back() {
        let mut idle = Idle::new(5);
        let surplus: Vec<_> = (0..7).filter_map(|n| idle.keep(n)).collect();
        assert_eq!((idle.len(), surplus), (5, vec![5, 6]), "no more than it was made for");
        assert!(idle.unused().is_empty(), "all of them were in use a moment ago");
        let two = [idle.take(), idle.take()];
        assert_eq!(two, [Some(4), Some(3)]);
        assert!(two.into_iter().flatten().all(|n| idle.keep(n).is_none()));
        assert_eq!((idle.unused().len(), idle.len()), (3, 2));
        assert_eq!((idle.unused().len(), idle.len()), (2, 0));
        assert!(idle.take().is_none() && idle.unused().is_empty() && idle.is_empty());
    }
}
