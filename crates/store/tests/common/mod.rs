//! What the store's tests share: the engines behind one trait, and blocking commits.
// Each test binary uses its own part of this.
#![allow(unused)]

use std::path::PathBuf;
use std::sync::mpsc;
use std::time::Duration;

use pinstripe_store::fjall_engine::{self, FjallOptions};
use pinstripe_store::memory::{self, MemoryDisk};
use pinstripe_store::{Commit, Store, StoreError, Write};

/// A medium that stores can be acquired on.
pub trait Engine {
    /// Whether a second acquire takes the store from a living owner (else it gets `Busy`).
    const TAKES_OVER: bool;
    fn new() -> Self;
    fn acquire(&self, known_committed: u64) -> Result<Box<dyn Store>, StoreError>;
}

pub struct Memory(pub MemoryDisk);

impl Engine for Memory {
    const TAKES_OVER: bool = true;
    fn new() -> Self {
        Memory(MemoryDisk::new())
    }
    fn acquire(&self, known_committed: u64) -> Result<Box<dyn Store>, StoreError> {
        memory::acquire(&self.0, "test", known_committed)
    }
}

pub struct Fjall {
    pub root: tempfile::TempDir,
    pub options: FjallOptions,
}

impl Fjall {
    pub fn dir(&self) -> PathBuf {
        self.root.path().join("mdt0")
    }
}

impl Engine for Fjall {
    const TAKES_OVER: bool = false;
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        // Small tables, so that tests flush and compact.
        let options = FjallOptions {
            memtable_bytes: 256 << 10,
            table_bytes: 256 << 10,
            ..FjallOptions::default()
        };
        let engine = Fjall { root, options };
        fjall_engine::format(&engine.dir(), &engine.options).unwrap();
        engine
    }
    fn acquire(&self, known_committed: u64) -> Result<Box<dyn Store>, StoreError> {
        fjall_engine::acquire(&self.dir(), "test", known_committed, &self.options)
    }
}

/// Long enough for any machine; only a hang reaches it.
pub const BOUND: Duration = Duration::from_secs(120);

pub fn put(key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Write {
    Write::Put(key.as_ref().to_vec(), value.as_ref().to_vec())
}

pub fn del(key: impl AsRef<[u8]>) -> Write {
    Write::Del(key.as_ref().to_vec())
}

/// Submits and returns the outcome's receiver.
pub fn submit(
    store: &dyn Store,
    prev_last: u64,
    last: u64,
    writes: Vec<Write>,
) -> mpsc::Receiver<Result<(), StoreError>> {
    let (tx, rx) = mpsc::channel();
    let commit = Commit { prev_last, last, writes: writes.into() };
    store.submit(commit, Box::new(move |outcome| drop(tx.send(outcome))));
    rx
}

/// Submits and waits.
pub fn commit(
    store: &dyn Store,
    prev_last: u64,
    last: u64,
    writes: Vec<Write>,
) -> Result<(), StoreError> {
    submit(store, prev_last, last, writes).recv_timeout(BOUND).expect("done was never called")
}

/// Every entry, read in pages.
pub fn dump(scan: impl Fn(&[u8]) -> Vec<(Vec<u8>, bytes::Bytes)>) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut all = Vec::new();
    let mut from = Vec::new();
    loop {
        let page = scan(&from);
        let Some((last, _)) = page.last() else {
            return all;
        };
        from = last.clone();
        from.push(0);
        all.extend(page.into_iter().map(|(k, v)| (k, v.to_vec())));
    }
}
