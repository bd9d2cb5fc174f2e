//! Which commits that nobody waits for are under way.
//!
//! Role: bounds them for each OST, so that a slow one neither fills its queue with them nor keeps those of
//! other OSTs waiting. Files that wait stand in the line of an OST that has enough to do, in order; each is
//! there once (it is marked as `committing`). Assumptions: whoever entered leaves. Never does: I/O.

use std::collections::{HashMap, VecDeque};

/// Commits of files that one OST is asked for at the same time.
pub(crate) const AT_ONCE: usize = 4;

/// One OST.
struct Line<T> {
    busy: usize,
    waiting: VecDeque<T>,
}

/// See the module.
pub(crate) struct Behind<T> {
    lines: HashMap<u32, Line<T>>,
}

impl<T> Behind<T> {
    pub(crate) fn new() -> Behind<T> {
        Behind { lines: HashMap::new() }
    }

    fn line(&mut self, ost: u32) -> &mut Line<T> {
        let empty = || Line { busy: 0, waiting: VecDeque::new() };
        self.lines.entry(ost).or_insert_with(empty)
    }

    /// A place at each of these OSTs, or none: then it stands in the line of one that has none to give.
    pub(crate) fn enter(&mut self, osts: &[u32], what: T) -> bool {
        let full = osts.iter().copied().find(|ost| self.line(*ost).busy >= AT_ONCE);
        match full {
            Some(full) => self.line(full).waiting.push_back(what),
            None => osts.iter().for_each(|ost| self.line(*ost).busy += 1),
        }
        full.is_none()
    }

    /// Gives the places back.
    pub(crate) fn leave(&mut self, osts: &[u32]) {
        for ost in osts {
            let line = self.line(*ost);
            line.busy = line.busy.saturating_sub(1);
        }
    }

    /// Who may try again, one for each OST that has a place: to be asked after each [`Behind::leave`], and when somebody
    /// who was to try did not enter.
    pub(crate) fn next(&mut self) -> Vec<T> {
        let free = self.lines.values_mut().filter(|line| line.busy < AT_ONCE);
        free.filter_map(|line| line.waiting.pop_front()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::prelude::*;
    use std::collections::BTreeMap;

    /// Whatever the order, no OST has more than its share, nobody waits while all its OSTs have places and nothing
    /// is under way, and all come through.
    #[test]
    fn all_come_through_and_no_ost_has_too_many() {
        for seed in 0..200 {
            let mut random = StdRng::seed_from_u64(seed);
            let wants = |random: &mut StdRng| {
                let mut osts: Vec<u32> = (0..4).filter(|_| random.random_bool(0.4)).collect();
                osts.shuffle(random);
                osts
            };
            let files: Vec<Vec<u32>> = (0..60).map(|_| wants(&mut random)).collect();
            let mut behind = Behind::new();
            let mut tries: Vec<usize> = (0..files.len()).collect();
            let (mut running, mut done) = (Vec::new(), 0);
            while !tries.is_empty() || !running.is_empty() {
                if !tries.is_empty() && (running.is_empty() || random.random()) {
                    let file = tries.swap_remove(random.random_range(0..tries.len()));
                    if random.random_ratio(1, 10) {
                        // It finds nothing to do.
                        done += 1;
                    } else if behind.enter(&files[file], file) {
                        running.push(file);
                        continue;
                    }
                } else {
                    let file = running.swap_remove(random.random_range(0..running.len()));
                    behind.leave(&files[file]);
                    done += 1;
                }
                tries.extend(behind.next());
                let mut busy = BTreeMap::new();
                let osts = running.iter().flat_map(|file| &files[*file]);
                osts.for_each(|ost| *busy.entry(*ost).or_insert(0) += 1);
                assert!(busy.values().all(|n| *n <= AT_ONCE), "seed {seed}: {busy:?}");
            }
            assert_eq!(done, files.len(), "seed {seed}: some wait for ever");
        }
    }

    #[test]
    fn an_ost_that_does_not_answer_holds_up_its_own_alone() {
        let mut behind = Behind::new();
        for file in 0..AT_ONCE {
            assert!(behind.enter(&[0], file));
        }
        assert!(!behind.enter(&[0], 10));
        assert!(!behind.enter(&[1, 0], 11));
        assert!(behind.next().is_empty());
        assert!(behind.enter(&[1], 12));
        behind.leave(&[0]);
        assert_eq!(behind.next(), [10]);
        assert!(behind.enter(&[0], 10));
        assert!(behind.next().is_empty());
        behind.leave(&[0]);
        assert_eq!(behind.next(), [11]);
    }
}
