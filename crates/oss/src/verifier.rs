//! The verifier: what unstable writes are answered with.
//!
//! Role: a record of its own on disk says which run of the machine (Linux's boot id) the verifier is
//! of. Whatever becomes of the process, the kernel keeps what was written; so a target that opens
//! again in the same run, or after a clean close, goes on with its verifier, and its clients send
//! nothing again: what they would send may be older than what another wrote over it since
//! (invariant 3). After a restart of the machine, or a sync that failed, it is a new one, and they send
//! all again (invariant 1). Never does: sync; what an earlier process left is made durable by the
//! first commit.

use std::path::Path;

use crate::label::{LabelError, seal, unseal};

/// The record's file.
pub(crate) const VERIFIER: &str = "verifier";
/// Version of the record.
pub(crate) const VERIFIER_VERSION: u32 = 1;
const VERIFIER_MAGIC: [u8; 8] = *b"PSTVERIF";
/// Where Linux says which run of the machine this is.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// What the record says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verifier {
    /// What unstable writes are answered with.
    pub verifier: u64,
    /// The run of the machine it is of.
    pub machine: [u8; 16],
}

impl Verifier {
    /// Whether all that was answered with it is durable or in the machine's memory; `clean`: the target
    /// was closed after it had committed everything.
    pub(crate) fn stands(&self, machine: &[u8; 16], clean: bool) -> bool {
        clean || self.machine == *machine
    }

    /// As it lies on disk.
    pub fn to_bytes(&self) -> Vec<u8> {
        seal(VERIFIER_MAGIC, VERIFIER_VERSION, |e| {
            e.put(&self.verifier).put(&self.machine);
        })
    }

    /// Reads what [`Verifier::to_bytes`] made; total for any bytes.
    pub fn from_bytes(bytes: &[u8]) -> Result<Verifier, LabelError> {
        let mut d = unseal(bytes, "verifier", VERIFIER_MAGIC, VERIFIER_VERSION)?;
        let record = Verifier { verifier: d.get()?, machine: d.get()? };
        d.end()?;
        Ok(record)
    }
}

/// This run of the machine; one that is like no other where the kernel does not say.
pub(crate) fn this_run() -> [u8; 16] {
    std::fs::read_to_string(Path::new(BOOT_ID))
        .ok()
        .and_then(|text| u128::from_str_radix(&text.trim().replace('-', ""), 16).ok())
        .map_or_else(rand::random, u128::to_be_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn golden_bytes() {
        let v = Verifier { verifier: 7 << 32 | 1, machine: *b"0123456789abcdef" };
        let mut expect = b"PSTVERIF\x01\0\0\0\x01\0\0\0\x07\0\0\x000123456789abcdef".to_vec();
        expect.extend(crc32c::crc32c(&expect).to_le_bytes());
        assert_eq!(v.to_bytes(), expect);
        assert_eq!(Verifier::from_bytes(&expect), Ok(v));
    }

    #[test]
    fn it_stands_in_one_run_and_after_a_clean_end() {
        let v = Verifier { verifier: 1, machine: [1; 16] };
        assert!(v.stands(&[1; 16], false) && v.stands(&[2; 16], true));
        assert!(!v.stands(&[2; 16], false));
    }

    #[test]
    fn runs_are_told_apart_by_the_kernel() {
        assert_eq!(this_run(), this_run());
        assert_ne!(this_run(), [0; 16]);
    }

    /// A failing disk fails many commits at once.
    #[test]
    fn of_failures_side_by_side_the_last_is_stored() {
        let dir = tempfile::tempdir().unwrap();
        let label = crate::OstLabel { fs: [7; 16], fs_name: "t".into(), index: 0, uuid: [9; 16] };
        crate::Ost::format(dir.path(), &label).unwrap();
        let ost = crate::Ost::open(dir.path(), crate::OstOptions::default()).unwrap();
        let before = ost.verifier();
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| (0..10).for_each(|_| ost.new_verifier()));
            }
        });
        let stored = Verifier::from_bytes(&std::fs::read(dir.path().join(VERIFIER)).unwrap());
        assert_eq!(stored.unwrap().verifier, ost.verifier());
        assert_eq!(ost.verifier(), before + 80);
    }

    proptest! {
        #[test]
        fn decoder_is_total(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let _ = Verifier::from_bytes(&bytes);
            let mut framed = VERIFIER_MAGIC.to_vec();
            framed.extend([1, 0, 0, 0]);
            framed.extend(&bytes);
            framed.extend(crc32c::crc32c(&framed).to_le_bytes());
            let _ = Verifier::from_bytes(&framed);
        }
    }
}
