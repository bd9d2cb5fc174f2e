//! Many files, hashed by several threads, told in the order in which they were asked for.
//!
//! - What takes no longer than [`ALONE`], and whatever is the only file, is hashed by the calling
//!   thread: no thread is started for it.
//! - So is, for sums that cost less than to open a file, what comes from the page cache at [`PACE`]: threads
//!   would only take turns at the table of open files.
//! - What is no regular file (standard input, FIFOs, devices) is hashed by the calling thread when its
//!   turn comes, so that such things are opened and read in the order GNU's programs have.
//! - At most [`AHEAD`] files per thread are asked for and not yet told.

use super::budget::Budget;
use super::hash::{Job, Sum};
use super::own::Own;
use super::source::{Buffer, Reading};
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded, unbounded};
use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread::{Builder, Scope};
use std::time::{Duration, Instant};

/// Files per thread that may wait for their turn to be told.
const AHEAD: usize = 16;
/// How long, and how much, the calling thread hashes before others are started.
const ALONE: Duration = Duration::from_millis(2);
const ALONE_BYTES: u64 = 1 << 20;
/// What one small file in the page cache takes at most, with a sum that costs next to nothing.
const PACE: Duration = Duration::from_micros(20);
/// So many files in a row must take longer: one alone may have been interrupted.
const SLOW_ROW: u32 = 4;
/// And no more bytes than that.
const SMALL: u64 = 256 << 10;
/// How long a result that has arrived may wait for others, so that threads are not woken for each.
const GATHER: Duration = Duration::from_millis(20);

/// What becomes of the results; called by one thread, in order.
pub trait Teller {
    /// What belongs to an entry besides its file.
    type Note;
    /// None: an entry without a file.
    fn tell(&mut self, note: Self::Note, done: Option<(Job, io::Result<Sum>)>);
    /// Nothing may be held back: what follows may take long.
    fn flush(&mut self);
}

/// What all threads share.
pub struct Shared {
    pub own: Own,
    budget: Budget,
    pub bytes: AtomicU64,
    pub files: AtomicU64,
    idle: AtomicUsize,
}

impl Shared {
    pub fn new(own: Own) -> Self {
        let asked = own.clone();
        let budget = Budget::new(move || asked.threads());
        let (bytes, files, idle) = Default::default();
        Self { own, budget, bytes, files, idle }
    }

    pub fn threads(&self) -> usize {
        self.budget.threads()
    }

    fn reading(&self) -> Reading<'_> {
        Reading { own: &self.own, budget: &self.budget, bytes: &self.bytes }
    }
}

enum Outcome {
    Done(io::Result<Sum>),
    /// To be hashed when its turn comes.
    Later,
}

struct Task {
    job: Job,
    answer: Sender<Outcome>,
}

enum Entry<N> {
    Note(N),
    Here(N, Job),
    Elsewhere(N, Job, Receiver<Outcome>),
    Arrived(N, Job, Outcome),
}

/// The files on their way.
pub struct Lane<'s, 'e, T: Teller> {
    scope: &'s Scope<'s, 'e>,
    shared: &'e Shared,
    tasks: (Sender<Task>, Receiver<Task>),
    workers: usize,
    waiting: VecDeque<Entry<T::Note>>,
    buffer: Option<Buffer>,
    /// Since when, and how many bytes.
    alone: Option<(Instant, u64)>,
    /// Files in a row that took the calling thread longer than [`PACE`].
    slow: u32,
    pub teller: T,
}

impl<'s, 'e, T: Teller> Lane<'s, 'e, T> {
    pub fn new(scope: &'s Scope<'s, 'e>, shared: &'e Shared, teller: T) -> Self {
        Self {
            scope,
            shared,
            // Bounded by the room in `waiting`.
            tasks: unbounded(),
            workers: 0,
            waiting: VecDeque::new(),
            buffer: None,
            alone: None,
            slow: 0,
            teller,
        }
    }

    /// An entry without a file.
    pub fn note(&mut self, note: T::Note) {
        if self.waiting.is_empty() {
            self.teller.tell(note, None);
        } else {
            self.waiting.push_back(Entry::Note(note));
            self.make_room();
        }
    }

    /// `more`: other files may follow.
    pub fn put(&mut self, note: T::Note, job: Job, more: bool) {
        if self.waiting.is_empty() && self.is_for_us(&job, more) {
            self.teller.flush();
            return self.here(note, job);
        }
        let entry = if job.name == "-" { Entry::Here(note, job) } else { self.send(note, job) };
        self.waiting.push_back(entry);
        self.make_room();
    }

    /// Whether anything is not told yet.
    pub fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Tells the first entry that is not told yet, waiting for it if need be.
    pub fn tell_first(&mut self) {
        match self.waiting.pop_front() {
            Some(Entry::Note(note)) => self.teller.tell(note, None),
            Some(Entry::Here(note, job)) => {
                self.teller.flush();
                self.here(note, job);
            }
            Some(Entry::Elsewhere(note, job, answer)) => {
                if answer.is_empty() {
                    self.teller.flush();
                }
                let outcome = answer.recv().unwrap_or_else(|_| Outcome::lost());
                self.arrived(note, job, outcome);
            }
            Some(Entry::Arrived(note, job, outcome)) => self.arrived(note, job, outcome),
            None => {}
        }
    }

