//! Who was told a name that the kernel takes in without its directory's lock, and whether he has done so.
//!
//! Role: a name that expires before such an answer has arrived would be kept after all, so it has to expire once more
//! then. When that is, the kernel does not say; but who was told is in the same system call until it is done. So a
//! thread that is seen to wait for something else has taken it in; of all others it is assumed that they have
//! after [`ON_ITS_WAY`].
//! Assumptions: a thread has one request at a time. Never does: look at threads or clocks by itself.

use std::time::Duration;

use rustc_hash::FxHashMap as HashMap;

use crate::belief::ON_ITS_WAY;

/// Threads noted of a name; for more the time is waited for (invariant 8).
const THREADS: usize = 3;
/// Threads looked at for one directory at a time (invariant 8).
const LOOKS: usize = 64;

/// A name that was told, maybe to several, and when last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Told {
    at: Duration,
    /// 0: nobody.
    threads: [u32; THREADS],
    /// To others, too, or to who is not known.
    others: bool,
}

impl Told {
    /// It goes to this thread now; 0: that is not known.
    pub fn new(at: Duration, thread: u32) -> Told {
        let mut threads = [0; THREADS];
        threads[0] = thread;
        Told { at, threads, others: thread == 0 }
    }

    /// Told before, and now.
    pub fn and(self, now: Told) -> Told {
        if self.left(now.at).is_none() {
            return now;
        }
        let mut both = Told { at: self.at.max(now.at), others: self.others || now.others, ..self };
        for thread in now.threads.into_iter().filter(|thread| *thread != 0) {
            if both.threads.contains(&thread) {
                continue;
            }
            match both.threads.iter_mut().find(|place| **place == 0) {
                Some(place) => *place = thread,
                None => both.others = true,
            }
        }
        both
    }

    /// For how long it may still be on its way.
    pub fn left(self, now: Duration) -> Option<Duration> {
        (self.at + ON_ITS_WAY).checked_sub(now).filter(|left| !left.is_zero())
    }

    /// Whether it may not have arrived yet. From now on those who have gone on are not asked for.
    fn is_on_its_way(&mut self, now: Duration, seen: &mut Seen) -> bool {
        if self.left(now).is_none() {
            return false;
        }
        for thread in self.threads.iter_mut().filter(|thread| **thread != 0) {
            if seen.has_gone_on(*thread) {
                *thread = 0;
            }
        }
        self.others || self.threads != [0; THREADS]
    }
}

/// What was told before, if anything, and now.
pub fn both(before: Option<Told>, now: Option<Told>) -> Option<Told> {
    match (before, now) {
        (Some(before), Some(now)) => Some(before.and(now)),
        _ => before.or(now),
    }
}

/// What was seen of threads in one look.
struct Seen<'a> {
    threads: HashMap<u32, bool>,
    look: &'a dyn Fn(u32) -> bool,
}

impl Seen<'_> {
    fn has_gone_on(&mut self, thread: u32) -> bool {
        if self.threads.len() >= LOOKS && !self.threads.contains_key(&thread) {
            return false;
        }
        *self.threads.entry(thread).or_insert_with(|| (self.look)(thread))
    }
}

/// Drops those that have arrived. `has_gone_on`: whether a thread does something else than what it was told for.
pub fn keep_on_their_way(names: &mut Vec<Told>, now: Duration, has_gone_on: &dyn Fn(u32) -> bool) {
    let mut seen = Seen { threads: HashMap::default(), look: has_gone_on };
    names.retain_mut(|told| told.is_on_its_way(now, &mut seen));
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    const NOW: Duration = Duration::from_secs(1000);
    const TICK: Duration = Duration::from_millis(1);

    fn left(told: &[Told], now: Duration, gone_on: &[u32]) -> Vec<Told> {
        let mut names = told.to_vec();
        keep_on_their_way(&mut names, now, &|thread| gone_on.contains(&thread));
        names
    }

    #[test]
    fn it_is_on_its_way_until_all_who_were_told_have_gone_on() {
        let both = Told::new(NOW, 7).and(Told::new(NOW + TICK, 8));
        assert_eq!(left(&[both], NOW, &[]), [both]);
        assert_eq!(
            left(&[both], NOW, &[7]),
            [Told::new(NOW + TICK, 8)].map(|told| Told { threads: [0, 8, 0], ..told })
        );
        assert_eq!(left(&[both], NOW, &[8, 7]), []);
        assert_eq!(left(&[both, Told::new(NOW, 9)], NOW, &[8, 7]), [Told::new(NOW, 9)]);
    }

    #[test]
    fn who_has_gone_on_once_may_be_told_something_else_meanwhile() {
        let mut names = vec![Told::new(NOW, 7).and(Told::new(NOW, 8))];
        keep_on_their_way(&mut names, NOW, &|thread| thread == 7);
        keep_on_their_way(&mut names, NOW, &|thread| thread == 8);
        assert_eq!(names, []);
    }

    #[test]
    fn for_strangers_and_crowds_the_time_is_waited_for() {
        let stranger = Told::new(NOW, 0);
        let crowd = (1..=THREADS as u32 + 1).map(|n| Told::new(NOW, n)).reduce(Told::and);
        let several = (1..=THREADS as u32).map(|n| Told::new(NOW, n)).reduce(Told::and);
        let all: Vec<u32> = (0..10).collect();
        for told in [
            stranger,
            stranger.and(Told::new(NOW, 1)),
            crowd.unwrap_or(several.unwrap_or(stranger)),
        ] {
            assert_eq!(left(&[told], NOW + ON_ITS_WAY - TICK, &all).len(), 1);
            assert_eq!(left(&[told], NOW + ON_ITS_WAY, &[]), []);
        }
        assert_eq!(several.map(|told| left(&[told], NOW, &all)), Some(Vec::new()));
        // The same one again takes no place of its own, and what was told long ago has arrived.
        let same = Told::new(NOW, 1).and(Told::new(NOW + TICK, 1));
        assert_eq!(same, Told::new(NOW + TICK, 1));
        let later = Told::new(NOW + ON_ITS_WAY, 2);
        assert_eq!(stranger.and(later), later);
    }

    #[test]
    fn each_thread_is_looked_at_once_and_of_many_only_some() {
        let looks = Cell::new(0);
        let mut names: Vec<Told> = (1..=1000).map(|n| Told::new(NOW, 1 + n % 500)).collect();
        keep_on_their_way(&mut names, NOW, &|_| {
            looks.set(looks.get() + 1);
            true
        });
        assert_eq!(looks.get(), LOOKS);
        assert_eq!(names.len(), 1000 - 2 * LOOKS);
    }
}
