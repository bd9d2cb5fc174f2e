//! The writer: threads, each with a directory of its own and one step under way at a time.

use super::log::{LOG_VERSION, Line};
use super::step::{self, Step, Sync};
use super::world::{Node, World};
use crate::pattern::mix;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use serde::Serialize;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Names a thread keeps at most.
const MAX_NODES: usize = 60;
/// Offsets and lengths stay below these.
const MAX_OFFSET: u64 = 200_000;
const MAX_LEN: u64 = 90_000;

/// Errors that say "the file system is going away", not "the file system is wrong".
const GOING_AWAY: [i32; 15] = [
    libc::EIO,
    libc::ENOTCONN,
    libc::ETIMEDOUT,
    libc::ECONNREFUSED,
    libc::ECONNRESET,
    libc::ECONNABORTED,
    // The same where requests come through io_uring.
    libc::ECANCELED,
    libc::ESHUTDOWN,
    libc::EHOSTDOWN,
    libc::ENODEV,
    libc::EROFS,
    libc::ENOSPC,
    libc::EINTR,
    libc::EPIPE,
    libc::EAGAIN,
];

#[derive(Clone)]
pub struct WriteOptions {
    /// Directory under test.
    pub dir: PathBuf,
    /// Log file, on a file system that survives; must not exist.
    pub log: PathBuf,
    pub seed: u64,
    pub threads: u32,
    pub limit: Duration,
    /// Steps of each thread.
    pub ops: u64,
    /// How long after the limit to wait for a thread that is stuck in a call.
    pub grace: Duration,
    /// Use syncfs too; FUSE file systems such as the forgetful disk are never told of it.
    pub syncfs: bool,
    /// Eight bytes, little-endian: the operation count of the disk below.
    pub seq_file: Option<PathBuf>,
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct WriteReport {
    /// Steps done (their sync returned).
    pub done: u64,
    /// Threads that stopped because the file system went away: the errno of each.
    pub stopped: Vec<i32>,
    /// Errors that a sound file system does not give.
    pub odd: Vec<String>,
    /// Threads still inside a call when the grace was over.
    pub stuck: u32,
}

struct Shared {
    log: Mutex<File>,
    seq: Option<File>,
    next: AtomicU64,
    deadline: Instant,
    top: PathBuf,
}

impl Shared {
    fn log(&self, line: &Line) -> io::Result<()> {
        let mut text = serde_json::to_vec(line)?;
        text.push(b'\n');
        self.log.lock().unwrap_or_else(PoisonError::into_inner).write_all(&text)
    }

    fn seq(&self) -> io::Result<Option<u64>> {
        let Some(file) = &self.seq else { return Ok(None) };
        let mut bytes = [0; 8];
        file.read_exact_at(&mut bytes, 0)?;
        Ok(Some(u64::from_le_bytes(bytes)))
    }
}

/// Runs the writer; returns when the limit is reached or the file system is gone.
pub fn write(options: &WriteOptions) -> io::Result<WriteReport> {
    let top = format!("durable-{}", options.seed);
    let log = File::options().append(true).create_new(true).open(&options.log)?;
    let shared = Arc::new(Shared {
        log: Mutex::new(log),
        seq: options.seq_file.as_ref().map(File::open).transpose()?,
        next: AtomicU64::new(0),
        deadline: Instant::now() + options.limit,
        top: options.dir.join(&top),
    });
    let (version, seed, threads) = (LOG_VERSION, options.seed, options.threads);
    for thread in 0..threads {
        std::fs::create_dir_all(shared.top.join(format!("t{thread}")))?;
    }
    File::open(&options.dir)?.sync_all()?;
    File::open(&shared.top)?.sync_all()?;
    shared.log(&Line::Run { version, seed, threads, top, at: shared.seq()? })?;
    let report = Arc::new(Mutex::new(WriteReport::default()));
    let mut running = Vec::new();
    for thread in 0..threads {
        let (shared, report, ops) = (Arc::clone(&shared), Arc::clone(&report), options.ops);
        let syncfs = options.syncfs;
        running.push(std::thread::Builder::new().spawn(move || {
            let mut writer = Writer::new(thread, seed, shared, syncfs);
            writer.run(ops, &report)
        })?);
    }
    let end = shared.deadline + options.grace;
    while running.iter().any(|t| !t.is_finished()) && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(10));
    }
    let mut report = report.lock().unwrap_or_else(PoisonError::into_inner).clone();
    report.stuck = running.iter().filter(|t| !t.is_finished()).count() as u32;
    for thread in running.into_iter().filter(|t| t.is_finished()) {
        match thread.join() {
            Ok(result) => result?,
            Err(_) => report.odd.push("a writer thread panicked".into()),
        }
    }
    Ok(report)
}

struct Writer {
    thread: u32,
    shared: Arc<Shared>,
    rng: StdRng,
    world: World,
    generation: u64,
    syncfs: bool,
}

impl Writer {
    fn new(thread: u32, seed: u64, shared: Arc<Shared>, syncfs: bool) -> Self {
        let rng = StdRng::seed_from_u64(mix(seed ^ u64::from(thread) << 32));
        let world = World::default();
        let generation = u64::from(thread) << 40;
        Writer { thread, shared, rng, world, generation, syncfs }
    }

