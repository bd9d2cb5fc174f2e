//! The embedded default engine: a fjall 3 database on a local directory.
//!
//! Role: [`format()`], [`acquire`] and [`open_read_only`] a store directory, whose files
//! `docs/format.d/store.md` lists. Assumptions: the file system keeps what fdatasync returned for,
//! and `flock` works on it. Never: opens a store that is behind what it or its clients know was
//! committed (invariant 11), except where [`FjallOptions::accept_rolled_back`] says so.

use std::path::Path;
use std::sync::Arc;

use parking_lot::RwLock;
use rustix::io::Errno;

use crate::chain::{self, CommitRecord};
use crate::committer::Committer;
use crate::{AcquireInfo, Commit, Done, Key, Snapshot, Store, StoreError, Usage, Value};

mod backend;
pub mod committed;
mod database;
pub mod identity;
mod journal;
mod preflight;
mod room;
mod space;

use backend::FjallBackend;
use committed::CommittedFile;
use database::Handle;
pub use journal::{TORN_COPY, TORN_COPY_BYTES};
use room::Room;

pub use identity::lock_file;
pub use space::COMPACTION_BYTES;

/// Smallest limit fjall takes for its journals.
pub const MIN_JOURNAL_BYTES: u64 = 64 << 20;

/// Size of a file system from which on a new store gets [`ROOMY_MEMTABLE_BYTES`].
pub const ROOMY_BYTES: u64 = 16 << 30;
/// With thousands of clients, what is kept for each of them and the directories they work in are
/// written again every few milliseconds. In this much memory a later value takes the place of an
/// earlier one before either goes to a table, where each would be merged several times.
pub const ROOMY_MEMTABLE_BYTES: u64 = 16 << 20;

/// How a store uses memory and disk. `memtable_bytes` and `table_bytes` count when it is formatted,
/// the rest whenever it is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FjallOptions {
    /// Memory for blocks that were read.
    pub cache_bytes: u64,
    /// Limit of all journals, at least [`MIN_JOURNAL_BYTES`]. What they hold is replayed at start.
    pub journal_bytes: u64,
    /// Writes held in memory before they go to a table.
    pub memtable_bytes: u64,
    /// Size of a table; a compaction needs room for several.
    pub table_bytes: u64,
    /// Room to keep free: commits with puts are refused below it, those of deletes only below a
    /// quarter of it. The engine keeps what its own flushes and compactions need on top, up to
    /// [`COMPACTION_BYTES`] and what is not flushed yet.
    pub reserve_bytes: u64,
    /// Open a store even if its tail is lost. For an operator who has no better copy.
    pub accept_rolled_back: bool,
}

impl Default for FjallOptions {
    fn default() -> Self {
        FjallOptions {
            cache_bytes: 16 << 20,
            journal_bytes: MIN_JOURNAL_BYTES,
            memtable_bytes: 4 << 20,
            table_bytes: 4 << 20,
            reserve_bytes: 16 << 20,
            accept_rolled_back: false,
        }
    }
}

impl FjallOptions {
    /// The defaults, those for a new store in (or below) `dir` suited to the size of its file system.
    pub fn for_new(dir: &Path) -> Result<FjallOptions, StoreError> {
        Ok(FjallOptions::default().suited_to(space::measure(dir)?.total))
    }

    /// On a small disk the room that flushing a large memtable takes would be missed.
    fn suited_to(mut self, total: u64) -> FjallOptions {
        if total >= ROOMY_BYTES {
            self.memtable_bytes = self.memtable_bytes.max(ROOMY_MEMTABLE_BYTES);
        }
        self
    }
}

/// Makes an empty or absent directory a store. Refuses one that holds anything.
pub fn format(dir: &Path, options: &FjallOptions) -> Result<(), StoreError> {
    let doing = |what: &str| format!("{what} {}", dir.display());
    std::fs::create_dir_all(dir).map_err(|e| StoreError::io(doing("create"), e))?;
    let mut entries = std::fs::read_dir(dir).map_err(|e| StoreError::io(doing("read"), e))?;
    // A mounted file system's root is as good as empty.
    if let Some(entry) = entries.find(|e| e.as_ref().is_ok_and(|e| e.file_name() != "lost+found")) {
        let name = entry.map(|e| e.file_name()).unwrap_or_default();
        return Err(StoreError::Invalid(format!(
            "{} is not empty (it holds {}); choose another directory",
            dir.display(),
            name.display()
        )));
    }
    let first = CommitRecord::format();
    database::create(dir, options, &first)?;
    identity::write_new(dir, "committed", &committed::initial(&first))?;
    // Last: without it the directory is no store.
    identity::write_new(dir, identity::STORE, &identity::encode())?;
    let parent = dir.canonicalize().map(|d| d.parent().map(Path::to_path_buf));
    if let Ok(Some(parent)) = parent {
        let synced = std::fs::File::open(&parent).and_then(|p| p.sync_all());
        synced.map_err(|e| StoreError::io(format!("sync {}", parent.display()), e))?;
    }
    Ok(())
}

