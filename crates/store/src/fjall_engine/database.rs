//! The fjall database under the engine: opening, reading, writing batches, and naming its failures.
//!
//! Role: the only file that speaks fjall. User keys carry the prefix `DATA`, commit records `META`,
//! in one keyspace, so that a flush can never make one durable without the other. Assumption: fjall
//! may panic on damaged files; every call that reads them is guarded. Never: decides what is true
//! about the chain.

use std::ops::Bound;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use fjall::compaction::Leveled;
use fjall::{AbstractTree, Database, Keyspace, KeyspaceCreateOptions, PersistMode, Readable};

use super::FjallOptions;
use super::identity::DirLock;
use crate::chain::{CommitRecord, RECORDS_KEPT};
use crate::{Key, StoreError, Value, Write};

/// First byte of the keys of commit records: `META`, then `sequence % RECORDS_KEPT` as u64 BE.
pub(super) const META: u8 = 0;
/// Length of such a key.
pub(super) const KEY_BYTES: usize = 9;
/// First byte of every user key.
const DATA: u8 = 1;
/// The key of deletes that only count as batches; it never has a value.
const NOTHING: &[u8] = &[2];
const KEYSPACE: &str = "mdt";
/// Threads for flushes and compactions.
const WORKERS: usize = 1;
/// Table files kept open.
const OPEN_TABLES: usize = 128;

/// Memtables that may wait to be flushed before commits wait for them. fjall itself waits at four, but for ever
/// if the flush failed meanwhile.
const SEALED_MEMTABLES: usize = 3;
/// Bytes that may be unflushed while a flush is due.
const UNFLUSHED_BYTES: u64 = 64 << 20;
/// Runs of tables in the first level from which on fjall slows writes down; from thirty on they wait.
const CROWDED_RUNS: usize = 16;
/// To bring down what lies above the last level: so many tables may lie in the first one, and each level may
/// be so large in parts of the one above, the second one as a table.
const DOWN: (u8, f32) = (1, 1e-6);
/// Tables of a lower level that fjall merges with some of the level above, at most.
const PIECE_TABLES: u64 = 50;
/// As a part of their ordinary size, so that a merge takes less room.
const PIECE_PARTS: u64 = 4;
/// Between two looks at whether a flush has ended.
const FLUSH_POLL: Duration = Duration::from_millis(2);

/// An open database and the lock on its directory.
pub(super) struct Handle {
    db: Database,
    keyspace: Keyspace,
    dir: PathBuf,
    table_bytes: u64,
    commits: AtomicU64,
    // Last, so that the directory is free only when the database is closed.
    _lock: DirLock,
}

/// What lies above the last level.
#[derive(Default)]
pub(super) struct Above {
    pub(super) bytes: u64,
    pub(super) tombstones: u64,
    /// Of all levels.
    pub(super) entries: u64,
}

/// Creates the database of a new store in `dir`, holding `record`.
pub(super) fn create(
    dir: &Path,
    options: &FjallOptions,
    record: &CommitRecord,
) -> Result<(), StoreError> {
    guard("create the database", || {
        let db = builder(dir, options).open()?;
        let strategy = Leveled::default().with_table_target_size(options.table_bytes);
        let keyspace = db.keyspace(KEYSPACE, || {
            KeyspaceCreateOptions::default()
                .manual_journal_persist(true)
                .max_memtable_size(options.memtable_bytes)
                .compaction_strategy(Arc::new(strategy))
        })?;
        let mut batch = db.batch().durability(Some(PersistMode::SyncAll));
        batch.insert(&keyspace, record_key(record.sequence), record.encode());
        batch.commit()
    })
}

fn builder(dir: &Path, options: &FjallOptions) -> fjall::DatabaseBuilder<Database> {
    Database::builder(dir.join("fjall"))
        .cache_size(options.cache_bytes)
        .manual_journal_persist(true)
        .max_journaling_size(options.journal_bytes.max(super::MIN_JOURNAL_BYTES))
        .max_cached_files(Some(OPEN_TABLES))
        .worker_threads(WORKERS)
}

