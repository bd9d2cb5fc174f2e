//! Moves the bytes of regular files, by all threads at once.
//!
//! Knows open files and numbers; never looks up, creates or removes a name, and never prints.

mod ahead;
mod buffers;
mod cached;
mod chunks;
mod companion;
mod direct;
mod extents;
pub mod interrupt;
mod lanes;
mod layout;
mod offload;
mod pairs;
mod parts;
mod plan;
mod pool;
mod pump;
mod range;
mod settings;
mod trial;
mod waiting;
mod whole;
mod zeros;

pub use chunks::{CHUNKS_MAX, TAIL};

pub(crate) use layout::{ANY, LOV, Layout, Told};
pub use parts::{Held, Part, PartFile, Seen};
pub use pool::{TASKS_WAITING, Task};
pub use range::Reached;
pub use settings::{
    BUFFER_DEFAULT, BUFFER_RANGE, SPLIT_DEFAULT, SPLIT_MIN, Settings, Switch, THREADS_DEFAULT,
    THREADS_MAX,
};

pub use waiting::Home;

use buffers::Buffers;
use chunks::Chunks;
use pairs::Pairs;
use plan::{Plan, Sides};
use pool::Pool;
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// How holes are treated (`--sparse`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sparse {
    /// Holes of the source stay holes.
    Auto,
    /// Blocks of zeros become holes, too.
    Always,
    /// No holes.
    Never,
}

/// Whether the destination may share the source's blocks (`--reflink`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reflink {
    Auto,
    Always,
    Never,
}

/// One regular file, open on both sides.
pub struct Data {
    pub src: File,
    pub dst: File,
    /// For statistics and the journal.
    pub src_name: PathBuf,
    pub dst_name: PathBuf,
    /// Bytes of the source when it was opened; it may have changed since.
    pub size: u64,
    pub sparse: Sparse,
    pub reflink: Reflink,
    /// The destination has no bytes (new, or truncated).
    pub fresh: bool,
    /// What is known of its parts from an earlier run, and to be known by a later one.
    pub marks: Option<Arc<dyn Marks>>,
}

/// Parts of a large file that are whole, kept where they outlive the process.
pub trait Marks: Send + Sync {
    /// Whether all bytes of [from, to) are in the destination already.
    fn has(&self, from: u64, to: u64) -> bool;
    /// They are now.
    fn note(&self, from: u64, to: u64);
}

/// What went wrong with a file's bytes.
#[derive(Debug)]
pub enum Fault {
    Read(io::Error),
    Write(io::Error),
    /// `--reflink=always` cannot be kept.
    Clone(io::Error),
    /// The end could not be set (a hole at the end).
    Extend(io::Error),
    Seek(io::Error),
    /// A signal ended it; see [`interrupt`].
    Interrupted,
}

/// Whether something was tried and what came of it, in the words of `cp --debug`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Tried {
    #[default]
    Unknown,
    No,
    Yes,
    Avoided,
    Unsupported,
}

/// How holes were looked for, in the words of `cp --debug`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Detection {
    #[default]
    Unknown,
    No,
    Zeros,
    SeekHole,
    SeekHoleZeros,
}

/// What became of a file's bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Copied {
    /// Where the copy ended: the size of the destination, unless only a range was copied.
    pub bytes: u64,
    /// Bytes really moved (no holes, no shared blocks).
    pub moved: u64,
    /// The destination shares all blocks of the source.
    pub reflinked: bool,
    pub offload: Tried,
    pub reflink: Tried,
    pub sparse: Detection,
}

/// Called once with what became of the file, by the thread that ended last.
pub type Done = Box<dyn FnOnce(Data, Result<Copied, Fault>) + Send>;

struct Inner {
    settings: Settings,
    pool: Pool,
    pairs: Pairs,
    buffers: Buffers,
    lent: parts::Lent,
    /// Bytes moved so far, also of files that have not ended.
    moved: AtomicU64,
}

/// The threads and what they share. Dropped, it waits for what was submitted.
pub struct Engine {
    inner: Arc<Inner>,
    /// Whether this is the one that was made, not a worker's.
    owner: bool,
}

