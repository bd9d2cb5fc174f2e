//! Small files that must be whole or absent: labels and the list of targets.
//!
//! Layout: 8 bytes magic, u32 version, u32 body length, body, u32 crc32c of all before (all
//! little-endian). Written beside, synced, renamed, directory synced, so that a crash leaves the
//! old file or the new one. Reading is total (invariant 12). Never does: interpret the body.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Bytes before the body.
const HEAD: usize = 16;
/// Bytes after the body.
const TAIL: usize = 4;
/// Longest body, in bytes (65,535 targets with addresses fit).
pub const MAX_BODY: usize = 16 << 20;

/// Why a sealed file cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SealError {
    /// It is not there.
    #[error("there is no such file")]
    Absent,
    /// The system refused.
    #[error("{0}")]
    Io(String),
    /// The first bytes are not ours.
    #[error("it is not a Pinstripe {0}")]
    Magic(&'static str),
    /// Made by a newer program.
    #[error(
        "its format version {found} is newer than {known}, the newest this program knows; use the program that wrote it"
    )]
    Version {
        /// In the file.
        found: u32,
        /// Known here.
        known: u32,
    },
    /// Bytes are missing, too many or changed.
    #[error("it is damaged ({0}); restore it from a copy")]
    Damaged(String),
}

/// A kind of sealed file.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    /// First bytes.
    pub magic: [u8; 8],
    /// Newest format version known.
    pub version: u32,
    /// What to call it in messages.
    pub what: &'static str,
}

impl Kind {
    /// The bytes of a file with this body.
    pub fn seal(&self, body: &[u8]) -> Vec<u8> {
        let mut b = Vec::with_capacity(HEAD + body.len() + TAIL);
        b.extend(self.magic);
        b.extend(self.version.to_le_bytes());
        b.extend((body.len() as u32).to_le_bytes());
        b.extend(body);
        let crc = crc32c::crc32c(&b);
        b.extend(crc.to_le_bytes());
        b
    }

    /// The body in a file's bytes.
    pub fn open<'a>(&self, bytes: &'a [u8]) -> Result<&'a [u8], SealError> {
        let damaged = |text: String| Err(SealError::Damaged(text));
        match bytes.get(..8) {
            Some(magic) if magic == self.magic => {}
            Some(_) => return Err(SealError::Magic(self.what)),
            None => return damaged(format!("only {} bytes", bytes.len())),
        }
        let (Some(version), Some(len)) = (u32_at(bytes, 8), u32_at(bytes, 12)) else {
            return damaged(format!("only {} bytes", bytes.len()));
        };
        if version > self.version {
            return Err(SealError::Version { found: version, known: self.version });
        }
        let want = HEAD + len as usize + TAIL;
        if len as usize > MAX_BODY || bytes.len() != want {
            return damaged(format!("{} bytes instead of {want}", bytes.len()));
        }
        let end = bytes.len() - TAIL;
        let (found, computed) = (u32_at(bytes, end), crc32c::crc32c(&bytes[..end]));
        if found != Some(computed) {
            return damaged("its checksum differs".into());
        }
        if version == 0 {
            return damaged("format version 0 never existed".into());
        }
        Ok(&bytes[HEAD..end])
    }

    /// Reads the body of the file at `path`.
    pub fn load(&self, path: &Path) -> Result<Vec<u8>, SealError> {
        let bytes = std::fs::read(path).map_err(|e| match e.kind() {
            std::io::ErrorKind::NotFound => SealError::Absent,
            _ => SealError::Io(e.to_string()),
        })?;
        self.open(&bytes).map(<[u8]>::to_vec)
    }

    /// Replaces the file at `path`, durably, with this body.
    pub fn store(&self, path: &Path, body: &[u8]) -> std::io::Result<()> {
        replace(path, &self.seal(body), 0o644)
    }
}

fn u32_at(b: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(b.get(at..at + 4)?.try_into().ok()?))
}

/// Replaces a file by one of these bytes and permission bits; durable when it returns.
pub fn replace(path: &Path, bytes: &[u8], mode: u32) -> std::io::Result<()> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let beside = path.with_file_name(format!(".{name}.new"));
    let mut f =
        OpenOptions::new().write(true).create(true).truncate(true).mode(mode).open(&beside)?;
    f.write_all(bytes)?;
    f.sync_all()?;
    std::fs::rename(&beside, path)?;
    sync_dir(path.parent().unwrap_or(Path::new(".")))
}

/// Makes the names in a directory durable.
pub fn sync_dir(dir: &Path) -> std::io::Result<()> {
    let dir = if dir.as_os_str().is_empty() { Path::new(".") } else { dir };
    File::open(dir)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const KIND: Kind = Kind { magic: *b"PSTTEST\0", version: 2, what: "test file" };

    #[test]
    fn golden_bytes() {
        let mut expect = b"PSTTEST\0".to_vec();
        expect.extend([2, 0, 0, 0, 3, 0, 0, 0, b'a', b'b', b'c']);
        let crc = crc32c::crc32c(&expect);
        expect.extend(crc.to_le_bytes());
        assert_eq!(KIND.seal(b"abc"), expect);
        assert_eq!(KIND.open(&expect), Ok(&b"abc"[..]));
    }

    #[test]
    fn every_damage_is_named() {
        let good = KIND.seal(b"abc");
        assert_eq!(KIND.open(b"GET / HTTP/1.1 and so on"), Err(SealError::Magic("test file")));
        for cut in 0..good.len() {
            assert!(matches!(KIND.open(&good[..cut]), Err(SealError::Damaged(_))), "cut at {cut}");
        }
        for at in 16..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 0x10;
            assert!(matches!(KIND.open(&bad), Err(SealError::Damaged(_))), "flipped {at}");
        }
        let newer = Kind { version: 3, ..KIND }.seal(b"abc");
        assert_eq!(KIND.open(&newer), Err(SealError::Version { found: 3, known: 2 }));
    }

    #[test]
    fn a_stored_file_reads_back_and_replaces_the_old_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        assert_eq!(KIND.load(&path), Err(SealError::Absent));
        KIND.store(&path, b"one").unwrap();
        KIND.store(&path, b"two").unwrap();
        assert_eq!(KIND.load(&path), Ok(b"two".to_vec()));
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    proptest! {
        #[test]
        fn opening_is_total(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let _ = KIND.open(&bytes);
            let mut with_magic = KIND.magic.to_vec();
            with_magic.extend(&bytes);
            let _ = KIND.open(&with_magic);
        }
    }
}
