//! Threads on several mounts do random operations on a few objects and note what they saw when.

use super::linear::{Entry, Object, Violation, Who, explain};
use super::objects::{Log, LogOp, Names, NamesOp, Register, RegisterOp};
use crate::sys::Mapping;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde::Serialize;
use std::collections::{BTreeSet, HashMap};
use std::fmt::Debug;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const PAGE: usize = 4096;
/// Offsets of the registers in the large file: two in one page, one in another stripe.
const LARGE: [u64; 3] = [1 << 20, (1 << 20) + 8, 3 << 20];
/// Length of the large file, so that it lies on the OSTs.
const LARGE_LEN: u64 = 4 << 20;
/// Pause while a mount cannot be reached at all.
const GONE: Duration = Duration::from_millis(50);
/// Registers that share the page of the small file.
const SMALL: usize = 3;

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
    pub violations: Vec<String>,
}

/// An operation on the object of that number.
#[derive(Clone, Debug)]
enum Any {
    Register(usize, RegisterOp),
    Names(usize, NamesOp),
    Log(LogOp),
}

type History = Vec<Entry<Any>>;

/// Where the registers are.
const MODE: usize = SMALL + LARGE.len();
const REGISTERS: usize = MODE + 1;
const START_MODE: u64 = 0o600;

struct Worker<'a> {
    options: &'a Options,
    who: Who,
    dir: PathBuf,
    rng: StdRng,
    since: Instant,
    kept: HashMap<PathBuf, File>,
    mapped: Option<Mapping>,
    next: &'a AtomicU64,
    history: History,
}

/// Runs rounds until the time is over or something is found.
pub fn drive(options: &Options) -> io::Result<Report> {
    let mut report = Report { seed: options.seed, ..Report::default() };
    let began = Instant::now();
    let mut round = 0;
    while (round == 0 || began.elapsed() < options.time) && report.violations.is_empty() {
        let name = format!("coherence-{}-{round}", options.seed);
        prepare(&options.dirs[0].join(&name))?;
        let history = play(options, &name, round);
        report.rounds += 1;
        report.operations += history.len() as u64;
        report.unknown += history.iter().filter(|e| e.back.is_none()).count() as u64;
        judge(&history, &mut report.violations);
        if report.violations.is_empty() {
            remove(&options.dirs[0].join(&name))?;
        }
        round += 1;
    }
    Ok(report)
}

fn prepare(dir: &Path) -> io::Result<()> {
    for d in ["", "one", "two"] {
        std::fs::create_dir(dir.join(d))?;
    }
    std::fs::write(dir.join("small"), [0; PAGE])?;
    let large = File::create(dir.join("large"))?;
    large.set_len(LARGE_LEN)?;
    large.write_all_at(&[0; PAGE], LARGE_LEN - PAGE as u64)?;
    std::fs::write(dir.join("mode"), "")?;
    std::fs::set_permissions(dir.join("mode"), PermissionsExt::from_mode(START_MODE as u32))?;
    File::create(dir.join("log"))?.sync_all()?;
    large.sync_all()
}

/// A mount that was just killed may need a while before it removes anything.
fn remove(dir: &Path) -> io::Result<()> {
    let end = Instant::now() + Duration::from_secs(30);
    loop {
        match std::fs::remove_dir_all(dir) {
            Err(e) if e.kind() != io::ErrorKind::NotFound && Instant::now() < end => {
                std::thread::sleep(Duration::from_millis(200));
            }
            _ => return Ok(()),
        }
    }
}

fn play(options: &Options, name: &str, round: u64) -> History {
    let (since, next) = (Instant::now(), AtomicU64::new(1));
    let work = |mount: usize, thread: usize| {
        let seed = options.seed ^ (round << 32) ^ ((mount as u64) << 16) ^ ((thread as u64) << 24);
        let mut worker = Worker {
            options,
            who: Who { mount, thread },
            dir: options.dirs[mount].join(name),
            rng: StdRng::seed_from_u64(seed),
            since,
            kept: HashMap::new(),
            mapped: None,
            next: &next,
            history: Vec::new(),
        };
        (0..options.operations).for_each(|_| worker.step());
        worker.history
    };
    std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for mount in 0..options.dirs.len() {
            for thread in 0..options.threads {
                let work = &work;
                threads.push(scope.spawn(move || work(mount, thread)));
            }
        }
        threads.into_iter().flat_map(|t| t.join().unwrap_or_default()).collect()
    })
}

