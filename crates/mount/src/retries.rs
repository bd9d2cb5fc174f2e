//! Callers that lost a race with a removal, and what their look-ups find.
//!
//! Role: when a use of an inode finds it removed (ESTALE), the kernel looks the path up once more, by
//! the thread that asked, and gives up at the second ESTALE. Here or on another mount a name may be
//! replaced as often as one likes, so what such a thread's look-ups find is opened at the MDT: it
//! lives until the kernel has come back for it. Assumptions: a thread that was told ESTALE looks
//! up at once, if at all. Never does: a message more where no race was lost.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use client::{OpenFile, OpenFlags};
use fuse::Request;
use parking_lot::Mutex;
use proto::mds::Cred;
use proto::{Attr, Errno};

#[cfg(doc)]
use crate::caches::Caches;
use crate::calls::Call;
use crate::fs::PinstripeFs;
use crate::gates::Changing;

/// How long after a lost race a thread's look-ups hold what they find, and for how long: longer than a
/// machine that is short of processors keeps a thread waiting within one system call.
const AGAIN: Duration = Duration::from_secs(5);
/// Threads at once; of more the longest known is forgotten (invariant 8).
const MAX_THREADS: usize = 1024;
/// Inodes held for one thread: a path has a few names (invariant 8).
const MAX_HELD: usize = 64;
/// Times a name is looked up whose inode is gone before it can be opened.
const LOOKUPS: usize = 32;

/// A thread that lost a race.
struct Loser<T> {
    when: Instant,
    /// In which system call.
    call: Option<Call>,
    held: Vec<T>,
}

/// The threads that did lately.
pub struct Retries<T = Arc<OpenFile>> {
    losers: Mutex<HashMap<u32, Loser<T>>>,
    /// How many there are; asked before each look-up.
    count: AtomicUsize,
    /// A thread waits to let go of what nobody came back for.
    swept: AtomicBool,
}

impl<T> Default for Retries<T> {
    fn default() -> Retries<T> {
        Retries {
            losers: Mutex::default(),
            count: AtomicUsize::new(0),
            swept: AtomicBool::new(false),
        }
    }
}

impl<T> Retries<T> {
    /// A thread lost a race; whether somebody must be found who sweeps.
    fn lost(&self, thread: u32, call: Option<Call>, now: Instant) -> bool {
        let mut losers = self.losers.lock();
        let mut surplus = None;
        if losers.len() >= MAX_THREADS && !losers.contains_key(&thread) {
            let oldest = losers.iter().min_by_key(|(_, l)| l.when).map(|(thread, _)| *thread);
            surplus = oldest.and_then(|thread| losers.remove(&thread));
        }
        let none = || Loser { when: now, call: None, held: Vec::new() };
        let loser = losers.entry(thread).or_insert_with(none);
        (loser.when, loser.call) = (now, call);
        self.count.store(losers.len(), SeqCst);
        drop(losers);
        // What was held may be closed by a message: not under the lock.
        drop(surplus);
        !self.swept.swap(true, SeqCst)
    }

    /// Whether a thread's look-ups must hold what they find.
    pub(crate) fn has(&self, thread: u32, now: Instant) -> bool {
        if self.count.load(SeqCst) == 0 {
            return false;
        }
        self.losers
            .lock()
            .get(&thread)
            .is_some_and(|l| now.saturating_duration_since(l.when) < AGAIN)
    }

    /// Whether a thread lost one lately in the system call it is in, as far as that is known.
    pub(crate) fn has_call(&self, thread: u32, now: Instant, call: Option<&Call>) -> bool {
        let losers = self.losers.lock();
        let lately = |l: &&Loser<T>| now.saturating_duration_since(l.when) < AGAIN;
        let lost = losers.get(&thread).filter(lately);
        lost.is_some_and(|l| l.call.is_none() || call.is_none() || l.call.as_ref() == call)
    }

    /// A thread that lost a race is where it wanted to get; what was held for it.
    fn arrived(&self, thread: u32) -> Vec<T> {
        if self.count.load(SeqCst) == 0 {
            return Vec::new();
        }
        let mut losers = self.losers.lock();
        let held = losers.remove(&thread).map(|loser| loser.held).unwrap_or_default();
        self.count.store(losers.len(), SeqCst);
        held
    }

    /// Holds what a thread's look-up found.
    fn hold(&self, thread: u32, found: T) {
        let mut losers = self.losers.lock();
        let Some(loser) = losers.get_mut(&thread) else { return };
        let surplus = if loser.held.len() < MAX_HELD { None } else { Some(loser.held.remove(0)) };
        loser.held.push(found);
        drop(losers);
        drop(surplus);
    }

    /// A thread has what it came back for, or its time is over.
    fn done(&self, over: impl Fn(u32, &Loser<T>) -> bool) -> usize {
        let mut losers = self.losers.lock();
        let gone: Vec<_> = losers.extract_if(|thread, loser| over(*thread, loser)).collect();
        let left = losers.len();
        self.count.store(left, SeqCst);
        drop(losers);
        drop(gone);
        left
    }

    /// Lets go of what nobody came back for; whether there may be more to sweep later.
    fn sweep(&self, now: Instant) -> bool {
        if self.done(|_, loser| now.saturating_duration_since(loser.when) >= AGAIN) > 0 {
            return true;
        }
        self.swept.store(false, SeqCst);
        // Who lost meanwhile has found somebody else, or nobody.
        self.count.load(SeqCst) > 0 && !self.swept.swap(true, SeqCst)
    }
}

