//! More entries for a CPU all of whose handlers wait: for a server that does not answer, say. Without them whoever asks
//! from that CPU would wait, too, for whatever.
//!
//! Role: tells, from what is counted at each tick, which queues are to have how many more. Nobody looks while no queue is
//! full; the thread that takes a queue's last entry says so. Never does: take entries back, which the kernel cannot.

use super::{Queue, RING_QUEUE_WAITING};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// How often is looked while a queue is full.
pub(super) const TICK: Duration = Duration::from_millis(25);

/// What was seen of a queue at the last tick.
#[derive(Clone, Copy, Default)]
struct Seen {
    full: bool,
    done: u64,
}

/// See the module.
pub(super) struct Growth {
    seen: Vec<Seen>,
    next: Instant,
    /// There are as many entries as there may be; they do not become fewer.
    exhausted: bool,
}

impl Growth {
    pub(super) fn new(queues: usize, now: Instant) -> Growth {
        Growth { seen: vec![Seen::default(); queues], next: now, exhausted: false }
    }

    /// The queues that are to have more entries, and how many; none before the next tick.
    pub(super) fn due(&mut self, queues: &[Queue], now: Instant) -> Vec<(usize, usize)> {
        if now < self.next {
            return Vec::new();
        }
        self.next = now + TICK;
        let exhausted = self.exhausted;
        let each = self.seen.iter_mut().zip(queues).enumerate();
        each.filter_map(|(number, (seen, queue))| {
            let offered = queue.offered.load(Ordering::Acquire);
            let is = Seen { full: queue.is_full(), done: queue.done.load(Ordering::Relaxed) };
            let was = std::mem::replace(seen, is);
            // Handlers that end within a tick, on the average, keep nobody waiting for long.
            let quick = is.done.wrapping_sub(was.done) >= offered as u64;
            let more = offered.min(RING_QUEUE_WAITING.saturating_sub(offered));
            (was.full && is.full && !quick && more > 0 && !exhausted).then_some((number, more))
        })
        .collect()
    }

    /// No more entries can be made.
    pub(super) fn exhaust(&mut self) {
        self.exhausted = true;
    }

    /// No queue is full, as far as was seen.
    pub(super) fn is_calm(&self) -> bool {
        self.seen.iter().all(|seen| !seen.full)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(busy: usize, offered: usize) -> Queue {
        let queue = Queue::default();
        queue.busy.store(busy, Ordering::Relaxed);
        queue.offered.store(offered, Ordering::Relaxed);
        queue
    }

    /// Looks so many ticks later.
    struct Clock(Instant);

    impl Clock {
        fn tick(&mut self) -> Instant {
            self.0 += TICK;
            self.0
        }
    }

    #[test]
    fn a_queue_whose_handlers_all_wait_grows_up_to_its_limit() {
        let queues = [queue(16, 16), queue(15, 16)];
        let mut clock = Clock(Instant::now());
        let mut growth = Growth::new(2, clock.0);
        assert_eq!(growth.due(&queues, clock.tick()), []);
        assert!(!growth.is_calm());
        assert_eq!(growth.due(&queues, clock.0), [], "not before the next tick");
        let mut offered = 16;
        while offered < RING_QUEUE_WAITING {
            assert_eq!(growth.due(&queues, clock.tick()), [(0, offered)], "as many again");
            offered *= 2;
            queues[0].offered.store(offered, Ordering::Relaxed);
            assert_eq!(growth.due(&queues, clock.tick()), [], "there is room now");
            queues[0].busy.store(offered, Ordering::Relaxed);
            assert_eq!(growth.due(&queues, clock.tick()), [], "it may have come just now");
        }
        assert_eq!(offered, RING_QUEUE_WAITING);
        assert_eq!(growth.due(&queues, clock.tick()), [], "no further than its limit");
        queues[0].busy.store(3, Ordering::Relaxed);
        assert_eq!(growth.due(&queues, clock.tick()), []);
        assert!(growth.is_calm());
    }

    #[test]
    fn nothing_grows_once_there_are_no_more_entries() {
        let queues = [queue(16, 16)];
        let mut clock = Clock(Instant::now());
        let mut growth = Growth::new(1, clock.0);
        growth.due(&queues, clock.tick());
        growth.exhaust();
        assert_eq!(growth.due(&queues, clock.tick()), []);
        assert!(!growth.is_calm());
    }

    #[test]
    fn one_that_is_full_and_quick_does_not() {
        let queues = [queue(16, 16)];
        let mut clock = Clock(Instant::now());
        let mut growth = Growth::new(1, clock.0);
        for round in 0..20 {
            queues[0].done.fetch_add(if round < 15 { 16 } else { 15 }, Ordering::Relaxed);
            let due = growth.due(&queues, clock.tick());
            assert_eq!(due.is_empty(), round < 15, "round {round}");
        }
    }

    #[test]
    fn requests_that_wait_without_a_thread_have_their_entries() {
        let queues = [queue(4, 20)];
        queues[0].deferred.store(16, Ordering::Relaxed);
        assert!(queues[0].is_full());
        queues[0].deferred.store(-3, Ordering::Relaxed);
        assert!(!queues[0].is_full());
    }
}
