//! An engine in memory, for tests and for trying things out; nothing survives the process.
//!
//! Role: behaves as a disk with a cache. A [`MemoryDisk`] keeps a live image (what reads see) apart
//! from a durable one (what was synced); [`MemoryDisk::power_cut`] drops the difference, and syncs
//! can be held back, made to fail, or the disk filled up, so that crashes are replayed exactly.
//! Never: touches a file or reads a clock.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};

use crate::chain::{self, CommitRecord, RECORDS_KEPT};
use crate::committer::{Backend, Committer, Refusal};
use crate::{AcquireInfo, Commit, Done, Key, Snapshot, Store, StoreError, Usage, Value, Write};

type Map = BTreeMap<Key, Value>;

/// Bytes kept for deletes when [`MemoryDisk::set_capacity`] limits the disk.
pub const RESERVE_BYTES: u64 = 64 << 10;

/// What the next sync of a [`MemoryDisk`] does instead of succeeding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncFault {
    /// It fails, and what was to be synced is not durable.
    Lost,
    /// It fails, though everything did become durable.
    Kept,
}

/// A disk that a [`MemoryStore`] is on. Clones are the same disk; it outlives the stores.
#[derive(Clone, Default)]
pub struct MemoryDisk {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    released: Condvar,
}

#[derive(Default)]
struct State {
    live: Image,
    durable: Image,
    /// Writes in `live` that are not in `durable`.
    unsynced: Vec<(CommitRecord, Vec<(Key, Option<Value>)>)>,
    /// Counts power cuts, so that a handle from before one cannot write.
    boots: u64,
    held: bool,
    fault: Option<SyncFault>,
    capacity: Option<u64>,
}

#[derive(Clone, Default)]
struct Image {
    map: Arc<Map>,
    records: BTreeMap<u64, CommitRecord>,
    used: u64,
}

impl Image {
    fn apply(&mut self, record: &CommitRecord, writes: &[(Key, Option<Value>)]) {
        let map = Arc::make_mut(&mut self.map);
        for (key, value) in writes {
            let old = match value {
                Some(v) => {
                    self.used += (key.len() + v.len()) as u64;
                    map.insert(key.clone(), v.clone())
                }
                None => map.remove(key),
            };
            self.used -= old.map_or(0, |v| (key.len() + v.len()) as u64);
        }
        self.records.insert(record.sequence, *record);
        while self.records.len() as u64 > RECORDS_KEPT {
            self.records.pop_first();
        }
    }

    fn newest(&self) -> Option<&CommitRecord> {
        self.records.last_key_value().map(|(_, r)| r)
    }
}

impl State {
    fn sync(&mut self) {
        for (record, writes) in self.unsynced.drain(..) {
            self.durable.apply(&record, &writes);
        }
    }
}

impl MemoryDisk {
    /// An empty disk.
    pub fn new() -> Self {
        Self::default()
    }

    /// Loses everything that was not synced and fences every handle, as a power cut would.
    pub fn power_cut(&self) {
        let mut state = self.shared.state.lock();
        state.live = state.durable.clone();
        state.unsynced.clear();
        state.boots += 1;
        state.held = false;
        state.fault = None;
        self.shared.released.notify_all();
    }

    /// From now on commits are applied but stay undurable, and their `done` uncalled, until
    /// [`MemoryDisk::release`] or [`MemoryDisk::power_cut`]. Closing a store waits for one of them.
    pub fn hold(&self) {
        self.shared.state.lock().held = true;
    }

    /// Ends [`MemoryDisk::hold`].
    pub fn release(&self) {
        self.shared.state.lock().held = false;
        self.shared.released.notify_all();
    }

    /// Makes the next sync fail.
    pub fn fail_next_sync(&self, fault: SyncFault) {
        self.shared.state.lock().fault = Some(fault);
    }

