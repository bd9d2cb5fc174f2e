//! The three phases: every session creates, then looks at, then removes its own names.

use anyhow::{Result, bail};
use client::raw::MdsSession;
use proto::Fid;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Barrier, Mutex};
use std::time::{Duration, Instant};

/// A thread waits for one reply at a time and needs little.
const STACK: usize = 128 << 10;

/// Operations per second.
pub struct Rates {
    pub creates: f64,
    pub stats: f64,
    pub unlinks: f64,
    /// Of all three phases.
    pub operations: u64,
}

struct Shared {
    barrier: Barrier,
    stop: AtomicBool,
    counts: [AtomicU64; 3],
    failure: Mutex<Option<String>>,
}

impl Shared {
    fn fail(&self, what: &str, e: proto::Errno) {
        let mut failure = self.failure.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        failure.get_or_insert_with(|| format!("{what}: {e}"));
    }

    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

/// Runs all phases; sessions work below `base`, each in a directory of its own unless `shared`.
pub fn run(sessions: Vec<MdsSession>, base: Fid, shared: bool, phase: Duration) -> Result<Rates> {
    let state = Shared {
        barrier: Barrier::new(sessions.len() + 1),
        stop: AtomicBool::new(false),
        counts: Default::default(),
        failure: Mutex::new(None),
    };
    let mut seconds = [0.0; 3];
    std::thread::scope(|scope| -> Result<()> {
        for (n, session) in sessions.iter().enumerate() {
            let state = &state;
            std::thread::Builder::new()
                .stack_size(STACK)
                .spawn_scoped(scope, move || work(state, session, n, base, shared))?;
        }
        // Directories are made.
        state.barrier.wait();
        for (n, seconds) in seconds.iter_mut().enumerate() {
            state.stop.store(false, Ordering::Relaxed);
            state.barrier.wait();
            let start = Instant::now();
            if n < 2 {
                std::thread::sleep(phase);
                state.stop.store(true, Ordering::Relaxed);
            }
            state.barrier.wait();
            *seconds = start.elapsed().as_secs_f64();
        }
        Ok(())
    })?;
    for session in &sessions {
        session.close();
    }
    let failure = state.failure.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    if let Some(failure) = failure {
        bail!("{failure}");
    }
    let rate = |n: usize| state.counts[n].load(Ordering::Relaxed) as f64 / seconds[n];
    let operations = state.counts.iter().map(|c| c.load(Ordering::Relaxed)).sum();
    Ok(Rates { creates: rate(0), stats: rate(1), unlinks: rate(2), operations })
}

/// One session through all phases. It reaches every barrier whatever happens.
fn work(state: &Shared, session: &MdsSession, n: usize, base: Fid, shared: bool) {
    let dir = match (shared, session.mkdir(base, format!("d{n}").as_bytes())) {
        (true, _) => base,
        (false, Ok(attr)) => attr.fid,
        (false, Err(e)) => {
            state.fail("mkdir", e);
            base
        }
    };
    let name = |file: u64| format!("s{n}-f{file}");
    state.barrier.wait();
    let mut made = 0;
    phase(state, 0, || {
        if state.stopped() {
            return None;
        }
        made += 1;
        Some(session.create(dir, name(made - 1).as_bytes()).map(|_| ()))
    });
    let mut next = 0;
    phase(state, 1, || {
        if state.stopped() || made == 0 {
            return None;
        }
        next = (next + 1) % made;
        Some(session.stat(dir, name(next).as_bytes()).map(|_| ()))
    });
    phase(state, 2, || {
        made = made.checked_sub(1)?;
        Some(session.unlink(dir, name(made).as_bytes()).map(|_| ()))
    });
}

/// Repeats `step` until it gives none, and counts.
fn phase(state: &Shared, which: usize, mut step: impl FnMut() -> Option<Result<(), proto::Errno>>) {
    state.barrier.wait();
    let mut done = 0;
    while let Some(result) = step() {
        match result {
            Ok(()) => done += 1,
            Err(e) => {
                state.fail(["create", "stat", "unlink"][which], e);
                break;
            }
        }
    }
    state.counts[which].fetch_add(done, Ordering::Relaxed);
    state.barrier.wait();
}
