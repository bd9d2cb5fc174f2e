//! The target itself: opening, closing, and what all verbs share.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};

use parking_lot::{Mutex, RwLock};
use proto::Errno;
use proto::layout::ObjectId;
use rustix::fs::{FlockOperation, OFlags, flock, fstat, syncfs};

use crate::boot::{BOOT, Boot};
use crate::cache::Cache;
use crate::device::Device;
use crate::fences::{FENCES, Fences};
use crate::files::{Dir, OBJECTS};
use crate::flush::{Flusher, Note, run};
use crate::label::{LABEL, OstLabel, RECORD_MAX, format, refuse_used};
use crate::marked::Marked;
use crate::object::Object;
use crate::side;
use crate::space::Space;
use crate::stats::{Counters, Stats, Verb, add};
use crate::sums::Home;
use crate::verifier::{VERIFIER, Verifier, this_run};
use crate::{LabelError, OstError};

/// Objects kept open without need, where nobody chose a number.
pub const DEFAULT_OPEN_OBJECTS: usize = 1024;
/// Writes of this size go past the page cache where nobody chose another, in bytes.
pub const DEFAULT_DIRECT_WRITE_MIN: usize = 256 << 10;
/// Descriptors an open object may take (buffered, direct, sidecar), twice: objects with unstable
/// writes stay open above the limit for a while.
const FDS_PER_OBJECT: u64 = 6;
/// Targets assumed to share the process's limit of descriptors.
const TARGETS_PER_PROCESS: u64 = 8;

/// How a target is opened.
#[derive(Clone, Debug)]
pub struct OstOptions {
    /// Most objects kept open without need (fewer when the process may open few files).
    pub max_open_objects: usize,
    /// Bytes of the file system that writes leave free; `None`: 128 MiB, at most a quarter of it.
    pub reserve_bytes: Option<u64>,
    /// Threads that serve requests of sockets, at least 1.
    pub workers: usize,
    /// Whether stored checksums are compared when blocks are read.
    pub verify_reads: bool,
    /// Reads of at least so many bytes go past the page cache when the asker keeps them itself
    /// ([`proto::oss::R_ONCE`]) and the cache does not hold them.
    pub uncached_reads_from: u32,
    /// Writes of at least so many bytes go past the page cache, so that nothing is copied and a
    /// COMMIT finds little left to write; 0: none does. See [`Ost::set_direct_write_min`].
    pub direct_write_min: usize,
    /// Which run of the machine this is; `None`: what Linux says. Another than before: what was not
    /// synced is taken for lost.
    pub machine: Option<[u8; 16]>,
}

impl Default for OstOptions {
    fn default() -> OstOptions {
        OstOptions {
            max_open_objects: DEFAULT_OPEN_OBJECTS,
            reserve_bytes: None,
            workers: 8,
            verify_reads: true,
            uncached_reads_from: 128 << 10,
            direct_write_min: DEFAULT_DIRECT_WRITE_MIN,
            machine: None,
        }
    }
}

/// An open object storage target. Dropped without [`Ost::close`] it is as after a crash.
pub struct Ost {
    label: OstLabel,
    name: String,
    path: PathBuf,
    root: Dir,
    pub(crate) objects: Dir,
    pub(crate) boot: Boot,
    pub(crate) options: OstOptions,
    pub(crate) cache: Cache,
    pub(crate) space: Space,
    pub(crate) counters: Counters,
    pub(crate) count: AtomicI64,
    direct_write_min: AtomicUsize,
    pub(crate) device: Arc<Device>,
    verifier: AtomicU64,
    storing_verifier: Mutex<()>,
    machine: [u8; 16],
    /// What an earlier process wrote under this verifier may be in the machine's memory only.
    inherited: Mutex<bool>,
    pub(crate) flusher: Mutex<Option<Flusher>>,
    pub(crate) committing_all: Mutex<()>,
    closed: AtomicBool,
    /// Sidecars marked in this boot.
    marked: Marked,
    /// Clients that are refused.
    fences: Mutex<Fences>,
    /// Held shared by every request, so that close can wait for them.
    gate: RwLock<()>,
    /// Locked as long as the target is open.
    lock: Mutex<Option<OwnedFd>>,
}

impl Ost {
    /// Prepares a directory (made when absent) as a target; refuses one that holds anything.
    pub fn format(path: &Path, label: &OstLabel) -> Result<(), OstError> {
        format(path, label)
    }

