//! Finds blocks of zeros, for `--sparse=always`.

/// Bytes looked at before it is asked whether to go on.
const STEP: usize = 256;

/// Whether all bytes are zero; ends early where they are not.
pub fn is_zero(bytes: &[u8]) -> bool {
    bytes.chunks(STEP).all(|step| step.iter().fold(0, |all, byte| all | byte) == 0)
}

/// Cuts `bytes`, which lie at `at` of the file, into runs that are all zeros or data; blocks are counted
/// from the start of the file.
pub fn runs(bytes: &[u8], at: u64, block: usize) -> Runs<'_> {
    Runs { bytes, at, block: block.max(1) }
}

pub struct Runs<'a> {
    bytes: &'a [u8],
    at: u64,
    block: usize,
}

/// A run: where it lies in the bytes given, and whether it is all zeros.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Run<'a> {
    pub at: u64,
    pub bytes: &'a [u8],
    pub zero: bool,
}

impl<'a> Runs<'a> {
    /// Length of the next block: to the next multiple of the block size.
    fn step(&self, taken: usize) -> usize {
        let inside = ((self.at + taken as u64) % self.block as u64) as usize;
        (self.block - inside).min(self.bytes.len() - taken)
    }
}

impl<'a> Iterator for Runs<'a> {
    type Item = Run<'a>;

    fn next(&mut self) -> Option<Run<'a>> {
        if self.bytes.is_empty() {
            return None;
        }
        let mut taken = self.step(0);
        let zero = is_zero(&self.bytes[..taken]);
        while taken < self.bytes.len() {
            let step = self.step(taken);
            if is_zero(&self.bytes[taken..taken + step]) != zero {
                break;
            }
            taken += step;
        }
        let (run, rest) = self.bytes.split_at(taken);
        let at = self.at;
        (self.at, self.bytes) = (at + taken as u64, rest);
        Some(Run { at, bytes: run, zero })
    }
}

#[cfg(test)]
mod tests {
    use super::{is_zero, runs};

    #[test]
    fn zeros_are_zeros() {
        assert!(is_zero(&[]) && is_zero(&[0; 1000]));
        for at in [0, 255, 256, 999] {
            let mut bytes = [0; 1000];
            bytes[at] = 1;
            assert!(!is_zero(&bytes), "{at}");
        }
    }

    #[test]
    fn runs_begin_at_blocks_of_the_file() {
        let mut bytes = vec![0; 40];
        bytes[3] = 1;
        bytes[25] = 1;
        // At 6 with blocks of 10: 6-10 holds the 1, 10-30 is zero, 30-40 holds the other, the rest is zero.
        let all: Vec<_> = runs(&bytes, 6, 10).map(|r| (r.at, r.bytes.len(), r.zero)).collect();
        assert_eq!(all, [(6, 4, false), (10, 20, true), (30, 10, false), (40, 6, true)]);
    }
}