impl Handle {
    /// Opens the database of a formatted store that passed the preflight; fjall replays its journal.
    pub(super) fn open(
        dir: &Path,
        options: &FjallOptions,
        lock: DirLock,
    ) -> Result<Self, StoreError> {
        let path = dir.join("fjall");
        let (db, keyspace) = guard(&format!("open {}", path.display()), || {
            let db = builder(dir, options).open()?;
            let exists = db.keyspace_exists(KEYSPACE);
            let keyspace = match exists {
                true => Some(db.keyspace(KEYSPACE, KeyspaceCreateOptions::default)?),
                false => None,
            };
            Ok((db, keyspace))
        })?;
        let Some(keyspace) = keyspace else {
            let text = format!("{} has lost its keyspace", path.display());
            return Err(StoreError::Corrupt(text));
        };
        let (table_bytes, commits) = (options.table_bytes, AtomicU64::new(0));
        Ok(Handle { db, keyspace, dir: dir.to_path_buf(), table_bytes, commits, _lock: lock })
    }

    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Bytes of the database on disk.
    pub(super) fn used(&self) -> Result<u64, StoreError> {
        guard("measure the database", || self.db.disk_space())
    }

    /// Bytes written that are not in tables yet and will go there.
    pub(super) fn unflushed(&self) -> u64 {
        self.db.write_buffer_size()
    }

    /// Bytes of the tables, which compactions rewrite in part.
    pub(super) fn tables(&self) -> u64 {
        self.keyspace.disk_space()
    }

    /// Bytes of the tables of the first level, and of the one they are merged into.
    pub(super) fn upper_levels(&self) -> u64 {
        let version = self.keyspace.tree.current_version();
        let next = version.iter_levels().skip(1).find(|l| !l.is_empty());
        version.l0().size() + next.map_or(0, |l| l.size())
    }

    /// What is in tables of all levels but the last, and how many entries there are in all.
    pub(super) fn above_last(&self) -> Above {
        let version = self.keyspace.tree.current_version();
        let last = version.level_count() - 1;
        let mut above = Above::default();
        for (n, level) in version.iter_levels().enumerate() {
            above.bytes += if n < last { level.size() } else { 0 };
            for table in level.iter().flat_map(|run| run.iter()) {
                above.entries += table.metadata.item_count;
                above.tombstones += if n < last { table.tombstone_count() } else { 0 };
            }
        }
        above
    }

    /// Number of the set of tables; every flush and every compaction makes another.
    pub(super) fn version(&self) -> u64 {
        self.keyspace.tree.current_version().id()
    }

    /// How many commits were written since it was opened.
    pub(super) fn commits(&self) -> u64 {
        self.commits.load(Relaxed)
    }

    /// How many compactions have ended since it was opened.
    pub(super) fn compactions(&self) -> usize {
        self.db.compactions_completed()
    }

    /// Bytes of table files that the newest set of tables does not hold: replaced by a compaction and not deleted
    /// yet, or its unfinished output.
    pub(super) fn replaced(&self) -> Result<u64, StoreError> {
        let tables = self.keyspace.path().join("tables");
        let read = || -> std::io::Result<u64> {
            let mut bytes = 0;
            for entry in std::fs::read_dir(&tables)? {
                // A table may be deleted meanwhile.
                bytes += entry?.metadata().map_or(0, |m| m.len());
            }
            Ok(bytes)
        };
        let all = read().map_err(|e| StoreError::io(format!("read {}", tables.display()), e))?;
        Ok(all.saturating_sub(self.tables()))
    }

    /// Begins a new memtable, which has the old one flushed and compactions looked for; deletes tables that were
    /// replaced, for which there must be a later batch than theirs. False, and nothing done, where fjall would hold
    /// the batch up.
    pub(super) fn change_memtable(&self) -> Result<bool, StoreError> {
        self.wait_for_flushes()?;
        if self.keyspace.tree.l0_run_count() >= CROWDED_RUNS {
            return Ok(false);
        }
        guard("flush", || {
            let mut batch = self.db.batch().durability(None);
            batch.remove(&self.keyspace, NOTHING);
            batch.commit()?;
            self.keyspace.rotate_memtable().map(|_| true)
        })
    }

