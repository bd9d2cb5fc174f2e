//! A file whose lock says that something is in use by a process, and lets go of it for sure; and patience with who was
//! killed.
//!
//! Assumption: everyone locks the same file with flock(2); the kernel frees the lock when the process ends, however it
//! ends. One that was killed ends thread by thread, and the last lets go: where it is known who that is, that is waited
//! for, so that a server may be started at once after the one before it was killed, and a mount taken away after those
//! who worked in it were. Never: waits long for a process that runs.

use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::time::Duration;

use crate::process;

/// How long the threads of killed processes are waited for.
const ENDS_WITHIN: Duration = Duration::from_secs(15);
/// As long a process may look as if it ran that was killed just now.
const GRACE: Duration = Duration::from_millis(250);
/// How long that is tried whose user cannot be told, and the pause between two tries.
const UNKNOWN: Duration = Duration::from_secs(2);
const AGAIN: Duration = Duration::from_millis(20);

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
    let attempt = || if lock(&file) { Ok(()) } else { Err(()) };
    let locked = patiently(|| holders(&file), |()| true, attempt);
    if locked.is_ok() { Ok(Locked(file)) } else { Err(file) }
}

/// As [`patiently`], where what is opened is in use while `lock` is locked.
pub(crate) fn opens<T, E>(
    lock: &Path,
    in_use: impl Fn(&E) -> bool,
    mut open: impl FnMut() -> Result<T, E>,
) -> Result<T, E> {
    match File::open(lock) {
        Ok(file) => patiently(|| holders(&file), in_use, open),
        // What cannot be opened has its own words for that.
        Err(_) => open(),
    }
}

/// Tries again what is refused as `in_use`, while those who use it (`users`, as far as it is known) are ending, as they
/// were killed, and for a moment while nobody is known to.
pub(crate) fn patiently<T, E>(
    users: impl Fn() -> Vec<u32>,
    in_use: impl Fn(&E) -> bool,
    mut attempt: impl FnMut() -> Result<T, E>,
) -> Result<T, E> {
    let mut paused = Duration::ZERO;
    loop {
        let refused = match attempt() {
            Err(e) if in_use(&e) => e,
            other => return other,
        };
        let mut users = users();
        users.retain(|pid| !process::ends_within(*pid, Duration::ZERO, Duration::ZERO));
        if paused >= UNKNOWN || !users.iter().all(|pid| let_go(*pid)) {
            return Err(refused);
        }
        if users.is_empty() {
            // Nobody tells when it is free.
            std::thread::sleep(AGAIN);
            paused += AGAIN;
        }
    }
}

/// Who has what `lock` belongs to in use, to be put behind words that say so: ` (pid 12)`, or nothing where it is not known.
pub(crate) fn user(lock: &Path) -> String {
    let holders = File::open(lock).map(|file| holders(&file)).unwrap_or_default();
    holders.first().map(|pid| format!(" (pid {pid})")).unwrap_or_default()
}

/// Whether a process has ended, which is waited for where it was killed.
fn let_go(pid: u32) -> bool {
    pid != std::process::id() && process::ends_within(pid, ENDS_WITHIN, GRACE)
}

/// The processes that have `file` locked, as far as can be told: those the kernel names, or else the one that the file
/// names itself (where it lies on layers, or in a file system of its own kind, the kernel knows it by other numbers).
fn holders(file: &File) -> Vec<u32> {
    let locks = std::fs::read_to_string("/proc/locks").unwrap_or_default();
    let found = file.metadata().map(|m| locked(&locks, m.dev(), m.ino())).unwrap_or_default();
    if found.is_empty() { named(file).into_iter().collect() } else { found }
}

/// Those who have a file locked with flock(2), in what proc_locks(5) describes.
fn locked(locks: &str, dev: u64, ino: u64) -> Vec<u32> {
    let (major, minor) = (rustix::fs::major(dev), rustix::fs::minor(dev));
    let file = format!("{major:02x}:{minor:02x}:{ino}");
    let owner = |line: &str| {
        let mut words = line.split_whitespace().skip(1);
        let flock = words.next() == Some("FLOCK");
        let pid = words.nth(2)?.parse().ok()?;
        (flock && words.next() == Some(&*file)).then_some(pid)
    };
    locks.lines().filter_map(owner).collect()
}

