//! Readers in strides: blocks of one length at one distance, as each of several readers of a shared file
//! takes its own.
//!
//! Role: finds the pattern and says which blocks come next. Everything between them is another's, and is
//! not read. A kernel that keeps pages asks for whole ones: then all of this is true within a page only, and the
//! step is known the better the longer it goes on. Never does: I/O.

/// Bytes asked for ahead of a reader.
const WINDOW: u64 = 4 << 20;
/// Blocks asked for ahead of a reader, at least and at most.
const BLOCKS: (u64, u64) = (2, 16);
/// Longest block.
const LONGEST: u64 = crate::ahead::CHUNK;
/// What a kernel rounds to that keeps pages, bytes.
const PAGE: u64 = 4096;
/// Asked for on both sides of a block of pages: one where the reader is may be off by a page, and so may be where it will be,
/// as it is asked for no more steps ahead than were seen.
const SLOP: u64 = 2 * PAGE;
/// Blocks and steps of whole multiples of this are taken for what they seem, bytes: of others that were rounded to pages
/// few look so.
const ROUND: u64 = 64 << 10;
/// Equal steps after which a reader is taken to go on.
const HITS: u32 = 1;

/// One reader's pattern. What it reads without a gap is one block, however many requests that takes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Stride {
    /// The block it is at.
    start: u64,
    end: u64,
    /// From one block's start to the next, and the length of those that are read to their end.
    step: u64,
    len: u64,
    /// Blocks are pages, not bytes.
    pages: bool,
    /// Where the first of these steps began, and how many were equal to the one before.
    first: u64,
    hits: u32,
    /// Start of the first block that was not asked for.
    issued: u64,
}

/// Blocks to be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Blocks {
    pub(crate) first: u64,
    pub(crate) step: u64,
    pub(crate) len: u64,
    pub(crate) count: u64,
}

impl Stride {
    fn stands(&self) -> bool {
        self.hits >= HITS
    }

    /// A read of `[offset, end)`; what to ask for now if it belongs to a stride (maybe nothing).
    pub(crate) fn on_read(&mut self, (offset, end): (u64, u64)) -> Option<Blocks> {
        let pages = offset.is_multiple_of(PAGE) && end.is_multiple_of(PAGE);
        if offset == self.end && self.end > self.start {
            self.end = end;
            self.pages &= pages;
            if self.end - self.start > self.len + self.off() {
                self.hits = 0;
            }
            return self.stands().then(|| self.none());
        }
        let (len, step) = (self.end - self.start, offset.wrapping_sub(self.start));
        let onwards = offset > self.start && step > len && (1..=LONGEST).contains(&len);
        let last = Stride { pages: self.pages && pages, ..*self };
        let same = |x: u64, y: u64| x.abs_diff(y) <= last.off();
        *self = if onwards && same(step, self.step) && same(len, self.len) {
            let hits = self.hits.saturating_add(1);
            // Over all steps, so that what was rounded counts for ever less.
            let step = (offset - self.first) / (u64::from(hits) + 1);
            let len = len.max(self.len);
            Stride { start: offset, end, step, len, hits, ..last }
        } else {
            let first = self.start;
            Stride { start: offset, end, step, len, pages, first, hits: 0, issued: 0 }
        };
        self.stands().then(|| self.next())
    }

    /// By how much a step may differ from another.
    fn off(&self) -> u64 {
        let round = self.step.is_multiple_of(ROUND) && self.len.is_multiple_of(ROUND);
        // Where steps are short, pages tell nothing.
        if self.pages && self.step > 8 * SLOP && !round { PAGE } else { 0 }
    }

    /// What was asked for and is not wanted any more if the reader goes on at `offset`.
    pub(crate) fn strays(&self, offset: u64) -> Option<(u64, u64)> {
        let step = offset.wrapping_sub(self.start);
        let goes_on = offset == self.end || step.abs_diff(self.step) <= self.off();
        (self.issued > 0 && !goes_on).then_some((self.start, self.issued))
    }

    fn none(&self) -> Blocks {
        Blocks { first: self.issued, step: self.step, len: self.len, count: 0 }
    }

    fn next(&self) -> Blocks {
        let most = (WINDOW / self.len).clamp(BLOCKS.0, BLOCKS.1);
        let next = self.start.saturating_add(self.step);
        // To the nearest: what was asked for was where the step of then led to.
        let ahead = (self.issued.saturating_sub(next) + self.step / 2) / self.step;
        let first = next.saturating_add(ahead * self.step);
        if self.off() == 0 {
            // In few batches: many requests together cost less than one after the other.
            let count = if ahead > most / 2 { 0 } else { most - ahead };
            return Blocks { first, count, ..self.none() };
        }
        let most = most.min(self.hits.into());
        let count = if ahead > most / 2 { 0 } else { most - ahead };
        Blocks {
            first: first.saturating_sub(SLOP),
            step: self.step,
            len: self.len + 2 * SLOP,
            count,
        }
    }