    /// Tells all that is left.
    pub fn tell_all(&mut self) {
        while self.is_waiting() {
            self.gather();
        }
    }

    /// The end: threads that wait for files end, too.
    pub fn into_teller(mut self) -> T {
        self.tell_all();
        self.teller
    }

    /// The calling thread hashes it at once: the only file, what is read in order, and a few small ones.
    fn is_for_us(&mut self, job: &Job, more: bool) -> bool {
        if !more || job.name == "-" {
            return true;
        }
        if self.workers == 0 && (self.begins(job) || self.is_quick(job)) {
            return true;
        }
        self.shared.threads() == 1
    }

    /// Few small files so far, this one among them.
    fn begins(&mut self, job: &Job) -> bool {
        let (since, bytes) = self.alone.get_or_insert_with(|| (Instant::now(), 0));
        if *bytes >= ALONE_BYTES || since.elapsed() >= ALONE {
            return false;
        }
        let size = std::fs::metadata(&job.name).map_or(0, |meta| meta.len());
        *bytes = bytes.saturating_add(size);
        if size > SMALL {
            self.slow = SLOW_ROW;
        }
        *bytes < ALONE_BYTES
    }

    /// Files come from the page cache as fast as they can be opened.
    fn is_quick(&self, job: &Job) -> bool {
        !job.algorithm.is_slow() && job.split.is_none() && self.slow < SLOW_ROW
    }

    fn here(&mut self, note: T::Note, job: Job) {
        let shared = self.shared;
        let _share = shared.budget.worker();
        let buffer = self.buffer.get_or_insert_with(|| Buffer::new(shared.own.buffer));
        let begin = Instant::now();
        let done = job.run(&shared.reading(), buffer);
        self.slow = match &done {
            Ok(sum) if sum.bytes > SMALL => SLOW_ROW,
            _ if begin.elapsed() < PACE => 0,
            _ => self.slow.saturating_add(1),
        };
        self.tell(note, job, done);
    }

    fn tell(&mut self, note: T::Note, job: Job, done: io::Result<Sum>) {
        self.shared.files.fetch_add(1, Ordering::Relaxed);
        self.teller.tell(note, Some((job, done)));
    }

    fn arrived(&mut self, note: T::Note, job: Job, outcome: Outcome) {
        match outcome {
            Outcome::Done(done) => self.tell(note, job, done),
            Outcome::Later => {
                self.teller.flush();
                self.here(note, job);
            }
        }
    }

    fn send(&mut self, note: T::Note, job: Job) -> Entry<T::Note> {
        if self.shared.idle.load(Ordering::Relaxed) <= self.tasks.0.len()
            && self.workers < self.shared.threads()
        {
            self.start_worker();
        }
        if self.workers == 0 {
            return Entry::Here(note, job);
        }
        let (answer, receiver) = bounded(1);
        // Never refused: we hold a receiver ourselves.
        let _ = self.tasks.0.send(Task { job: job.clone(), answer });
        Entry::Elsewhere(note, job, receiver)
    }

    fn start_worker(&mut self) {
        let (shared, tasks) = (self.shared, self.tasks.1.clone());
        let work = move || worker(shared, &tasks);
        if Builder::new().spawn_scoped(self.scope, work).is_ok() {
            self.workers += 1;
        }
    }

    fn make_room(&mut self) {
        if self.waiting.len() > AHEAD * self.shared.threads() {
            self.gather();
        }
    }

    /// Waits until one of the later results is there, too, and tells them together: to be woken for
    /// each of many small files would cost more than to hash it.
    fn gather(&mut self) {
        let many = (self.waiting.len() / 2).max(1);
        if let Some(Entry::Elsewhere(_, _, answer)) = self.waiting.get(many - 1)
            && answer.is_empty()
        {
            self.teller.flush();
            match answer.recv_timeout(GATHER) {
                Err(RecvTimeoutError::Timeout) => return self.tell_first(),
                Ok(outcome) => self.keep(many - 1, outcome),
                Err(RecvTimeoutError::Disconnected) => self.keep(many - 1, Outcome::lost()),
            }
        }
        for _ in 0..many {
            self.tell_first();
        }
    }

    /// A result that came before its turn.
    fn keep(&mut self, at: usize, outcome: Outcome) {
        if let Some(Entry::Elsewhere(note, job, _)) = self.waiting.remove(at) {
            self.waiting.insert(at, Entry::Arrived(note, job, outcome));
        }
    }
}

impl Outcome {
    /// Of a thread that has died.
    fn lost() -> Self {
        Self::Done(Err(io::Error::other("a thread died")))
    }
}

fn worker(shared: &Shared, tasks: &Receiver<Task>) {
    let mut buffer = Buffer::new(shared.own.buffer);
    loop {
        shared.idle.fetch_add(1, Ordering::Relaxed);
        let task = tasks.recv();
        shared.idle.fetch_sub(1, Ordering::Relaxed);
        let Ok(task) = task else { return };
        let _share = shared.budget.worker();
        let regular = std::fs::metadata(&task.job.name).map(|meta| meta.is_file());
        let outcome = match regular {
            Ok(true) => Outcome::Done(task.job.run(&shared.reading(), &mut buffer)),
            Ok(false) => Outcome::Later,
            Err(e) => Outcome::Done(Err(e)),
        };
        // Nobody waits for it any more when the program is ending.
        let _ = task.answer.send(outcome);
    }
}
