//! Counters of messages and bytes.

use std::collections::BTreeMap;

/// What the client sent and received since it started.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Messages to the MDTs by operation; a compound counts each of its operations.
    pub mds_ops: BTreeMap<&'static str, u64>,
    /// Messages to MDTs (compounds).
    pub mds_messages: u64,
    /// Messages to the OSTs by kind (`read`, `write`, `commit`, ...).
    pub oss_messages: BTreeMap<&'static str, u64>,
    /// Bytes written to OSTs.
    pub bytes_written: u64,
    /// Bytes read from OSTs.
    pub bytes_read: u64,
    /// Bytes written and not yet taken by an OST.
    pub dirty_bytes: u64,
    /// Bytes taken by an OST and not yet committed.
    pub uncommitted_bytes: u64,
    /// Bytes held by read-ahead.
    pub read_ahead_bytes: u64,
    /// Operations done here that wait to be sent to the MDT.
    pub waiting_ops: u64,
    /// Answers of the MDT to such operations that were not as foreseen: defects.
    pub surprises: u64,
    /// Inodes with leases.
    pub leases: u64,
    /// Call-backs that were answered: of leases, and those that tell of others' reads.
    pub recalls: u64,
    /// Files with state in memory.
    pub inodes: u64,
}
