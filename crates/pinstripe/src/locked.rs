//! A file whose lock says that something is in use by a process, and lets go of it for sure.
//!
//! Assumption: everyone locks the same file with flock(2); the kernel frees the lock when the
//! process ends, however it ends. One that was killed ends thread by thread, and the last lets go: where the file names it,
//! that is waited for. Never: waits for a process that runs.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use crate::process;

/// How long the threads of a killed process are waited for.
const ENDS_WITHIN: Duration = Duration::from_secs(15);

/// A locked file. Unlocked when dropped: closing it would not do, because a process forked
/// meanwhile has it too, until it executes something.
#[derive(Debug)]
pub(crate) struct Locked(File);

impl Locked {
    /// Locks `file` against everybody, or gives it back.
    pub(crate) fn exclusively(file: File) -> Result<Locked, File> {
        take(file, |file| file.try_lock().is_ok())
    }

    /// Locks `file` against those who want it for themselves, or gives it back.
    pub(crate) fn shared(file: File) -> Result<Locked, File> {
        take(file, |file| file.try_lock_shared().is_ok())
    }

    /// The file.
    pub(crate) fn file(&self) -> &File {
        &self.0
    }
}

fn take(file: File, lock: impl Fn(&File) -> bool) -> Result<Locked, File> {
    let ended = || holder(&file).is_some_and(|pid| process::ends_within(pid, ENDS_WITHIN));
    if lock(&file) || (ended() && lock(&file)) { Ok(Locked(file)) } else { Err(file) }
}

/// The process that the file names.
fn holder(file: &File) -> Option<u32> {
    let mut text = [0; 16];
    let length = file.read_at(&mut text, 0).ok()?;
    std::str::from_utf8(&text[..length]).ok()?.lines().next()?.trim().parse().ok()
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

    #[test]
    fn who_was_killed_is_waited_for_and_who_runs_is_not() -> std::io::Result<()> {
        let file = tempfile::NamedTempFile::new()?;
        let open = || File::options().read(true).write(true).open(file.path());
        let held = open()?;
        held.lock()?;
        // The lock is the child's alone.
        let mut child = std::process::Command::new("sleep").arg("1000").stdin(held).spawn()?;
        open()?.write_at(format!("{}\n", child.id()).as_bytes(), 0)?;
        assert_eq!(holder(&open()?), Some(child.id()));
        let taken = [Locked::exclusively(open()?), Locked::shared(open()?)].map(|l| l.is_ok());
        assert_eq!(taken, [false, false]);
        child.kill()?;
        child.wait()?;
        assert!(Locked::exclusively(open()?).is_ok());
        Ok(())
    }
}
