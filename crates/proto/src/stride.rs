//! Bytes of a file at even distances: what a writer of a shared file keeps to.
//!
//! Role: arithmetic of which bytes they are, and whether two of them have any in common. Assumptions:
//! what comes from a peer is asked [`Stride::is_valid`] first. Never does: say yes wrongly to "nothing in
//! common"; the opposite it may, of blocks that would only meet in front of where one of them begins.

use crate::MAX_FILE_SIZE;

crate::wire_struct! {
    /// Blocks of `len` bytes: the first at `start`, the others each `step` after the one before, without an
    /// end; with a `step` of 0 the first alone.
    Stride {
        /// Offset of the first block, bytes.
        start: u64,
        /// Length of a block, bytes; not 0.
        len: u64,
        /// From one block's start to the next, bytes; 0, or at least `len`.
        step: u64,
    }
}

impl Stride {
    /// One block.
    pub fn range(start: u64, len: u64) -> Stride {
        Stride { start, len, step: 0 }
    }

    /// Whether it is what the fields promise, within what a file can be.
    pub fn is_valid(&self) -> bool {
        let end = self.start.checked_add(self.len);
        self.len > 0
            && end.is_some_and(|end| end <= MAX_FILE_SIZE)
            && (self.step == 0 || (self.len..=MAX_FILE_SIZE).contains(&self.step))
    }

    /// Behind its only block.
    fn end(&self) -> u64 {
        self.start.saturating_add(self.len)
    }

    /// Whether `[at, at + len)` lies within one of its blocks.
    pub fn holds(&self, at: u64, len: u64) -> bool {
        let Some(after) = at.checked_sub(self.start) else { return false };
        let into = if self.step == 0 { after } else { after % self.step };
        into.checked_add(len).is_some_and(|end| end <= self.len)
    }

    /// Whether they may have a byte in common.
    pub fn meets(&self, other: &Stride) -> bool {
        match (self.step, other.step) {
            (0, 0) => self.start < other.end() && other.start < self.end(),
            (0, _) => other.meets_range(self.start, self.end()),
            (_, 0) => self.meets_range(other.start, other.end()),
            (a, b) => {
                // All distances between their blocks are the first one, plus multiples of this.
                let every = gcd(a, b);
                let far = (i128::from(other.start) - i128::from(self.start))
                    .rem_euclid(i128::from(every)) as u64;
                far < self.len || far.saturating_add(other.len) > every
            }
        }
    }

    /// Whether one of many blocks meets a range.
    fn meets_range(&self, start: u64, end: u64) -> bool {
        if end <= self.start {
            return false;
        }
        let start = start.max(self.start);
        let into = (start - self.start) % self.step;
        into < self.len || into.saturating_add(end - start) > self.step
    }
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests;
