//! Callers that are woken on another CPU with each answer.
//!
//! Role: who waits for every answer asks from where it was woken, so that the thread which answers is there, too, and the
//! scheduler, which finds this CPU busy with it and another one idle, wakes the caller there. It depends on how much there was
//! to do lately whether Linux looks for an idle CPU, so this comes and goes: new files took 50 us each, or 250, in a virtual
//! machine. Seen here as one caller's requests that come to one queue and then to another, again and again.
//! Assumptions: callers whose numbers share a slot take it from each other; that is only slower. Best effort: updates that
//! are lost among threads cost nothing but time. Never does: look at a clock, call the kernel.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Callers that are watched at the same time.
const SLOTS: usize = 64;
/// What a hop is worth; a request without one takes off 1. Where every eighth request hops, or more, it adds up.
const HOP: u32 = 8;
/// Above this a caller hops.
const MANY: u32 = 32;
/// For so many requests it is taken to hop without looking: those who give way to it keep it where it is. To stop costs
/// it [`super::modest`]'s shortest bar.
const STAY: u32 = 1 << 16;
/// Bits of a queue that are compared, and of what hops are worth.
const QUEUE: u32 = 12;
const SCORE: u32 = 20;

/// One caller: its number, the queue of its last request, and what its hops are worth.
#[derive(Default)]
#[repr(align(128))]
struct Slot(AtomicU64);

/// See the module.
pub(super) struct Hops(Box<[Slot]>);

impl Hops {
    pub(super) fn new() -> Hops {
        Hops((0..SLOTS).map(|_| Slot::default()).collect())
    }

    /// Takes a request into account; whether its caller hops.
    pub(super) fn request(&self, caller: u32, queue: usize) -> bool {
        let slot = &self.0[caller as usize % SLOTS].0;
        let queue = queue as u32 & ((1 << QUEUE) - 1);
        let was = slot.load(Relaxed);
        let (who, last, score) = unpack(was);
        let score = match (who == caller, last != queue) {
            (false, _) => 0,
            // Whether it would hop without those who give way does not show: then it is looked again.
            (true, _) if score > MANY => (score - 1) * u32::from(score > MANY + 1),
            (true, true) if score + HOP > MANY => MANY + STAY,
            (true, true) => score + HOP,
            (true, false) => score.saturating_sub(1),
        };
        let next = pack(caller, queue, score);
        if next != was {
            slot.store(next, Relaxed);
        }
        score > MANY
    }
}

fn pack(caller: u32, queue: u32, score: u32) -> u64 {
    u64::from(caller) << 32 | u64::from(queue << SCORE | score)
}

fn unpack(slot: u64) -> (u32, u32, u32) {
    let low = slot as u32;
    ((slot >> 32) as u32, low >> SCORE, low & ((1 << SCORE) - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    const _: () = assert!(QUEUE + SCORE == 32 && MANY + STAY < 1 << SCORE);

    /// How many of `requests` are found to hop, where one in `each` comes to the other queue.
    fn hopping(hops: &Hops, caller: u32, requests: u32, each: u32) -> u32 {
        (0..requests).filter(|i| hops.request(caller, (i / each % 2) as usize)).count() as u32
    }

    #[test]
    fn who_is_moved_with_each_answer_hops_until_it_is_looked_again() {
        let hops = Hops::new();
        let found = hopping(&hops, 7, STAY, 1);
        assert!((STAY - 8..STAY).contains(&found), "{found}");
        // Those who give way keep it where it is.
        assert!(hops.request(7, 0));
        let found = hopping(&hops, 7, STAY, u32::MAX);
        assert!(found < 8, "{found}");
        assert!(hopping(&hops, 7, 100, 2) > 80, "and it begins again");
    }

    #[test]
    fn who_is_moved_now_and_then_does_not() {
        let hops = Hops::new();
        assert_eq!(hopping(&hops, 7, 10_000, 20), 0);
        assert_eq!(hopping(&hops, 8, 10_000, u32::MAX), 0);
    }

    #[test]
    fn one_caller_is_not_taken_for_another() {
        let hops = Hops::new();
        let (one, other) = (7, 7 + SLOTS as u32);
        let turn = |_| hops.request(one, 0) || hops.request(other, 1);
        assert!(!(0..1000).any(turn), "each asks from one place");
        assert!(hopping(&hops, 9, 100, 1) > 0);
    }
}
