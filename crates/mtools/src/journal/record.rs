//! The bytes of a journal: a header and records of [`RECORD`] bytes, little-endian, each with a CRC-32C of
//! what stands before it (byte map in `docs/mcp.md`). Knows nothing of files.

use crc_fast::{CrcAlgorithm, checksum};

pub const MAGIC: [u8; 8] = *b"mcpjrnl\n";
pub const VERSION: u32 = 1;
/// Bytes of the header, and of every record.
pub const RECORD: usize = 48;
const SUM_AT: usize = RECORD - 4;

/// Names a file of the job: a digest of its destination's name.
pub type Key = [u8; 16];

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// Digest of the command, so that another is not taken for it.
    pub command: [u8; 32],
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Record {
    /// A run begins: the boot of this machine, the time (seconds since 1970), the process.
    Run { boot: [u8; 16], at: u64, pid: u64 },
    /// Whether the last operand was a directory when the job began.
    Target { directory: bool },
    /// It is about to be made, for this operand, from its source as it is in this version; `new`: where nothing was. `kept`:
    /// what an earlier run has written of it counts.
    Begun { key: Key, version: u64, operand: u64, new: bool, kept: bool },
    /// It was made, or opened, as this inode with these permissions.
    Made { key: Key, ino: u64, perm: u32 },
    /// A part of a large file is whole.
    Part { key: Key, ino: u64, from: u64, to: u64 },
    /// It is complete, attributes and all.
    Done { key: Key, version: u64, ino: u64 },
    /// What was there before has come back.
    Forget { key: Key },
    /// What the first `records` records tell of is on the disk.
    Synced { records: u64 },
}

/// Why bytes are no journal of this command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wrong {
    /// Not the header of a journal, or not whole.
    Header,
    Version(u32),
}

fn sealed(mut bytes: [u8; RECORD]) -> [u8; RECORD] {
    let sum = checksum(CrcAlgorithm::Crc32Iscsi, &bytes[..SUM_AT]) as u32;
    bytes[SUM_AT..].copy_from_slice(&sum.to_le_bytes());
    bytes
}

fn whole(bytes: &[u8; RECORD]) -> bool {
    let sum = checksum(CrcAlgorithm::Crc32Iscsi, &bytes[..SUM_AT]) as u32;
    bytes[SUM_AT..] == sum.to_le_bytes()
}

impl Header {
    pub fn encode(&self) -> [u8; RECORD] {
        let mut bytes = [0; RECORD];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[12..44].copy_from_slice(&self.command);
        sealed(bytes)
    }

    pub fn decode(bytes: &[u8; RECORD]) -> Result<Self, Wrong> {
        if bytes[..8] != MAGIC || !whole(bytes) {
            return Err(Wrong::Header);
        }
        let mut version = [0; 4];
        version.copy_from_slice(&bytes[8..12]);
        match u32::from_le_bytes(version) {
            VERSION => {}
            other => return Err(Wrong::Version(other)),
        }
        let mut command = [0; 32];
        command.copy_from_slice(&bytes[12..44]);
        Ok(Self { command })
    }
}

const RUN: u8 = 1;
const TARGET: u8 = 2;
const BEGUN: u8 = 3;
const MADE: u8 = 4;
const PART: u8 = 5;
const DONE: u8 = 6;
const FORGET: u8 = 7;
const SYNCED: u8 = 8;

const NEW: u8 = 1;
const KEPT: u8 = 2;

impl Record {
    pub fn encode(&self) -> [u8; RECORD] {
        let none = [0; 16];
        let (kind, flags, key, a, b, c) = match *self {
            Self::Run { boot, at, pid } => (RUN, 0, boot, at, pid, 0),
            Self::Target { directory } => (TARGET, u8::from(directory), none, 0, 0, 0),
            Self::Begun { key, version, operand, new, kept } => {
                (BEGUN, u8::from(new) * NEW + u8::from(kept) * KEPT, key, version, operand, 0)
            }
            Self::Made { key, ino, perm } => (MADE, 0, key, ino, u64::from(perm), 0),
            Self::Part { key, ino, from, to } => (PART, 0, key, ino, from, to),
            Self::Done { key, version, ino } => (DONE, 0, key, ino, version, 0),
            Self::Forget { key } => (FORGET, 0, key, 0, 0, 0),
            Self::Synced { records } => (SYNCED, 0, none, records, 0, 0),
        };
        let mut bytes = [0; RECORD];
        (bytes[0], bytes[1]) = (kind, flags);
        bytes[4..20].copy_from_slice(&key);
        for (at, word) in [(20, a), (28, b), (36, c)] {
            bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
        }
        sealed(bytes)
    }

