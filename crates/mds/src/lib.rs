//! The metadata server: namespace, leases, transaction numbers, group commit.
//!
//! Role: one metadata target (MDT) as a [`net::Service`] over a [`store::Store`]. Assumptions: a
//! mount that proved the cluster key enforces permissions in its kernel (as NFS with `sec=sys`).
//! Never knows: FUSE, paths of a mount, bytes of striped files.
//!
//! Rooms: `keys` and `record` (what is stored), `cache` and `txn` (what is in memory, one
//! operation), `hot` (records that change all the time), `ops` (a verb each), `opens`, `locks`, `leases`, `osts` (state beside the namespace),
//! `server` (sessions, order, commits), `label` and `format` (what makes a directory a target), `check` (a stopped target).

pub mod cache;
pub mod check;
mod format;
pub mod hot;
pub mod keys;
pub mod label;
pub mod leases;
pub mod locks;
pub mod namespace;
pub mod opens;
mod ops;
pub mod options;
pub mod osts;
pub mod record;
mod server;
pub mod txn;

pub use label::{LabelError, MdtLabel};
pub use options::{Clock, MdtOptions, SystemClock};
pub use server::{Mdt, MdtError};
