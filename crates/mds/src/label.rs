//! The label of a metadata target's directory: what it is and to which file system it belongs.
//!
//! Format: magic `PSMDT`, version, body length, body, crc32c of all before it (`docs/format.d/mds.md`).

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use proto::Wire;

const MAGIC: &[u8; 5] = b"PSMDT";
/// What labels of other targets begin with.
const OTHERS: &[u8] = b"PSTOST";
const VERSION: u8 = 1;
const FILE: &str = "label";
/// A label that is being written.
pub(crate) const NEW: &str = "label.new";

proto::wire_struct! {
    /// Identity of a metadata target.
    MdtLabel {
        /// The file system.
        fs: [u8; 16],
        /// Its name.
        fsname: String,
        /// Index of the target.
        index: u32,
        /// Identity of the target.
        uuid: [u8; 16],
    }
}

/// Why a directory is no usable target.
#[derive(Debug, thiserror::Error)]
pub enum LabelError {
    /// Not formatted.
    #[error("{0} holds no metadata target; run `pinstripe format --mdt {0}`")]
    Missing(PathBuf),
    /// Something is there already.
    #[error("{path} is not empty ({found}); choose an empty directory or remove what is in it")]
    NotEmpty {
        /// The directory.
        path: PathBuf,
        /// What it holds.
        found: String,
    },
    /// Damaged.
    #[error("{path}: the label is damaged ({why}); restore it from a copy of the target")]
    Damaged {
        /// The label.
        path: PathBuf,
        /// How.
        why: String,
    },
    /// Another kind of target.
    #[error(
        "{0} is the label of another kind of target, such as an OST: there is nothing wrong with it; give the directory of a metadata target"
    )]
    Foreign(PathBuf),
    /// Newer than this program.
    #[error(
        "{path}: label version {found}, this program knows up to {VERSION}; use the newer program"
    )]
    Version {
        /// The label.
        path: PathBuf,
        /// Its version.
        found: u8,
    },
    /// I/O.
    #[error("{path}: {source}")]
    Io {
        /// What was accessed.
        path: PathBuf,
        /// The error.
        source: std::io::Error,
    },
}

pub(crate) fn io(path: &Path) -> impl FnOnce(std::io::Error) -> LabelError + '_ {
    move |source| LabelError::Io { path: path.to_path_buf(), source }
}

/// The bytes of a label.
pub fn encode(label: &MdtLabel) -> Vec<u8> {
    let body = label.to_bytes();
    let mut b = MAGIC.to_vec();
    b.push(VERSION);
    b.extend((body.len() as u16).to_le_bytes());
    b.extend(body);
    b.extend(crc32c::crc32c(&b).to_le_bytes());
    b
}

/// Reads a label; `path` is for messages.
pub fn decode(b: &[u8], path: &Path) -> Result<MdtLabel, LabelError> {
    let damaged = |why: &str| LabelError::Damaged { path: path.into(), why: why.into() };
    if !b.starts_with(MAGIC) && b.starts_with(OTHERS) {
        return Err(LabelError::Foreign(path.into()));
    }
    if b.len() < 12 || &b[..5] != MAGIC {
        return Err(damaged("it does not begin as one"));
    }
    if b[5] != VERSION {
        return Err(LabelError::Version { path: path.into(), found: b[5] });
    }
    let (head, crc) = b.split_at(b.len() - 4);
    if crc32c::crc32c(head).to_le_bytes() != crc {
        return Err(damaged("its checksum differs"));
    }
    let len = u16::from_le_bytes([b[6], b[7]]) as usize;
    let body = head.get(8..8 + len).ok_or_else(|| damaged("it is too short"))?;
    MdtLabel::from_bytes(body).map_err(|e| damaged(&e.to_string()))
}

/// Reads the label of a target.
pub fn read(dir: &Path) -> Result<MdtLabel, LabelError> {
    let path = dir.join(FILE);
    match fs::read(&path) {
        Ok(b) => decode(&b, &path),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Err(LabelError::Missing(dir.into())),
        Err(e) => Err(io(&path)(e)),
    }
}

/// Writes the label durably; the last step of a format.
pub fn write(dir: &Path, label: &MdtLabel) -> Result<(), LabelError> {
    let (tmp, path) = (dir.join(NEW), dir.join(FILE));
    let mut f = fs::File::create(&tmp).map_err(io(&tmp))?;
    f.write_all(&encode(label)).map_err(io(&tmp))?;
    f.sync_all().map_err(io(&tmp))?;
    fs::rename(&tmp, &path).map_err(io(&path))?;
    sync(dir)
}

/// Makes the names in `dir` durable.
pub(crate) fn sync(dir: &Path) -> Result<(), LabelError> {
    fs::File::open(dir).and_then(|d| d.sync_all()).map_err(io(dir))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_bytes_and_refusals() {
        let l = MdtLabel { fs: [1; 16], fsname: "ab".into(), index: 2, uuid: [3; 16] };
        let b = encode(&l);
        let mut expect = b"PSMDT\x01\x2a\x00".to_vec();
        expect.extend([1; 16]);
        expect.extend([2, 0, 0, 0, b'a', b'b', 2, 0, 0, 0]);
        expect.extend([3; 16]);
        assert_eq!(b[..b.len() - 4], expect);
        let p = Path::new("label");
        assert_eq!(decode(&b, p).unwrap(), l);
        let ost = decode(b"PSTOST\0\0\x01\0\0\0\x40\0\0\0", p).unwrap_err();
        assert!(matches!(ost, LabelError::Foreign(_)) && ost.to_string().contains("OST"), "{ost}");
        let mut newer = b.clone();
        newer[5] = 2;
        assert!(matches!(decode(&newer, p), Err(LabelError::Version { found: 2, .. })));
        for at in 0..b.len() {
            let mut bad = b.clone();
            bad[at] ^= 0x40;
            assert!(decode(&bad, p).is_err(), "byte {at}");
            assert!(decode(&b[..at], p).is_err(), "cut at {at}");
        }
    }
}
