//! The vocabulary of a store: writes, commits, and the traits every engine fulfils.
//!
//! Never: holds engine detail; what differs between engines belongs to the engine's own options.

use std::sync::Arc;

use crate::StoreError;

/// A key. Ordered bytewise. At most [`MAX_KEY_BYTES`].
pub type Key = Vec<u8>;
/// A stored value, shared and cheap to clone.
pub type Value = bytes::Bytes;

/// Commits that may wait for the commit thread; above it [`Store::submit`] answers `Retry`.
pub const MAX_QUEUED_COMMITS: usize = 64;
/// Bytes of keys and values that may wait; above it `Retry`. A single commit is always taken when nothing waits.
pub const MAX_QUEUED_BYTES: usize = 64 << 20;
/// Most writes in one commit. Callers should stay below 5,000.
pub const MAX_COMMIT_OPS: usize = 65_536;
/// Most bytes of keys and values in one commit. Callers should stay below 1 MiB.
pub const MAX_COMMIT_BYTES: usize = 16 << 20;
/// Longest key, in bytes.
pub const MAX_KEY_BYTES: usize = 4096;

/// One change of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Write {
    /// Sets the key, replacing what it held.
    Put(Vec<u8>, Vec<u8>),
    /// Removes the key; an absent key is no error.
    Del(Vec<u8>),
}

impl Write {
    /// The key this changes.
    pub fn key(&self) -> &[u8] {
        match self {
            Write::Put(k, _) | Write::Del(k) => k,
        }
    }

    /// Bytes of key and value.
    pub fn bytes(&self) -> usize {
        match self {
            Write::Put(k, v) => k.len() + v.len(),
            Write::Del(k) => k.len(),
        }
    }
}

/// The writes of transaction numbers `(prev_last, last]`, applied all or none.
///
/// `prev_last` must be the `last` of the previous commit (else `Gap`); `last == prev_last` is a
/// commit of housekeeping that no transaction number stands for. When a key is written twice the
/// later write counts. The writes are shared: whoever hands them over may keep them for another try.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Commit {
    pub prev_last: u64,
    pub last: u64,
    pub writes: Arc<Vec<Write>>,
}

/// Called once with the outcome of a commit.
pub type Done = Box<dyn FnOnce(Result<(), StoreError>) + Send>;

/// What the owner learns when it acquires a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AcquireInfo {
    /// This owner's epoch: greater than every earlier owner's, durable before `acquire` returned.
    pub epoch: u64,
    /// The last transaction number that is committed.
    pub last: u64,
    /// Hash of the newest commit record.
    pub chain: [u8; 32],
}

/// Space, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Used by this store.
    pub used: u64,
    /// Size of the file system it is on.
    pub total: u64,
    /// Free on that file system, for this process.
    pub free: u64,
    /// Kept free for deletes: below it, commits with puts are refused with `NoSpace`.
    pub reserve: u64,
}

/// Reads on a view that does not change.
pub trait Snapshot: Send + Sync {
    /// The value of `key`, if it has one.
    fn get(&self, key: &[u8]) -> Result<Option<Value>, StoreError>;
    /// Up to `limit` entries of `[from, to)` in key order; `to` of `None` means to the end.
    fn scan(
        &self,
        from: &[u8],
        to: Option<&[u8]>,
        limit: usize,
    ) -> Result<Vec<(Key, Value)>, StoreError>;
}

/// A store held by one owner. Dropping it closes it.
///
/// Reads see every commit whose `done` was called with `Ok`. They may also see a commit that is
/// written but not yet durable; its `done` follows.
pub trait Store: Send + Sync {
    /// What `acquire` found; it does not change afterwards.
    fn info(&self) -> AcquireInfo;

    /// Queues a commit and returns at once. Commits take effect in the order of their submission;
    /// each is atomic, and durable when `done` gets `Ok`.
    ///
    /// `done` runs on the commit thread and should be short. Only a refusal that never enters the
    /// queue (`Retry` because it is full, `Closed`, `Invalid`) is told on the caller's own thread,
    /// before `submit` returns. After a refused commit, those that follow it get `Gap`; after
    /// `Uncertain` or `Fenced` this handle takes no more.
    fn submit(&self, commit: Commit, done: Done);

    /// The value of `key`, if it has one.
    fn get(&self, key: &[u8]) -> Result<Option<Value>, StoreError>;

    /// The values of several keys, in their order.
    fn multi_get(&self, keys: &[Vec<u8>]) -> Result<Vec<Option<Value>>, StoreError> {
        keys.iter().map(|k| self.get(k)).collect()
    }

    /// Up to `limit` entries of `[from, to)` in key order; `to` of `None` means to the end.
    fn scan(
        &self,
        from: &[u8],
        to: Option<&[u8]>,
        limit: usize,
    ) -> Result<Vec<(Key, Value)>, StoreError>;

    /// A stable view of the store as it is now. Holds disk or memory until dropped.
    fn snapshot(&self) -> Result<Box<dyn Snapshot>, StoreError>;

    /// Space used, free and kept in reserve.
    fn usage(&self) -> Result<Usage, StoreError>;

    /// Reads back and verifies the commit records; `Corrupt` or `RolledBack` if they do not hold.
    fn self_test(&self) -> Result<(), StoreError>;

    /// Finishes every queued commit, flushes, and gives the store up. Later submits get `Closed`.
    fn close(&self) -> Result<(), StoreError>;
}
