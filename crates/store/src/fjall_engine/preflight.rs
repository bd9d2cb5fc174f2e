//! What is checked before fjall opens a database, because fjall itself would destroy the evidence
//! (it cuts a journal at the first entry it cannot read, fjall#311) or abort the process (it asserts
//! what its manifests hold).
//!
//! Role: the journals must hold one unbroken chain of commit records that reaches the one known to be
//! committed, but for a torn end that a power cut left behind it (see [`super::journal`]); the manifests must match their checksums, the tables' lists of sections be plausible. Assumption: fjall's disk format 3, which
//! the `version` file pins. Never: writes anything.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::committed::Committed;
use super::journal::{self, Torn};
use crate::StoreError;

const CURRENT_BYTES: usize = 25;
/// End of a table file: magic, version, checksum type, checksum, place and length of its list of sections.
const TRAILER_BYTES: usize = 38;
/// An entry of that list, without its name.
const SECTION_BYTES: u64 = 18;
pub(super) const END_MAGIC: &[u8; 4] = b"FJL\x03";

/// Checks the database in `path`. `tail`: also that its journals reach `known`.
///
/// Returns the torn end of the last journal, if all that is known to be committed lies before it.
pub(super) fn check(
    path: &Path,
    known: Option<Committed>,
    tail: bool,
) -> Result<Option<Torn>, StoreError> {
    match fs::read(path.join("version")) {
        Ok(v) if v == END_MAGIC => {}
        Ok(v) if v.len() == 4 && v[..3] == END_MAGIC[..3] && v[3] > END_MAGIC[3] => {
            return Err(StoreError::Version {
                what: format!("{}", path.display()),
                found: v[3].into(),
                supported: END_MAGIC[3].into(),
            });
        }
        Ok(_) => return damaged(&path.join("version"), "not that of a fjall 3 database"),
        Err(e) => return unreadable(&path.join("version"), &e),
    }
    check_manifests(&path.join("keyspaces"))?;
    let (newest, torn) = journal::scan(path)?;
    let reaches = match (known, newest) {
        (Some(known), Some(newest)) => newest.sequence >= known.sequence,
        // The tables hold what is older than the journals.
        (Some(known), None) => {
            let oldest = torn.as_ref().and_then(|t| t.oldest);
            oldest.is_none_or(|oldest| oldest > known.sequence)
        }
        (None, _) => true,
    };
    match (torn, newest, known) {
        (Some(torn), ..) if reaches => Ok(Some(torn)),
        (None, Some(newest), Some(known)) if tail && !reaches => {
            Err(StoreError::RolledBack { known: known.last, found: newest.last })
        }
        (Some(torn), ..) => damaged(&torn.path, &torn.why),
        _ => Ok(None),
    }
}

pub(super) fn damaged<T>(path: &Path, why: &str) -> Result<T, StoreError> {
    Err(StoreError::Corrupt(format!("{}: {why}", path.display())))
}

pub(super) fn unreadable<T>(path: &Path, e: &std::io::Error) -> Result<T, StoreError> {
    match e.kind() {
        ErrorKind::NotFound => damaged(path, "it is missing"),
        _ => Err(StoreError::io(format!("read {}", path.display()), e)),
    }
}

pub(super) fn entries(dir: &Path) -> Result<Vec<PathBuf>, StoreError> {
    let read =
        || -> std::io::Result<Vec<PathBuf>> { fs::read_dir(dir)?.map(|e| Ok(e?.path())).collect() };
    read().or_else(|e| unreadable(dir, &e))
}

/// The number a file's name (without `suffix`) is.
pub(super) fn number(path: &Path, suffix: &str) -> Option<u64> {
    let name = path.file_name()?.to_str()?;
    name.strip_suffix(suffix)?.parse().ok()
}

/// Every keyspace's `current` names a manifest and holds its XXH3-128.
fn check_manifests(keyspaces: &Path) -> Result<(), StoreError> {
    let mut found = [false; 2];
    for dir in entries(keyspaces)? {
        if !dir.is_dir() {
            continue;
        }
        // fjall deletes a keyspace without `current`, and panics at a name that is no number.
        let Some(id) = number(&dir, "") else {
            return damaged(&dir, "not the name of a keyspace");
        };
        if let Some(found) = found.get_mut(id as usize) {
            *found = true;
        }
        check_manifest(&dir)?;
        for table in entries(&dir.join("tables"))? {
            check_table(&table)?;
        }
    }
    match found {
        [true, true] => Ok(()),
        _ => damaged(keyspaces, "a keyspace is missing"),
    }
}

fn check_manifest(dir: &Path) -> Result<(), StoreError> {
    let path = dir.join("current");
    let current = fs::read(&path).or_else(|e| unreadable(&path, &e))?;
    let Ok(current) = <[u8; CURRENT_BYTES]>::try_from(current.as_slice()) else {
        return damaged(&path, "wrong length");
    };
    let (id, rest) = current.split_at(8);
    let manifest = dir.join(format!("v{}", little_endian(id)));
    let bytes = fs::read(&manifest).or_else(|e| unreadable(&manifest, &e))?;
    if xxhash_rust::xxh3::xxh3_128(&bytes).to_le_bytes() != rest[..16] {
        return damaged(&manifest, "its checksum does not match");
    }
    Ok(())
}

/// A table whose list of sections claims more entries than it has bytes: the reader would allocate for them
/// all, and abort. All other damage it finds by itself, and half-written tables it deletes unread.
fn check_table(path: &Path) -> Result<(), StoreError> {
    let claims_too_much = || -> std::io::Result<bool> {
        let file = File::open(path)?;
        let length = file.metadata()?.len();
        let Some(end) = length.checked_sub(TRAILER_BYTES as u64) else {
            return Ok(false);
        };
        let mut trailer = [0; TRAILER_BYTES];
        file.read_exact_at(&mut trailer, end)?;
        let at = little_endian(&trailer[22..30]);
        // The list: magic, number of entries (u32), entries.
        if trailer[..4] != *b"SFA!" || at.saturating_add(8) > end {
            return Ok(false);
        }
        let mut head = [0; 8];
        file.read_exact_at(&mut head, at)?;
        let needs = little_endian(&head[4..]) * SECTION_BYTES;
        Ok(head[..4] == *b"TOC!" && needs > end - at)
    };
    match claims_too_much() {
        Ok(false) => Ok(()),
        Ok(true) => damaged(path, "its list of sections is too long"),
        Err(e) => unreadable(path, &e),
    }
}

pub(super) fn little_endian(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |n, b| n << 8 | u64::from(*b))
}
