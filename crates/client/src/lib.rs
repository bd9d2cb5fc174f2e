//! The client of a Pinstripe file system: sessions to all targets, caches under the SOLE lease,
//! striped I/O with write-behind and read-ahead.
//!
//! Role: a synchronous, thread-safe file API by FID; every method may be called from any thread.
//! Assumptions: one process has one [`Client`] per mounted file system. Never does: know FUSE,
//! paths (but for the mounted sub-directory), or block a transport thread.
//!
//! Locks, in the order they may be taken (a later one never while waiting for an earlier one):
//! 1. `Inode::io` (shared by reads and writes of one file, exclusive for what moves or cuts its
//!    data); held over RPCs of that file only.
//! 2. `Registry` shards: held for a look-up, never over an RPC.
//! 3. `Inode::st`: the in-memory state of one file; never held over an RPC.
//! 4. leaves: budget, OST permits, lock table, statistics.

mod config;
mod file;
mod listener;
mod locks;
mod meta;
pub mod raw;
mod stats;

pub use config::{Atime, ClientConfig, ClientError, Options};
pub use file::{Data, FallocMode, OpenFile, OpenFlags, Whence};
pub use listener::Listener;
pub use locks::CancelToken;
pub use meta::{Client, Created, Dir, LayoutInfo, Space};
pub use stats::Stats;