impl Engine {
    /// Starts no thread yet.
    pub fn new(settings: Settings) -> io::Result<Self> {
        let settings = settings.settled();
        let inner = Inner {
            pool: Pool::default(),
            pairs: Pairs::default(),
            buffers: Buffers::new(settings.buffer_size),
            lent: parts::Lent::default(),
            moved: AtomicU64::new(0),
            settings,
        };
        Ok(Self { inner: Arc::new(inner), owner: true })
    }

    /// In force: within their ranges.
    pub fn settings(&self) -> &Settings {
        &self.inner.settings
    }

    /// Has `task` run; it may wait for those that were submitted before it. Those that make something in
    /// different directories (`home`) are run at the same time rather than those of one. Waits while [`TASKS_WAITING`] wait. With one thread it runs here and now. Never called by a task.
    /// Nothing but [`Self::drain`] promises that a task is started at all: one small file alone is not
    /// worth a thread.
    pub fn submit(&self, home: Option<Home>, task: Task) {
        if self.settings().threads == 1 {
            self.inner.pool.here(self, task);
        } else {
            self.inner.pool.submit(self, home, task);
        }
    }

    /// Copies a file: small ones before it returns, of larger ones all threads take chunks. Both files
    /// are at their start.
    pub fn copy(&self, data: Data, done: Done) {
        if interrupt::pending() {
            return done(data, Err(Fault::Interrupted));
        }
        let mut copied = Copied::default();
        match self.begin(&data, &mut copied) {
            Ok(Some(plan)) => self.chunked(data, plan, copied, done),
            Ok(None) => done(data, Ok(copied)),
            Err(fault) => done(data, Err(fault)),
        }
    }

    /// Copies what one thread copies best; the plan of what is better shared.
    fn begin(&self, data: &Data, copied: &mut Copied) -> Result<Option<Plan>, Fault> {
        let sides = Sides::of(data)?;
        if !sides.regular() {
            return whole::stream(self, data, &sides, copied).map(|()| None);
        }
        let plan = Plan::new(self, data, &sides)?;
        if offload::clone(data, &plan, copied)? {
            copied.bytes = sides.size();
            copied.reflinked = true;
            return Ok(None);
        }
        if sides.size() == 0 {
            // Files such as those of /proc tell no size.
            return whole::stream(self, data, &sides, copied).map(|()| None);
        }
        whole::preallocate(self, data, &plan)?;
        if let Some(result) = whole::small(self, data, &plan, copied) {
            return result.map(|()| None);
        }
        let split = self.settings().split_size;
        if self.settings().threads > 1 && split > 0 && plan.len() > split {
            return Ok(Some(plan));
        }
        whole::copy(self, data, &plan, copied).map(|()| None)
    }

    fn chunked(&self, data: Data, plan: Plan, copied: Copied, done: Done) {
        let split = self.settings().split_size;
        let file = Arc::new(Chunks::new(data, plan, split, copied, done));
        self.inner.lent.note(&file);
        self.pool().share(self, file);
    }

    /// Waits until everything that was submitted, and its copies, are done; works along meanwhile.
    pub fn drain(&self) {
        self.inner.pool.drain(self);
    }

    /// Bytes moved so far, also of files that have not ended.
    pub fn moved(&self) -> u64 {
        self.inner.moved.load(Ordering::Relaxed)
    }

    /// More bytes are where they belong.
    fn count(&self, bytes: usize) {
        self.inner.moved.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Tasks that panicked instead of ending.
    pub fn panics(&self) -> usize {
        self.inner.pool.panics()
    }

    fn pool(&self) -> &Pool {
        &self.inner.pool
    }

    fn pairs(&self) -> &Pairs {
        &self.inner.pairs
    }

    fn buffers(&self) -> &Buffers {
        &self.inner.buffers
    }

    fn handle(&self) -> Self {
        Self { inner: self.inner.clone(), owner: false }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        if self.owner {
            self.drain();
            self.inner.pool.stop();
        }
    }
}
