//! The client of a Pinstripe file system: sessions to all targets, caches under leases, striped I/O
//! with write-behind and read-ahead.
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

mod ages;
mod ahead;
mod atime;
mod attrs;
mod awaited;
mod behind;
mod budget;
mod client;
mod commit;
mod config;
mod connect;
mod core;
mod counters;
mod cut;
mod events;
mod evicted;
mod fetch_ahead;
mod file;
mod filling;
mod gather;
mod giving;
mod inode;
mod lane;
mod late;
mod leases;
mod listener;
mod load;
mod local;
mod lockahead;
mod locks;
mod looks;
mod mdt;
mod meta;
mod names;
mod opening;
mod ost;
mod owned;
mod pauses;
mod promises;
mod push;
mod ranges;
pub mod raw;
mod read;
mod registry;
mod resize;
mod senders;
mod slab;
mod small;
mod space;
mod stats;
mod stride;
mod talk;
mod tell;
mod types;
mod vouch;
mod watch;
mod wb;
mod worker;
mod write;

pub use client::Client;
pub use config::{Atime, CACHED_INODES, ClientConfig, ClientError, Mgs, Options};
pub use file::{Data, FallocMode, OpenFile, OpenFlags, Whence};
pub use listener::Listener;
pub use locks::{CancelToken, F_RDLCK, F_UNLCK, F_WRLCK};
pub use net::place::Place;
pub use pauses::Pauses;
pub use promises::Caller;
pub use stats::Stats;
pub use types::{Created, Dir, LayoutInfo, Offer, Space};
