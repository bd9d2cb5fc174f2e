//! The sums of cksum and sum: two of 16 bits, two cyclic redundancy checks of 32.

use crc_fast::CrcAlgorithm;

/// `sum -r`: rotate right, add.
#[derive(Clone, Default)]
pub struct Bsd(u16);

impl Bsd {
    pub fn update(&mut self, bytes: &[u8]) {
        self.0 =
            bytes.iter().fold(self.0, |sum, b| sum.rotate_right(1).wrapping_add(u16::from(*b)));
    }

    pub fn finish(self) -> u16 {
        self.0
    }
}

/// `sum -s`: the sum of all bytes, folded.
#[derive(Clone, Default)]
pub struct Sysv(u32);

impl Sysv {
    pub fn update(&mut self, bytes: &[u8]) {
        // Eight bytes at a time: lanes of 16 bits, added up before they can overflow.
        const LANES: u64 = 0x00ff_00ff_00ff_00ff;
        let mut parts = bytes.chunks_exact(8 * 128);
        for part in &mut parts {
            let (words, _) = part.as_chunks::<8>();
            let add = |lanes: u64, word: &[u8; 8]| {
                let word = u64::from_le_bytes(*word);
                lanes + (word & LANES) + (word >> 8 & LANES)
            };
            let lanes = words.iter().fold(0, add);
            for lane in 0..4 {
                self.0 = self.0.wrapping_add((lanes >> (16 * lane)) as u32 & 0xffff);
            }
        }
        for byte in parts.remainder() {
            self.0 = self.0.wrapping_add(u32::from(*byte));
        }
    }

    pub fn finish(self) -> u16 {
        let folded = (self.0 & 0xffff) + (self.0 >> 16);
        ((folded & 0xffff) + (folded >> 16)) as u16
    }
}

/// A cyclic redundancy check of 32 bits.
#[derive(Clone)]
pub struct Crc {
    state: crc_fast::Digest,
    /// Bytes so far, where the check includes their number at the end (POSIX's does).
    length: Option<u64>,
}

impl Crc {
    /// POSIX's cksum.
    pub fn posix() -> Self {
        Self { state: crc_fast::Digest::new(CrcAlgorithm::Crc32Cksum), length: Some(0) }
    }

    /// ITU V.42, as gzip's.
    pub fn v42() -> Self {
        Self { state: crc_fast::Digest::new(CrcAlgorithm::Crc32IsoHdlc), length: None }
    }

    pub fn update(&mut self, bytes: &[u8]) {
        self.state.update(bytes);
        if let Some(length) = &mut self.length {
            *length = length.wrapping_add(bytes.len() as u64);
        }
    }

    pub fn finish(mut self) -> u32 {
        if let Some(length) = self.length {
            let used = 8 - length.leading_zeros() as usize / 8;
            self.state.update(&length.to_le_bytes()[..used]);
        }
        self.state.finalize() as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_of_many_bytes_do_not_overflow() {
        for len in [0, 1, 1023, 1024, 1025, 300_000] {
            let bytes = vec![255u8; len];
            let mut sum = Sysv::default();
            sum.update(&bytes);
            assert_eq!(sum.0, 255 * len as u32);
        }
    }
}