    /// Refuses a directory that holds anything but what a format left that was cut short.
    pub fn refuse_used(path: &Path) -> Result<(), OstError> {
        let what = format!("opening {}", path.display());
        refuse_used(&Dir::open(path).map_err(OstError::io(what))?, path)
    }

    /// The file of a target that is locked by whoever has it open.
    pub fn lock_file(path: &Path) -> PathBuf {
        path.join(LABEL)
    }

    /// Reads the label of a target, open or not.
    pub fn label(path: &Path) -> Result<OstLabel, OstError> {
        let what = format!("opening {}", path.display());
        OstLabel::read(&Dir::open(path).map_err(OstError::io(what))?, path)
    }

    /// Opens a target: locks it, bumps its epoch durably. A second process is refused.
    pub fn open(path: &Path, options: OstOptions) -> Result<Arc<Ost>, OstError> {
        let fail = |e| OstError::io(format!("opening OST {}", path.display()))(e);
        let root = Dir::open(path).map_err(fail)?;
        let label = OstLabel::read(&root, path)?;
        let lock = lock(&root, path, &label)?;
        let before = read_boot(&root, path)?;
        let fences = side::fences(&root, path)?.unwrap_or_default();
        let boot = before.clone().next();
        root.replace(BOOT, &boot.to_bytes()).map_err(fail)?;
        let objects = root.sub(OBJECTS).map_err(fail)?;
        let space = Space::new(&objects, options.reserve_bytes).map_err(fail)?;
        let name = label.name();
        let (flusher, notes) = Flusher::new();
        let cache = Cache::new(options.max_open_objects.min(affordable_objects()));
        let machine = options.machine.unwrap_or_else(this_run);
        let (verifier, stands) =
            match side::verifier(&root, path)?.filter(|old| old.stands(&machine, before.clean)) {
                Some(old) => (old.verifier, true),
                None => (u64::from(boot.epoch) << 32, false),
            };
        let record = Verifier { verifier, machine };
        root.replace(VERIFIER, &record.to_bytes()).map_err(fail)?;
        let direct_write_min = AtomicUsize::new(options.direct_write_min);
        let device = Device::of(fstat(&objects).map_err(fail)?.st_dev);
        let ost = Arc::new(Ost {
            direct_write_min,
            device,
            label,
            name,
            path: path.to_path_buf(),
            root,
            objects,
            options,
            cache,
            space,
            counters: Counters::default(),
            count: AtomicI64::new(before.objects as i64),
            verifier: AtomicU64::new(verifier),
            storing_verifier: Mutex::new(()),
            machine,
            inherited: Mutex::new(stands && !before.clean),
            flusher: Mutex::new(Some(flusher)),
            committing_all: Mutex::new(()),
            closed: AtomicBool::new(false),
            marked: Marked::default(),
            fences: Mutex::new(fences),
            gate: RwLock::new(()),
            boot,
            lock: Mutex::new(Some(lock)),
        });
        let weak = Arc::downgrade(&ost);
        spawn(format!("{}-flush", ost.name), move || run(&notes, &weak))?;
        if !before.clean {
            let weak = Arc::downgrade(&ost);
            spawn(format!("{}-count", ost.name), move || crate::check::recount(&weak))?;
        }
        tracing::info!(ost = ost.name, epoch = ost.boot.epoch, clean = before.clean, "OST opened");
        Ok(ost)
    }

    /// Waits for requests at work, commits everything, notes that this boot ended well and lets go
    /// of the directory. Further requests get ESHUTDOWN.
    pub fn close(&self) -> Result<(), OstError> {
        if self.closed.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        let what = format!("closing OST {}", self.path.display());
        let io = |error: Errno| OstError::Io { what: what.clone(), error: error.into() };
        self.flusher.lock().take();
        drop(self.gate.write());
        self.settle().and_then(|()| self.commit_all()).map_err(io)?;
        // Marked sidecars are believed after a clean end: their sums have to be on the disk.
        self.marked.sync(&self.objects).map_err(|e| io(errno(e)))?;
        let objects = self.count.load(Ordering::Relaxed).max(0) as u64;
        let boot = Boot { clean: true, objects, ..self.boot.clone() };
        self.root.replace(BOOT, &boot.to_bytes()).map_err(|e| io(errno(e)))?;
        self.unlock();
        tracing::info!(ost = self.name, "OST closed");
        Ok(())
    }

