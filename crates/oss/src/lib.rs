//! One object storage target: objects are files of a local file system.
//!
//! Role: reads, writes and commits objects named by (FID, component, stripe), with checksums from
//! the wire to the disk and back (invariant 7). Assumptions: one process owns a target's directory
//! (a lock says so) and nobody else changes its files; the local file system is POSIX with
//! `fallocate` and `SEEK_DATA`. Never does: names, directories, leases; it follows no symbolic
//! link and removes nothing it did not make.
//!
//! How checksums survive crashes is told in [`sidecar`], bytes on disk in `docs/format.d/oss.md`.

mod boot;
mod buffer;
mod cache;
pub mod check;
mod device;
pub mod fences;
mod files;
mod flush;
mod io;
mod label;
mod marked;
pub mod name;
mod object;
mod ost;
mod pace;
mod pool;
mod range;
mod service;
mod side;
pub mod sidecar;
mod space;
mod stats;
mod sums;
mod verbs;
mod verifier;

pub use boot::Boot;
pub use label::{LABEL_VERSION, LabelError, OstLabel};
pub use ost::{Ost, OstOptions};
pub use service::OstService;
pub use stats::{Stats, Verb};
pub use verifier::Verifier;

/// Why a target cannot be formatted or opened; the text is for the user.
#[derive(Debug, thiserror::Error)]
pub enum OstError {
    /// The directory cannot be used as asked.
    #[error("{0}")]
    Refused(String),
    /// Another process has it.
    #[error("{path} ({name}) is in use by another process")]
    InUse {
        /// Its directory.
        path: std::path::PathBuf,
        /// `OST0003`.
        name: String,
    },
    /// The label or the boot record is not readable as one.
    #[error("{path}: {why}")]
    Label {
        /// Which file.
        path: std::path::PathBuf,
        /// What is wrong with it.
        why: LabelError,
    },
    /// A record the target keeps beside them is not readable as one.
    #[error("{path}: {why}; {remedy}")]
    Record {
        /// Which file.
        path: std::path::PathBuf,
        /// What is wrong with it.
        why: LabelError,
        /// What to do.
        remedy: &'static str,
    },
    /// The local file system failed.
    #[error("{what}: {error}")]
    Io {
        /// What was tried.
        what: String,
        /// How it failed.
        error: std::io::Error,
    },
}

impl OstError {
    /// Whether another process has the target open.
    pub fn is_in_use(&self) -> bool {
        matches!(self, OstError::InUse { .. })
    }

    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(rustix::io::Errno) -> OstError {
        let what = what.into();
        move |e| OstError::Io { what, error: e.into() }
    }
}