    /// Blocks before `at` are asked for.
    pub(crate) fn issued(&mut self, at: u64) {
        self.issued = self.issued.max(at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEN: u64 = 47_008;
    const STEP: u64 = 4 * LEN;

    fn read(s: &mut Stride, offset: u64, len: u64) -> Option<Blocks> {
        let blocks = s.on_read((offset, offset + len));
        if let Some(b) = blocks {
            s.issued(b.first + b.count * b.step);
        }
        blocks
    }

    #[test]
    fn whoever_reads_every_fourth_block_has_each_asked_for_once() {
        let (mut s, mut asked) = (Stride::default(), Vec::new());
        for n in 0..100 {
            let Some(b) = read(&mut s, LEN + n * STEP, LEN) else { continue };
            assert_eq!((b.step, b.len), (STEP, LEN));
            asked.extend((0..b.count).map(|i| b.first + i * b.step));
            assert!(asked.last().is_none_or(|last| *last <= LEN + (n + BLOCKS.1) * STEP));
        }
        let first = asked[0];
        let all: Vec<u64> = (0..asked.len() as u64).map(|i| first + i * STEP).collect();
        assert_eq!(asked, all);
        assert!(first <= LEN + 3 * STEP && asked.len() > 90);
    }

    #[test]
    fn whole_pages_of_blocks_are_asked_for_before_they_are_wanted() {
        for (len, step) in [(LEN, STEP), (LEN, 4 * LEN + 1), (100_000, 700_001), (4096, 200_000)] {
            let (mut s, mut asked, mut missed) = (Stride::default(), Vec::new(), 0);
            for n in 0..200 {
                let (from, to) = (LEN + n * step, LEN + n * step + len);
                let (from, to) = (from / PAGE * PAGE, to.next_multiple_of(PAGE));
                let there = asked.iter().any(|(a, b)| *a <= from && to <= *b);
                missed += u64::from(!there);
                let Some(b) = s.on_read((from, to)) else { continue };
                asked.extend((0..b.count).map(|i| b.first + i * b.step).map(|at| (at, at + b.len)));
                s.issued(b.first + b.count * b.step);
            }
            assert!(missed < 10, "{missed} of {len} by {step}");
            assert!(asked.len() < 230, "{} of {len} by {step}", asked.len());
        }
    }

    #[test]
    fn round_blocks_are_asked_for_as_they_are() {
        const MIB: u64 = 1 << 20;
        let (mut s, mut asked) = (Stride::default(), Vec::new());
        for n in 0..50 {
            // As the kernel asks for them, in two parts.
            for half in 0..2 {
                let at = MIB + n * 4 * MIB + half * MIB / 2;
                let Some(b) = read(&mut s, at, MIB / 2) else { continue };
                asked.extend((0..b.count).map(|i| (b.first + i * b.step, b.len)));
            }
        }
        let first = asked[0].0;
        let all: Vec<_> = (0..asked.len() as u64).map(|i| (first + i * 4 * MIB, MIB)).collect();
        assert_eq!(asked, all);
        assert!(first <= 4 * 4 * MIB && asked.len() > 40, "{first}, {}", asked.len());
    }

    #[test]
    fn pages_here_and_there_are_no_stride() {
        let mut s = Stride::default();
        for at in [9, 1, 7, 2, 8, 30, 11, 90, 4, 17, 21, 3] {
            assert_eq!(s.on_read((at << 20, (at << 20) + 4096)), None);
        }
        let mut s = Stride::default();
        for n in 0..50 {
            assert_eq!(s.on_read((n * 8192, n * 8192 + 8192)), None, "one after the other");
        }
    }

    #[test]
    fn a_block_may_take_several_requests() {
        let mut s = Stride::default();
        let mut found = 0;
        for n in 0..8 {
            read(&mut s, n * STEP, LEN - 10);
            found += u64::from(read(&mut s, n * STEP + LEN - 10, 10).is_some());
        }
        assert!(found >= 4, "{found}");
    }

    #[test]
    fn who_reads_on_or_here_and_there_reads_in_no_stride() {
        let mut s = Stride::default();
        for n in 0..50 {
            assert_eq!(read(&mut s, n * LEN, LEN), None);
        }
        let mut s = Stride::default();
        for at in [9, 1, 7, 2, 8, 30, 11, 90, 4] {
            assert_eq!(read(&mut s, at << 20, LEN), None);
        }
        let mut s = Stride::default();
        for n in (0..50).rev() {
            assert_eq!(read(&mut s, n * STEP, LEN), None, "backwards");
        }
    }

    #[test]
    fn what_was_asked_for_strays_when_the_reader_goes_elsewhere() {
        let mut s = Stride::default();
        for n in 0..6 {
            read(&mut s, n * STEP, LEN);
        }
        assert_eq!(s.strays(6 * STEP), None);
        assert!(matches!(s.strays(3), Some((from, to)) if from == 5 * STEP && to > from));
        assert_eq!(read(&mut s, 3, LEN), None);
        assert_eq!(s.strays(77 * STEP), None);
    }
}
