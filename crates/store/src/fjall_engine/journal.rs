//! fjall's journals: what their batches say of the chain, and the torn end a power cut leaves.
//!
//! Role: read every batch as fjall would and compare its checksum, so that a batch which was being
//! written when the power went is found before fjall sees it (it refuses a database whose last batch
//! has its end marker but a hole inside). Such an end is cut off, a copy kept, only where the caller
//! knows that everything acknowledged lies before it (invariants 2 and 11). Assumption: fjall syncs
//! a journal before it begins the next, so only the last one can be torn.

use std::fs::{self, File, OpenOptions};
use std::io::{BufReader, ErrorKind, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use super::database::{KEY_BYTES, META};
use super::preflight::{END_MAGIC, damaged, entries, little_endian, number, unreadable};
use crate::StoreError;
use crate::chain::{CommitRecord, MAGIC as RECORD_MAGIC, RECORD_BYTES};

/// The copy of the last torn end that was cut off, in the store's directory.
pub const TORN_COPY: &str = "journal.torn";
/// Most bytes of a torn end that are copied.
pub const TORN_COPY_BYTES: u64 = 64 << 20;

const READ_BUFFER: usize = 256 << 10;
const TAG_START: u8 = 1;
const TAG_ITEM: u8 = 2;
const TAG_END: u8 = 3;
const TAG_CLEAR: u8 = 4;
/// Value type, compression, keyspace (u64), key length (u16), value length, its length here (u32).
const ITEM_HEAD: usize = 20;

/// Where the last journal stops being whole batches.
pub(super) struct Torn {
    pub(super) path: PathBuf,
    /// End of the last whole batch.
    at: u64,
    pub(super) why: String,
    /// The least sequence of the commit records that can still be read behind it.
    pub(super) oldest: Option<u64>,
}

impl Torn {
    fn new(path: PathBuf, at: u64, why: &str) -> Result<Torn, StoreError> {
        let mut torn = Torn { path, at, why: why.to_string(), oldest: None };
        let bytes = torn.bytes().or_else(|e| unreadable(&torn.path, &e))?;
        let records = bytes.windows(RECORD_BYTES).filter(|b| b.starts_with(RECORD_MAGIC));
        let records = records.filter_map(|b| CommitRecord::decode(b).ok());
        torn.oldest = records.map(|r| r.sequence).min();
        Ok(torn)
    }

    /// What lies there, but for the preallocated rest.
    fn bytes(&self) -> std::io::Result<Vec<u8>> {
        let mut file = File::open(&self.path)?;
        file.seek(SeekFrom::Start(self.at))?;
        let mut bytes = Vec::new();
        file.take(TORN_COPY_BYTES).read_to_end(&mut bytes)?;
        bytes.truncate(bytes.iter().rposition(|b| *b != 0).map_or(0, |last| last + 1));
        Ok(bytes)
    }

    /// Cuts the torn end off, durably, after a copy of it was put into `dir`.
    pub(super) fn cut(&self, dir: &Path) -> Result<(), StoreError> {
        let cut = || -> std::io::Result<()> {
            let copy = dir.join(TORN_COPY);
            fs::write(&copy, self.bytes()?)?;
            File::open(&copy)?.sync_all()?;
            let file = OpenOptions::new().write(true).open(&self.path)?;
            file.set_len(self.at)?;
            file.sync_all()
        };
        cut().map_err(|e| StoreError::io(format!("cut {}", self.path.display()), e))?;
        tracing::warn!(journal = %self.path.display(), at = self.at, why = %self.why,
            "the end of the journal, which was not committed, was torn by a crash and is cut off");
        Ok(())
    }
}

/// Reads all journals, oldest first; their commit records must be one chain. Returns its newest, and
/// the torn end of the last journal.
pub(super) fn scan(path: &Path) -> Result<(Option<CommitRecord>, Option<Torn>), StoreError> {
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
    let last = journals.len().saturating_sub(1);
    for (n, (_, file)) in journals.into_iter().enumerate() {
        let mut journal = Journal::open(&file, seqno).or_else(|e| unreadable(&file, &e))?;
        loop {
            let whole = journal.at;
            match journal.batch().or_else(|e| unreadable(&file, &e))? {
                Batch::Whole(None) => {}
                Batch::Whole(Some(bytes)) => {
                    let record = CommitRecord::decode(&bytes)?;
                    follows(&file, newest.as_ref(), &record)?;
                    newest = Some(record);
                }
                Batch::None => break,
                Batch::Torn(why) if n == last => {
                    return Ok((newest, Some(Torn::new(file, whole, why)?)));
                }
                Batch::Torn(why) => return damaged(&file, why),
            }
        }
        seqno = journal.seqno;
    }
    Ok((newest, None))
}

fn follows(
    file: &Path,
    before: Option<&CommitRecord>,
    record: &CommitRecord,
) -> Result<(), StoreError> {
    match before {
        Some(before)
            if record.sequence != before.sequence + 1 || record.prev_hash != before.hash =>
        {
            let (this, before) = (record.sequence, before.sequence);
            let why = format!(
                "commit record {this} follows record {before}: what was between them is lost"
            );
            damaged(file, &why)
        }
        _ => Ok(()),
    }
}

enum Batch {
    /// With its commit record.
    Whole(Option<[u8; RECORD_BYTES]>),
    /// The journal ends here.
    None,
    /// Something lies here that is no whole batch.
    Torn(&'static str),
}

struct Journal {
    reader: BufReader<File>,
    at: u64,
    length: u64,
    /// fjall's sequence number of the whole batch before.
    seqno: Option<u64>,
}

impl Journal {
    fn open(path: &Path, seqno: Option<u64>) -> std::io::Result<Journal> {
        let file = File::open(path)?;
        let length = file.metadata()?.len();
        Ok(Journal { reader: BufReader::with_capacity(READ_BUFFER, file), at: 0, length, seqno })
    }

    /// The next batch.
    fn batch(&mut self) -> std::io::Result<Batch> {
        match self.read_batch() {
            Err(e) if e.kind() == ErrorKind::UnexpectedEof => {
                Ok(Batch::Torn("it ends within a batch"))
            }
            other => other,
        }
    }

    fn read_batch(&mut self) -> std::io::Result<Batch> {
        if self.at >= self.length {
            return Ok(Batch::None);
        }
        match self.array::<1>()?[0] {
            TAG_START => {}
            // Preallocated and never written.
            0 => return Ok(Batch::None),
            _ => return Ok(Batch::Torn("no batch begins where the one before ends")),
        }
        // Number of items (u32), sequence number (u64).
        let start = self.array::<12>()?;
        let (items, seqno) = (little_endian(&start[..4]), little_endian(&start[4..]));
        let mut hash = xxhash_rust::xxh3::Xxh3::new();
        let mut record = None;
        for _ in 0..items {
            let tag = self.array::<1>()?;
            hash.update(&tag);
            match tag[0] {
                TAG_ITEM => match self.item(&mut hash)? {
                    Some(found) => record = found.or(record),
                    None => return Ok(Batch::Torn("an item of a batch is none")),
                },
                TAG_CLEAR => hash.update(&self.array::<8>()?),
                _ => return Ok(Batch::Torn("a batch has too few items")),
            }
        }
        let end = self.array::<13>()?;
        if end[0] != TAG_END || end[9..] != *END_MAGIC {
            return Ok(Batch::Torn("a batch does not end where it should"));
        }
        if little_endian(&end[1..9]) != hash.digest() {
            return Ok(Batch::Torn("a batch does not have its checksum"));
        }
        // No checksum covers it, and fjall would leave out or misplace the batch.
        if self.seqno.is_some_and(|before| seqno <= before) {
            return Ok(Batch::Torn("a batch's number does not follow the one before"));
        }
        self.seqno = Some(seqno);
        Ok(Batch::Whole(record))
    }

    /// Reads an item; `None`: it cannot be one. Else the commit record it is, if it is one.
    fn item(
        &mut self,
        hash: &mut xxhash_rust::xxh3::Xxh3,
    ) -> std::io::Result<Option<Option<[u8; RECORD_BYTES]>>> {
        let head = self.array::<ITEM_HEAD>()?;
        let key = usize::from(u16::from_le_bytes([head[10], head[11]]));
        let (length, here) = (little_endian(&head[12..16]), little_endian(&head[16..]));
        // Nothing is compressed.
        if head[1] != 0 || length != here {
            return Ok(None);
        }
        if here + key as u64 > self.length - self.at {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        let mut bytes = vec![0; key + here as usize];
        self.reader.read_exact(&mut bytes)?;
        self.at += bytes.len() as u64;
        hash.update(&head);
        hash.update(&bytes);
        let is_record = key == KEY_BYTES && bytes[0] == META;
        Ok(Some(bytes.get(key..).filter(|_| is_record).and_then(|v| v.try_into().ok())))
    }

    fn array<const N: usize>(&mut self) -> std::io::Result<[u8; N]> {
        let mut b = [0; N];
        self.reader.read_exact(&mut b)?;
        self.at += N as u64;
        Ok(b)
    }
}
