//! The `committed` side file: the newest commit record known to be durable, outside the database.
//!
//! Role: lets the next owner notice that the database itself has lost its tail, even if no client
//! tells (invariant 11). It is written after each sync and made durable lazily, so it may be
//! behind the database but never ahead of what was durable. Two slots on pages of their own are written
//! in turn, so a torn write leaves the other. Never: claims what was not synced.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::StoreError;
use crate::chain::CommitRecord;

/// Bytes of one slot.
pub const SLOT_BYTES: usize = 80;
/// Where the slots begin in the file.
pub const SLOT_AT: [u64; 2] = [0, 4096];
/// Newest version of a slot.
pub const SLOT_VERSION: u16 = 1;

const MAGIC: &[u8; 8] = b"PSCOMTD\0";

/// What a slot says: a record that was durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Committed {
    pub epoch: u64,
    pub sequence: u64,
    pub last: u64,
    pub hash: [u8; 32],
}

impl From<&CommitRecord> for Committed {
    fn from(r: &CommitRecord) -> Self {
        Committed { epoch: r.epoch, sequence: r.sequence, last: r.last, hash: r.hash }
    }
}

impl Committed {
    /// The slot's bytes.
    pub fn encode(&self) -> [u8; SLOT_BYTES] {
        let mut b = [0u8; SLOT_BYTES];
        b[0..8].copy_from_slice(MAGIC);
        b[8..10].copy_from_slice(&SLOT_VERSION.to_le_bytes());
        b[16..24].copy_from_slice(&self.epoch.to_le_bytes());
        b[24..32].copy_from_slice(&self.sequence.to_le_bytes());
        b[32..40].copy_from_slice(&self.last.to_le_bytes());
        b[40..72].copy_from_slice(&self.hash);
        let crc = crc32c::crc32c(&b[..76]);
        b[76..80].copy_from_slice(&crc.to_le_bytes());
        b
    }

    /// Reads a slot; `Ok(None)` if it is torn or was never written, `Version` if it is newer.
    pub fn decode(bytes: &[u8]) -> Result<Option<Self>, StoreError> {
        let Ok(b) = <&[u8; SLOT_BYTES]>::try_from(bytes) else {
            return Ok(None);
        };
        if &b[0..8] != MAGIC || crc32c::crc32c(&b[..76]).to_le_bytes() != b[76..80] {
            return Ok(None);
        }
        let version = u16::from_le_bytes([b[8], b[9]]);
        if version > SLOT_VERSION {
            return Err(StoreError::Version {
                what: "the `committed` file".into(),
                found: version.into(),
                supported: SLOT_VERSION.into(),
            });
        }
        let number = |at: usize| {
            let mut x = [0; 8];
            x.copy_from_slice(&b[at..at + 8]);
            u64::from_le_bytes(x)
        };
        let mut hash = [0; 32];
        hash.copy_from_slice(&b[40..72]);
        Ok(Some(Committed { epoch: number(16), sequence: number(24), last: number(32), hash }))
    }

    /// Checks that the chain that ends in `records` contains this.
    pub(super) fn check(
        &self,
        newest: &CommitRecord,
        records: &[CommitRecord],
    ) -> Result<(), StoreError> {
        if newest.sequence < self.sequence {
            return Err(StoreError::RolledBack { known: self.last, found: newest.last });
        }
        match records.iter().find(|r| r.sequence == self.sequence) {
            Some(r) if r.hash != self.hash => Err(StoreError::Corrupt(format!(
                "commit record {} is not the one that was committed",
                self.sequence
            ))),
            _ => Ok(()),
        }
    }
}

/// The open side file.
pub(super) struct CommittedFile {
    file: File,
    next_slot: usize,
    newest: Option<Committed>,
    unsynced: bool,
}

impl CommittedFile {
    /// Opens the file of a formatted store. `Corrupt` if neither slot can be read.
    pub(super) fn open(dir: &Path) -> Result<Self, StoreError> {
        let path = dir.join("committed");
        let file = match OpenOptions::new().read(true).write(true).open(&path) {
            Ok(file) => file,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
                return Err(StoreError::Corrupt(format!("{} is missing", path.display())));
            }
            Err(e) => return Err(StoreError::io(format!("open {}", path.display()), e)),
        };
        let mut newest: Option<(usize, Committed)> = None;
        for (slot, at) in SLOT_AT.into_iter().enumerate() {
            let mut b = [0u8; SLOT_BYTES];
            match file.read_exact_at(&mut b, at) {
                Ok(()) => {}
                Err(e) if e.kind() == std::io::ErrorKind::UnexpectedEof => continue,
                Err(e) => return Err(StoreError::io(format!("read {}", path.display()), e)),
            }
            if let Some(c) = Committed::decode(&b)?
                && newest.is_none_or(|(_, n)| n.sequence < c.sequence)
            {
                newest = Some((slot, c));
            }
        }
        let Some((slot, newest)) = newest else {
            let text = format!("{} holds no valid slot", path.display());
            return Err(StoreError::Corrupt(text));
        };
        Ok(CommittedFile { file, next_slot: 1 - slot, newest: Some(newest), unsynced: false })
    }

    /// What the file said when it was opened, or was last told.
    pub(super) fn newest(&self) -> Option<Committed> {
        self.newest
    }

    /// Notes a record that is durable. The note itself becomes durable with [`Self::sync`].
    pub(super) fn note(&mut self, record: &CommitRecord) -> Result<(), StoreError> {
        let committed = Committed::from(record);
        self.file
            .write_all_at(&committed.encode(), SLOT_AT[self.next_slot])
            .map_err(|e| StoreError::io("write the `committed` file", e))?;
        self.next_slot = 1 - self.next_slot;
        self.newest = Some(committed);
        self.unsynced = true;
        Ok(())
    }

    /// Makes the last note durable.
    pub(super) fn sync(&mut self) -> Result<(), StoreError> {
        if self.unsynced {
            self.file.sync_data().map_err(|e| StoreError::io("sync the `committed` file", e))?;
            self.unsynced = false;
        }
        Ok(())
    }
}

/// The content of a new side file.
pub(super) fn initial(record: &CommitRecord) -> Vec<u8> {
    let mut bytes = vec![0u8; SLOT_AT[1] as usize + 4096];
    bytes[..SLOT_BYTES].copy_from_slice(&Committed::from(record).encode());
    bytes
}
