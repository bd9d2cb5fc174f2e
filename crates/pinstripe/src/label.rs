//! Who a directory is: the label that `format` leaves in the MGS's directory, and how file
//! systems get their identity.
//!
//! Assumption: one file system per cluster key and name. Its UUID is derived from both, so that
//! targets prepared on different machines agree without asking each other. Never does: label MDTs
//! and OSTs; crates `mds` and `oss` keep their own.

use std::path::Path;

use proto::mgs::{KIND_MDT, KIND_MGS, KIND_OST};
use proto::wire::Wire;

use crate::failure::{Failure, Outcome};
use crate::sealed::{Kind, SealError};

/// Name of the label file in the MGS's directory.
pub const LABEL_FILE: &str = "MGS_LABEL";
/// Longest name of a file system, in bytes, as in Lustre.
pub const FSNAME_MAX: usize = 8;
/// Largest index of a target: four hex digits, 0xffff stands for "any" in layouts.
pub const INDEX_MAX: u32 = 0xfffe;

const KIND: Kind = Kind { magic: *b"PSTLABEL", version: 1, what: "target label" };

proto::wire_struct! {
    /// What a label says.
    Label {
        /// File system.
        fs: [u8; 16],
        /// Its name.
        name: String,
        /// `KIND_*` of `proto::mgs`.
        kind: u8,
        /// Index within its kind.
        index: u32,
        /// Identity of this target, given at format.
        uuid: [u8; 16],
    }
}

impl Label {
    /// Reads the label in `dir`; `None` when there is none.
    pub fn read(dir: &Path) -> Outcome<Option<Label>> {
        let path = dir.join(LABEL_FILE);
        let bad = |e: &dyn std::fmt::Display| {
            Failure::run(format!("the label {} cannot be used: {e}", path.display()))
        };
        match KIND.load(&path) {
            Err(SealError::Absent) => Ok(None),
            Err(e) => Err(bad(&e)),
            Ok(body) => Label::from_bytes(&body).map(Some).map_err(|e| bad(&e)),
        }
    }

    /// Writes the label into `dir`, durably.
    pub fn write(&self, dir: &Path) -> std::io::Result<()> {
        KIND.store(&dir.join(LABEL_FILE), &self.to_bytes())
    }

    /// Reads a label file's bytes (the fuzzed entry point).
    pub fn decode(bytes: &[u8]) -> Result<Label, String> {
        let body = KIND.open(bytes).map_err(|e| e.to_string())?;
        Label::from_bytes(body).map_err(|e| e.to_string())
    }

    /// The bytes of a label file.
    pub fn encode(&self) -> Vec<u8> {
        KIND.seal(&self.to_bytes())
    }
}

/// The identity of the file system `name` under the cluster key in a file of this text. It must
/// never change: it is what tells one file system's targets from another's. One-way, so that
/// labels do not give the key away.
pub fn fs_uuid(key_text: &str, name: &str) -> [u8; 16] {
    use sha2::{Digest, Sha256};
    let mut h = Sha256::new();
    h.update(b"pinstripe file system identity v1\0");
    h.update(key_text.trim());
    h.update([0]);
    h.update(name);
    let digest = h.finalize();
    let mut uuid = [0; 16];
    uuid.copy_from_slice(&digest[..16]);
    uuid
}

/// A random UUID (version 4).
pub fn new_uuid() -> [u8; 16] {
    let mut uuid: [u8; 16] = rand::random();
    uuid[6] = uuid[6] & 0x0f | 0x40;
    uuid[8] = uuid[8] & 0x3f | 0x80;
    uuid
}

/// A UUID as people write it.
pub fn uuid_text(uuid: &[u8; 16]) -> String {
    let hex: String = uuid.iter().map(|b| format!("{b:02x}")).collect();
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

/// What a kind of target is called.
pub fn kind_name(kind: u8) -> &'static str {
    match kind {
        KIND_MDT => "MDT",
        KIND_OST => "OST",
        KIND_MGS => "MGS",
        _ => "target of an unknown kind",
    }
}

/// Checks a file system's name: 1 to 8 letters, digits, `_` or `-`.
pub fn check_fsname(name: &str) -> Result<String, String> {
    let good = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if name.is_empty() || name.len() > FSNAME_MAX || !name.chars().all(good) {
        return Err(format!("use 1 to {FSNAME_MAX} letters, digits, '_' or '-'"));
    }
    Ok(name.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn golden_bytes_of_a_label() {
        let l = Label { fs: [1; 16], name: "pin".into(), kind: KIND_MGS, index: 0, uuid: [2; 16] };
        let mut expect = b"PSTLABEL".to_vec();
        expect.extend([1, 0, 0, 0, 44, 0, 0, 0]);
        expect.extend([1; 16]);
        expect.extend([3, 0, 0, 0, b'p', b'i', b'n', 3, 0, 0, 0, 0]);
        expect.extend([2; 16]);
        let crc = crc32c::crc32c(&expect);
        expect.extend(crc.to_le_bytes());
        assert_eq!(l.encode(), expect);
        assert_eq!(Label::decode(&expect), Ok(l));
    }

    #[test]
    fn identities_depend_on_key_and_name_only() {
        let one = fs_uuid("00ff", "pin");
        assert_eq!(uuid_text(&one), "66e1d4a2-7430-dcb2-3b2b-d0725af68ae2");
        assert_eq!(fs_uuid("00ff\n", "pin"), one);
        assert_ne!(fs_uuid("00ff", "pim"), one);
        assert_ne!(fs_uuid("00fe", "pin"), one);
    }

    #[test]
    fn names_are_checked() {
        assert!(check_fsname("scratch1").is_ok());
        for bad in ["", "too-long-name", "a/b", "é"] {
            assert!(check_fsname(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn uuids_are_written_as_usual() {
        let text = uuid_text(&[0x12; 16]);
        assert_eq!(text, "12121212-1212-1212-1212-121212121212");
        assert_eq!(new_uuid()[6] >> 4, 4);
    }

    proptest! {
        #[test]
        fn decoding_is_total(bytes in proptest::collection::vec(any::<u8>(), 0..128)) {
            let _ = Label::decode(&bytes);
            let _ = Label::decode(&KIND.seal(&bytes));
        }
    }
}