    /// None: not written whole, or by a program that knows more.
    pub fn decode(bytes: &[u8; RECORD]) -> Option<Self> {
        if !whole(bytes) {
            return None;
        }
        let mut key = [0; 16];
        key.copy_from_slice(&bytes[4..20]);
        let word = |at: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[at..at + 8]);
            u64::from_le_bytes(word)
        };
        let (flags, a, b, c) = (bytes[1], word(20), word(28), word(36));
        Some(match bytes[0] {
            RUN => Self::Run { boot: key, at: a, pid: b },
            TARGET => Self::Target { directory: flags & 1 != 0 },
            BEGUN => Self::Begun {
                key,
                version: a,
                operand: b,
                new: flags & NEW != 0,
                kept: flags & KEPT != 0,
            },
            MADE => Self::Made { key, ino: a, perm: u32::try_from(b).ok()? },
            PART if b < c => Self::Part { key, ino: a, from: b, to: c },
            DONE => Self::Done { key, ino: a, version: b },
            FORGET => Self::Forget { key },
            SYNCED => Self::Synced { records: a },
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: Key = [7; 16];

    fn all() -> Vec<Record> {
        vec![
            Record::Run { boot: [9; 16], at: 1_700_000_000, pid: 4711 },
            Record::Target { directory: true },
            Record::Begun { key: KEY, version: u64::MAX - 1, operand: 77, new: true, kept: false },
            Record::Made { key: KEY, ino: 12, perm: 0o2755 },
            Record::Part { key: KEY, ino: 12, from: 1 << 20, to: 1 << 40 },
            Record::Done { key: KEY, version: 3, ino: 12 },
            Record::Forget { key: KEY },
            Record::Synced { records: 6 },
        ]
    }

    /// Written by hand from the byte map: what is on disks today must be read tomorrow.
    #[test]
    fn golden_bytes() {
        let hex = |bytes: &[u8]| bytes.iter().map(|b| format!("{b:02x}")).collect::<String>();
        let part = Record::Part { key: KEY, ino: 12, from: 1 << 20, to: 1 << 40 }.encode();
        let wanted = "05000000\
            07070707070707070707070707070707\
            0c00000000000000\
            0000100000000000\
            0000000000010000";
        assert_eq!(hex(&part[..44]), wanted);
        let begun = Record::Begun { key: KEY, version: 2, operand: 3, new: true, kept: true };
        let begun = begun.encode();
        assert_eq!(hex(&begun[..4]), "03030000");
        let header = Header { command: [0xab; 32] }.encode();
        assert_eq!(hex(&header[..12]), "6d63706a726e6c0a01000000");
        assert_eq!(header[12..44], [0xab; 32]);
        // CRC-32C by another implementation of it.
        let sum = u32::from_le_bytes(part[44..].try_into().unwrap());
        assert_eq!(sum, plain_crc32c(&part[..44]));
    }

    fn plain_crc32c(bytes: &[u8]) -> u32 {
        !bytes.iter().fold(!0u32, |crc, b| {
            (0..8).fold(crc ^ u32::from(*b), |crc, _| {
                if crc & 1 == 1 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 }
            })
        })
    }

    #[test]
    fn what_is_written_is_read() {
        for record in all() {
            assert_eq!(Record::decode(&record.encode()), Some(record));
        }
        let header = Header { command: [3; 32] };
        assert_eq!(Header::decode(&header.encode()), Ok(header));
    }

    #[test]
    fn no_changed_bit_is_taken_for_a_record() {
        for record in all() {
            for bit in 0..RECORD * 8 {
                let mut bytes = record.encode();
                bytes[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(Record::decode(&bytes), None, "{record:?}, bit {bit}");
            }
        }
    }

    #[test]
    fn newer_versions_are_told_apart_from_rubbish() {
        let mut bytes = Header { command: [3; 32] }.encode();
        bytes[8] = 2;
        assert_eq!(Header::decode(&sealed(bytes)), Err(Wrong::Version(2)));
        assert_eq!(Header::decode(&[0; RECORD]), Err(Wrong::Header));
    }
}