/// Whether there is a store in `dir`, which may be damaged.
pub fn is_store(dir: &Path) -> Result<bool, StoreError> {
    let path = dir.join("STORE");
    match rustix::fs::stat(&path) {
        Ok(_) => Ok(true),
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(false),
        Err(e) => Err(StoreError::io(format!("read {}", path.display()), std::io::Error::from(e))),
    }
}

/// Whether `dir` holds what [`format()`] makes, whole or cut short, and nobody has opened it since:
/// nothing is lost with it. What cannot be read counts as used.
pub fn is_unused(dir: &Path) -> bool {
    const MADE: [&str; 5] = ["fjall", "committed", "committed.new", "STORE", "STORE.new"];
    let made = |e: std::io::Result<std::fs::DirEntry>| {
        e.is_ok_and(|e| e.file_name().to_str().is_some_and(|n| MADE.contains(&n)))
    };
    // Whoever acquires it leaves its name, and a note in both slots.
    let untouched = match std::fs::read(dir.join("committed")) {
        Ok(bytes) => bytes == committed::initial(&CommitRecord::format()),
        Err(e) => e.kind() == std::io::ErrorKind::NotFound,
    };
    untouched && std::fs::read_dir(dir).is_ok_and(|mut entries| entries.all(made))
}

/// Takes the store in `dir` over for `owner` (a name for people) and durably bumps its epoch.
///
/// `Busy` if it is in use, `Invalid` if there is none, `RolledBack` if it ends before
/// `known_committed` or before what it had itself committed.
pub fn acquire(
    dir: &Path,
    owner: &str,
    known_committed: u64,
    options: &FjallOptions,
) -> Result<Box<dyn Store>, StoreError> {
    let mut opened = open(dir, owner, options)?;
    if opened.newest.last < known_committed && !options.accept_rolled_back {
        return Err(StoreError::RolledBack { known: known_committed, found: opened.newest.last });
    }
    let head = opened.newest.acquire();
    opened.handle.write(&head, &[])?;
    opened.handle.sync()?;
    // Both slots: after an accepted loss the older one would claim more than there is.
    for _slot in committed::SLOT_AT {
        opened.committed.note(&head)?;
        opened.committed.sync()?;
    }
    tracing::debug!(owner, epoch = head.epoch, last = head.last, "store acquired");
    let handle = Arc::new(opened.handle);
    let reserve = options.reserve_bytes;
    let room = Room::start(handle.clone(), reserve)?;
    let backend = FjallBackend::new(handle.clone(), room.waker(), opened.committed, reserve);
    Ok(Box::new(FjallStore {
        info: AcquireInfo { epoch: head.epoch, last: head.last, chain: head.hash },
        reserve,
        committer: Committer::start(head, backend)?,
        room,
        handle: RwLock::new(Some(handle)),
    }))
}

/// A view of the store in `dir` for checking it. Changes neither epoch nor records, but locks the
/// directory, and fjall recovers its journal: a half-written commit at its end is cut off.
pub fn open_read_only(dir: &Path) -> Result<Box<dyn Snapshot>, StoreError> {
    let opened = open(dir, "a read-only check", &FjallOptions::default())?;
    let view = opened.handle.view();
    Ok(Box::new(FjallSnapshot { view, handle: Arc::new(opened.handle) }))
}

struct Opened {
    handle: Handle,
    committed: CommittedFile,
    newest: CommitRecord,
}

