//! The three phases: every session creates, then looks at, then removes its own names, one request
//! at a time. The threads of the client library do it all: an answer brings the next request.

use anyhow::{Result, bail};
use client::raw::MdsSession;
use parking_lot::{Condvar, Mutex};
use proto::{Errno, Fid};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// What is measured, in this order.
pub const PHASES: [&str; 3] = ["creates", "stats", "unlinks"];

/// How long the target may take to come to rest, and how often that is looked at.
const SETTLE: Duration = Duration::from_secs(15);
const LOOK: Duration = Duration::from_millis(100);

/// Of one phase.
#[derive(Clone, Copy, Default)]
pub struct Phase {
    pub operations: u64,
    pub seconds: f64,
    /// Processor seconds of this process, and of the server.
    pub client: f64,
    pub server: f64,
}

#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    done: AtomicU64,
    busy: Mutex<usize>,
    idle: Condvar,
    failure: Mutex<Option<String>>,
}

/// A session and what it has made.
struct Worker {
    shared: Arc<Shared>,
    session: MdsSession,
    number: usize,
    dir: Fid,
    made: AtomicU64,
    next: AtomicU64,
}

/// Runs all phases; sessions work below `base`, each in a directory of its own unless `shared`.
/// `cpu` tells the processor seconds used so far: of this process, of the server.
pub fn run(
    sessions: Vec<MdsSession>,
    base: Fid,
    one_directory: bool,
    phase: Duration,
    cpu: impl Fn() -> (f64, f64),
) -> Result<[Phase; 3]> {
    let shared = Arc::new(Shared::default());
    let mut workers = Vec::with_capacity(sessions.len());
    for (number, session) in sessions.into_iter().enumerate() {
        session.prepare()?;
        let dir = match one_directory {
            true => base,
            false => session.mkdir(base, format!("d{number}").as_bytes())?.fid,
        };
        let (made, next) = (AtomicU64::new(0), AtomicU64::new(0));
        let shared = Arc::clone(&shared);
        workers.push(Arc::new(Worker { shared, session, number, dir, made, next }));
    }
    settle(&cpu);
    let mut phases = [Phase::default(); 3];
    for (kind, result) in phases.iter_mut().enumerate() {
        shared.stop.store(false, Relaxed);
        shared.done.store(0, Relaxed);
        *shared.busy.lock() = workers.len();
        let (before, start) = (cpu(), Instant::now());
        workers.iter().for_each(|w| w.step(kind));
        // All are removed, which takes as long as it takes.
        let until = start + phase;
        let mut busy = shared.busy.lock();
        while *busy > 0 {
            if kind < 2 && !shared.stop.load(Relaxed) {
                let late = shared.idle.wait_until(&mut busy, until).timed_out();
                shared.stop.store(late, Relaxed);
            } else {
                shared.idle.wait(&mut busy);
            }
        }
        drop(busy);
        let after = cpu();
        *result = Phase {
            operations: shared.done.load(Relaxed),
            seconds: start.elapsed().as_secs_f64(),
            client: after.0 - before.0,
            server: after.1 - before.1,
        };
        if let Some(failure) = shared.failure.lock().take() {
            bail!("{failure}");
        }
    }
    workers.iter().for_each(|w| w.session.close());
    Ok(phases)
}

/// Waits until the target has nothing left to do of earlier loads and of the setting up, which would
/// be counted against this one.
fn settle(cpu: impl Fn() -> (f64, f64)) {
    let end = Instant::now() + SETTLE;
    while Instant::now() < end {
        let before = cpu().1;
        std::thread::sleep(LOOK);
        if cpu().1 - before < LOOK.as_secs_f64() / 5.0 {
            return;
        }
    }
}

impl Worker {
    fn name(&self, file: u64) -> Vec<u8> {
        format!("s{}-f{file}", self.number).into_bytes()
    }

    /// Sends the next request of a phase; its answer sends the one after it.
    fn step(self: &Arc<Worker>, kind: usize) {
        let made = self.made.load(Relaxed);
        let stopped = self.shared.stop.load(Relaxed);
        if kind < 2 && stopped || kind > 0 && made == 0 {
            return self.end();
        }
        let me = Arc::clone(self);
        let done = move |r: Result<_, Errno>| match r {
            Ok(_) => {
                me.shared.done.fetch_add(1, Relaxed);
                me.step(kind);
            }
            Err(e) => me.fail(kind, e),
        };
        match kind {
            0 => {
                self.made.store(made + 1, Relaxed);
                if let Err(e) = self.session.start_create(self.dir, &self.name(made), done) {
                    self.fail(kind, e);
                }
            }
            1 => {
                let next = self.next.fetch_add(1, Relaxed) % made;
                self.session.start_stat(self.dir, &self.name(next), done);
            }
            _ => {
                self.made.store(made - 1, Relaxed);
                self.session.start_unlink(self.dir, &self.name(made - 1), done);
            }
        }
    }

    fn fail(&self, kind: usize, e: Errno) {
        let text = || format!("session {}, {}: {e}", self.number, PHASES[kind]);
        self.shared.failure.lock().get_or_insert_with(text);
        self.shared.stop.store(true, Relaxed);
        self.end();
    }

    fn end(&self) {
        let mut busy = self.shared.busy.lock();
        *busy -= 1;
        if *busy == 0 {
            self.shared.idle.notify_all();
        }
    }
}