    /// One merge of what lies above the last level with what lies below it.
    pub(super) fn bring_down(&self) -> Result<(), StoreError> {
        let strategy = Leveled::default()
            .with_table_target_size(self.piece_bytes() / PIECE_TABLES)
            .with_l0_threshold(DOWN.0)
            .with_level_ratio_policy(vec![DOWN.1]);
        guard("compact", || Ok(self.keyspace.tree.compact(Arc::new(strategy), self.unread())?))
    }

    /// The most bytes that such a merge takes from the lower level.
    pub(super) fn piece_bytes(&self) -> u64 {
        self.table_bytes / PIECE_PARTS * PIECE_TABLES
    }

    /// Whether keys and values that are not deleted are less than so many bytes. Reads them.
    pub(super) fn holds_less_than(&self, most: u64) -> Result<bool, StoreError> {
        guard("read", || {
            let mut bytes = 0;
            for entry in self.db.snapshot().iter(&self.keyspace) {
                let (key, value) = entry.into_inner()?;
                bytes += (key.len() + value.len()) as u64;
                if bytes >= most {
                    return Ok(false);
                }
            }
            Ok(true)
        })
    }

    /// One merge of all there is.
    pub(super) fn merge_all(&self) -> Result<(), StoreError> {
        guard("compact", || {
            Ok(self.keyspace.tree.major_compact(self.table_bytes, self.unread())?)
        })
    }

    /// Before which batch no reader needs what was overwritten.
    fn unread(&self) -> u64 {
        self.db.supervisor.snapshot_tracker.get_seqno_safe_to_gc()
    }

    /// Fails when a flush or a compaction has failed: fjall does nothing any more.
    pub(super) fn works(&self) -> Result<(), StoreError> {
        guard("flush", || self.db.persist(PersistMode::Buffer))
    }

    /// Whether a flush is due or a compaction runs.
    pub(super) fn busy(&self) -> bool {
        self.db.outstanding_flushes() > 0
            || self.keyspace.sealed_memtable_count() > 0
            || self.db.active_compactions() > 0
    }

    /// Waits until flushes keep up. An error if one has failed.
    fn wait_for_flushes(&self) -> Result<(), StoreError> {
        loop {
            let sealed = self.keyspace.sealed_memtable_count();
            let behind = sealed > 0 && self.unflushed() > UNFLUSHED_BYTES;
            if sealed < SEALED_MEMTABLES && !behind {
                return Ok(());
            }
            // Fails when the worker is gone, so that this loop ends.
            self.works()?;
            thread::sleep(FLUSH_POLL);
        }
    }

    /// Puts one commit and its record in a batch and writes it, not yet durably.
    pub(super) fn write(&self, record: &CommitRecord, writes: &[Write]) -> Result<(), StoreError> {
        self.wait_for_flushes()?;
        self.commits.fetch_add(1, Relaxed);
        // Writes of one batch share a sequence number, so each key may occur only once: the last counts.
        let mut writes: Vec<&Write> = writes.iter().collect();
        writes.sort_by(|a, b| a.key().cmp(b.key()));
        let mut batch = self.db.batch().durability(None);
        let mut key = Vec::with_capacity(256);
        let mut writes = writes.into_iter().peekable();
        while let Some(write) = writes.next() {
            if writes.peek().is_some_and(|next| next.key() == write.key()) {
                continue;
            }
            key.clear();
            key.push(DATA);
            key.extend_from_slice(write.key());
            match write {
                Write::Put(_, value) => {
                    batch.insert(&self.keyspace, key.as_slice(), value.as_slice())
                }
                Write::Del(_) => batch.remove(&self.keyspace, key.as_slice()),
            }
        }
        batch.insert(&self.keyspace, record_key(record.sequence), record.encode());
        guard("write a commit", || batch.commit())
    }

    /// fdatasync of the journal.
    pub(super) fn sync(&self) -> Result<(), StoreError> {
        guard("sync the journal", || self.db.persist(PersistMode::SyncData))
    }

