//! Which chunk of a file is given out next: along its stripes, so that threads work on different OSTs.
//!
//! The chunks of a lane lie on one OST: every C-th stripe where a chunk is one stripe of C. Where a chunk
//! is none, or spans all OSTs, there is one lane, and chunks go out in order. Pure: knows numbers only.

use super::layout::{ANY, Layout, Told};
use std::fs::File;

/// Most lanes of a file: more threads than this are never at work.
const LANES_MAX: u64 = super::THREADS_MAX as u64;
/// Shortest stripe that is worth a chunk of its own.
const STRIPE_MIN: u64 = 1 << 20;

/// Chunks that nobody has yet.
pub struct Lanes {
    lanes: Vec<Lane>,
    /// Chunks from this one on are not given out.
    end: u64,
}

struct Lane {
    next: u64,
    busy: u32,
}

/// Bytes of a chunk and number of lanes, for a file that is to be split into chunks of `split` bytes from
/// `start` on.
pub fn along(dst: &File, split: u64, start: u64) -> (u64, u64) {
    match Told::of(dst) {
        Some(Told::Plain(layout)) => fit(layout, split, start),
        _ => (split, 1),
    }
}

fn fit(layout: Layout, split: u64, start: u64) -> (u64, u64) {
    let (size, count) = (u64::from(layout.size), u64::from(layout.count));
    let plain = size >= STRIPE_MIN && (2..u64::from(ANY)).contains(&count);
    if !plain || !start.is_multiple_of(size) {
        return (split, 1);
    }
    if split < size {
        // Parts of stripes: one after the other they go from OST to OST soon enough.
        return (split, 1);
    }
    (size, count.min(LANES_MAX))
}

impl Lanes {
    /// Of `count` chunks.
    pub fn new(lanes: u64, count: u64) -> Self {
        let lane = |next| Lane { next, busy: 0 };
        Self { lanes: (0..lanes.clamp(1, LANES_MAX)).map(lane).collect(), end: count }
    }

    /// The first chunk of the lane with the fewest threads.
    pub fn take(&mut self) -> Option<u64> {
        let (end, step) = (self.end, self.lanes.len() as u64);
        let left = self.lanes.iter_mut().filter(|lane| lane.next < end);
        let lane = left.min_by_key(|lane| (lane.busy, lane.next))?;
        let n = lane.next;
        lane.next += step;
        lane.busy += 1;
        Some(n)
    }

    /// A chunk that was taken has ended.
    pub fn ended(&mut self, n: u64) {
        let lane = (n % self.lanes.len() as u64) as usize;
        self.lanes[lane].busy -= 1;
    }

    /// Nothing from chunk `n` on is wanted any more.
    pub fn cut(&mut self, n: u64) {
        self.end = self.end.min(n);
    }

    pub fn is_empty(&self) -> bool {
        self.lanes.iter().all(|lane| lane.next >= self.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{BTreeSet, VecDeque};

    /// What a thread does, said in the simplest way: of all chunks left, the first one whose lane has fewest
    /// of those under way.
    fn model(left: &BTreeSet<u64>, busy: &VecDeque<u64>, lanes: u64) -> Option<u64> {
        let threads = |n: &u64| busy.iter().filter(|b| *b % lanes == n % lanes).count();
        left.iter().copied().min_by_key(|n| (threads(n), *n))
    }

    #[test]
    fn chunks_go_out_as_in_the_model() {
        let mut word = 1_u64;
        let mut below = |limit: u64| {
            word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (word >> 33) % limit
        };
        for _ in 0..500 {
            let (count, threads) = (below(40), 1 + below(9) as usize);
            let lanes = 1 + below(6);
            let mut ours = Lanes::new(lanes, count);
            let (mut left, mut busy): (BTreeSet<_>, _) = ((0..count).collect(), VecDeque::new());
            loop {
                if busy.len() < threads && below(3) > 0 || busy.is_empty() {
                    let expected = model(&left, &busy, lanes);
                    assert_eq!(ours.take(), expected);
                    assert_eq!(ours.is_empty(), left.len() <= usize::from(expected.is_some()));
                    match expected {
                        Some(n) => {
                            left.remove(&n);
                            busy.push_back(n);
                        }
                        None if busy.is_empty() => break,
                        None => {}
                    }
                } else {
                    let n = busy.remove(below(busy.len() as u64) as usize).unwrap();
                    ours.ended(n);
                    if below(12) == 0 {
                        ours.cut(n);
                        left.retain(|other| *other < n);
                    }
                }
            }
            assert!(left.is_empty(), "not all chunks went out");
        }
    }

    #[test]
    fn lanes_only_where_a_chunk_can_be_a_stripe() {
        const MIB: u32 = 1 << 20;
        let of = |size, count, split: u64, start: u64| fit(Layout { count, size }, split, start);
        let (mib, split) = (u64::from(MIB), 32 << 20);
        assert_eq!(of(4 * MIB, 4, split, 0), (4 * mib, 4));
        assert_eq!(of(4 * MIB, 4, split, 8 * mib), (4 * mib, 4));
        // One stripe, one that is not known, too short ones, chunks that begin elsewhere.
        for (size, count, start) in [
            (4 * MIB, 1, 0),
            (4 * MIB, 0, 0),
            (4 * MIB, ANY, 0),
            (MIB / 16, 4, 0),
            (4 * MIB, 4, mib),
        ] {
            assert_eq!(of(size, count, split, start), (split, 1));
        }
        // Smaller chunks were asked for.
        assert_eq!(of(4 * MIB, 4, mib, 0), (mib, 1));
        assert_eq!(of(MIB, 2000, split, 0), (mib, LANES_MAX));
    }
}