    /// An error is one of the log; what the file system says goes to the report.
    fn run(&mut self, ops: u64, report: &Mutex<WriteReport>) -> io::Result<()> {
        let thread = self.thread;
        for _ in 0..ops {
            if Instant::now() >= self.shared.deadline {
                break;
            }
            let step = self.step();
            let n = self.shared.next.fetch_add(1, Ordering::Relaxed);
            let at = self.shared.seq()?;
            self.shared.log(&Line::Begin { n, thread, at, step: step.clone() })?;
            let result = step::perform(&self.shared.top, &step);
            let mut report = report.lock().unwrap_or_else(PoisonError::into_inner);
            if let Err(e) = result {
                let errno = e.raw_os_error().unwrap_or(0);
                self.shared.log(&Line::Failed { n, thread, errno })?;
                match GOING_AWAY.contains(&errno) {
                    true => report.stopped.push(errno),
                    false => report.odd.push(format!("{step:?}: {e}")),
                }
                break;
            }
            report.done += 1;
            self.shared.log(&Line::Done { n, thread, at: self.shared.seq()? })?;
            self.world.done(&step);
        }
        Ok(())
    }

    fn pick(&mut self, wanted: impl Fn(&Node) -> bool) -> Option<String> {
        let names: Vec<_> =
            self.world.nodes.iter().filter(|(_, n)| wanted(n)).map(|n| n.0).collect();
        names.choose(&mut self.rng).map(|name| name.to_string())
    }

    /// A name that does not exist, in a directory that does.
    fn fresh(&mut self) -> String {
        let dir = self.pick(|n| *n == Node::Dir).filter(|_| self.rng.random_ratio(2, 3));
        let dir = dir.unwrap_or_else(|| format!("t{}", self.thread));
        format!("{dir}/n{}", self.next_generation())
    }

    fn next_generation(&mut self) -> u64 {
        self.generation += 100;
        self.generation
    }

    fn step(&mut self) -> Step {
        loop {
            if let Some(step) = self.try_step() {
                return step;
            }
        }
    }

    fn try_step(&mut self) -> Option<Step> {
        let full = self.world.nodes.len() > MAX_NODES;
        let generation = self.next_generation();
        let file = |n: &Node| matches!(n, Node::File(_));
        let len = self.length();
        Some(match self.rng.random_range(0..26) {
            0..=3 if !full => {
                let (path, sync) = (self.fresh(), self.sync());
                let with_name = len > 0 && matches!(sync, Sync::Fsync | Sync::Syncfs);
                let name_sync = !with_name || self.rng.random();
                Step::Create { path, len, generation, sync, name_sync }
            }
            4..=8 => {
                let (path, sync) = (self.pick(file)?, self.sync());
                let off = self.offset(&path);
                let (off, len) = match sync {
                    Sync::Direct => (off & !4095, len.next_multiple_of(4096)),
                    _ => (off, len),
                };
                Step::Write { path, off, len, generation, sync }
            }
            9 | 10 => {
                let path = self.pick(file)?;
                Step::Unsynced { off: self.offset(&path), path, len, generation }
            }
            11 => Step::Truncate { path: self.pick(file)?, len: self.rng.random_range(0..MAX_LEN) },
            12 | 13 => {
                let (from, to) = (self.pick(file)?, self.rng.random::<bool>());
                let to = if to { self.fresh() } else { self.pick(file)? };
                let same = self.world.nodes.get(&from) == self.world.nodes.get(&to);
                (!same).then_some(Step::Rename { from, to })?
            }
            14..=16 => Step::Replace { path: self.pick(file)?, len, generation },
            17 | 18 => Step::Unlink { path: self.pick(|n| *n != Node::Dir)? },
            19 if !full => Step::Link { from: self.pick(file)?, to: self.fresh() },
            20 if !full => Step::Symlink { target: format!("to-{generation}"), path: self.fresh() },
            21 => Step::Xattr { path: self.pick(file)?, generation },
            22 => {
                let mode = *[0o600, 0o640, 0o755, 0o644].choose(&mut self.rng)?;
                Step::Chmod { path: self.pick(file)?, mode }
            }
            23 if !full => Step::Mkdir { path: self.fresh() },
            24 => {
                let path = self.pick(|n| *n == Node::Dir)?;
                let inside = format!("{path}/");
                let empty = !self.world.nodes.keys().any(|k| k.starts_with(&inside));
                empty.then_some(Step::Rmdir { path })?
            }
            25 if !full && self.syncfs => {
                let (path, count) = (self.fresh() + "b", self.rng.random_range(2..20));
                Step::Batch { path, count, len: self.rng.random_range(0..9000), generation }
            }
            _ => return None,
        })
    }

    fn length(&mut self) -> u64 {
        match self.rng.random_range(0..4) {
            0 => self.rng.random_range(0..MAX_LEN),
            1 => *[4096, 8192, 65_536, 1].choose(&mut self.rng).unwrap_or(&1),
            _ => self.rng.random_range(1..9_000),
        }
    }

    /// Inside the file, at its end, or anywhere.
    fn offset(&mut self, path: &str) -> u64 {
        let size = self.world.file(path).map_or(0, |f| f.reach());
        match self.rng.random_range(0..4) {
            0 => size,
            1 => self.rng.random_range(0..MAX_OFFSET),
            _ => self.rng.random_range(0..=size),
        }
    }

    fn sync(&mut self) -> Sync {
        let all = [
            Sync::Fsync,
            Sync::Fsync,
            Sync::Fdatasync,
            Sync::Fdatasync,
            Sync::OpenSync,
            Sync::OpenDsync,
            Sync::Direct,
            Sync::Msync,
            Sync::Syncfs,
        ];
        let all = if self.syncfs { &all[..] } else { &all[..all.len() - 1] };
        *all.choose(&mut self.rng).unwrap_or(&Sync::Fsync)
    }
}

/// The directory of a run.
pub(crate) fn top(dir: &Path, name: &str) -> PathBuf {
    dir.join(name)
}
