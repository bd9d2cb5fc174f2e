//! How many threads read from the device at a time.
//!
//! While requests come one after the other, one reader is by far the fastest, and `near` keeps it on the caller's CPU, whereas
//! several waiting readers are woken in turn (measured: 4 KiB reads 280,000/s against 50,000/s). So the other threads park.
//! Readers multiply when requests take long and more of them are there ("spread"); a parked thread, the sentinel, notices
//! when nobody reads because a handler blocks, within [`TICK`].
//!
//! This file knows no device: it counts and parks threads.

use parking_lot::{Condvar, Mutex};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

/// How often the sentinel looks while there are requests.
const TICK: Duration = Duration::from_millis(1);

/// Ticks without a request after which the sentinel sleeps until the next one.
const QUIET_TICKS: u32 = 100;

/// The same where only what takes no time comes by the device: a name that goes is a FORGET there, and a build's would keep
/// the sentinel looking all the time.
const QUIET_TICKS_ASIDE: u32 = 1;

/// How long the sentinel sleeps at least before it says that the session is quiet.
const CALM: Duration = Duration::from_secs(5);

/// Requests for which readers stay spread after the last one that called for it.
const SPREAD: u32 = 64;

/// Counts of one session's threads. A thread is reading, busy in a handler, or parked.
pub(crate) struct Readers {
    max_threads: usize,
    max_idle: usize,
    /// Threads reading, or about to.
    reading: AtomicUsize,
    busy: AtomicUsize,
    /// Above 0: every request that leaves no reader gets another one at once.
    spread: AtomicU32,
    requests: AtomicU64,
    /// There is a sentinel.
    watched: AtomicBool,
    /// The sentinel must be woken by the next request.
    asleep: AtomicBool,
    quiet_ticks: AtomicU32,
    threads: Mutex<Threads>,
    /// Parked threads but the sentinel.
    parking: Condvar,
    watching: Condvar,
    /// A thread ended or finished a request while `ending`.
    settled: Condvar,
    ending: AtomicBool,
}

#[derive(Default)]
struct Threads {
    live: usize,
    parked: usize,
    /// Parked threads that were told to read, but are not awake yet.
    called: usize,
    ended: bool,
}

/// What a thread does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    Read,
    Leave,
}

impl Readers {
    pub(crate) fn new(max_threads: usize, max_idle: usize) -> Readers {
        Readers {
            max_threads: max_threads.max(1),
            max_idle: max_idle.max(1),
            reading: AtomicUsize::new(0),
            busy: AtomicUsize::new(0),
            spread: AtomicU32::new(0),
            requests: AtomicU64::new(0),
            watched: AtomicBool::new(false),
            asleep: AtomicBool::new(false),
            quiet_ticks: AtomicU32::new(QUIET_TICKS),
            threads: Mutex::default(),
            parking: Condvar::new(),
            watching: Condvar::new(),
            settled: Condvar::new(),
            ending: AtomicBool::new(false),
        }
    }

    /// What may take long comes another way.
    pub(crate) fn aside(&self) {
        self.quiet_ticks.store(QUIET_TICKS_ASIDE, Ordering::Release);
    }

    /// Room for one more thread; `reading` says whether it starts as a reader or parks. False when there are enough.
    pub(crate) fn reserve(&self, reading: bool) -> bool {
        let mut threads = self.threads.lock();
        let room = threads.live < self.max_threads && !threads.ended;
        if room {
            threads.live += 1;
            self.reading.fetch_add(usize::from(reading), Ordering::AcqRel);
        }
        room
    }

    /// A thread is gone, or could not be started; `reading` as it is counted.
    pub(crate) fn left(&self, reading: bool) {
        let mut threads = self.threads.lock();
        threads.live -= 1;
        self.reading.fetch_sub(usize::from(reading), Ordering::AcqRel);
        self.settled.notify_all();
    }

    /// A reader got a request. True: nobody reads now, but somebody should, and no thread is parked: start one.
    pub(crate) fn taken(&self) -> bool {
        // Sequentially consistent with the sentinel going to sleep: one of the two sees the other.
        self.requests.fetch_add(1, Ordering::SeqCst);
        self.busy.fetch_add(1, Ordering::AcqRel);
        let last = self.reading.fetch_sub(1, Ordering::AcqRel) == 1;
        let alone = !self.watched.load(Ordering::Acquire);
        if last && self.max_threads > 1 && (alone || self.spread.load(Ordering::Acquire) > 0) {
            return !self.call();
        }
        if self.asleep.load(Ordering::SeqCst) {
            let _threads = self.threads.lock();
            self.watching.notify_one();
        }
        false
    }

