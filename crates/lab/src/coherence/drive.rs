//! Threads on several mounts do random operations on a few objects and note what they saw when.

use super::crash::Redo;
use super::judge::judge;
use super::kills::{self, Gate, Window};
use super::linear::{Entry, Who};
use super::made::{MADE, Slots};
use super::mapped::{Maps, PAGES, Stores};
use super::objects::{Log, LogOp, Names, NamesOp, Register, RegisterOp};
use super::prepare::prepare_patiently;
use super::strides::{TIMES, is_strided};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde::Serialize;
use std::collections::{BTreeSet, HashMap};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

pub(super) const PAGE: usize = 4096;
/// Offsets of the registers in the large file: two in one page, one in another stripe.
const LARGE: [u64; 3] = [1 << 20, (1 << 20) + 8, 3 << 20];
/// Pause while a mount cannot be reached at all.
const GONE: Duration = Duration::from_millis(50);
/// Registers that share the page of the small file.
pub(super) const SMALL: usize = 3;

#[derive(Clone, Debug)]
pub struct Options {
    /// One directory for each mount; all the same directory of one file system.
    pub dirs: Vec<PathBuf>,
    pub seed: u64,
    pub time: Duration,
    /// Threads for each mount.
    pub threads: usize,
    /// Operations of a thread in a round; objects are new in each round.
    pub operations: usize,
    /// Changes are synced before they count as done: what a mount that is given up loses is then
    /// never among them.
    pub sync: bool,
    /// A metadata target is killed again and again, by whoever is told so on standard output.
    pub kills: bool,
    /// Parts left out, of [`super::FEATURES`].
    pub without: BTreeSet<String>,
}

#[derive(Debug, Default, Serialize)]
pub struct Report {
    pub seed: u64,
    pub rounds: u64,
    pub operations: u64,
    /// Operations whose outcome is not known: something was killed, cut or stopped.
    pub unknown: u64,
    /// Kills of a metadata target.
    pub kills: u64,
    /// Changes that were synced while it was killed.
    pub synced: u64,
    pub violations: Vec<String>,
}

/// An operation on the object of that number.
#[derive(Clone, Debug)]
pub(super) enum Any {
    Register(usize, RegisterOp),
    Names(usize, NamesOp),
    Log(LogOp),
    /// The change of that number was synced.
    Synced(Thing, u64),
}

/// What an operation is done to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Thing {
    Register(usize),
    Names(usize),
    Log,
}

impl Any {
    fn thing(&self) -> Thing {
        match self {
            Any::Register(n, _) => Thing::Register(*n),
            Any::Names(n, _) => Thing::Names(*n),
            Any::Log(_) => Thing::Log,
            Any::Synced(thing, _) => *thing,
        }
    }

    /// Whether it changed something, for sure.
    fn changes(&self) -> bool {
        match self {
            Any::Register(_, op) => Register { start: 0 }.changes(op),
            Any::Names(_, op) => Names.changes(op),
            Any::Log(op) => Log::default().changes(op),
            Any::Synced(..) => false,
        }
    }
}

/// An operation that was noted.
#[derive(Clone)]
pub(super) struct Noted {
    pub(super) entry: Entry<Any>,
    /// Of its own.
    pub(super) number: u64,
    /// When the call returned, whatever is known of its outcome.
    pub(super) returned: u64,
}

pub(super) type History = Vec<Noted>;

/// Where the registers are.
pub(super) const MODE: usize = SMALL + LARGE.len();
/// Where those in mapped pages begin.
pub(super) const MAPPED: usize = MODE + 1;
/// Where those in files that are made meanwhile begin.
pub(super) const MADE_AT: usize = MAPPED + PAGES.len();
/// Where those in strides begin.
pub(super) const STRIDES_AT: usize = MADE_AT + MADE;
pub(super) const START_MODE: u64 = 0o600;

