//! What can go wrong in a store, told apart by what the caller must do next.
//!
//! Never: carries a live I/O error; every variant can be cloned so that one failure can answer
//! every commit it concerns.

/// Why a store refused, or what it found. Each message says what happened and what helps.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// Another owner acquired the store after this handle did.
    #[error(
        "this owner (epoch {epoch}) was replaced by epoch {current}; stop serving and acquire the store again"
    )]
    Fenced { epoch: u64, current: u64 },
    /// This handle was closed.
    #[error("the store is closed; acquire it again to use it")]
    Closed,
    /// Another process (or another handle of this one) holds the store.
    #[error("{path} is in use by {owner}; stop that server, or give this one another directory")]
    Busy { path: String, owner: String },
    /// A commit may or may not have happened. The handle takes no further commits.
    #[error("a commit may or may not be durable ({0}); acquire the store again and read `last`")]
    Uncertain(String),
    /// A commit does not start where the previous one ended. Nothing was written.
    #[error("the commit starts after transno {got}, but the store stands at {expected}")]
    Gap { expected: u64, got: u64 },
    /// The store is older than what is known to have been committed to it (invariant 11).
    #[error(
        "the store ends at {found}, but {known} was reported committed: its tail is lost. Bring back the newest copy of its directory or disk; accept the loss only if there is none"
    )]
    RolledBack { known: u64, found: u64 },
    /// Bytes on the medium are not what was written there.
    #[error(
        "the store is damaged: {0}. Check the disk, and restore the directory from a good copy"
    )]
    Corrupt(String),
    /// The store was written by a newer version of this program.
    #[error(
        "{what} has format version {found}, this program knows up to {supported}; use the newer program"
    )]
    Version { what: String, found: u32, supported: u32 },
    /// The file system is too full for a commit that adds data. Nothing was written. `busy`: the
    /// engine is flushing or compacting, which may make room by itself.
    #[error(
        "the file system of the store has {free} bytes free, {reserve} are kept in reserve; delete files or make room there"
    )]
    NoSpace { free: u64, reserve: u64, busy: bool },
    /// Not now. Nothing was written; the same commit may be submitted again.
    #[error("the store cannot take this now ({0}); try again")]
    Retry(String),
    /// The request itself breaks a limit or a rule. Nothing was written.
    #[error("the request is not valid: {0}")]
    Invalid(String),
    /// The operating system refused an operation; nothing is known to be lost.
    #[error("input/output error: {0}")]
    Io(String),
}

impl StoreError {
    /// Whether another process, or handle, has the store open.
    pub fn is_busy(&self) -> bool {
        matches!(self, StoreError::Busy { .. })
    }

    /// An I/O error with what was being done and to what, e.g. `open /srv/mdt0/STORE`.
    pub(crate) fn io(doing: impl std::fmt::Display, e: impl std::fmt::Display) -> Self {
        StoreError::Io(format!("{doing}: {e}"))
    }
}
