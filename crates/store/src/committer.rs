//! The commit thread and its bounded queue, shared by every engine.
//!
//! Role: takes commits in order, chains their records, has the engine apply all that wait, syncs
//! once for them, then tells their callers. Assumption: an engine's `apply` refuses without a trace
//! or poisons the handle. Never: blocks a submitter, or calls a `done` with `Ok` before the sync.

use std::collections::VecDeque;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::chain::CommitRecord;
use crate::{
    Commit, Done, MAX_COMMIT_BYTES, MAX_COMMIT_OPS, MAX_KEY_BYTES, MAX_QUEUED_BYTES,
    MAX_QUEUED_COMMITS, StoreError, Write,
};

/// How long the commit thread waits for more work before it lets the engine tidy up.
const IDLE_AFTER: Duration = Duration::from_secs(1);

/// Why an engine did not apply a commit.
pub(crate) enum Refusal {
    /// Nothing was written; the handle goes on.
    Clean(StoreError),
    /// The handle must take no more commits: fenced, or the outcome is unknown.
    Fatal(StoreError),
}

/// What the commit thread needs from an engine.
pub(crate) trait Backend: Send + 'static {
    /// Writes one commit and its record atomically, not yet durably.
    fn apply(&mut self, record: &CommitRecord, writes: &[Write]) -> Result<(), Refusal>;
    /// Makes everything applied so far durable; `newest` is its last record.
    fn sync(&mut self, newest: &CommitRecord) -> Result<(), StoreError>;
    /// Called when no work came for a while, and before the thread ends.
    fn idle(&mut self);
}

struct Job {
    commit: Commit,
    done: Done,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    bytes: usize,
    closing: bool,
    /// Set when the thread has ended; what later submits are told.
    ended: Option<StoreError>,
}

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    wake: Condvar,
}

/// Handle to the commit thread. Dropping it drains the queue and ends the thread.
pub(crate) struct Committer {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Committer {
    pub(crate) fn start(head: CommitRecord, backend: impl Backend) -> Result<Self, StoreError> {
        let shared = Arc::new(Shared::default());
        let worker = Worker { shared: shared.clone(), head, backend, poison: None, dirty: false };
        let thread = thread::Builder::new()
            .name("store-commit".into())
            .spawn(move || worker.run())
            .map_err(|e| StoreError::io("start the commit thread", e))?;
        Ok(Committer { shared, thread: Mutex::new(Some(thread)) })
    }

    pub(crate) fn submit(&self, commit: Commit, done: Done) {
        match self.enqueue(commit, done) {
            Ok(()) => {
                self.shared.wake.notify_one();
            }
            Err((done, error)) => done(Err(error)),
        }
    }

    fn enqueue(&self, commit: Commit, done: Done) -> Result<(), (Done, StoreError)> {
        let bytes = match check_limits(&commit) {
            Ok(bytes) => bytes,
            Err(e) => return Err((done, e)),
        };
        let mut queue = self.shared.queue.lock();
        if let Some(error) = &queue.ended {
            return Err((done, error.clone()));
        }
        if queue.closing {
            return Err((done, StoreError::Closed));
        }
        let full = queue.jobs.len() >= MAX_QUEUED_COMMITS
            || (!queue.jobs.is_empty() && queue.bytes + bytes > MAX_QUEUED_BYTES);
        if full {
            let waiting = queue.jobs.len();
            let error = StoreError::Retry(format!("{waiting} commits wait already"));
            return Err((done, error));
        }
        queue.bytes += bytes;
        queue.jobs.push_back(Job { commit, done });
        Ok(())
    }

    /// Whether the handle still takes commits.
    pub(crate) fn is_open(&self) -> bool {
        let queue = self.shared.queue.lock();
        !queue.closing && queue.ended.is_none()
    }

