//! Who was told a name that the kernel takes in without its directory's lock, and whether he has done so.
//!
//! Role: a name that expires before such an answer has arrived would be kept after all, so it has to expire once more
//! then. When that is, the kernel does not say; but who was told is in the same system call until it is done. So a
//! thread that is seen to wait for something else has taken it in, and so has one that has run for a while between two looks,
//! as it sleeps until it is answered; of all others it is assumed that they have after [`ON_ITS_WAY`].
//! Assumptions: a thread has one request at a time. Never does: look at threads or clocks by itself.

use std::time::Duration;

use rustc_hash::FxHashMap as HashMap;

use crate::belief::ON_ITS_WAY;

/// Threads noted of a name; for more the time is waited for (invariant 8).
const THREADS: usize = 3;
/// Threads looked at for one directory at a time (invariant 8).
const LOOKS: usize = 64;
/// To take in what it was told a thread runs for some microseconds.
const RUNS: Duration = Duration::from_millis(10);

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
    fn is_on_its_way(&mut self, now: Duration, mut has_gone_on: impl FnMut(u32) -> bool) -> bool {
        if self.left(now).is_none() {
            return false;
        }
        for thread in self.threads.iter_mut().filter(|thread| **thread != 0) {
            if has_gone_on(*thread) {
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

/// What is seen of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// It has ended, or waits for something else than an answer.
    GoneOn,
    /// For how long it has run since it began, if that is shown.
    Ran(Option<Duration>),
}

/// Names that were told and may not have arrived.
#[derive(Debug, Default)]
pub struct OnTheirWay {
    names: Vec<Told>,
    /// For how long threads had run when they were looked at first.
    ran: HashMap<u32, Duration>,
}

impl OnTheirWay {
    /// All of these.
    pub fn new(names: impl Iterator<Item = Told>) -> OnTheirWay {
        OnTheirWay { names: names.collect(), ran: HashMap::default() }
    }

    /// How many are left.
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Drops those that have arrived; whether all have.
    pub fn have_arrived(&mut self, now: Duration, look: &dyn Fn(u32) -> Look) -> bool {
        let (mut seen, ran) = (HashMap::default(), &mut self.ran);
        let mut has_gone_on = |thread: u32| {
            if seen.len() >= LOOKS && !seen.contains_key(&thread) {
                return false;
            }
            *seen.entry(thread).or_insert_with(|| match look(thread) {
                Look::GoneOn => true,
                Look::Ran(None) => false,
                Look::Ran(Some(so_far)) => {
                    let before = *ran.entry(thread).or_insert(so_far);
                    so_far.saturating_sub(before) >= RUNS
                }
            })
        };
        self.names.retain_mut(|told| told.is_on_its_way(now, &mut has_gone_on));
        self.names.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    const NOW: Duration = Duration::from_secs(1000);
    const TICK: Duration = Duration::from_millis(1);

    fn way(told: &[Told]) -> OnTheirWay {
        OnTheirWay::new(told.iter().copied())
    }

    /// Those of these threads have gone on, the others are not seen to have.
    fn gone_on(threads: &[u32]) -> impl Fn(u32) -> Look {
        move |thread| if threads.contains(&thread) { Look::GoneOn } else { Look::Ran(None) }
    }

    fn arrived(told: &[Told], now: Duration, threads: &[u32]) -> bool {
        way(told).have_arrived(now, &gone_on(threads))
    }

    #[test]
    fn it_is_on_its_way_until_all_who_were_told_have_gone_on() {
        let both = Told::new(NOW, 7).and(Told::new(NOW + TICK, 8));
        assert!(!arrived(&[both], NOW, &[]) && !arrived(&[both], NOW, &[7]));
        assert!(!arrived(&[both], NOW, &[8]) && arrived(&[both], NOW, &[8, 7]));
        assert!(!arrived(&[both, Told::new(NOW, 9)], NOW, &[8, 7]));
        assert!(arrived(&[], NOW, &[]));
    }

    #[test]
    fn who_has_gone_on_once_may_be_told_something_else_meanwhile() {
        let mut names = way(&[Told::new(NOW, 7).and(Told::new(NOW, 8))]);
        assert!(!names.have_arrived(NOW, &gone_on(&[7])));
        assert!(names.have_arrived(NOW, &gone_on(&[8])));
    }

    #[test]
    fn who_has_run_for_a_while_between_two_looks_has_gone_on() {
        let mut names = way(&[Told::new(NOW, 7), Told::new(NOW, 8)]);
        let mut look = |of_7: Duration, of_8: Duration| {
            let ran = |thread| Look::Ran(Some(if thread == 7 { of_7 } else { of_8 }));
            names.have_arrived(NOW, &ran);
            names.len()
        };
        let (before, much) = (Duration::from_secs(7), Duration::from_secs(3600));
        assert_eq!(look(before, much), 2, "that it ran for long before says nothing");
        assert_eq!(look(before + RUNS - TICK, much), 2);
        assert_eq!(look(before + RUNS, much), 1);
        assert_eq!(look(before, Duration::ZERO), 1, "another has its number");
        assert_eq!(look(before, much + RUNS), 0);
    }

    #[test]
    fn for_strangers_and_crowds_the_time_is_waited_for() {
        let stranger = Told::new(NOW, 0);
        let of = |n: u32| (1..=n).map(|n| Told::new(NOW, n)).fold(Told::new(NOW, 1), Told::and);
        let (several, crowd) = (of(THREADS as u32), of(THREADS as u32 + 1));
        let all: Vec<u32> = (0..10).collect();
        for told in [stranger, stranger.and(Told::new(NOW, 1)), crowd] {
            assert!(!arrived(&[told], NOW + ON_ITS_WAY - TICK, &all));
            assert!(arrived(&[told], NOW + ON_ITS_WAY, &[]));
        }
        assert!(arrived(&[several], NOW, &all));
        // The same one again takes no place of its own, and what was told long ago has arrived.
        let same = Told::new(NOW, 1).and(Told::new(NOW + TICK, 1));
        assert_eq!(same, Told::new(NOW + TICK, 1));
        let later = Told::new(NOW + ON_ITS_WAY, 2);
        assert_eq!(stranger.and(later), later);
        assert_eq!((both(None, Some(same)), both(Some(same), None)), (Some(same), Some(same)));
        assert_eq!(both(Some(stranger), Some(same)), Some(stranger.and(same)));
    }

    #[test]
    fn each_thread_is_looked_at_once_and_of_many_only_some() {
        let looks = Cell::new(0);
        let told: Vec<Told> = (1..=1000).map(|n| Told::new(NOW, 1 + n % 500)).collect();
        let mut names = way(&told);
        let arrived = names.have_arrived(NOW, &|_| {
            looks.set(looks.get() + 1);
            Look::GoneOn
        });
        assert!(!arrived);
        assert_eq!((looks.get(), names.len()), (LOOKS, 1000 - 2 * LOOKS));
    }
}
