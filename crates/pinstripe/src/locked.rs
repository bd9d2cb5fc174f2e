//! A file whose lock says that something is in use by a process, and lets go of it for sure.
//!
//! Assumption: everyone locks the same file with flock(2); the kernel frees the lock when the
//! process ends, however it ends. Never: waits for a lock.

use std::fs::File;

/// A locked file. Unlocked when dropped: closing it would not do, because a process forked
/// meanwhile has it too, until it executes something.
#[derive(Debug)]
pub(crate) struct Locked(File);

impl Locked {
    /// Locks `file` against everybody, or gives it back.
    pub(crate) fn exclusively(file: File) -> Result<Locked, File> {
        if file.try_lock().is_ok() { Ok(Locked(file)) } else { Err(file) }
    }

    /// Locks `file` against those who want it for themselves, or gives it back.
    pub(crate) fn shared(file: File) -> Result<Locked, File> {
        if file.try_lock_shared().is_ok() { Ok(Locked(file)) } else { Err(file) }
    }

    /// The file.
    pub(crate) fn file(&self) -> &File {
        &self.0
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        if let Err(e) = self.0.unlock() {
            tracing::warn!(error = %e, "a lock cannot be released");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As a process has it between fork(2) and execve(2).
    #[test]
    fn what_has_the_file_too_does_not_keep_it_locked() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let open = || File::open(file.path()).unwrap();
        for lock in [Locked::exclusively, Locked::shared] {
            let locked = lock(open()).unwrap();
            let _forked = locked.file().try_clone().unwrap();
            assert!(Locked::exclusively(open()).is_err());
            drop(locked);
            assert!(Locked::exclusively(open()).is_ok());
        }
    }
}