    /// Whether a client was fenced.
    pub fn is_fenced(&self, client: &[u8; 16]) -> bool {
        self.fences.lock().refuses(client)
    }

    /// Refuses a client and its earlier incarnations from now on, durably.
    pub fn fence(&self, client: &[u8; 16]) -> Result<(), Errno> {
        let _gate = self.gate.read();
        if self.is_closed() {
            return Err(Errno::ESHUTDOWN);
        }
        let mut fences = self.fences.lock();
        let mut next = fences.clone();
        if next.add(client) {
            self.root.replace(FENCES, &next.to_bytes()).map_err(errno)?;
            *fences = next;
            tracing::warn!(ost = self.name, "a client was evicted and is refused from now on");
        }
        Ok(())
    }

    /// Lets go of the directory. Closing the descriptor would not do: a process forked meanwhile
    /// has it too, until it executes something.
    fn unlock(&self) {
        if let Some(fd) = self.lock.lock().take()
            && let Err(e) = flock(&fd, FlockOperation::Unlock)
        {
            tracing::warn!(ost = self.name, error = %e, "the lock cannot be released");
        }
    }

    /// `OST0003`.
    pub fn name(&self) -> &str {
        &self.name
    }
    /// The label read at open.
    pub fn identity(&self) -> &OstLabel {
        &self.label
    }
    /// Number of this boot, rising by one with each.
    pub fn epoch(&self) -> u32 {
        self.boot.epoch
    }
    /// Boots of this target, and which of them crashed.
    pub fn boot(&self) -> &Boot {
        &self.boot
    }
    /// Its directory.
    pub fn path(&self) -> &Path {
        &self.path
    }
    /// What this boot's unstable writes are answered with; changes when writes may have been lost.
    pub fn verifier(&self) -> u64 {
        self.verifier.load(Ordering::Acquire)
    }
    /// Writes of at least so many bytes go past the page cache; 0: none does.
    pub fn direct_write_min(&self) -> usize {
        self.direct_write_min.load(Ordering::Relaxed)
    }
    /// Changes [`Ost::direct_write_min`] for the writes to come.
    pub fn set_direct_write_min(&self, bytes: usize) {
        self.direct_write_min.store(bytes, Ordering::Relaxed);
    }
    /// Bytes of large reads that its device is asked for at a time; the others wait.
    pub fn reads_in_flight(&self) -> u64 {
        self.device.reads_max()
    }
    /// Changes [`Ost::reads_in_flight`], for all targets of the process on this device.
    pub fn set_reads_in_flight(&self, bytes: u64) {
        self.device.set_reads_max(bytes);
    }
    /// Counters since it was opened.
    pub fn stats(&self) -> Stats {
        Stats {
            open_objects: self.cache.len() as u64,
            dirty_objects: self.cache.dirty.load(Ordering::Relaxed).max(0) as u64,
            ..self.counters.read()
        }
    }