pub(super) struct Worker<'a> {
    pub(super) options: &'a Options,
    pub(super) who: Who,
    pub(super) dir: PathBuf,
    pub(super) rng: StdRng,
    since: Instant,
    pub(super) kept: HashMap<PathBuf, File>,
    pub(super) maps: Maps,
    pub(super) stores: &'a Stores,
    pub(super) slots: &'a Slots,
    /// Whether all write in strides; the block it is at, and how far it came.
    strided: bool,
    pub(super) turn: usize,
    pub(super) reached: u64,
    /// What no order can explain.
    pub(super) faults: Vec<String>,
    next: &'a AtomicU64,
    gate: &'a Gate,
    /// What the operation under way was done through: to be synced.
    pub(super) through: Vec<File>,
    history: History,
}

/// Runs rounds until the time is over or something is found.
pub fn drive(options: &Options) -> io::Result<Report> {
    let mut report = Report { seed: options.seed, ..Report::default() };
    let began = Instant::now();
    let mut round = 0;
    while (round == 0 || began.elapsed() < options.time) && report.violations.is_empty() {
        let name = prepare_patiently(options, round)?;
        let (history, windows) = play(options, &name, round, &mut report.violations)?;
        report.rounds += 1;
        report.operations += history.len() as u64;
        report.unknown += history.iter().filter(|e| e.entry.back.is_none()).count() as u64;
        report.kills += windows.len() as u64;
        let synced = |e: &&Noted| matches!(e.entry.op, Any::Synced(..));
        report.synced += history.iter().filter(synced).count() as u64;
        judge(&history, &windows, &mut report.violations);
        if report.violations.is_empty() {
            // Best effort: the next round's has another name, and a mount may be gone just now.
            let _ = std::fs::remove_dir_all(options.dirs[0].join(&name));
        }
        round += 1;
    }
    Ok(report)
}

fn play(
    options: &Options,
    name: &str,
    round: u64,
    violations: &mut Vec<String>,
) -> io::Result<(History, Vec<Window>)> {
    let (since, next, slots) = (Instant::now(), AtomicU64::new(1), Slots::default());
    let stores: Vec<Stores> = options.dirs.iter().map(|_| Stores::default()).collect();
    let gate = Gate::default();
    let strided = !options.without.contains("strides") && !options.kills && is_strided(round);
    let operations = options.operations * if strided { TIMES } else { 1 };
    let all = Barrier::new(options.dirs.len() * options.threads);
    let work = |mount: usize, thread: usize| {
        let seed = options.seed ^ (round << 32) ^ ((mount as u64) << 16) ^ ((thread as u64) << 24);
        let mut worker = Worker {
            options,
            who: Who { mount, thread, way: 0 },
            dir: options.dirs[mount].join(name),
            rng: StdRng::seed_from_u64(seed),
            since,
            kept: HashMap::new(),
            maps: Maps::default(),
            stores: &stores[mount],
            slots: &slots,
            strided,
            turn: 0,
            reached: 0,
            faults: Vec::new(),
            next: &next,
            gate: &gate,
            through: Vec::new(),
            history: Vec::new(),
        };
        (0..operations).for_each(|_| worker.step());
        all.wait();
        if strided {
            worker.look_at_all_blocks(STRIDES_AT);
        }
        let mut stale = worker.left_alone();
        stale.append(&mut worker.faults);
        (worker, stale)
    };
    let (end, ended) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        let seed = options.seed ^ (round << 32);
        let shut = &gate;
        let killer = move || kills::kill(&options.dirs, seed, since, shut, &ended);
        let killer = options.kills.then(|| scope.spawn(killer));
        let mut threads = Vec::new();
        for mount in 0..options.dirs.len() {
            for thread in 0..options.threads {
                let work = &work;
                threads.push(scope.spawn(move || work(mount, thread)));
            }
        }
        let (mut workers, mut history) = (Vec::new(), History::new());
        for (worker, stale) in threads.into_iter().filter_map(|t| t.join().ok()) {
            workers.push(worker);
            violations.extend(stale);
        }
        drop(end);
        let windows = match killer.map(|k| k.join()) {
            None => Vec::new(),
            Some(windows) => windows.map_err(|_| io::Error::other("the killer panicked"))??,
        };
        // One after the other: all must agree.
        workers.iter_mut().filter(|w| options.kills && w.who.thread == 0).for_each(Worker::look);
        workers.into_iter().for_each(|w| history.extend(w.history));
        Ok((history, windows))
    })
}

