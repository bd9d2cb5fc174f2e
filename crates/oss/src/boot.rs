//! The boot record: the epoch of a target and which of its boots ended in a crash.
//!
//! Bumped durably before the first request is taken. A boot that did not end cleanly is remembered
//! because checksums of objects overwritten in it are not to be believed (see [`crate::sidecar`]).

use proto::wire::List;

use crate::label::{LabelError, seal, unseal};

/// The boot record's file.
pub(crate) const BOOT: &str = "boot";
/// Version of the record.
pub(crate) const BOOT_VERSION: u32 = 1;
const BOOT_MAGIC: [u8; 8] = *b"PSTBOOT\0";
/// Most crashed boots remembered one by one; above it the older half is folded into `all_until`.
pub const UNCLEAN_MAX: usize = 128;

/// What the boot record says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Boot {
    /// Number of the last boot; 0: never opened.
    pub epoch: u32,
    /// Whether it ended by a clean close.
    pub clean: bool,
    /// Every boot up to this one counts as crashed.
    pub all_until: u32,
    /// Further boots that crashed, rising.
    pub unclean: Vec<u32>,
    /// Objects at the last clean close.
    pub objects: u64,
}

impl Boot {
    /// Of a target just formatted.
    pub(crate) fn first() -> Boot {
        Boot { epoch: 0, clean: true, all_until: 0, unclean: Vec::new(), objects: 0 }
    }

    /// The record of the boot that begins now.
    pub(crate) fn next(mut self) -> Boot {
        if !self.clean {
            self.unclean.push(self.epoch);
        }
        if self.unclean.len() > UNCLEAN_MAX {
            let folded = self.unclean.drain(..UNCLEAN_MAX / 2).next_back();
            self.all_until = folded.unwrap_or(self.all_until);
        }
        self.epoch += 1;
        self.clean = false;
        self
    }

    /// Whether a boot ended in a crash.
    pub fn crashed(&self, epoch: u32) -> bool {
        epoch <= self.all_until
            || self.unclean.contains(&epoch)
            || (epoch == self.epoch && !self.clean)
            || epoch > self.epoch
    }

    /// Whether any boot so far did.
    pub(crate) fn ever_crashed(&self) -> bool {
        !self.clean || self.all_until > 0 || !self.unclean.is_empty()
    }

    /// As it lies on disk.
    pub fn to_bytes(&self) -> Vec<u8> {
        seal(BOOT_MAGIC, BOOT_VERSION, |e| {
            e.put(&self.epoch).put(&self.clean).put(&self.objects).put(&self.all_until);
            e.put(&List(self.unclean.clone()));
        })
    }

    /// Reads what [`Boot::to_bytes`] made; total for any bytes.
    pub fn from_bytes(bytes: &[u8]) -> Result<Boot, LabelError> {
        let mut d = unseal(bytes, "boot record", BOOT_MAGIC, BOOT_VERSION)?;
        let (epoch, clean, objects, all_until) = (d.get()?, d.get()?, d.get()?, d.get()?);
        let List(unclean) = d.get()?;
        d.end()?;
        Ok(Boot { epoch, clean, all_until, unclean, objects })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn golden_bytes() {
        let b = Boot { epoch: 7, clean: false, all_until: 2, unclean: vec![4], objects: 9 };
        let mut expect = b"PSTBOOT\0\x01\0\0\0\x07\0\0\0\0\x09\0\0\0\0\0\0\0\x02\0\0\0".to_vec();
        expect.extend([1, 0, 0, 0, 4, 0, 0, 0]);
        expect.extend(crc32c::crc32c(&expect).to_le_bytes());
        assert_eq!(b.to_bytes(), expect);
        assert_eq!(Boot::from_bytes(&expect), Ok(b));
    }

    #[test]
    fn crashed_boots_are_remembered() {
        let mut b = Boot::first().next();
        assert!(b.crashed(1), "a boot under way counts as crashed until it ends");
        b.clean = true;
        b = b.next();
        assert!(!b.crashed(1));
        for _ in 0..1000 {
            b = b.next();
            assert!(b.unclean.len() <= UNCLEAN_MAX);
        }
        assert!((2..b.epoch).all(|e| b.crashed(e)));
    }

    proptest! {
        #[test]
        fn decoder_is_total(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let _ = Boot::from_bytes(&bytes);
            let mut framed = BOOT_MAGIC.to_vec();
            framed.extend([1, 0, 0, 0]);
            framed.extend(&bytes);
            framed.extend(crc32c::crc32c(&framed).to_le_bytes());
            let _ = Boot::from_bytes(&framed);
        }
    }
}
