//! How far a job has come, in a file: the run that finishes an interrupted one (`--resume`) reads it.
//!
//! Records are appended with one write(2) each, before what they announce and after what they tell of, so
//! that a process that is killed at any moment leaves a journal that says no more than is true. From time
//! to time everything is synced and a record says so: that is what counts after the machine itself has
//! stopped. Never reads or writes what is copied.

pub mod record;
pub mod replay;

use crate::gnu::{diag, quote};
use parking_lot::{Condvar, Mutex};
use record::{Header, RECORD, Record, Wrong};
use replay::Known;
use rustix::fs::{FlockOperation, OFlags, flock};
use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::OnceLock;
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

/// Between two records that what came before is on the disk.
pub const SYNC_PERIOD: Duration = Duration::from_secs(15);
/// File systems that are synced; what lies on more of them counts as not synced.
pub const DEVICES_MAX: usize = 64;

/// Looks for a lock to go, and the time between them.
pub const LOCK_TRIES: usize = 100;
pub const LOCK_PERIOD: Duration = Duration::from_millis(10);

/// What this job did before, and the file that gets what it does now.
pub struct Journal {
    file: File,
    path: PathBuf,
    known: Known,
    shared: Arc<Shared>,
    syncing: Option<JoinHandle<()>>,
    lasting: bool,
}

struct Shared {
    /// A directory on each device that is written to; None: there were too many.
    devices: Mutex<Option<HashMap<u64, File>>>,
    ended: Mutex<bool>,
    end: Condvar,
    /// The first record that could not be written.
    broken: OnceLock<io::Error>,
    /// The first file system that could not be synced. It tells only once what it has lost, so nothing
    /// of this run may be called synced from then on.
    lost: OnceLock<io::Error>,
}