/// Answers that say what the state was; any other failure leaves the outcome open.
fn known(e: &io::Error) -> bool {
    matches!(e.raw_os_error(), Some(libc::ENOENT | libc::EEXIST))
}

impl Worker<'_> {
    pub(super) fn has(&self, feature: &str) -> bool {
        !self.options.without.contains(feature)
    }

    /// Runs an operation and notes it; `unknown` stands for it when its outcome is not known
    /// (none: then it cannot matter). Some changes are synced.
    pub(super) fn note(
        &mut self,
        run: impl FnOnce(&mut Self) -> io::Result<Any>,
        unknown: Option<Any>,
    ) {
        let changed = self.one(run, unknown);
        let through = std::mem::take(&mut self.through);
        if let Some((thing, number)) = changed
            && !through.is_empty()
            && self.rng.random_bool(0.5)
        {
            // By what it was done through: others need not be told of a loss again.
            let sync = |_: &mut Self| {
                through.iter().try_for_each(File::sync_all)?;
                Ok(Any::Synced(thing, number))
            };
            self.one(sync, None);
        }
    }

    /// What was changed for sure, and the number of the change.
    fn one(
        &mut self,
        run: impl FnOnce(&mut Self) -> io::Result<Any>,
        unknown: Option<Any>,
    ) -> Option<(Thing, u64)> {
        let call = self.since.elapsed().as_nanos() as u64;
        let answer = run(self);
        let returned = self.since.elapsed().as_nanos() as u64;
        let who = self.who;
        let number = kills::number(who, call);
        let noted = |back, op| Noted { entry: Entry { who, call, back, op }, number, returned };
        match answer {
            Ok(op) => {
                let changed = op.changes().then(|| (op.thing(), number));
                self.history.push(noted(Some(returned), op));
                changed
            }
            Err(_) => {
                // What an evicted mount had open stays lost.
                self.kept.clear();
                self.maps.clear();
                self.history.extend(unknown.map(|op| noted(None, op)));
                None
            }
        }
    }

    /// What this mount has everywhere, at the end.
    fn look(&mut self) {
        for n in 0..MODE {
            let (path, at) = self.spot(n);
            self.note(|w| Ok(Any::Register(n, RegisterOp::Get(w.get(&path, at, 0)?))), None);
        }
        self.get_mode();
        for (pair, at) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
            let path = self.pair(pair)[at].clone();
            self.stat(pair, at, &path);
        }
        self.read_log();
    }

    /// What was done to these is durable, if it is to be.
    fn settle<'p>(&self, changed: impl IntoIterator<Item = &'p Path>) -> io::Result<()> {
        if self.options.sync {
            for path in changed {
                File::open(path)?.sync_all()?;
            }
        }
        Ok(())
    }

    fn step(&mut self) {
        self.gate.pass();
        // A mount that is gone is asked for nothing, rather than for much whose outcome is not known.
        if let Err(e) = std::fs::symlink_metadata(&self.dir)
            && !known(&e)
        {
            self.kept.clear();
            self.maps.clear();
            return std::thread::sleep(GONE);
        }
        self.who.way = 0;
        if self.strided {
            return self.strides(STRIDES_AT);
        }
        match self.rng.random_range(0..14) {
            0..=4 if self.has("bytes") => self.bytes(),
            10 | 11 if self.has("mapped") => self.mapped(),
            5 if self.has("mode") => self.mode(),
            6..=8 if self.has("names") => self.names(),
            9 if self.has("append") => self.log(),
            12 | 13 if self.has("made") && !self.options.kills => self.made(MADE_AT),
            _ => {}
        }
    }

    pub(super) fn open(&self, path: &Path, write: bool, append: bool) -> io::Result<File> {
        OpenOptions::new()
            .read(true)
            .write(write)
            .append(append)
            .custom_flags(libc::O_CLOEXEC)
            .open(path)
    }

    fn bytes(&mut self) {
        let spots = if self.has("same-page") { MODE } else { 1 };
        let n = self.rng.random_range(0..spots);
        let (path, at) = self.spot(n);
        let how = self.rng.random_range(0..2);
        self.who.way = how;
        let set = self.new_value();
        let unknown = set.map(|v| Any::Register(n, RegisterOp::MaybeSet(v)));
        self.note(
            |w| {
                let op = match set {
                    Some(v) => {
                        w.put(&path, at, v, how)?;
                        RegisterOp::Set(v)
                    }
                    None => RegisterOp::Get(w.get(&path, at, how)?),
                };
                Ok(Any::Register(n, op))
            },
            unknown,
        );
    }

    fn spot(&self, n: usize) -> (PathBuf, u64) {
        match n.checked_sub(SMALL) {
            None => (self.dir.join("small"), n as u64 * 8),
            Some(large) => (self.dir.join("large"), LARGE[large]),
        }
    }

    /// A value to set, if one is to be set.
    pub(super) fn new_value(&mut self) -> Option<u64> {
        self.rng.random_bool(0.4).then(|| self.value())
    }

    /// One that nothing was set to before.
    pub(super) fn value(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// By a file of its own, or by one that stays open.
    pub(super) fn put(&mut self, path: &Path, at: u64, value: u64, how: u32) -> io::Result<()> {
        let bytes = value.to_le_bytes();
        if how == 1 && self.has("kept") {
            let file = self.kept(path)?;
            file.write_all_at(&bytes, at)?;
            let again = file.try_clone()?;
            self.synced_later(again);
            return if self.options.sync { self.kept(path)?.sync_data() } else { Ok(()) };
        }
        let file = self.open(path, true, false)?;
        file.write_all_at(&bytes, at)?;
        if self.options.sync {
            file.sync_data()?;
        }
        self.synced_later(file);
        Ok(())
    }

    pub(super) fn get(&mut self, path: &Path, at: u64, how: u32) -> io::Result<u64> {
        let mut bytes = [0; 8];
        if how == 1 && self.has("kept") {
            self.kept(path)?.read_exact_at(&mut bytes, at)?;
        } else {
            self.open(path, false, false)?.read_exact_at(&mut bytes, at)?;
        }
        Ok(u64::from_le_bytes(bytes))
    }

    pub(super) fn kept(&mut self, path: &Path) -> io::Result<&File> {
        if !self.kept.contains_key(path) {
            let file = self.open(path, true, false)?;
            self.kept.insert(path.to_path_buf(), file);
        }
        self.kept.get(path).ok_or_else(|| io::Error::from_raw_os_error(libc::EBADF))
    }

    fn mode(&mut self) {
        // Set-bits apart, every value is one that root may read under.
        let set = self.rng.random_bool(0.4).then(|| self.rng.random_range(0o001..0o777u32));
        let Some(m) = set else { return self.get_mode() };
        let path = self.dir.join("mode");
        self.note(
            |w| {
                let file = w.open(&path, false, false)?;
                file.set_permissions(PermissionsExt::from_mode(m))?;
                w.settle([&*path])?;
                w.synced_later(file);
                Ok(Any::Register(MODE, RegisterOp::Set(m.into())))
            },
            Some(Any::Register(MODE, RegisterOp::MaybeSet(m.into()))),
        );
    }

    fn get_mode(&mut self) {
        let path = self.dir.join("mode");
        let get = |_: &mut Self| {
            let mode = std::fs::metadata(&path)?.mode() & 0o7777;
            Ok(Any::Register(MODE, RegisterOp::Get(mode.into())))
        };
        self.note(get, None);
    }

    /// Two names.
    fn pair(&self, pair: usize) -> [PathBuf; 2] {
        match pair {
            0 => [self.dir.join("one/a"), self.dir.join("one/b")],
            _ => [self.dir.join("one/x"), self.dir.join("two/y")],
        }
    }

    fn stat(&mut self, pair: usize, at: usize, path: &Path) {
        self.note(
            |_| {
                let seen = match std::fs::symlink_metadata(path) {
                    Ok(m) => Some(m.ino()),
                    Err(e) if known(&e) => None,
                    Err(e) => return Err(e),
                };
                Ok(Any::Names(pair, NamesOp::Stat(at, seen)))
            },
            None,
        );
    }

    fn synced_later(&mut self, file: File) {
        if self.options.kills {
            self.through.push(file);
        }
    }

    /// What is done to names is synced through their directories, as they were open before.
    fn open_dirs(&mut self, dirs: &[PathBuf]) {
        if self.options.kills {
            // All of them, or it is not synced.
            let opened: io::Result<Vec<File>> = dirs.iter().map(File::open).collect();
            self.through = opened.unwrap_or_default();
        }
    }

    fn names(&mut self) {
        let pair = self.rng.random_range(0..2);
        let paths = self.pair(pair);
        let at = self.rng.random_range(0..2);
        let (path, other) = (&paths[at], &paths[1 - at]);
        let dirs = [path, other].map(|p| p.parent().unwrap_or(&self.dir).to_path_buf());
        let settle = |w: &Self| w.settle(dirs.iter().map(|d| &**d));
        self.open_dirs(&dirs);
        match self.rng.random_range(0..6) {
            0 | 1 => self.note(
                |w| {
                    let made = create(path)?;
                    settle(w)?;
                    Ok(Any::Names(pair, NamesOp::Create(at, made)))
                },
                Some(Any::Names(pair, NamesOp::MaybeCreate(at))),
            ),
            2 => self.note(
                |w| {
                    let gone = done(std::fs::remove_file(path))?;
                    settle(w)?;
                    Ok(Any::Names(pair, NamesOp::Unlink(at, gone)))
                },
                Some(Any::Names(pair, NamesOp::MaybeUnlink(at))),
            ),
            3 => self.note(
                |w| {
                    let moved = done(std::fs::rename(path, other))?;
                    settle(w)?;
                    Ok(Any::Names(pair, NamesOp::Rename(at, moved)))
                },
                Some(Any::Names(pair, NamesOp::MaybeRename(at))),
            ),
            _ => self.stat(pair, at, path),
        }
    }

    fn log(&mut self) {
        let path = self.dir.join("log");
        let add = self.rng.random_bool(0.5).then(|| self.value());
        let Some(v) = add else { return self.read_log() };
        self.note(
            |w| {
                let file = w.open(&path, false, true)?;
                io::Write::write_all(&mut &file, &v.to_le_bytes())?;
                if w.options.sync {
                    file.sync_data()?;
                }
                w.synced_later(file);
                Ok(Any::Log(LogOp::Append(v)))
            },
            Some(Any::Log(LogOp::MaybeAppend(v))),
        );
    }

    fn read_log(&mut self) {
        let path = self.dir.join("log");
        let word = |b: &[u8]| u64::from_le_bytes(b.try_into().unwrap_or_default());
        let read = |_: &mut Self| {
            let all = std::fs::read(&path)?;
            Ok(Any::Log(LogOp::Read(all.chunks_exact(8).map(word).collect())))
        };
        self.note(read, None);
    }
}

/// The new file's identity, or none if the name was taken.
fn create(path: &Path) -> io::Result<Option<u64>> {
    match OpenOptions::new().write(true).create_new(true).open(path) {
        Ok(file) => Ok(Some(file.metadata()?.ino())),
        Err(e) if e.raw_os_error() == Some(libc::EEXIST) => Ok(None),
        Err(e) => Err(e),
    }
}

/// Whether there was something to do it to.
fn done(answer: io::Result<()>) -> io::Result<bool> {
    match answer {
        Ok(()) => Ok(true),
        Err(e) if e.raw_os_error() == Some(libc::ENOENT) => Ok(false),
        Err(e) => Err(e),
    }
}
