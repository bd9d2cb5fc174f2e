//! Histories in which a metadata target is killed and started again.
//!
//! Role: has that done by whoever runs the lab (a line `kill` on standard output, a line back on standard input
//! when it runs again), waits until every mount has come back, and cuts out of a history what has no
//! order meanwhile: until a client is back others do not see what only it has, and what was called
//! or answered in that time may have happened or not, up to its end. Everything else is judged by
//! [`super::crash`]. Never does: kill anything itself.

use super::crash::{CrashOp, Mortal, Redo};
use super::drive::{Any, History, Thing};
use super::linear::{Entry, Who};
use super::objects::{LogOp, NamesOp, RegisterOp};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::fs::File;
use std::hash::Hash;
use std::io::{self, BufRead, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::mpsc::Receiver;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Pause before a kill, milliseconds.
const PAUSE: std::ops::Range<u64> = 50..900;
/// How long a mount may take to come back; its length proves nothing.
const PATIENCE: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(20);

/// From before a kill until after every mount was back, in the time of the history.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    pub(super) start: u64,
    pub(super) end: u64,
}

/// Shut while the target is away: who met a kill has one operation under way, and begins no other.
#[derive(Default)]
pub(super) struct Gate {
    shut: Mutex<bool>,
    opened: Condvar,
}

impl Gate {
    fn set(&self, shut: bool) {
        *self.shut.lock().unwrap_or_else(PoisonError::into_inner) = shut;
        self.opened.notify_all();
    }

    /// Waits until it is open.
    pub(super) fn pass(&self) {
        let mut shut = self.shut.lock().unwrap_or_else(PoisonError::into_inner);
        while *shut {
            shut = self.opened.wait(shut).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Opens it again, whatever happened.
struct Shut<'a>(&'a Gate);

impl Drop for Shut<'_> {
    fn drop(&mut self) {
        self.0.set(false);
    }
}

/// Has the metadata target killed again and again, until it is told that a round has ended.
pub(super) fn kill(
    dirs: &[PathBuf],
    seed: u64,
    since: Instant,
    gate: &Gate,
    ended: &Receiver<()>,
) -> io::Result<Vec<Window>> {
    let mut random = StdRng::seed_from_u64(seed);
    let now = || since.elapsed().as_nanos() as u64;
    let mut windows = Vec::new();
    loop {
        let pause = Duration::from_millis(random.random_range(PAUSE));
        if ended.recv_timeout(pause) != Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
            return Ok(windows);
        }
        gate.set(true);
        let shut = Shut(gate);
        let start = now();
        {
            let mut out = io::stdout().lock();
            writeln!(out, "kill")?;
            out.flush()?;
        }
        let mut line = String::new();
        if io::stdin().lock().read_line(&mut line)? == 0 {
            return Err(io::Error::other(
                "nobody kills and starts again: standard input has ended",
            ));
        }
        for dir in dirs {
            come_back(dir)?;
        }
        windows.push(Window { start, end: now() });
        drop(shut);
    }
}

/// Until a mount has told its metadata target all it held back.
fn come_back(dir: &Path) -> io::Result<()> {
    let end = Instant::now() + PATIENCE;
    loop {
        let back = File::open(dir).and_then(|file| {
            // SAFETY: a system call on a descriptor that is open.
            match unsafe { libc::syncfs(file.as_raw_fd()) } {
                0 => file.metadata().map(drop),
                _ => Err(io::Error::last_os_error()),
            }
        });
        match back {
            Ok(()) => return Ok(()),
            Err(e) if Instant::now() > end => return Err(e),
            Err(_) => std::thread::sleep(LOOK),
        }
    }
}

/// The number of a change in its history.
pub(super) fn number(who: Who, call: u64) -> u64 {
    (call << 12) | (who.mount as u64) << 6 | who.thread as u64
}

/// What is left of an operation that met a kill, whose answer cannot be trusted.
pub(super) trait Doubt: Sized {
    /// None: it changed nothing.
    fn doubted(&self) -> Option<Self>;
}

impl Doubt for RegisterOp {
    fn doubted(&self) -> Option<RegisterOp> {
        match self {
            RegisterOp::Set(v) | RegisterOp::MaybeSet(v) => Some(RegisterOp::MaybeSet(*v)),
            RegisterOp::Get(_) => None,
        }
    }
}

impl Doubt for NamesOp {
    fn doubted(&self) -> Option<NamesOp> {
        use NamesOp::{Create, MaybeCreate, MaybeRename, MaybeUnlink, Rename, Stat, Unlink};
        match *self {
            Create(at, Some(_)) | MaybeCreate(at) => Some(MaybeCreate(at)),
            Unlink(at, true) | MaybeUnlink(at) => Some(MaybeUnlink(at)),
            Rename(from, true) | MaybeRename(from) => Some(MaybeRename(from)),
            Create(_, None) | Unlink(_, false) | Rename(_, false) | Stat(..) => None,
        }
    }
}

impl Doubt for LogOp {
    fn doubted(&self) -> Option<LogOp> {
        match self {
            LogOp::Append(v) | LogOp::MaybeAppend(v) => Some(LogOp::MaybeAppend(*v)),
            LogOp::Read(_) => None,
        }
    }
}

/// The history of one thing among kills.
pub(super) fn among_kills<Op: Doubt>(
    history: &History,
    windows: &[Window],
    thing: Thing,
    of: impl Fn(&Any) -> Option<Op>,
) -> Vec<Entry<CrashOp<Op>>> {
    let killed = |w: &Window| Entry {
        who: Who::default(),
        call: w.start,
        back: Some(w.end),
        op: CrashOp::Killed,
    };
    let mut all: Vec<Entry<CrashOp<Op>>> = windows.iter().map(killed).collect();
    let met = |call: u64, back: Option<u64>| {
        let back = back.unwrap_or(u64::MAX);
        windows.iter().filter(move |w| call <= w.end && back >= w.start).map(|w| w.end).max()
    };
    // Changes that met a kill: that they were synced then says nothing.
    let doubted = |key: u64| {
        let change = history.iter().find(|e| e.number == key);
        change.is_none_or(|e| met(e.entry.call, e.entry.back).is_some())
    };
    for noted in history {
        let (e, returned) = (&noted.entry, noted.returned);
        let entry = |back, op| Entry { who: e.who, call: e.call, back, op };
        if let Any::Synced(what, change) = &e.op {
            if *what == thing && !doubted(*change) {
                all.push(entry(e.back, CrashOp::Synced(*change)));
            }
            continue;
        }
        let Some(op) = of(&e.op) else { continue };
        match met(e.call, Some(returned)) {
            None => all.push(entry(e.back, CrashOp::Done(noted.number, op))),
            Some(end) => {
                let op = op.doubted().map(|op| CrashOp::Done(noted.number, op));
                all.extend(op.map(|op| entry(Some(end.max(returned)), op)));
            }
        }
    }
    all
}

/// The object that such a history is one of.
pub(super) fn mortal<'a, O: Redo>(object: &'a O, all: &[Entry<CrashOp<O::Op>>]) -> Mortal<'a, O>
where
    O::Op: Clone + Eq + Hash,
{
    Mortal::of(object, all.iter().map(|e| &e.op))
}
