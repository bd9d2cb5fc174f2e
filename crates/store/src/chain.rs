//! The chained commit record: what makes a lost, rolled-back or forked tail visible (invariant 11).
//!
//! Role: a fixed 160-byte record written with every commit, in the same atomic batch; each holds
//! the hash of the one before and of its own writes. `docs/format.d/store.md` has the byte map.
//! Never: does I/O; decoding survives any bytes.

use sha2::{Digest, Sha256};

use crate::{Commit, StoreError, Write};

/// Bytes of an encoded [`CommitRecord`].
pub const RECORD_BYTES: usize = 160;
/// Newest record version this code writes and reads.
pub const RECORD_VERSION: u16 = 1;
/// Records an engine keeps: the newest this many, by `sequence % RECORDS_KEPT`.
pub const RECORDS_KEPT: u64 = 64;

pub(crate) const MAGIC: &[u8; 8] = b"PSCOMMIT";
const HASHED: usize = 128;

/// What a record stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum RecordKind {
    /// A group of writes.
    Commit = 0,
    /// A new owner, with a new epoch.
    Acquire = 1,
    /// The first record of a store.
    Format = 2,
}

/// One link of the chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommitRecord {
    pub kind: RecordKind,
    pub epoch: u64,
    /// Position in the chain; the first record has 1.
    pub sequence: u64,
    pub prev_last: u64,
    pub last: u64,
    /// Number of writes, and bytes of their encoding.
    pub ops: u32,
    pub payload_bytes: u64,
    /// SHA-256 of the encoded writes.
    pub payload_hash: [u8; 32],
    /// `hash` of the previous record; zeros in the first.
    pub prev_hash: [u8; 32],
    /// SHA-256 of the record's bytes before it.
    pub hash: [u8; 32],
}

impl CommitRecord {
    /// The first record of a new store.
    pub fn format() -> Self {
        let empty = CommitRecord {
            kind: RecordKind::Format,
            epoch: 0,
            sequence: 0,
            prev_last: 0,
            last: 0,
            ops: 0,
            payload_bytes: 0,
            payload_hash: [0; 32],
            prev_hash: [0; 32],
            hash: [0; 32],
        };
        empty.follow(RecordKind::Format, 0, 0, &[])
    }

    /// The record with which a new owner takes the store over.
    pub fn acquire(&self) -> Self {
        self.follow(RecordKind::Acquire, self.epoch.saturating_add(1), self.last, &[])
    }

    /// The record of `commit`, which must start where this one ends.
    pub fn commit(&self, commit: &Commit) -> Result<Self, StoreError> {
        if commit.prev_last != self.last {
            return Err(StoreError::Gap { expected: self.last, got: commit.prev_last });
        }
        Ok(self.follow(RecordKind::Commit, self.epoch, commit.last, &commit.writes))
    }

    fn follow(&self, kind: RecordKind, epoch: u64, last: u64, writes: &[Write]) -> Self {
        let (payload_bytes, payload_hash) = hash_writes(writes);
        let mut next = CommitRecord {
            kind,
            epoch,
            sequence: self.sequence + 1,
            prev_last: self.last,
            last,
            ops: writes.len() as u32,
            payload_bytes,
            payload_hash,
            prev_hash: self.hash,
            hash: [0; 32],
        };
        next.hash = Sha256::digest(&next.encode()[..HASHED]).into();
        next
    }

    /// The record's bytes.
    pub fn encode(&self) -> [u8; RECORD_BYTES] {
        let mut b = [0u8; RECORD_BYTES];
        b[0..8].copy_from_slice(MAGIC);
        b[8..10].copy_from_slice(&RECORD_VERSION.to_le_bytes());
        b[10] = self.kind as u8;
        b[16..24].copy_from_slice(&self.epoch.to_le_bytes());
        b[24..32].copy_from_slice(&self.sequence.to_le_bytes());
        b[32..40].copy_from_slice(&self.prev_last.to_le_bytes());
        b[40..48].copy_from_slice(&self.last.to_le_bytes());
        b[48..52].copy_from_slice(&self.ops.to_le_bytes());
        b[56..64].copy_from_slice(&self.payload_bytes.to_le_bytes());
        b[64..96].copy_from_slice(&self.payload_hash);
        b[96..128].copy_from_slice(&self.prev_hash);
        b[128..160].copy_from_slice(&self.hash);
        b
    }