impl Journal {
    /// Opens the journal of the command with this digest, or begins one. `lasting`: what is written to the
    /// destination outlives the process that wrote it, because this system itself keeps it. An error is a
    /// message that names the file and the remedy.
    pub fn open(path: &Path, command: [u8; 32], lasting: bool) -> Result<Self, String> {
        let shown = quote::always(path);
        let failed = |e: io::Error| format!("journal {shown}: {}", diag::reason(&e));
        let mut file = OpenOptions::new()
            .read(true)
            .append(true)
            .create(true)
            .mode(0o600)
            .custom_flags((OFlags::CLOEXEC | OFlags::NOFOLLOW).bits() as i32)
            .open(path)
            .map_err(failed)?;
        lock(&file).map_err(|e| match e {
            rustix::io::Errno::WOULDBLOCK => {
                format!("journal {shown} is used by another mcp: wait for it, or end it")
            }
            e => failed(e.into()),
        })?;
        let boot = boot();
        let known = read(&mut file, command, boot, lasting).map_err(|e| match e {
            Unread::Failed(e) => failed(e),
            Unread::Other(why) => format!("journal {shown} {why}"),
        })?;
        let shared = Arc::new(Shared {
            devices: Mutex::new(Some(HashMap::new())),
            ended: Mutex::new(false),
            end: Condvar::new(),
            broken: OnceLock::new(),
            lost: OnceLock::new(),
        });
        let syncing = {
            let (file, shared) = (file.try_clone().map_err(failed)?, shared.clone());
            let thread = std::thread::Builder::new().name("journal".into());
            // Without it a reboot costs more, nothing else.
            thread.spawn(move || sync_now_and_then(&file, &shared)).ok()
        };
        let journal = Self { file, path: path.into(), known, shared, syncing, lasting };
        let at = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let at = at.map_or(0, |since| since.as_secs());
        journal.write(&Record::Run { boot, at, pid: std::process::id().into() });
        journal.whole().map_err(|e| format!("journal {shown}: {}", diag::reason(e)))?;
        Ok(journal)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What earlier runs did.
    pub fn known(&self) -> &Known {
        &self.known
    }

    /// Appends a record. A failure is kept: whoever is about to do what cannot be recorded asks
    /// [`Self::whole`] before.
    pub fn write(&self, record: &Record) {
        if let Err(e) = (&self.file).write(&record.encode()).and_then(whole_record) {
            let _ = self.shared.broken.set(e);
        }
    }

    /// An error when a record could not be written.
    pub fn whole(&self) -> Result<(), &io::Error> {
        self.shared.broken.get().map_or(Ok(()), Err)
    }

    /// Files are written on this device; `dir` lies on it.
    pub fn note_device(&self, dev: u64, dir: &Path) {
        let mut devices = self.shared.devices.lock();
        let Some(known) = &mut *devices else { return };
        if known.contains_key(&dev) {
            return;
        }
        match File::open(dir) {
            Ok(dir) if known.len() < DEVICES_MAX => {
                known.insert(dev, dir);
            }
            // What cannot be synced must not be called synced.
            _ => *devices = None,
        }
    }

    /// Sees to it that what was copied stays, where others than this system keep it: they may have lost
    /// what they had taken, and tell of it only now. After an error the next run does it again.
    pub fn settle(&self) -> Result<(), &io::Error> {
        if self.lasting {
            return Ok(());
        }
        sync(&self.file, &self.shared);
        self.shared.lost.get().map_or(Ok(()), Err)
    }

    /// The job is complete: nobody needs the journal any more.
    pub fn complete(&self) -> io::Result<()> {
        std::fs::remove_file(&self.path)
    }

    /// The job goes on another time, perhaps after a reboot.
    pub fn keep(&self) {
        sync(&self.file, &self.shared);
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        *self.shared.ended.lock() = true;
        self.shared.end.notify_all();
        if let Some(thread) = self.syncing.take() {
            // A panic there has cost a record that may be missing.
            let _ = thread.join();
        }
    }
}

/// A lock whose holder was just killed may go a moment after him (FUSE).
fn lock(file: &File) -> rustix::io::Result<()> {
    for _ in 0..LOCK_TRIES {
        match flock(file, FlockOperation::NonBlockingLockExclusive) {
            Err(rustix::io::Errno::WOULDBLOCK) => std::thread::sleep(LOCK_PERIOD),
            result => return result,
        }
    }
    Err(rustix::io::Errno::WOULDBLOCK)
}

fn whole_record(n: usize) -> io::Result<()> {
    if n == RECORD { Ok(()) } else { Err(rustix::io::Errno::NOSPC.into()) }
}

enum Unread {
    Failed(io::Error),
    /// It is no journal of this command.
    Other(String),
}

/// What the file says; what is behind its last whole record is cut off, a new file gets its header.
fn read(
    file: &mut File,
    command: [u8; 32],
    boot: [u8; 16],
    lasting: bool,
) -> Result<Known, Unread> {
    let mut header = [0; RECORD];
    let length = file.metadata().map_err(Unread::Failed)?.len();
    if length < RECORD as u64 {
        // Only what was killed at its very beginning leaves less than a header.
        let mut begun = Vec::new();
        file.read_to_end(&mut begun).map_err(Unread::Failed)?;
        let ours = Header { command }.encode();
        if !ours.starts_with(&begun) {
            return Err(Unread::Other(foreign()));
        }
        file.set_len(0).map_err(Unread::Failed)?;
        file.write_all(&ours).map_err(Unread::Failed)?;
        return Ok(Known::default());
    }
    file.read_exact(&mut header).map_err(Unread::Failed)?;
    match Header::decode(&header) {
        Ok(found) if found.command == command => {}
        Ok(_) => {
            return Err(Unread::Other(
                "belongs to another command: give the same operands and options in the same directory, or \
                 another journal"
                    .into(),
            ));
        }
        Err(Wrong::Header) => return Err(Unread::Other(foreign())),
        Err(Wrong::Version(version)) => {
            return Err(Unread::Other(format!(
                "has version {version}, this mcp knows {}: finish the job with the mcp that began it",
                record::VERSION
            )));
        }
    }
    let records = || {
        let mut file: &File = file;
        // A place that cannot be had reads as nothing, and the job begins anew.
        let begin = file.seek(SeekFrom::Start(RECORD as u64)).is_ok();
        replay::records(BufReader::new(file.take(if begin { u64::MAX } else { 0 })))
    };
    let known = replay::replay(records, boot, lasting);
    file.set_len(RECORD as u64 * (1 + known.records)).map_err(Unread::Failed)?;
    Ok(known)
}

fn foreign() -> String {
    "is no journal of mcp and is left alone: give another name".into()
}

/// The identity of this boot; all zeros where the system does not tell.
fn boot() -> [u8; 16] {
    let mut id = [0; 16];
    if let Ok(text) = std::fs::read_to_string("/proc/sys/kernel/random/boot_id") {
        let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
        for (byte, pair) in id.iter_mut().zip(digits.chunks_exact(2)) {
            let pair = std::str::from_utf8(pair).unwrap_or("0");
            *byte = u8::from_str_radix(pair, 16).unwrap_or(0);
        }
    }
    id
}

fn sync_now_and_then(file: &File, shared: &Shared) {
    let mut ended = shared.ended.lock();
    while !*ended {
        let waited = shared.end.wait_for(&mut ended, SYNC_PERIOD);
        if waited.timed_out() && !*ended {
            parking_lot::MutexGuard::unlocked(&mut ended, || sync(file, shared));
        }
    }
}

/// Everything that the records so far tell of goes to the disk, then the record that says so.
fn sync(mut file: &File, shared: &Shared) {
    let Ok(length) = file.metadata().map(|m| m.len()) else { return };
    let dirs: Option<Vec<File>> = {
        let devices = shared.devices.lock();
        devices.as_ref().and_then(|known| known.values().map(|dir| dir.try_clone().ok()).collect())
    };
    let Some(dirs) = dirs else { return };
    for dir in dirs {
        if let Err(e) = rustix::fs::syncfs(dir) {
            let _ = shared.lost.set(e.into());
        }
    }
    if shared.lost.get().is_some() {
        return;
    }
    let records = (length / RECORD as u64).saturating_sub(1);
    let written = file.write(&Record::Synced { records }.encode()).and_then(whole_record);
    if let Err(e) = written.and_then(|()| file.sync_data()) {
        let _ = shared.broken.set(e);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: record::Key = [7; 16];

    #[test]
    fn after_a_sync_that_failed_nothing_is_called_synced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal");
        let stage = |known: &Known| known.files.get(&KEY).map(|entry| entry.stage);
        for fails in [true, false] {
            let journal = Journal::open(&path, [1; 32], false).unwrap();
            let (version, operand, new, kept) = (5, 1, true, false);
            journal.write(&Record::Begun { key: KEY, version, operand, new, kept });
            journal.write(&Record::Made { key: KEY, ino: 12, perm: 0o644 });
            journal.write(&Record::Done { key: KEY, version, ino: 12 });
            if fails {
                // syncfs(2) says EBADF of it.
                let flags = OFlags::PATH | OFlags::CLOEXEC;
                let dir = rustix::fs::open(dir.path(), flags, rustix::fs::Mode::empty()).unwrap();
                journal.shared.devices.lock().as_mut().unwrap().insert(1, dir.into());
                assert!(journal.settle().is_err());
                // Told once, as a mount that has lost something does.
                journal.shared.devices.lock().as_mut().unwrap().clear();
            }
            journal.note_device(2, dir.path());
            assert_eq!(journal.settle().is_err(), fails);
            drop(journal);
            let known = Journal::open(&path, [1; 32], false).unwrap();
            let wanted = if fails { replay::Stage::Made } else { replay::Stage::Done };
            assert_eq!(stage(known.known()), Some(wanted));
        }
    }
}