    /// Every kept commit record that decodes; the first that does not is the error.
    pub(super) fn records(&self) -> Result<Vec<CommitRecord>, StoreError> {
        let found = guard("read the commit records", || {
            let view = self.db.snapshot();
            let range = (Bound::Included(vec![META]), Bound::Excluded(vec![DATA]));
            view.range(&self.keyspace, range)
                .take(RECORDS_KEPT as usize + 1)
                .map(|entry| entry.into_inner())
                .collect::<fjall::Result<Vec<_>>>()
        })?;
        let decode = |(key, value): &(fjall::Slice, fjall::Slice)| {
            let record = CommitRecord::decode(value)?;
            if key[..] != record_key(record.sequence) {
                let text = format!("commit record {} is out of place", record.sequence);
                return Err(StoreError::Corrupt(text));
            }
            Ok(record)
        };
        found.iter().map(decode).collect()
    }

    pub(super) fn get(&self, key: &[u8]) -> Result<Option<Value>, StoreError> {
        let found = guard("read", || self.keyspace.get(data_key(key)))?;
        // Copied, so that a caller that keeps it does not keep the block it came from.
        Ok(found.map(|v| Value::copy_from_slice(&v)))
    }

    pub(super) fn view(&self) -> fjall::Snapshot {
        self.db.snapshot()
    }

    pub(super) fn get_at(
        &self,
        view: &fjall::Snapshot,
        key: &[u8],
    ) -> Result<Option<Value>, StoreError> {
        let found = guard("read", || view.get(&self.keyspace, data_key(key)))?;
        Ok(found.map(|v| Value::copy_from_slice(&v)))
    }

    pub(super) fn scan_at(
        &self,
        view: &fjall::Snapshot,
        from: &[u8],
        to: Option<&[u8]>,
        limit: usize,
    ) -> Result<Vec<(Key, Value)>, StoreError> {
        if to.is_some_and(|to| to <= from) {
            return Ok(Vec::new());
        }
        let end = to.map_or(vec![DATA + 1], data_key);
        guard("scan", || {
            let range = (Bound::Included(data_key(from)), Bound::Excluded(end));
            view.range(&self.keyspace, range)
                .take(limit)
                .map(|entry| {
                    let (key, value) = entry.into_inner()?;
                    Ok((key[1..].to_vec(), Value::copy_from_slice(&value)))
                })
                .collect()
        })
    }
}

fn data_key(key: &[u8]) -> Vec<u8> {
    let mut b = Vec::with_capacity(key.len() + 1);
    b.push(DATA);
    b.extend_from_slice(key);
    b
}

fn record_key(sequence: u64) -> [u8; KEY_BYTES] {
    let mut b = [META; KEY_BYTES];
    b[1..].copy_from_slice(&(sequence % RECORDS_KEPT).to_be_bytes());
    b
}

/// Runs a fjall call; a panic or an error becomes a `StoreError` that says what was being done.
fn guard<T>(doing: &str, call: impl FnOnce() -> fjall::Result<T>) -> Result<T, StoreError> {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(e)) => Err(translate(doing, &e)),
        Err(panic) => {
            let text = panic
                .downcast_ref::<String>()
                .map(String::as_str)
                .or_else(|| panic.downcast_ref::<&str>().copied())
                .unwrap_or("no reason given");
            Err(StoreError::Corrupt(format!("cannot {doing}: {text}")))
        }
    }
}

fn translate(doing: &str, e: &fjall::Error) -> StoreError {
    use fjall::{Error, LsmError};
    match e {
        Error::Io(e) | Error::Storage(LsmError::Io(e)) => match e.kind() {
            // Files that end early, are absent or hold nonsense: damage, not a failing system call.
            std::io::ErrorKind::NotFound
            | std::io::ErrorKind::UnexpectedEof
            | std::io::ErrorKind::InvalidInput
            | std::io::ErrorKind::InvalidData => {
                StoreError::Corrupt(format!("cannot {doing}: {e}"))
            }
            _ => StoreError::io(doing, e),
        },
        Error::Locked => {
            StoreError::Busy { path: "the database".into(), owner: "another process".into() }
        }
        Error::Poisoned => StoreError::Uncertain(format!(
            "cannot {doing}: an earlier write, flush or compaction failed"
        )),
        Error::InvalidVersion(_) => StoreError::Corrupt(format!(
            "cannot {doing}: not a fjall 3 database, or a newer program's"
        )),
        other => StoreError::Corrupt(format!("cannot {doing}: {other:?}")),
    }
}
