//! What is checked before fjall opens a database, because fjall itself would destroy the evidence
//! (it cuts a journal at the first entry it cannot read, fjall#311) or abort the process (it asserts
//! what its manifests hold).
//!
//! Role: the journals must hold one unbroken chain of commit records that reaches the one known to be
//! committed; the manifests must match their checksums, the tables' lists of sections be plausible. Assumption: fjall's disk format 3, which
//! the `version` file pins. Never: writes anything.

use std::fs::{self, File};
use std::io::{BufReader, ErrorKind, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::committed::Committed;
use super::database::{KEY_BYTES, META};
use crate::StoreError;
use crate::chain::{CommitRecord, RECORD_BYTES};

const CURRENT_BYTES: usize = 25;
/// End of a table file: magic, version, checksum type, checksum, place and length of its list of sections.
const TRAILER_BYTES: usize = 38;
/// An entry of that list, without its name.
const SECTION_BYTES: u64 = 18;
const READ_BUFFER: usize = 256 << 10;
const TAG_START: u8 = 1;
const TAG_ITEM: u8 = 2;
const TAG_END: u8 = 3;
const TAG_CLEAR: u8 = 4;
const END_MAGIC: &[u8; 4] = b"FJL\x03";

/// Checks the database in `path`. `tail`: also that its journals reach `known`.
pub(super) fn check(path: &Path, known: Option<Committed>, tail: bool) -> Result<(), StoreError> {
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
    let newest = check_journals(path)?;
    match (known, newest) {
        (Some(known), Some(newest)) if tail && newest.sequence < known.sequence => {
            Err(StoreError::RolledBack { known: known.last, found: newest.last })
        }
        _ => Ok(()),
    }
}

fn damaged<T>(path: &Path, why: &str) -> Result<T, StoreError> {
    Err(StoreError::Corrupt(format!("{}: {why}", path.display())))
}

fn unreadable<T>(path: &Path, e: &std::io::Error) -> Result<T, StoreError> {
    match e.kind() {
        ErrorKind::NotFound => damaged(path, "it is missing"),
        _ => Err(StoreError::io(format!("read {}", path.display()), e)),
    }
}

fn entries(dir: &Path) -> Result<Vec<PathBuf>, StoreError> {
    let read =
        || -> std::io::Result<Vec<PathBuf>> { fs::read_dir(dir)?.map(|e| Ok(e?.path())).collect() };
    read().or_else(|e| unreadable(dir, &e))
}

/// The number a file's name (without `suffix`) is.
fn number(path: &Path, suffix: &str) -> Option<u64> {
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

fn little_endian(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |n, b| n << 8 | u64::from(*b))
}

/// Reads all journals, oldest first; their commit records must be one chain. Returns its newest.
fn check_journals(path: &Path) -> Result<Option<CommitRecord>, StoreError> {
    let mut journals: Vec<(u64, PathBuf)> = Vec::new();
    for file in entries(path)? {
        if file.extension().is_some_and(|e| e == "jnl") {
            match number(&file, ".jnl") {
                Some(id) => journals.push((id, file)),
                None => return damaged(&file, "not the name of a journal"),
            }
        }
    }
    journals.sort();
    let mut newest: Option<CommitRecord> = None;
    let mut seqno = None;
    for (_, file) in &journals {
        let open = File::open(file).or_else(|e| unreadable(file, &e))?;
        let mut journal = Journal {
            reader: BufReader::with_capacity(READ_BUFFER, open),
            at_start: true,
            batch: (0, None),
            seqno,
        };
        while let Some(record) = journal.next_record(file)? {
            if let Some(before) = newest
                && (record.sequence != before.sequence + 1 || record.prev_hash != before.hash)
            {
                return damaged(
                    file,
                    &format!(
                        "commit record {} follows record {}: what was between them is lost",
                        record.sequence, before.sequence
                    ),
                );
            }
            newest = Some(record);
        }
        seqno = journal.seqno;
    }
    Ok(newest)
}

struct Journal {
    reader: BufReader<File>,
    /// Nothing was read yet.
    at_start: bool,
    /// fjall's sequence number of the batch being read, and its commit record.
    batch: (u64, Option<[u8; RECORD_BYTES]>),
    /// The sequence number of the whole batch before.
    seqno: Option<u64>,
}

impl Journal {
    /// The commit record of the next whole batch; `None` where fjall would see the journal's end.
    ///
    /// Only whole batches are judged: a half-written one at the end is what a crash leaves.
    fn next_record(&mut self, file: &Path) -> Result<Option<CommitRecord>, StoreError> {
        loop {
            let entry = match self.entry() {
                Ok(entry) => entry,
                Err(e) if e.kind() == ErrorKind::UnexpectedEof => return Ok(None),
                Err(e) => return unreadable(file, &e),
            };
            match entry {
                Entry::Start(_) | Entry::Zero => {}
                _ if self.at_start => return damaged(file, "it does not start with a batch"),
                _ => {}
            }
            self.at_start = false;
            match entry {
                Entry::Start(seqno) => self.batch = (seqno, None),
                Entry::Record(bytes) => self.batch.1 = Some(bytes),
                Entry::Part => {}
                Entry::End => {
                    if let Some(record) = self.end_batch(file)? {
                        return Ok(Some(record));
                    }
                }
                Entry::Zero | Entry::Unknown => return Ok(None),
            }
        }
    }

    fn end_batch(&mut self, file: &Path) -> Result<Option<CommitRecord>, StoreError> {
        let (seqno, record) = self.batch;
        // No checksum covers it, and fjall would leave out or misplace the batch.
        if self.seqno.is_some_and(|before| seqno <= before) {
            return damaged(file, "a batch's number does not follow the one before");
        }
        self.seqno = Some(seqno);
        record.map(|bytes| CommitRecord::decode(&bytes)).transpose()
    }

    fn entry(&mut self) -> std::io::Result<Entry> {
        match self.array::<1>()?[0] {
            TAG_START => {
                // Number of items (u32), sequence number (u64).
                let start = self.array::<12>()?;
                Ok(Entry::Start(little_endian(&start[4..])))
            }
            TAG_ITEM => self.item(),
            TAG_END => {
                let end = self.array::<12>()?;
                Ok(match end[8..] == *END_MAGIC {
                    true => Entry::End,
                    false => Entry::Unknown,
                })
            }
            TAG_CLEAR => self.array::<8>().map(|_| Entry::Part),
            0 => Ok(Entry::Zero),
            _ => Ok(Entry::Unknown),
        }
    }

    fn item(&mut self) -> std::io::Result<Entry> {
        // Value type, compression, keyspace (u64), key length (u16), value length, its length here (u32).
        let head = self.array::<20>()?;
        let key_length = u16::from_le_bytes([head[10], head[11]]);
        let length = u32::from_le_bytes([head[16], head[17], head[18], head[19]]);
        if usize::from(key_length) == KEY_BYTES && length as usize == RECORD_BYTES {
            let key = self.array::<KEY_BYTES>()?;
            let value = self.array::<RECORD_BYTES>()?;
            return Ok(match key[0] == META {
                true => Entry::Record(value),
                false => Entry::Part,
            });
        }
        // At the end of the file this goes too far, and the next read says so.
        self.reader.seek_relative(i64::from(key_length) + i64::from(length))?;
        Ok(Entry::Part)
    }

    fn array<const N: usize>(&mut self) -> std::io::Result<[u8; N]> {
        let mut b = [0; N];
        self.reader.read_exact(&mut b)?;
        Ok(b)
    }
}

enum Entry {
    Start(u64),
    Record([u8; RECORD_BYTES]),
    End,
    Part,
    /// Preallocated and never written.
    Zero,
    Unknown,
}
