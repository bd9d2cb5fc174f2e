//! A disk that forgets: a FUSE mirror of a directory that journals every change with its sync
//! barriers, and rebuilds from the journal what a power cut at any point would have left.
//!
//! ```text
//! pinstripe-lab forgetful mount --backing DIR --mountpoint MNT --journal FILE [--seq-file FILE]
//!     # in the foreground until MNT is unmounted, SIGINT or SIGTERM
//! pinstripe-lab forgetful info --journal FILE [--json]      # operations, where syncs are
//! pinstripe-lab forgetful cut --journal FILE --at K [--seed S] --out NEWDIR
//! ```
//! From code: [`mount`], [`Journal::read`], [`cut`]. Put a whole data directory on MNT, run a
//! workload, then cut as often as you like: `--at K` is the number of operations that reached the
//! disk's cache (0..=info's `operations`; `info` lists the sync points), `--seed` lets a random part
//! of what was not synced arrive too, torn at 512 or 4,096 bytes. Without a seed nothing unsynced
//! arrives. The seq file holds K so far as 8 little-endian bytes, for `durable-write --seq-file`.
//!
//! The rules (ext4 `data=ordered`, `noauto_da_alloc`, at its worst): any fsync, fdatasync, fsync of
//! a directory or O_SYNC/O_DSYNC write makes all earlier namespace and attribute changes durable,
//! in order, but the data of that file only. So a rename can be durable while the renamed file's
//! data is lost: then the file is there, and empty or short. Data written after the last durable
//! metadata change can arrive only inside the file's durable size.
//!
//! Not forwarded by the kernel to FUSE file systems and so without effect here: syncfs, sync,
//! sync_file_range. Locks are the kernel's own and local.

mod choose;
mod convert;
mod image;
mod journal;
mod mirror;
mod nodes;
mod start;

pub use choose::{Choice, choose};
pub use image::{CutReport, cut, everything};
pub use journal::{Entry, JOURNAL_VERSION, Journal, Recorder};
pub use start::{Mounted, Options, mount};
#[cfg(test)]
mod tests;
