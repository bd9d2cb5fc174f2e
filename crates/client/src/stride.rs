//! Readers in strides: blocks of one length at one distance, as each of several readers of a shared file
//! takes its own.
//!
//! Role: finds the pattern and says which blocks come next. Everything between them is another's, and is
//! not read. A kernel that keeps pages asks for whole ones: what the blocks are in bytes is then known within
//! bounds, the closer the longer it goes on ([`Bounds`]). Never does: I/O.

/// Bytes asked for ahead of a reader.
const WINDOW: u64 = 4 << 20;
/// Blocks asked for ahead of a reader, at least and at most.
const BLOCKS: (u64, u64) = (2, 16);
/// Longest block.
const LONGEST: u64 = crate::ahead::CHUNK;
/// What a kernel rounds to that keeps pages, bytes.
const PAGE: u64 = 4096;
/// By how much the place of a block may be uncertain that is asked for, bytes.
const SLOP: u64 = 2 * PAGE;
/// Blocks and steps of whole multiples of this are taken for what they seem, bytes: of others that were rounded to pages
/// few look so.
const ROUND: u64 = 64 << 10;
/// Equal steps after which a reader is taken to go on.
const HITS: u32 = 1;

/// A number that is not known but for its bounds, both included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Bounds {
    low: u64,
    high: u64,
}

impl Bounds {
    fn new(low: u64, high: u64) -> Bounds {
        Bounds { low, high }
    }

    /// What both allow, if anything.
    fn and(self, other: Bounds) -> Option<Bounds> {
        let both = Bounds::new(self.low.max(other.low), self.high.min(other.high));
        (both.low <= both.high).then_some(both)
    }

    fn after(self, steps: u64, step: Bounds) -> Bounds {
        let after = |at: u64, step: u64| at.saturating_add(step.saturating_mul(steps));
        Bounds::new(after(self.low, step.low), after(self.high, step.high))
    }

    /// What was rounded down to this page.
    fn rounded_down(at: u64) -> Bounds {
        Bounds::new(at, at.saturating_add(PAGE - 1))
    }

    /// What was rounded up to this page.
    fn rounded_up(at: u64) -> Bounds {
        Bounds::new(at.saturating_sub(PAGE - 1), at)
    }
}

/// What blocks of which only pages are seen are in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Truth {
    /// Where the block begins that the reader is at.
    begins: Bounds,
    /// Where the one before it ended.
    ended: Bounds,
    step: Bounds,
}

impl Truth {
    /// A block that begins in page `at`, `over` bytes of pages after the first of `steps`; the one before it ended in the
    /// page before `end`.
    fn seen(at: u64, end: u64, over: u64, steps: u64) -> Truth {
        let low = over.saturating_sub(PAGE - 1).div_ceil(steps);
        let step = Bounds::new(low, over.saturating_add(PAGE - 1) / steps);
        Truth { begins: Bounds::rounded_down(at), ended: Bounds::rounded_up(end), step }
    }

    /// This, one step after what was known before; None if they do not go together.
    fn onwards(self, before: Truth) -> Option<Truth> {
        let step = self.step.and(before.step)?;
        let begins = self.begins.and(before.begins.after(1, step))?;
        let ended = self.ended.and(before.ended.after(1, step))?;
        Some(Truth { begins, ended, step })
    }
}

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
    /// Then, what they are in bytes.
    truth: Truth,
    /// Where the first of these steps began, and how many were equal to the one before.
    first: u64,
    hits: u32,
    /// Start of the first block that was not asked for.
    issued: u64,
}

/// Blocks to be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Blocks {
    /// About where the first begins, and the step.
    first: u64,
    step: u64,
    /// How many.
    pub(crate) count: u64,
    /// Where the first begins and ends at the outmost, and by how much more each that follows.
    outmost: (u64, u64),
    steps: Bounds,
    /// What is asked for begins and ends at multiples of this.
    unit: u64,
}

impl Blocks {
    /// Bytes to be asked for of the block of this number, counted from 0.
    pub(crate) fn range(&self, number: u64) -> (u64, u64) {
        let (from, to) = self.outmost;
        let from = from.saturating_add(self.steps.low.saturating_mul(number));
        let to = to.saturating_add(self.steps.high.saturating_mul(number));
        let up = to.checked_next_multiple_of(self.unit).unwrap_or(to);
        (from / self.unit * self.unit, up)
    }