    /// Limits the disk to `bytes` of keys and values; `None` lifts the limit. Puts are refused with
    /// `NoSpace` when less than [`RESERVE_BYTES`] would stay free; deletes are always taken.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.shared.state.lock().capacity = bytes;
    }

    /// Commits that are applied but not yet durable.
    pub fn unsynced(&self) -> usize {
        self.shared.state.lock().unsynced.len()
    }

    /// A copy of the durable state: what a new disk holds after this one's last bytes are copied.
    /// Lets a test go back to an older state, as a restored backup would.
    pub fn durable_copy(&self) -> MemoryDisk {
        let durable = self.shared.state.lock().durable.clone();
        let copy = MemoryDisk::new();
        {
            let mut state = copy.shared.state.lock();
            state.live = durable.clone();
            state.durable = durable;
        }
        copy
    }
}

/// Takes the disk over for `owner`: fences earlier handles and durably bumps the epoch.
///
/// `RolledBack` if the disk ends before `known_committed`. An empty disk is formatted first.
pub fn acquire(
    disk: &MemoryDisk,
    owner: &str,
    known_committed: u64,
) -> Result<Box<dyn Store>, StoreError> {
    Ok(Box::new(MemoryStore::acquire(disk, owner, known_committed)?))
}

/// A store on a [`MemoryDisk`].
pub struct MemoryStore {
    disk: MemoryDisk,
    boot: u64,
    info: AcquireInfo,
    committer: Committer,
}

impl MemoryStore {
    /// See [`acquire`].
    pub fn acquire(
        disk: &MemoryDisk,
        owner: &str,
        known_committed: u64,
    ) -> Result<Self, StoreError> {
        let mut state = disk.shared.state.lock();
        // What the fenced owner had written but not synced is undecided; the disk decides for it.
        state.sync();
        let found = match state.live.records.is_empty() {
            true => CommitRecord::format(),
            false => chain::verify(state.live.records.values().copied().collect())?,
        };
        if found.last < known_committed {
            return Err(StoreError::RolledBack { known: known_committed, found: found.last });
        }
        if found.sequence == 1 {
            state.live.apply(&found, &[]);
            state.durable.apply(&found, &[]);
        }
        let head = found.acquire();
        state.live.apply(&head, &[]);
        state.durable.apply(&head, &[]);
        let boot = state.boots;
        drop(state);
        disk.shared.released.notify_all();
        tracing::debug!(owner, epoch = head.epoch, last = head.last, "store acquired");
        let backend = MemoryBackend { disk: disk.clone(), boot, epoch: head.epoch };
        Ok(MemoryStore {
            disk: disk.clone(),
            boot,
            info: AcquireInfo { epoch: head.epoch, last: head.last, chain: head.hash },
            committer: Committer::start(head, backend)?,
        })
    }

    /// The live map, unless this handle is fenced.
    fn view(&self) -> Result<Arc<Map>, StoreError> {
        if !self.committer.is_open() {
            return Err(StoreError::Closed);
        }
        let state = self.disk.shared.state.lock();
        fence(&state, self.boot, self.info.epoch)?;
        Ok(state.live.map.clone())
    }
}

fn fence(state: &State, boot: u64, epoch: u64) -> Result<(), StoreError> {
    let current = state.live.newest().map_or(0, |r| r.epoch);
    if current == epoch && state.boots == boot {
        return Ok(());
    }
    Err(StoreError::Fenced { epoch, current })
}

struct MemoryBackend {
    disk: MemoryDisk,
    boot: u64,
    epoch: u64,
}

impl Backend for MemoryBackend {
    fn apply(&mut self, record: &CommitRecord, writes: &[Write]) -> Result<(), Refusal> {
        let mut state = self.disk.shared.state.lock();
        fence(&state, self.boot, self.epoch).map_err(Refusal::Fatal)?;
        check_space(&state, writes).map_err(Refusal::Clean)?;
        let writes: Vec<_> = writes
            .iter()
            .map(|w| match w {
                Write::Put(k, v) => (k.clone(), Some(Value::copy_from_slice(v))),
                Write::Del(k) => (k.clone(), None),
            })
            .collect();
        state.live.apply(record, &writes);
        state.unsynced.push((*record, writes));
        Ok(())
    }

