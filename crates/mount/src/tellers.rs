//! Threads that wait for the kernel where a handler must not: it may hold what the kernel wants first.
//!
//! Bounded by [`MAX`]; what comes beyond waits, and is bounded by the requests the kernel has under way.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// Threads of one kind (invariant 8).
const MAX: usize = 8;
/// How long one waits for more to do.
const IDLE: Duration = Duration::from_secs(10);

/// What waits for a thread.
type Job = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct State {
    queue: VecDeque<Job>,
    threads: usize,
    idle: usize,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    more: Condvar,
}

/// See the module.
#[derive(Default)]
pub struct Tellers(Arc<Shared>);

impl Tellers {
    /// Whether what comes now would wait for a thread.
    pub fn are_busy(&self) -> bool {
        let state = self.0.state.lock();
        state.threads >= MAX && state.idle <= state.queue.len()
    }

    /// Runs it by a thread of its own, or one that has nothing to do.
    pub fn run(&self, job: impl FnOnce() + Send + 'static) {
        let mut state = self.0.state.lock();
        state.queue.push_back(Box::new(job));
        if state.idle >= state.queue.len() || state.threads >= MAX {
            self.0.more.notify_one();
            return;
        }
        state.threads += 1;
        drop(state);
        let shared = Arc::clone(&self.0);
        let named = std::thread::Builder::new().name("tellers".into());
        if let Err(error) = named.spawn(move || shared.work()) {
            tracing::warn!(%error, "no thread to tell the kernel of what others wrote");
            self.0.state.lock().threads -= 1;
            // Better than no answer.
            self.0.work_now();
        }
    }
}

impl Shared {
    /// Does what there is to do, until there is nothing for a while.
    fn work(&self) {
        let mut state = self.state.lock();
        loop {
            if let Some(job) = state.queue.pop_front() {
                drop(state);
                job();
                state = self.state.lock();
                continue;
            }
            state.idle += 1;
            let late = self.more.wait_for(&mut state, IDLE).timed_out();
            state.idle -= 1;
            if late && state.queue.is_empty() {
                state.threads -= 1;
                return;
            }
        }
    }

    fn work_now(&self) {
        let next = || self.state.lock().queue.pop_front();
        while let Some(job) = next() {
            job();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
    use std::time::Instant;

    #[test]
    fn jobs_wait_for_a_thread_where_there_are_enough() {
        let (tellers, seen) = (Tellers::default(), Arc::new(Mutex::new(HashSet::new())));
        // All threads at once, and then more than there are.
        let barrier = Arc::new(Barrier::new(MAX + 1));
        let left = Arc::new(AtomicUsize::new(3 * MAX));
        for n in 0..3 * MAX {
            let (barrier, seen, left) = (barrier.clone(), seen.clone(), left.clone());
            tellers.run(move || {
                seen.lock().insert(std::thread::current().id());
                if n < MAX {
                    barrier.wait();
                }
                left.fetch_sub(1, SeqCst);
            });
        }
        assert!(tellers.are_busy());
        barrier.wait();
        let begun = Instant::now();
        while left.load(SeqCst) > 0 {
            assert!(begun.elapsed() < Duration::from_secs(60), "some were forgotten");
            std::thread::yield_now();
        }
        assert_eq!(seen.lock().len(), MAX);
        while tellers.are_busy() {
            assert!(begun.elapsed() < Duration::from_secs(60), "they have nothing to do");
            std::thread::yield_now();
        }
    }
}