    /// Reads a record back. `Corrupt` if it does not hash, `Version` if a newer program wrote it.
    pub fn decode(bytes: &[u8]) -> Result<Self, StoreError> {
        let corrupt = |what: &str| Err(StoreError::Corrupt(format!("commit record: {what}")));
        let Ok(b) = <&[u8; RECORD_BYTES]>::try_from(bytes) else {
            return corrupt(&format!("{} bytes long, not {RECORD_BYTES}", bytes.len()));
        };
        if &b[0..8] != MAGIC {
            return corrupt("no magic number");
        }
        let version = u16::from_le_bytes([b[8], b[9]]);
        if version > RECORD_VERSION {
            return Err(StoreError::Version {
                what: "commit record".into(),
                found: version.into(),
                supported: RECORD_VERSION.into(),
            });
        }
        if Sha256::digest(&b[..HASHED]).as_slice() != &b[HASHED..] {
            return corrupt("its bytes do not match its hash");
        }
        let kind = match b[10] {
            0 => RecordKind::Commit,
            1 => RecordKind::Acquire,
            2 => RecordKind::Format,
            other => return corrupt(&format!("unknown kind {other}")),
        };
        let record = CommitRecord {
            kind,
            epoch: u64_at(b, 16),
            sequence: u64_at(b, 24),
            prev_last: u64_at(b, 32),
            last: u64_at(b, 40),
            ops: u64_at(b, 48) as u32,
            payload_bytes: u64_at(b, 56),
            payload_hash: hash_at(b, 64),
            prev_hash: hash_at(b, 96),
            hash: hash_at(b, 128),
        };
        if version == 0 || record.sequence == 0 || record.last < record.prev_last {
            return corrupt("version, sequence or transaction numbers out of range");
        }
        Ok(record)
    }
}

/// Checks that `records` (any order) are the unbroken end of one chain, and returns its newest.
pub fn verify(mut records: Vec<CommitRecord>) -> Result<CommitRecord, StoreError> {
    records.sort_by_key(|r| r.sequence);
    for pair in records.windows(2) {
        let (a, b) = (&pair[0], &pair[1]);
        let linked = b.sequence == a.sequence + 1
            && b.prev_hash == a.hash
            && b.prev_last == a.last
            && b.epoch >= a.epoch;
        if !linked {
            return Err(StoreError::Corrupt(format!(
                "commit record {} does not follow record {}",
                b.sequence, a.sequence
            )));
        }
    }
    let Some(newest) = records.last().copied() else {
        return Err(StoreError::Corrupt("it holds no commit record".into()));
    };
    let expected = newest.sequence.min(RECORDS_KEPT);
    if (records.len() as u64) < expected {
        return Err(StoreError::Corrupt(format!(
            "{} commit records, not {expected}",
            records.len()
        )));
    }
    Ok(newest)
}

/// Length and hash of the writes' encoding: tag, key length, key, value length, value; lengths u32 LE.
fn hash_writes(writes: &[Write]) -> (u64, [u8; 32]) {
    let size = writes.iter().map(|w| w.bytes() + 9).sum();
    let mut b = Vec::with_capacity(size);
    for write in writes {
        let (tag, key, value) = match write {
            Write::Put(k, v) => (1u8, k, Some(v)),
            Write::Del(k) => (2u8, k, None),
        };
        b.push(tag);
        b.extend_from_slice(&(key.len() as u32).to_le_bytes());
        b.extend_from_slice(key);
        if let Some(v) = value {
            b.extend_from_slice(&(v.len() as u32).to_le_bytes());
            b.extend_from_slice(v);
        }
    }
    (b.len() as u64, Sha256::digest(&b).into())
}

fn u64_at(b: &[u8; RECORD_BYTES], at: usize) -> u64 {
    let mut x = [0; 8];
    x.copy_from_slice(&b[at..at + 8]);
    u64::from_le_bytes(x)
}

fn hash_at(b: &[u8; RECORD_BYTES], at: usize) -> [u8; 32] {
    let mut x = [0; 32];
    x.copy_from_slice(&b[at..at + 32]);
    x
}