    fn sync(&mut self, _newest: &CommitRecord) -> Result<(), StoreError> {
        let mut state = self.disk.shared.state.lock();
        while state.held && fence(&state, self.boot, self.epoch).is_ok() {
            self.disk.shared.released.wait(&mut state);
        }
        if fence(&state, self.boot, self.epoch).is_err() {
            return Err(StoreError::Uncertain("the owner changed meanwhile".into()));
        }
        match state.fault.take() {
            None => {
                state.sync();
                Ok(())
            }
            Some(fault) => {
                match fault {
                    SyncFault::Kept => state.sync(),
                    SyncFault::Lost => {
                        state.unsynced.clear();
                        state.live = state.durable.clone();
                    }
                }
                Err(StoreError::Uncertain("injected sync failure".into()))
            }
        }
    }

    fn idle(&mut self) {}
}

fn check_space(state: &State, writes: &[Write]) -> Result<(), StoreError> {
    let Some(capacity) = state.capacity else {
        return Ok(());
    };
    let free = capacity.saturating_sub(state.live.used);
    let adds: u64 =
        writes.iter().filter(|w| matches!(w, Write::Put(..))).map(|w| w.bytes() as u64).sum();
    if adds > 0 && free < adds + RESERVE_BYTES {
        return Err(StoreError::NoSpace { free, reserve: RESERVE_BYTES, busy: false });
    }
    Ok(())
}

impl Store for MemoryStore {
    fn info(&self) -> AcquireInfo {
        self.info
    }

    fn submit(&self, commit: Commit, done: Done) {
        self.committer.submit(commit, done);
    }

    fn get(&self, key: &[u8]) -> Result<Option<Value>, StoreError> {
        // Not `view`: holding the map's `Arc` would make a commit in flight copy the map.
        if !self.committer.is_open() {
            return Err(StoreError::Closed);
        }
        let state = self.disk.shared.state.lock();
        fence(&state, self.boot, self.info.epoch)?;
        Ok(state.live.map.get(key).cloned())
    }

    fn scan(
        &self,
        from: &[u8],
        to: Option<&[u8]>,
        limit: usize,
    ) -> Result<Vec<(Key, Value)>, StoreError> {
        if !self.committer.is_open() {
            return Err(StoreError::Closed);
        }
        let state = self.disk.shared.state.lock();
        fence(&state, self.boot, self.info.epoch)?;
        Ok(scan_map(&state.live.map, from, to, limit))
    }

    fn snapshot(&self) -> Result<Box<dyn Snapshot>, StoreError> {
        Ok(Box::new(MemorySnapshot(self.view()?)))
    }

    fn usage(&self) -> Result<Usage, StoreError> {
        let state = self.disk.shared.state.lock();
        let total = state.capacity.unwrap_or(1 << 40);
        Ok(Usage {
            used: state.live.used,
            total,
            free: total.saturating_sub(state.live.used),
            reserve: RESERVE_BYTES,
        })
    }

    fn self_test(&self) -> Result<(), StoreError> {
        let state = self.disk.shared.state.lock();
        fence(&state, self.boot, self.info.epoch)?;
        let records = state.live.records.values();
        for record in records.clone() {
            CommitRecord::decode(&record.encode())?;
        }
        chain::verify(records.copied().collect()).map(|_| ())
    }

    fn close(&self) -> Result<(), StoreError> {
        self.committer.close();
        Ok(())
    }
}

/// A view of keys and values in memory.
pub struct MemorySnapshot(Arc<Map>);

impl From<BTreeMap<Key, Value>> for MemorySnapshot {
    fn from(map: BTreeMap<Key, Value>) -> Self {
        MemorySnapshot(Arc::new(map))
    }
}

impl Snapshot for MemorySnapshot {
    fn get(&self, key: &[u8]) -> Result<Option<Value>, StoreError> {
        Ok(self.0.get(key).cloned())
    }

    fn scan(
        &self,
        from: &[u8],
        to: Option<&[u8]>,
        limit: usize,
    ) -> Result<Vec<(Key, Value)>, StoreError> {
        Ok(scan_map(&self.0, from, to, limit))
    }
}

fn scan_map(map: &Map, from: &[u8], to: Option<&[u8]>, limit: usize) -> Vec<(Key, Value)> {
    if to.is_some_and(|to| to <= from) {
        return Vec::new();
    }
    let end = to.map_or(Bound::Unbounded, Bound::Excluded);
    map.range::<[u8], _>((Bound::Included(from), end))
        .take(limit)
        .map(|(k, v)| (k.clone(), v.clone()))
        .collect()
}