    /// About where the block of this number begins.
    pub(crate) fn at(&self, number: u64) -> u64 {
        self.first.saturating_add(self.step.saturating_mul(number))
    }
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
        let last = Stride { pages: self.pages && pages, ..*self };
        *self = last.onwards((offset, end)).unwrap_or_else(|| {
            let (len, step) = (last.end - last.start, offset.wrapping_sub(last.start));
            let truth = Truth::seen(offset, last.end, step, 1);
            let first = last.start;
            Stride { start: offset, end, step, len, pages, truth, first, hits: 0, issued: 0 }
        });
        self.stands().then(|| self.next())
    }

    /// The stride, one step on; None if a read of `[start, end)` is no such step.
    fn onwards(self, (start, end): (u64, u64)) -> Option<Stride> {
        let len = self.end - self.start;
        let step = start.checked_sub(self.start).filter(|step| *step > len)?;
        let same = |x: u64, y: u64| x.abs_diff(y) <= self.off();
        if !(1..=LONGEST).contains(&len) || !same(step, self.step) || !same(len, self.len) {
            return None;
        }
        let hits = self.hits.saturating_add(1);
        // Over all steps, so that what was rounded counts for ever less.
        let (over, steps) = (start - self.first, u64::from(hits) + 1);
        let seen = Truth::seen(start, self.end, over, steps);
        let truth = if self.off() == 0 { seen } else { seen.onwards(self.truth)? };
        let (step, len) = (over / steps, len.max(self.len));
        Some(Stride { start, end, step, len, hits, truth, ..self })
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
        Blocks { count: 0, ..self.exactly(self.issued, 0) }
    }

    fn exactly(&self, first: u64, count: u64) -> Blocks {
        let outmost = (first, first.saturating_add(self.len));
        let steps = Bounds::new(self.step, self.step);
        Blocks { first, step: self.step, count, outmost, steps, unit: 1 }
    }

    fn next(&self) -> Blocks {
        let most = (WINDOW / self.len).clamp(BLOCKS.0, BLOCKS.1);
        let next = self.start.saturating_add(self.step);
        // To the nearest: what was asked for was where the step of then led to.
        let ahead = (self.issued.saturating_sub(next) + self.step / 2) / self.step;
        let first = next.saturating_add(ahead * self.step);
        // In few batches: many requests together cost less than one after the other.
        let few = |most: u64| if ahead > most / 2 { 0 } else { most - ahead };
        if self.off() == 0 {
            return self.exactly(first, few(most));
        }
        let Truth { begins, ended, step } = self.truth;
        // Not further than its place is known.
        let most = most.min(SLOP / (step.high - step.low).max(1)).max(1);
        let (begin, end) = (begins.after(ahead + 1, step), ended.after(ahead + 2, step));
        let outmost = (begin.low, end.high);
        Blocks { outmost, steps: step, unit: PAGE, ..self.exactly(first, few(most)) }
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
            s.issued(b.at(b.count));
        }
        blocks
    }

    fn ranges(b: Blocks) -> impl Iterator<Item = (u64, u64)> {
        (0..b.count).map(move |n| b.range(n))
    }

    #[test]
    fn whoever_reads_every_fourth_block_has_each_asked_for_once() {
        let (mut s, mut asked) = (Stride::default(), Vec::new());
        for n in 0..100 {
            let Some(b) = read(&mut s, LEN + n * STEP, LEN) else { continue };
            assert_eq!(b.step, STEP);
            asked.extend(ranges(b).map(|(from, to)| {
                assert_eq!(to - from, LEN);
                from
            }));
            assert!(asked.last().is_none_or(|last| *last <= LEN + (n + BLOCKS.1) * STEP));
        }
        let first = asked[0];
        let all: Vec<u64> = (0..asked.len() as u64).map(|i| first + i * STEP).collect();
        assert_eq!(asked, all);
        assert!(first <= LEN + 3 * STEP && asked.len() > 90);
    }

    #[test]
    fn whole_pages_of_blocks_are_asked_for_before_they_are_wanted() {
        for (len, step) in [
            (LEN, STEP),
            (LEN, 4 * LEN + 1),
            (100_000, 700_001),
            (4096, 200_000),
            (8192, 25 * PAGE),
        ] {
            let (mut s, mut asked, mut missed) = (Stride::default(), Vec::new(), 0);
            let mut wanted = Vec::new();
            for n in 0..200 {
                let (from, to) = (LEN + n * step, LEN + n * step + len);
                let (from, to) = (from / PAGE * PAGE, to.next_multiple_of(PAGE));
                wanted.push((from, to));
                let there = asked.iter().any(|(a, b)| *a <= from && to <= *b);
                missed += u64::from(!there);
                let Some(b) = s.on_read((from, to)) else { continue };
                asked.extend(ranges(b));
                s.issued(b.at(b.count));
            }
            assert!(missed < 5, "{missed} of {len} by {step}");
            assert!(asked.len() < 230, "{} of {len} by {step}", asked.len());
            // Not more than a page on both sides of what is wanted, once it has gone on for a while.
            let most = (len / PAGE + 2) * PAGE + 2 * PAGE;
            let long = asked[50..].iter().filter(|(from, to)| to - from > most).count();
            assert_eq!(long, 0, "{len} by {step}");
            let mean = |list: &[(u64, u64)]| {
                list.iter().map(|(from, to)| to - from).sum::<u64>() / list.len() as u64
            };
            let (each, of) = (mean(&asked[50..]), mean(&wanted));
            let slop = if step.is_multiple_of(PAGE) { 2 * PAGE } else { PAGE };
            assert!(each >= of && each <= of + slop, "{each} for {of}, {len} by {step}");
        }
    }

    #[test]
    fn who_had_a_page_already_goes_on() {
        let (mut s, mut without) = (Stride::default(), 0);
        for n in 0..200 {
            let from = (LEN + n * STEP) / PAGE * PAGE + PAGE * u64::from(n % 40 == 20);
            let to = (LEN + n * STEP + LEN).next_multiple_of(PAGE);
            without += u64::from(read(&mut s, from, to - from).is_none());
        }
        assert!(without < 20, "{without}");
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
                asked.extend(ranges(b).map(|(from, to)| (from, to - from)));
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