/// The process that a file names.
fn named(file: &File) -> Option<u32> {
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
    use std::process::{Child, Command};
    use std::time::Instant;

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

    /// A process that locks a file and runs on, until this is dropped.
    struct Holder(Child);

    impl Holder {
        fn of(path: &Path) -> std::io::Result<Holder> {
            let mut lock = Command::new("flock");
            let holder = lock.arg("--no-fork").arg(path).args(["sleep", "1000"]).spawn();
            let holder = Holder(holder?);
            let file = File::open(path)?;
            let end = Instant::now() + Duration::from_secs(60);
            while holders(&file) != [holder.0.id()] && Instant::now() < end {
                std::thread::yield_now();
            }
            Ok(holder)
        }
    }

    impl Drop for Holder {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    #[test]
    fn who_was_killed_is_waited_for_and_who_runs_is_not() -> std::io::Result<()> {
        let file = tempfile::NamedTempFile::new()?;
        let open = || File::open(file.path());
        for lock in [Locked::exclusively, Locked::shared] {
            let mut holder = Holder::of(file.path())?;
            assert_eq!(holders(&open()?), [holder.0.id()]);
            assert!(lock(open()?).is_err(), "it runs");
            holder.0.kill()?;
            // At once: it may not have begun to end.
            assert!(lock(open()?).is_ok());
        }
        Ok(())
    }

    #[test]
    fn what_is_refused_for_another_reason_is_not_tried_again() -> std::io::Result<()> {
        let file = tempfile::NamedTempFile::new()?;
        let in_use = |why: &&str| *why == "in use";
        for lock in [file.path(), Path::new("/nonexistent/lock")] {
            let mut tries = 0;
            let damaged = || {
                tries += 1;
                Err::<(), _>("damaged")
            };
            assert_eq!(opens(lock, in_use, damaged), Err("damaged"));
            assert_eq!(tries, 1);
        }
        Ok(())
    }

    /// Nobody is known to have it, or the one that is named has ended: it may be free any moment, and is tried a few times.
    #[test]
    fn who_is_not_known_is_given_a_moment() -> std::io::Result<()> {
        let mut ended = Command::new("true").spawn()?;
        ended.wait()?;
        for named in [String::new(), format!("{}\n", ended.id())] {
            let file = tempfile::NamedTempFile::new()?;
            file.as_file().write_at(named.as_bytes(), 0)?;
            let mut tries = 0;
            let free_at = |last: u32| {
                move |tries: &mut u32| {
                    *tries += 1;
                    if *tries < last { Err("in use") } else { Ok(()) }
                }
            };
            assert_eq!(opens(file.path(), |_| true, || free_at(3)(&mut tries)), Ok(()));
            assert_eq!(tries, 3);
            tries = 0;
            let never = opens(file.path(), |_| true, || free_at(u32::MAX)(&mut tries));
            assert_eq!(never, Err("in use"));
            let most = UNKNOWN.as_millis() / AGAIN.as_millis() + 1;
            assert!(u128::from(tries) <= most, "{tries} tries, at most {most}");
        }
        Ok(())
    }

    #[test]
    fn owners_of_locks_are_found() {
        let locks = "1: FLOCK  ADVISORY  WRITE 9370 fe:00:1868007 0 EOF\n\
                     2: POSIX  ADVISORY  WRITE 11 fe:00:1868007 0 EOF\n\
                     2: -> FLOCK  ADVISORY  WRITE 12 fe:00:1868007 0 EOF\n\
                     3: FLOCK  ADVISORY  READ  13 fe:00:1868007 0 EOF\n\
                     4: FLOCK  ADVISORY  WRITE 14 fe:01:1868007 0 EOF\n\
                     5: FLOCK  ADVISORY  WRITE 15 fe:00:186800 0 EOF\nnonsense\n";
        let dev = rustix::fs::makedev(0xfe, 0);
        assert_eq!(locked(locks, dev, 1_868_007), [9370, 13]);
        assert_eq!(locked(locks, dev, 1), Vec::<u32>::new());
    }

    #[test]
    fn files_may_name_who_has_them() -> std::io::Result<()> {
        let file = tempfile::NamedTempFile::new()?;
        file.as_file().write_at(b"4711\n", 0)?;
        assert_eq!(holders(file.as_file()), [4711]);
        file.as_file().write_at(b"PSTLABEL\x01", 0)?;
        assert_eq!(holders(file.as_file()), Vec::<u32>::new());
        Ok(())
    }
}