/// Every object's history must have an order.
fn judge(history: &History, violations: &mut Vec<String>) {
    for n in 0..REGISTERS {
        let start = if n == MODE { START_MODE } else { 0 };
        let of = |any: &Any| match any {
            Any::Register(at, op) if *at == n => Some(op.clone()),
            _ => None,
        };
        one(&format!("register {n}"), &Register { start }, history, of, violations);
    }
    for n in 0..2 {
        let of = |any: &Any| match any {
            Any::Names(at, op) if *at == n => Some(op.clone()),
            _ => None,
        };
        one(&format!("names {n}"), &Names, history, of, violations);
    }
    let of = |any: &Any| if let Any::Log(op) = any { Some(op.clone()) } else { None };
    let all: Vec<LogOp> = history.iter().filter_map(|e| of(&e.op)).collect();
    one("log", &Log::of(&all), history, of, violations);
}

fn one<O: Object>(
    what: &str,
    object: &O,
    history: &History,
    of: impl Fn(&Any) -> Option<O::Op>,
    violations: &mut Vec<String>,
) where
    O::Op: Debug,
{
    let own =
        |e: &Entry<Any>| Some(Entry { who: e.who, call: e.call, back: e.back, op: of(&e.op)? });
    let own: Vec<Entry<O::Op>> = history.iter().filter_map(own).collect();
    match explain(object, &own) {
        Ok(_) => {}
        Err(Violation::TooTangled) => violations.push(format!("{what}: not decided")),
        Err(Violation::Unexplained { fits, stuck }) => {
            let last = fits.iter().rev().take(6).rev();
            let last: Vec<_> = last.map(|i| format!("    {:?}", own[*i])).collect();
            let stuck: Vec<_> = stuck.iter().map(|i| format!("    {:?}", own[*i])).collect();
            violations.push(format!(
                "{what}: {} operations, no order explains them; after\n{}\n  none of these fits:\n{}",
                own.len(),
                last.join("\n"),
                stuck.join("\n")
            ));
        }
    }
}

/// Answers that say what the state was; any other failure leaves the outcome open.
fn known(e: &io::Error) -> bool {
    matches!(e.raw_os_error(), Some(libc::ENOENT | libc::EEXIST))
}