    /// Tells a parked thread to read, if nobody does; false if there is none.
    fn call(&self) -> bool {
        let mut threads = self.threads.lock();
        if self.reading.load(Ordering::Acquire) > 0 {
            return true;
        }
        if threads.parked == threads.called {
            return threads.live >= self.max_threads;
        }
        threads.called += 1;
        self.reading.fetch_add(1, Ordering::AcqRel);
        let sentinel = usize::from(self.watched.load(Ordering::Acquire));
        if threads.parked > sentinel {
            self.parking.notify_one();
        } else {
            self.watching.notify_one();
        }
        true
    }

    /// A thread finished its request; `pending` tells whether more are waiting at the device.
    pub(crate) fn completed(&self, slow: bool, pending: impl Fn() -> bool) {
        let others = self.busy.fetch_sub(1, Ordering::AcqRel) - 1;
        let spread = self.spread.load(Ordering::Acquire);
        if slow && (others > 0 || pending()) {
            self.spread.store(SPREAD, Ordering::Release);
        } else if spread > 0 {
            // Lost updates only make it last longer.
            self.spread.store(spread - 1, Ordering::Release);
        }
        if self.ending.load(Ordering::Acquire) {
            let _threads = self.threads.lock();
            self.settled.notify_all();
        }
    }

    /// Becomes a reader if that is wanted.
    pub(crate) fn read_on(&self) -> bool {
        let spread = self.spread.load(Ordering::Acquire) > 0;
        let keep = if spread { self.max_idle } else { 1 };
        let more = |reading: usize| (reading < keep).then_some(reading + 1);
        self.reading.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).is_ok()
    }

    /// Parks until the thread is wanted as a reader (and counted as one), or must leave.
    /// `calm` is called when there was no request for [`CALM`].
    pub(crate) fn park(&self, pending: impl Fn() -> bool, calm: impl Fn()) -> Next {
        let mut threads = self.threads.lock();
        if threads.parked >= self.max_idle {
            return Next::Leave;
        }
        threads.parked += 1;
        let next = loop {
            if threads.ended {
                break Next::Leave;
            }
            if threads.called > 0 {
                threads.called -= 1;
                break Next::Read;
            }
            if self.watched.load(Ordering::Acquire) {
                self.parking.wait(&mut threads);
                continue;
            }
            self.watched.store(true, Ordering::Release);
            self.watch(&mut threads, &pending, &calm);
            self.watched.store(false, Ordering::Release);
            // Another one takes over.
            self.parking.notify_one();
        };
        threads.parked -= 1;
        next
    }

    /// The sentinel's work: returns when it is called, has called itself, or all is over.
    fn watch(
        &self,
        threads: &mut parking_lot::MutexGuard<'_, Threads>,
        pending: impl Fn() -> bool,
        calm: impl Fn(),
    ) {
        let mut quiet = 0;
        let most = self.quiet_ticks.load(Ordering::Acquire);
        let mut seen = self.requests.load(Ordering::Acquire);
        while !threads.ended && threads.called == 0 {
            if quiet < most {
                self.watching.wait_for(threads, TICK);
            } else {
                self.asleep.store(true, Ordering::SeqCst);
                if self.requests.load(Ordering::SeqCst) == seen
                    && self.watching.wait_for(threads, CALM).timed_out()
                {
                    calm();
                    if self.requests.load(Ordering::SeqCst) == seen && threads.called == 0 {
                        self.watching.wait(threads);
                    }
                }
                self.asleep.store(false, Ordering::SeqCst);
            }
            let requests = self.requests.load(Ordering::Acquire);
            quiet = if requests == seen { quiet + 1 } else { 0 };
            seen = requests;
            if self.reading.load(Ordering::Acquire) > 0 || threads.called > 0 {
                continue;
            }
            let wanted = pending();
            if wanted {
                self.spread.store(SPREAD, Ordering::Release);
            }
            // Asleep it is woken by who reads: while nobody does, because a handler blocks for long,
            // it reads rather than sleeps.
            if wanted || quiet >= most {
                self.reading.fetch_add(1, Ordering::AcqRel);
                threads.called += 1;
            }
        }
    }

    /// The device is gone: parked threads leave.
    pub(crate) fn end(&self) {
        self.threads.lock().ended = true;
        self.parking.notify_all();
        self.watching.notify_all();
    }

    /// Waits until all threads have left.
    pub(crate) fn wait_all_left(&self) {
        let mut threads = self.threads.lock();
        while threads.live > 0 {
            self.settled.wait(&mut threads);
        }
    }

    /// Waits until at most `own` threads are in a handler.
    pub(crate) fn wait_others_done(&self, own: usize) {
        self.ending.store(true, Ordering::SeqCst);
        let mut threads = self.threads.lock();
        while self.busy.load(Ordering::SeqCst) > own {
            self.settled.wait(&mut threads);
        }
    }
}

#[cfg(test)]
mod tests;