    /// Drains the queue and waits for the thread, unless called on it.
    pub(crate) fn close(&self) {
        self.shared.queue.lock().closing = true;
        self.shared.wake.notify_one();
        let Some(handle) = self.thread.lock().take() else {
            return;
        };
        if handle.thread().id() != thread::current().id() && handle.join().is_err() {
            tracing::error!("the commit thread panicked");
        }
    }
}

impl Drop for Committer {
    fn drop(&mut self) {
        self.close();
    }
}

fn check_limits(commit: &Commit) -> Result<usize, StoreError> {
    let invalid = |text: String| Err(StoreError::Invalid(text));
    if commit.last < commit.prev_last {
        return invalid(format!(
            "the commit ends at {} before its start {}",
            commit.last, commit.prev_last
        ));
    }
    let ops = commit.writes.len();
    let bytes: usize = commit.writes.iter().map(Write::bytes).sum();
    if ops > MAX_COMMIT_OPS || bytes > MAX_COMMIT_BYTES {
        return invalid(format!(
            "a commit of {ops} writes and {bytes} bytes; the limits are {MAX_COMMIT_OPS} and {MAX_COMMIT_BYTES}"
        ));
    }
    if let Some(long) = commit.writes.iter().find(|w| w.key().len() > MAX_KEY_BYTES) {
        return invalid(format!(
            "a key of {} bytes; the limit is {MAX_KEY_BYTES}",
            long.key().len()
        ));
    }
    Ok(bytes)
}

struct Worker<B: Backend> {
    shared: Arc<Shared>,
    head: CommitRecord,
    backend: B,
    poison: Option<StoreError>,
    /// Commits were made since the engine last tidied up.
    dirty: bool,
}

impl<B: Backend> Worker<B> {
    fn run(mut self) {
        // However the thread ends, waiting and later commits are answered.
        let _end = EndGuard(self.shared.clone());
        while let Some(jobs) = self.next_jobs() {
            self.commit_group(jobs);
        }
        self.backend.idle();
    }

    /// All commits that wait, or `None` when the handle is closed and nothing does.
    fn next_jobs(&mut self) -> Option<VecDeque<Job>> {
        let shared = self.shared.clone();
        let mut queue = shared.queue.lock();
        loop {
            if !queue.jobs.is_empty() {
                queue.bytes = 0;
                return Some(std::mem::take(&mut queue.jobs));
            }
            if queue.closing {
                return None;
            }
            if !self.dirty {
                shared.wake.wait(&mut queue);
            } else if shared.wake.wait_for(&mut queue, IDLE_AFTER).timed_out() {
                drop(queue);
                self.backend.idle();
                self.dirty = false;
                queue = shared.queue.lock();
            }
        }
    }

    /// Applies the jobs in order, syncs once, and tells every caller.
    fn commit_group(&mut self, jobs: VecDeque<Job>) {
        let mut outcomes: Vec<(Done, Result<(), StoreError>)> = Vec::with_capacity(jobs.len());
        let mut applied = false;
        for job in jobs {
            let outcome = self.apply(job.commit);
            applied |= outcome.is_ok();
            outcomes.push((job.done, outcome));
        }
        let mut failed = None;
        if applied {
            self.dirty = true;
            if let Err(e) = self.backend.sync(&self.head) {
                self.poison = Some(e.clone());
                failed = Some(e);
            }
        }
        for (done, outcome) in outcomes {
            done(match (&failed, outcome) {
                (Some(e), Ok(())) => Err(e.clone()),
                (_, outcome) => outcome,
            });
        }
    }

    fn apply(&mut self, commit: Commit) -> Result<(), StoreError> {
        if let Some(e) = &self.poison {
            return Err(e.clone());
        }
        let record = self.head.commit(&commit)?;
        match self.backend.apply(&record, &commit.writes) {
            Ok(()) => {
                self.head = record;
                Ok(())
            }
            Err(Refusal::Clean(e)) => Err(e),
            Err(Refusal::Fatal(e)) => {
                self.poison = Some(e.clone());
                Err(e)
            }
        }
    }
}

struct EndGuard(Arc<Shared>);

impl Drop for EndGuard {
    fn drop(&mut self) {
        let error = if thread::panicking() {
            StoreError::Uncertain("the commit thread panicked".into())
        } else {
            StoreError::Closed
        };
        let mut queue = self.0.queue.lock();
        queue.ended = Some(error.clone());
        let left = std::mem::take(&mut queue.jobs);
        drop(queue);
        for job in left {
            (job.done)(Err(error.clone()));
        }
    }
}
