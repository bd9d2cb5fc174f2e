//! The files that make a directory a store: `STORE` (what it is, and the lock) and `OWNER`.
//!
//! Assumption: everyone who opens the store locks `STORE` first; the kernel frees the lock when the
//! process ends, however it ends. Never: waits for a lock.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use crate::StoreError;

/// Bytes of the `STORE` file.
pub const IDENTITY_BYTES: usize = 32;
/// Newest layout of the directory this code writes and reads.
pub const STORE_VERSION: u16 = 1;

const MAGIC: &[u8; 8] = b"PSSTORE\0";
const ENGINE_FJALL: u8 = 1;
const OWNER_MAX: u64 = 256;

/// The bytes of a `STORE` file.
pub fn encode() -> [u8; IDENTITY_BYTES] {
    let mut b = [0u8; IDENTITY_BYTES];
    b[0..8].copy_from_slice(MAGIC);
    b[8..10].copy_from_slice(&STORE_VERSION.to_le_bytes());
    b[10] = ENGINE_FJALL;
    let crc = crc32c::crc32c(&b[..28]);
    b[28..32].copy_from_slice(&crc.to_le_bytes());
    b
}

/// Checks the bytes of a `STORE` file; `what` names it in errors.
pub fn check(bytes: &[u8], what: &str) -> Result<(), StoreError> {
    let corrupt = |why: &str| Err(StoreError::Corrupt(format!("{what}: {why}")));
    let Ok(b) = <&[u8; IDENTITY_BYTES]>::try_from(bytes) else {
        return corrupt("wrong length");
    };
    if &b[0..8] != MAGIC {
        return corrupt("not the identity of a store");
    }
    let version = u16::from_le_bytes([b[8], b[9]]);
    if version > STORE_VERSION {
        return Err(StoreError::Version {
            what: what.to_string(),
            found: version.into(),
            supported: STORE_VERSION.into(),
        });
    }
    if crc32c::crc32c(&b[..28]).to_le_bytes() != b[28..32] {
        return corrupt("its checksum does not match");
    }
    if version == 0 || b[10] != ENGINE_FJALL {
        return corrupt("unknown version or engine");
    }
    Ok(())
}

/// What a directory is, and the lock.
pub(super) const STORE: &str = "STORE";

/// The exclusive lock on a store directory, held while this lives.
pub(super) struct DirLock {
    file: File,
}

/// Closing the file would not do: a process forked meanwhile has it too, until it executes
/// something.
impl Drop for DirLock {
    fn drop(&mut self) {
        if let Err(e) = flock(&self.file, FlockOperation::Unlock) {
            tracing::warn!(error = %e, "the lock on a store cannot be released");
        }
    }
}

/// The file in a store's directory that is locked by whoever has it open.
pub fn lock_file(dir: &Path) -> PathBuf {
    dir.join(STORE)
}

/// Locks the store in `dir` and checks what it is.
pub(super) fn lock(dir: &Path, owner: &str) -> Result<DirLock, StoreError> {
    let path = lock_file(dir);
    let file = match OpenOptions::new().read(true).open(&path) {
        Ok(file) => file,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Err(no_store(dir)),
        Err(e) => return Err(StoreError::io(format!("open {}", path.display()), e)),
    };
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(e) if e == rustix::io::Errno::WOULDBLOCK => {
            return Err(StoreError::Busy {
                path: dir.display().to_string(),
                owner: read_owner(dir),
            });
        }
        Err(e) => return Err(StoreError::io(format!("lock {}", path.display()), e)),
    }
    let lock = DirLock { file };
    let mut bytes = Vec::new();
    (&lock.file)
        .take(IDENTITY_BYTES as u64 + 1)
        .read_to_end(&mut bytes)
        .map_err(|e| StoreError::io(format!("read {}", path.display()), e))?;
    check(&bytes, &path.display().to_string())?;
    // Only tells people who holds the lock, so a failure to write it is no failure.
    let note = format!("{owner} (pid {})\n", std::process::id());
    if let Err(e) = fs::write(dir.join("OWNER"), note) {
        tracing::warn!(dir = %dir.display(), error = %e, "cannot write OWNER");
    }
    Ok(lock)
}

fn no_store(dir: &Path) -> StoreError {
    let dir_name = dir.display();
    if dir.join("fjall").exists() {
        return StoreError::Corrupt(format!(
            "{dir_name} has a database but no STORE file: it was never finished being formatted \
             (then empty it and format it again), or the file was lost"
        ));
    }
    StoreError::Invalid(format!("{dir_name} holds no store; format it first"))
}

fn read_owner(dir: &Path) -> String {
    let mut text = String::new();
    let read = File::open(dir.join("OWNER"))
        .and_then(|f| f.take(OWNER_MAX).read_to_string(&mut text).map(|_| ()));
    match (read, text.trim()) {
        (Ok(()), owner) if !owner.is_empty() => owner.to_string(),
        _ => "another process".to_string(),
    }
}

/// Writes a new file durably, or not at all: temporary name, sync, rename, sync of the directory.
pub(super) fn write_new(dir: &Path, name: &str, bytes: &[u8]) -> Result<(), StoreError> {
    let path = dir.join(name);
    let temporary = dir.join(format!("{name}.new"));
    let write = || -> std::io::Result<()> {
        let mut file = File::create(&temporary)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&temporary, &path)?;
        File::open(dir)?.sync_all()
    };
    write().map_err(|e| StoreError::io(format!("write {}", path.display()), e))
}