impl Worker<'_> {
    fn has(&self, feature: &str) -> bool {
        !self.options.without.contains(feature)
    }

    /// Runs an operation and notes it; `unknown` stands for it when its outcome is not known
    /// (none: then it cannot matter).
    fn note(&mut self, run: impl FnOnce(&mut Self) -> io::Result<Any>, unknown: Option<Any>) {
        let call = self.since.elapsed().as_nanos() as u64;
        let answer = run(self);
        let back = self.since.elapsed().as_nanos() as u64;
        let who = self.who;
        if answer.is_err() {
            // What an evicted mount had open stays lost.
            self.kept.clear();
        }
        match (answer, unknown) {
            (Ok(op), _) => self.history.push(Entry { who, call, back: Some(back), op }),
            (Err(_), Some(op)) => self.history.push(Entry { who, call, back: None, op }),
            (Err(_), None) => {}
        }
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
        // A mount that is gone is asked for nothing, rather than for much whose outcome is not known.
        if let Err(e) = std::fs::symlink_metadata(&self.dir)
            && !known(&e)
        {
            self.kept.clear();
            return std::thread::sleep(GONE);
        }
        match self.rng.random_range(0..10) {
            0..=4 if self.has("bytes") => self.bytes(),
            5 if self.has("mode") => self.mode(),
            6..=8 if self.has("names") => self.names(),
            9 if self.has("append") => self.log(),
            _ => {}
        }
    }

    fn open(&self, path: &Path, write: bool, append: bool) -> io::Result<File> {
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
        let (file, at) = match n.checked_sub(SMALL) {
            None => ("small", n as u64 * 8),
            Some(large) => ("large", LARGE[large]),
        };
        let path = self.dir.join(file);
        let how = self.rng.random_range(0..3);
        let set = self.rng.random_bool(0.4).then(|| self.next.fetch_add(1, Ordering::Relaxed));
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

    /// By a file of its own, by one that stays open, or through a mapping.
    fn put(&mut self, path: &Path, at: u64, value: u64, how: u32) -> io::Result<()> {
        let bytes = value.to_le_bytes();
        if how == 1 && self.has("kept") {
            let file = self.kept(path)?;
            file.write_all_at(&bytes, at)?;
            return if self.options.sync { self.kept(path)?.sync_data() } else { Ok(()) };
        }
        if how == 2 && at < PAGE as u64 && self.has("mapped") {
            let map = self.mapped(path)?;
            map.write(at as usize, &bytes);
            return map.sync().map_err(io::Error::from_raw_os_error);
        }
        let file = self.open(path, true, false)?;
        file.write_all_at(&bytes, at)?;
        if self.options.sync { file.sync_data() } else { Ok(()) }
    }

    fn get(&mut self, path: &Path, at: u64, how: u32) -> io::Result<u64> {
        let mut bytes = [0; 8];
        if how == 2 && at < PAGE as u64 && self.has("mapped") {
            self.mapped(path)?.read(at as usize, &mut bytes);
        } else if how == 1 && self.has("kept") {
            self.kept(path)?.read_exact_at(&mut bytes, at)?;
        } else {
            self.open(path, false, false)?.read_exact_at(&mut bytes, at)?;
        }
        Ok(u64::from_le_bytes(bytes))
    }

    fn kept(&mut self, path: &Path) -> io::Result<&File> {
        if !self.kept.contains_key(path) {
            let file = self.open(path, true, false)?;
            self.kept.insert(path.to_path_buf(), file);
        }
        self.kept.get(path).ok_or_else(|| io::Error::from_raw_os_error(libc::EBADF))
    }

    fn mapped(&mut self, path: &Path) -> io::Result<&mut Mapping> {
        if self.mapped.is_none() {
            let file = self.open(path, true, false)?;
            let map = Mapping::new(file.as_fd(), 0, PAGE, true);
            self.mapped = Some(map.map_err(io::Error::from_raw_os_error)?);
        }
        self.mapped.as_mut().ok_or_else(|| io::Error::from_raw_os_error(libc::ENOMEM))
    }

    fn mode(&mut self) {
        let path = self.dir.join("mode");
        // Set-bits apart, every value is one that root may read under.
        let set = self.rng.random_bool(0.4).then(|| self.rng.random_range(0o001..0o777u32));
        let unknown = set.map(|m| Any::Register(MODE, RegisterOp::MaybeSet(m.into())));
        self.note(
            |w| {
                let op = match set {
                    Some(m) => {
                        std::fs::set_permissions(&path, PermissionsExt::from_mode(m))?;
                        w.settle([&*path])?;
                        RegisterOp::Set(m.into())
                    }
                    None => RegisterOp::Get((std::fs::metadata(&path)?.mode() & 0o7777).into()),
                };
                Ok(Any::Register(MODE, op))
            },
            unknown,
        );
    }

    fn names(&mut self) {
        let pair = self.rng.random_range(0..2);
        let paths = match pair {
            0 => [self.dir.join("one/a"), self.dir.join("one/b")],
            _ => [self.dir.join("one/x"), self.dir.join("two/y")],
        };
        let at = self.rng.random_range(0..2);
        let (path, other) = (&paths[at], &paths[1 - at]);
        let dirs = [path, other].map(|p| p.parent().unwrap_or(&self.dir).to_path_buf());
        let settle = |w: &Self| w.settle(dirs.iter().map(|d| &**d));
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
            _ => self.note(
                |_| {
                    let seen = match std::fs::symlink_metadata(path) {
                        Ok(m) => Some(m.ino()),
                        Err(e) if known(&e) => None,
                        Err(e) => return Err(e),
                    };
                    Ok(Any::Names(pair, NamesOp::Stat(at, seen)))
                },
                None,
            ),
        }
    }

    fn log(&mut self) {
        let path = self.dir.join("log");
        let add = self.rng.random_bool(0.5).then(|| self.next.fetch_add(1, Ordering::Relaxed));
        let unknown = add.map(|v| Any::Log(LogOp::MaybeAppend(v)));
        self.note(
            |w| match add {
                Some(v) => {
                    let file = w.open(&path, false, true)?;
                    io::Write::write_all(&mut &file, &v.to_le_bytes())?;
                    if w.options.sync {
                        file.sync_data()?;
                    }
                    Ok(Any::Log(LogOp::Append(v)))
                }
                None => {
                    let all = std::fs::read(&path)?;
                    let word = |b: &[u8]| u64::from_le_bytes(b.try_into().unwrap_or_default());
                    Ok(Any::Log(LogOp::Read(all.chunks_exact(8).map(word).collect())))
                }
            },
            unknown,
        );
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