/// Lets go of what nobody came back for; ends when there is nothing.
fn sweep_later(retries: Weak<Retries>) {
    let mine = retries.clone();
    let sweep = move || {
        loop {
            std::thread::sleep(AGAIN);
            match mine.upgrade() {
                Some(retries) if retries.sweep(Instant::now()) => {}
                _ => return,
            }
        }
    };
    if let Err(e) = std::thread::Builder::new().name("retries".into()).spawn(sweep) {
        tracing::warn!(error = %e, "what lookups found after a lost race is held until its thread opens it");
        if let Some(retries) = retries.upgrade() {
            retries.swept.store(false, SeqCst);
        }
    }
}

impl PinstripeFs {
    /// An error of an operation on a node; after a lost race the caller's look-ups hold what they find.
    pub(crate) fn lost(&self, req: &Request, e: Errno) -> fuse::Errno {
        if e == Errno::ESTALE && self.retries.has(req.pid(), Instant::now()) {
            tracing::info!(thread = req.pid(), "lost a race with a removal once more");
        }
        if e == Errno::ESTALE && self.retries.lost(req.pid(), Call::of(req.pid()), Instant::now()) {
            sweep_later(Arc::downgrade(&self.retries));
        }
        crate::convert::errno(e)
    }

    /// What a name leads to; for who lost a race, it lives on for a while.
    pub(crate) fn look_up(
        &self,
        req: &Request,
        cred: &Cred,
        parent: u64,
        name: &OsStr,
    ) -> Result<Attr, Errno> {
        let find = || self.client.lookup(cred, self.caches.fid(parent), name.as_bytes());
        let mut found = find()?;
        if !self.retries.has(req.pid(), Instant::now()) {
            return Ok(found);
        }
        for n in 0..LOOKUPS {
            match self.client.open(cred, found.fid, OpenFlags::default()) {
                Ok(file) => {
                    self.retries.hold(req.pid(), file);
                    break;
                }
                Err(Errno::ESTALE) => found = find()?,
                // Whatever is wrong the use itself will tell.
                Err(error) => {
                    tracing::debug!(fid = %found.fid, %error, "what was found is not held");
                    break;
                }
            }
            if n + 1 == LOOKUPS {
                tracing::warn!(?name, fid = %found.fid, "is removed each time before it can be held");
            }
        }
        Ok(found)
    }

    /// A thread has opened a file: nothing it looked up before is needed any more.
    pub(crate) fn has_opened(&self, req: &Request) {
        drop(self.retries.arrived(req.pid()));
    }

    /// A thread changes names: as [`Caches::changing_names`]. What it looked up before lives as long.
    pub(crate) fn changing(
        &self,
        req: &Request,
        names: &[(u64, &OsStr)],
    ) -> (Changing<'_>, Vec<Arc<OpenFile>>) {
        // Now, not when the answer is out: by then it may have lost the next race.
        let held = self.retries.arrived(req.pid());
        (self.caches.changing_names(names), held)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_loser_finds_is_held_until_it_has_it_or_its_time_is_over() {
        let (retries, start) = (Retries::<Arc<()>>::default(), Instant::now());
        let thing = Arc::new(());
        assert!(!retries.has(7, start));
        retries.hold(7, thing.clone());
        assert_eq!(Arc::strong_count(&thing), 1, "who lost nothing holds nothing");

        assert!(retries.lost(7, None, start));
        assert!(!retries.lost(8, None, start + AGAIN / 2));
        assert!(!retries.lost(8, None, start + AGAIN / 2));
        assert!(retries.has(7, start) && !retries.has(9, start));
        assert!(!retries.has(7, start + AGAIN));
        retries.hold(7, thing.clone());
        retries.hold(8, thing.clone());
        assert_eq!(Arc::strong_count(&thing), 3);

        assert!(retries.sweep(start + AGAIN));
        assert_eq!(Arc::strong_count(&thing), 2);
        assert_eq!(retries.arrived(8).len(), 1);
        assert_eq!(Arc::strong_count(&thing), 1);
        assert!(!retries.has(8, start) && !retries.lost(8, None, start), "somebody sweeps still");
        assert!(!retries.sweep(start + AGAIN));
        assert!(retries.lost(8, None, start), "nobody does");
    }

    #[test]
    fn who_is_in_another_system_call_by_now_lost_nothing_in_it() {
        let (retries, start) = (Retries::<Arc<()>>::default(), Instant::now());
        let call = |path: u64| Call::shown(&format!("87 {path:#x} 0x0\n")).unwrap();
        let lost = |thread, call: Option<&Call>| retries.has_call(thread, start, call);
        retries.lost(7, Some(call(1)), start);
        retries.lost(8, None, start);
        assert!(lost(7, Some(&call(1))) && !lost(7, Some(&call(2))));
        assert!(lost(7, None) && lost(8, Some(&call(2))), "what is not known may be the same");
        assert!(!lost(9, None) && !retries.has_call(7, start + AGAIN, Some(&call(1))));
        retries.lost(7, Some(call(2)), start);
        assert!(!lost(7, Some(&call(1))), "the last one counts");
        retries.arrived(7);
        assert!(!lost(7, Some(&call(2))) && lost(8, None));
    }

    #[test]
    fn neither_threads_nor_what_they_hold_are_without_a_limit() {
        let (retries, start) = (Retries::<Arc<()>>::default(), Instant::now());
        let thing = Arc::new(());
        for thread in 0..=MAX_THREADS as u32 {
            retries.lost(thread, None, start + Duration::from_nanos(thread.into()));
        }
        assert_eq!(retries.count.load(SeqCst), MAX_THREADS);
        assert!(!retries.has(0, start) && retries.has(1, start));
        for _ in 0..2 * MAX_HELD {
            retries.hold(1, thing.clone());
        }
        assert_eq!(Arc::strong_count(&thing), 1 + MAX_HELD);
    }
}
