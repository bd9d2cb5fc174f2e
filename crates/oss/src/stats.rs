//! Counters for operators (`pinstripe get_param`).

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// What a target is asked to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Verb {
    Read,
    Write,
    Commit,
    Punch,
    Glimpse,
    Destroy,
    Statfs,
    Seek,
    Copy,
    Allocate,
}

impl Verb {
    /// All verbs, in the order of their opcodes.
    pub const ALL: [Verb; 10] = [
        Verb::Read,
        Verb::Write,
        Verb::Commit,
        Verb::Punch,
        Verb::Glimpse,
        Verb::Destroy,
        Verb::Statfs,
        Verb::Seek,
        Verb::Copy,
        Verb::Allocate,
    ];
    /// Its name in lower case, for logs and counters.
    pub fn name(self) -> &'static str {
        const NAMES: [&str; 10] = [
            "read", "write", "commit", "punch", "glimpse", "destroy", "statfs", "seek", "copy",
            "allocate",
        ];
        NAMES[self as usize]
    }
}

/// A reading of the counters since the target was opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Requests by verb, in the order of [`Verb::ALL`].
    pub requests: [u64; 10],
    /// Requests answered with an error.
    pub errors: u64,
    /// Bytes sent to clients.
    pub bytes_read: u64,
    /// Bytes taken from clients.
    pub bytes_written: u64,
    /// Syncs of objects (or of the whole file system) done for commits.
    pub syncs: u64,
    /// Blocks whose stored checksum was compared when they were read.
    pub blocks_verified: u64,
    /// Blocks on disk that did not have their checksum.
    pub blocks_bad: u64,
    /// Writes refused because they arrived damaged.
    pub writes_damaged: u64,
    /// Writes done by the thread that received them.
    pub writes_at_once: u64,
    /// Reads that went past the page cache.
    pub reads_past_cache: u64,
    /// Objects open now.
    pub open_objects: u64,
    /// Objects with writes that are not yet durable.
    pub dirty_objects: u64,
}

impl Stats {
    /// Names and values, for operators: requests as `stats.VERB`.
    pub fn list(&self) -> Vec<(String, u64)> {
        let verbs = Verb::ALL.iter().zip(self.requests);
        let mut all: Vec<_> = verbs.map(|(v, n)| (format!("stats.{}", v.name()), n)).collect();
        let others = [
            ("errors", self.errors),
            ("bytes_read", self.bytes_read),
            ("bytes_written", self.bytes_written),
            ("syncs", self.syncs),
            ("checksums_compared", self.blocks_verified),
            ("checksums_bad", self.blocks_bad),
            ("writes_damaged", self.writes_damaged),
            ("writes_at_once", self.writes_at_once),
            ("reads_past_cache", self.reads_past_cache),
            ("open_objects", self.open_objects),
            ("dirty_objects", self.dirty_objects),
        ];
        all.extend(others.map(|(name, n)| (name.to_string(), n)));
        all
    }
}

#[derive(Default, Debug)]
pub(crate) struct Counters {
    pub(crate) requests: [AtomicU64; 10],
    pub(crate) errors: AtomicU64,
    pub(crate) bytes_read: AtomicU64,
    pub(crate) bytes_written: AtomicU64,
    pub(crate) syncs: AtomicU64,
    pub(crate) blocks_verified: AtomicU64,
    pub(crate) blocks_bad: AtomicU64,
    pub(crate) writes_damaged: AtomicU64,
    pub(crate) writes_at_once: AtomicU64,
    pub(crate) reads_past_cache: AtomicU64,
}

impl Counters {
    pub(crate) fn read(&self) -> Stats {
        let get = |c: &AtomicU64| c.load(Relaxed);
        Stats {
            requests: std::array::from_fn(|i| get(&self.requests[i])),
            errors: get(&self.errors),
            bytes_read: get(&self.bytes_read),
            bytes_written: get(&self.bytes_written),
            syncs: get(&self.syncs),
            blocks_verified: get(&self.blocks_verified),
            blocks_bad: get(&self.blocks_bad),
            writes_damaged: get(&self.writes_damaged),
            writes_at_once: get(&self.writes_at_once),
            reads_past_cache: get(&self.reads_past_cache),
            open_objects: 0,
            dirty_objects: 0,
        }
    }
}

pub(crate) fn add(counter: &AtomicU64, n: u64) {
    counter.fetch_add(n, Relaxed);
}
