//! The ordered key-value store a metadata target rests on: the [`Store`] trait and its engines.
//!
//! Role: make groups of writes durable, in order, atomically and only for the one owner whose epoch
//! is current; answer reads; notice when the medium has lost or changed what was acknowledged
//! (invariants 2, 4, 10 and 11). Every commit carries a chained [`CommitRecord`](chain::CommitRecord).
//!
//! Assumptions: one owner per store at a time; callers keep a commit below 5,000 writes and 1 MiB
//! (larger ones are taken up to [`MAX_COMMIT_OPS`] and [`MAX_COMMIT_BYTES`]); keys are unique byte
//! strings ordered as `memcmp` orders them.
//!
//! Never: knows what an inode is, blocks the caller of [`Store::submit`], or reports success before
//! the medium confirmed it.

pub mod chain;
mod committer;
mod error;
pub mod fjall_engine;
pub mod memory;
mod types;

pub use error::StoreError;
pub use types::{
    AcquireInfo, Commit, Done, Key, MAX_COMMIT_BYTES, MAX_COMMIT_OPS, MAX_KEY_BYTES,
    MAX_QUEUED_BYTES, MAX_QUEUED_COMMITS, Snapshot, Store, Usage, Value, Write,
};