/// Locks and opens a store, and checks its chain against itself and the side file.
fn open(dir: &Path, owner: &str, options: &FjallOptions) -> Result<Opened, StoreError> {
    let lock = identity::lock(dir, owner)?;
    let committed = CommittedFile::open(dir)?;
    let tail = !options.accept_rolled_back;
    if let Some(torn) = preflight::check(&dir.join("fjall"), committed.newest(), tail)? {
        torn.cut(dir)?;
    }
    let handle = Handle::open(dir, options, lock)?;
    let records = handle.records()?;
    let newest = chain::verify(records.clone())?;
    if let Some(known) = committed.newest()
        && let Err(e) = known.check(&newest, &records)
    {
        match (&e, options.accept_rolled_back) {
            (StoreError::RolledBack { .. }, true) => {
                tracing::warn!(dir = %dir.display(), error = %e, "opened all the same, as asked");
            }
            _ => return Err(e),
        }
    }
    Ok(Opened { handle, committed, newest })
}

/// A store on a directory; made by [`acquire`].
struct FjallStore {
    info: AcquireInfo,
    reserve: u64,
    // Before `handle`: commits end before the database is closed.
    committer: Committer,
    room: Room,
    handle: RwLock<Option<Arc<Handle>>>,
}

impl FjallStore {
    fn handle(&self) -> Result<Arc<Handle>, StoreError> {
        self.handle.read().clone().ok_or(StoreError::Closed)
    }
}

impl Store for FjallStore {
    fn info(&self) -> AcquireInfo {
        self.info
    }

    fn submit(&self, commit: Commit, done: Done) {
        self.committer.submit(commit, done);
    }

    fn get(&self, key: &[u8]) -> Result<Option<Value>, StoreError> {
        self.handle()?.get(key)
    }

    fn multi_get(&self, keys: &[Vec<u8>]) -> Result<Vec<Option<Value>>, StoreError> {
        let handle = self.handle()?;
        let view = handle.view();
        keys.iter().map(|k| handle.get_at(&view, k)).collect()
    }

    fn scan(
        &self,
        from: &[u8],
        to: Option<&[u8]>,
        limit: usize,
    ) -> Result<Vec<(Key, Value)>, StoreError> {
        let handle = self.handle()?;
        let view = handle.view();
        handle.scan_at(&view, from, to, limit)
    }

    fn snapshot(&self) -> Result<Box<dyn Snapshot>, StoreError> {
        let handle = self.handle()?;
        let view = handle.view();
        Ok(Box::new(FjallSnapshot { view, handle }))
    }

    fn usage(&self) -> Result<Usage, StoreError> {
        let handle = self.handle()?;
        let reserve = self.reserve + space::backlog(&handle);
        let measured = space::measure(handle.dir())?;
        if space::is_scarce(&handle, self.reserve, measured.free) {
            self.room.waker().wake();
        }
        Ok(Usage { used: handle.used()?, reserve, ..measured })
    }

    fn self_test(&self) -> Result<(), StoreError> {
        let newest = chain::verify(self.handle()?.records()?)?;
        if newest.last < self.info.last || newest.epoch != self.info.epoch {
            return Err(StoreError::RolledBack { known: self.info.last, found: newest.last });
        }
        Ok(())
    }

    fn close(&self) -> Result<(), StoreError> {
        self.committer.close();
        self.room.stop();
        self.handle.write().take();
        Ok(())
    }
}

/// A stable view. Keeps the directory locked while it lives.
struct FjallSnapshot {
    // Before `handle`, so that the database it is a view of closes last.
    view: fjall::Snapshot,
    handle: Arc<Handle>,
}

impl Snapshot for FjallSnapshot {
    fn get(&self, key: &[u8]) -> Result<Option<Value>, StoreError> {
        self.handle.get_at(&self.view, key)
    }

    fn scan(
        &self,
        from: &[u8],
        to: Option<&[u8]>,
        limit: usize,
    ) -> Result<Vec<(Key, Value)>, StoreError> {
        self.handle.scan_at(&self.view, from, to, limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_roomy_disk_gets_a_large_memtable() {
        let memtable = |total| FjallOptions::default().suited_to(total).memtable_bytes;
        assert_eq!(memtable(ROOMY_BYTES - 1), FjallOptions::default().memtable_bytes);
        assert_eq!(memtable(ROOMY_BYTES), ROOMY_MEMTABLE_BYTES);
        let root = tempfile::tempdir().unwrap();
        let total = space::measure(root.path()).unwrap().total;
        let here = FjallOptions::for_new(root.path()).unwrap().memtable_bytes;
        assert_eq!(here, memtable(total));
    }
}