    pub(crate) fn home(&self) -> Home<'_> {
        Home { objects: &self.objects, boot: &self.boot, marked: &self.marked }
    }

    /// Counts a write that was done where it arrived.
    pub(crate) fn count_at_once(&self) {
        add(&self.counters.writes_at_once, 1);
    }

    /// Counts a request and its outcome.
    pub(crate) fn counted<T>(
        &self,
        verb: Verb,
        work: impl FnOnce() -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        let _span = tracing::trace_span!("oss", verb = verb.name()).entered();
        add(&self.counters.requests[verb as usize], 1);
        let _gate = self.gate.read();
        let done = if self.is_closed() { Err(Errno::ESHUTDOWN) } else { work() };
        if let Err(e) = &done {
            add(&self.counters.errors, 1);
            tracing::debug!(ost = self.name, verb = verb.name(), error = %e, "request failed");
        }
        done
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// The object if it exists.
    pub(crate) fn existing(&self, id: &ObjectId) -> Result<Option<Arc<Object>>, Errno> {
        let found = self.cache.get(&self.objects, id, false).map_err(errno)?;
        Ok(found.map(|(o, _)| o))
    }

    /// The object, made when it does not exist.
    pub(crate) fn make(&self, id: &ObjectId) -> Result<Arc<Object>, Errno> {
        let found = self.cache.get(&self.objects, id, true).map_err(errno)?;
        let (object, made) = found.ok_or(Errno::ESTALE)?;
        if made {
            self.count.fetch_add(1, Ordering::Relaxed);
            // The flusher cannot keep up: whoever makes more objects waits (invariant 8). No lock
            // is held here.
            if self.dirty_above(3) {
                self.commit_all()?;
            }
        }
        Ok(object)
    }

    /// Notes that an object changed; begins a commit when too many have.
    pub(crate) fn changed(&self, object: &Object) {
        if object.set_dirty() {
            self.cache.dirty.fetch_add(1, Ordering::Relaxed);
            if self.dirty_above(2) {
                self.hand(Note::CommitAll);
            }
        }
    }

    /// Whether more than so many thirds of the objects that may stay open have unstable writes.
    fn dirty_above(&self, thirds: usize) -> bool {
        let dirty = self.cache.dirty.load(Ordering::Relaxed).max(0) as usize;
        dirty > self.cache.limit() * thirds / 3
    }

    pub(crate) fn hand(&self, note: Note) {
        if let Some(f) = &*self.flusher.lock() {
            f.note(note);
        }
    }

    /// A sync failed: what it covered may be gone, so clients must send it again.
    pub(crate) fn new_verifier(&self) {
        // One at a time: many commits fail at once on a failing disk, and the last one's is to be stored.
        let _alone = self.storing_verifier.lock();
        let verifier = (self.verifier() + 1).max(u64::from(self.boot.epoch) << 32);
        self.verifier.store(verifier, Ordering::Release);
        // The next process must not go on with the one before.
        let record = Verifier { verifier, machine: self.machine };
        if let Err(e) = self.root.replace(VERIFIER, &record.to_bytes())
            && let Err(e) = self.root.remove(VERIFIER).map_err(|_| e)
        {
            tracing::error!(ost = self.name, error = %e, "a new verifier cannot be stored");
        }
    }

    /// What an earlier process wrote in this run of the machine becomes durable, once.
    pub(crate) fn settle(&self) -> Result<(), Errno> {
        let mut inherited = self.inherited.lock();
        if !std::mem::take(&mut *inherited) {
            return Ok(());
        }
        syncfs(&self.objects).map_err(|e| {
            self.new_verifier();
            errno(e)
        })
    }
}

impl Drop for Ost {
    fn drop(&mut self) {
        self.unlock();
    }
}

pub(crate) fn errno(e: rustix::io::Errno) -> Errno {
    Errno(e.raw_os_error())
}

fn spawn(name: String, work: impl FnOnce() + Send + 'static) -> Result<(), OstError> {
    let started = std::thread::Builder::new().name(name).spawn(work);
    started.map(drop).map_err(|error| OstError::Io { what: "starting a thread".into(), error })
}

fn lock(root: &Dir, path: &Path, label: &OstLabel) -> Result<OwnedFd, OstError> {
    let fail = |e| OstError::io(format!("locking {}", path.display()))(e);
    let fd = root.file(LABEL, OFlags::RDONLY).map_err(fail)?;
    match flock(&fd, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(fd),
        Err(rustix::io::Errno::AGAIN) => {
            Err(OstError::InUse { path: path.to_path_buf(), name: label.name() })
        }
        Err(e) => Err(fail(e)),
    }
}

fn read_boot(root: &Dir, path: &Path) -> Result<Boot, OstError> {
    let bad = |why: LabelError| OstError::Label { path: path.join(BOOT), why };
    let bytes = root
        .read(BOOT, RECORD_MAX)
        .map_err(OstError::io(format!("reading {}", path.join(BOOT).display())))?;
    Boot::from_bytes(&bytes).map_err(bad)
}

/// How many objects may stay open under this process's limit of descriptors, which is raised to
/// what the system allows it.
fn affordable_objects() -> usize {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let now = getrlimit(Resource::Nofile);
    let wanted = Rlimit { current: now.maximum, maximum: now.maximum };
    if now.current != now.maximum && setrlimit(Resource::Nofile, wanted).is_err() {
        tracing::debug!("the limit of open files cannot be raised");
    }
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    (limit.saturating_sub(256) / (FDS_PER_OBJECT * TARGETS_PER_PROCESS)).min(1 << 20) as usize
}
