//! Counting messages without locks on the hot path.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;
use proto::mds::Op;

/// Kinds of messages to an OST.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Read,
    Write,
    Commit,
    Punch,
    Glimpse,
    Statfs,
    Seek,
    Allocate,
}

const KINDS: [(Kind, &str); 8] = [
    (Kind::Read, "read"),
    (Kind::Write, "write"),
    (Kind::Commit, "commit"),
    (Kind::Punch, "punch"),
    (Kind::Glimpse, "glimpse"),
    (Kind::Statfs, "statfs"),
    (Kind::Seek, "seek"),
    (Kind::Allocate, "allocate"),
];

/// Shared by everything that sends.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    /// A session uses few verbs: side by side they are in one place.
    mds_ops: Mutex<Vec<(&'static str, u64)>>,
    pub(crate) mds_messages: AtomicU64,
    pub(crate) recalls: AtomicU64,
    oss: [AtomicU64; KINDS.len()],
    pub(crate) bytes_written: AtomicU64,
    pub(crate) bytes_read: AtomicU64,
}

impl Counters {
    pub(crate) fn compound(&self, ops: &[Op]) {
        self.mds_messages.fetch_add(1, Relaxed);
        let mut by_verb = self.mds_ops.lock();
        for op in ops {
            match by_verb.iter_mut().find(|(verb, _)| *verb == op.verb()) {
                Some((_, count)) => *count += 1,
                None => by_verb.push((op.verb(), 1)),
            }
        }
    }

    pub(crate) fn ost(&self, kind: Kind) {
        self.oss[kind as usize].fetch_add(1, Relaxed);
    }

    /// Messages so far that may have changed what is free on an OST.
    pub(crate) fn space_changes(&self) -> u64 {
        let changing = [Kind::Write, Kind::Commit, Kind::Punch, Kind::Allocate];
        changing.iter().map(|kind| self.oss[*kind as usize].load(Relaxed)).sum()
    }

    pub(crate) fn fill(&self, stats: &mut crate::Stats) {
        stats.mds_ops = self.mds_ops.lock().iter().copied().collect();
        stats.mds_messages = self.mds_messages.load(Relaxed);
        stats.recalls = self.recalls.load(Relaxed);
        for (kind, name) in KINDS {
            stats.oss_messages.insert(name, self.oss[kind as usize].load(Relaxed));
        }
        stats.bytes_written = self.bytes_written.load(Relaxed);
        stats.bytes_read = self.bytes_read.load(Relaxed);
    }
}
