//! Read-ahead: bytes fetched before their reader asks.
//!
//! Role: slots of at most one chunk each, by file offset, and the detection of sequential streams. A write
//! drops the slots it touches, also those still under way. Never does: I/O.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use bytes::Bytes;

use crate::stride::Stride;

/// Bytes of a slot at most; those of a sequential stream begin at its multiples.
pub(crate) const CHUNK: u64 = 1 << 20;
/// First window of a stream that begins within a file, in bytes.
const FIRST_WINDOW: u64 = 2 << 20;
/// First window of a reader that begins at the file's start, in bytes: one message at best.
const START_WINDOW: u64 = 4 << 20;
/// Largest window of a stream, in bytes.
const LARGEST_WINDOW: u64 = 32 << 20;
/// The same for a reader that goes past the kernel's cache.
const LARGEST_DIRECT_WINDOW: u64 = 8 << 20;
/// How many of its own lengths a read past the kernel's cache may lie from its expected place.
const DIRECT_SLACK: u64 = 4;
/// How far from its expected place a read still belongs to a stream: kernels reorder.
const SLACK: u64 = 2 << 20;

/// One chunk.
#[derive(Debug)]
pub(crate) enum Slot {
    /// Asked for; the number tells it from a later one of the same chunk.
    Pending(u64),
    /// Here; how many bytes were read of it.
    Ready(Bytes, u64),
}

/// Bytes counted against the pool while they live.
#[derive(Debug)]
struct Held {
    slot: Slot,
    len: u64,
    pool: Arc<AtomicU64>,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.pool.fetch_sub(self.len, Relaxed);
    }
}

/// The slots of one file.
#[derive(Debug, Default)]
pub(crate) struct Ahead {
    slots: BTreeMap<u64, Held>,
    next: u64,
}

impl Ahead {
    pub(crate) fn clear(&mut self) {
        self.slots.clear();
    }

    /// Bytes of `[start, end)` changed.
    pub(crate) fn invalidate(&mut self, start: u64, end: u64) {
        if self.slots.is_empty() || start >= end {
            return;
        }
        let reaching = self.slots.range(start.saturating_sub(CHUNK)..end);
        let keys: Vec<u64> =
            reaching.filter(|(at, held)| *at + held.len > start).map(|(at, _)| *at).collect();
        for key in keys {
            self.slots.remove(&key);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    pub(crate) fn has(&self, chunk: u64) -> bool {
        self.slots.contains_key(&chunk)
    }

    /// Reserves a slot; its number.
    pub(crate) fn reserve(&mut self, chunk: u64, len: u64, pool: &Arc<AtomicU64>) -> u64 {
        self.next += 1;
        pool.fetch_add(len, Relaxed);
        let held = Held { slot: Slot::Pending(self.next), len, pool: pool.clone() };
        self.slots.insert(chunk, held);
        self.next
    }

    /// The bytes of a reserved slot came (or not); ignored if it was dropped meanwhile.
    pub(crate) fn fill(&mut self, chunk: u64, number: u64, data: Option<Bytes>) {
        let Some(held) = self.slots.get_mut(&chunk) else { return };
        if !matches!(held.slot, Slot::Pending(n) if n == number) {
            return;
        }
        match data {
            Some(data) => held.slot = Slot::Ready(data, 0),
            None => {
                self.slots.remove(&chunk);
            }
        }
    }

    /// At most `len` bytes of the slot that `at` lies in; None: there is none, Some(None): not here
    /// yet.
    pub(crate) fn take(&mut self, at: u64, len: u64) -> Option<Option<Bytes>> {
        let (chunk, held) = self.slots.range_mut(..=at).next_back()?;
        let chunk = *chunk;
        if chunk + held.len <= at {
            return None;
        }
        let Slot::Ready(data, used) = &mut held.slot else { return Some(None) };
        let (from, whole) = ((at - chunk) as usize, data.len());
        if from >= whole {
            self.slots.remove(&chunk);
            return None;
        }
        let part = data.slice(from..whole.min(from + len as usize));
        *used += part.len() as u64;
        if *used >= whole as u64 {
            self.slots.remove(&chunk);
        }
        Some(Some(part))
    }
}

/// One reader's progress.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Stream {
    pub(crate) stride: Stride,
    next: u64,
    window: u64,
    issued: u64,
    hits: u32,
}

impl Stream {
    /// A read of `[offset, end)` of a file of `size` bytes; what to fetch now. Who opens a file and
    /// reads its first byte is taken to go on, and served from the window at once. Readers past the
    /// kernel's cache (`direct`) mean what they ask for, so it begins later and goes less far. The
    /// window moves when most of it was read, so that messages are few and large.
    pub(crate) fn on_read(
        &mut self,
        (offset, end): (u64, u64),
        size: u64,
        stripes: u64,
        direct: bool,
    ) -> (u64, u64) {
        let near = self.is_near((offset, end), direct);
        if !near {
            *self = Stream { next: end, window: 0, issued: end, hits: 0, ..*self };
            return (0, 0);
        }
        let begins = self.hits == 0 && self.next == 0 && offset == 0 && !direct;
        // Who leaves something out may read in a stride: one read more shows.
        let skips = offset > self.next + (end - offset);
        self.hits += 1;
        self.next = self.next.max(end);
        if begins {
            self.window = START_WINDOW;
            let all_asked_for = end >= size.min(START_WINDOW);
            return if all_asked_for { (0, 0) } else { (0, START_WINDOW.min(size)) };
        }
        let small = direct || end - offset < CHUNK / 4;
        if (self.hits < 2 && small) || (self.hits < 3 && skips) {
            return (0, 0);
        }
        if !direct && self.issued.saturating_sub(self.next) > self.window / 4 {
            return (0, 0);
        }
        let largest = if direct { LARGEST_DIRECT_WINDOW } else { LARGEST_WINDOW };
        let most = (4 * CHUNK * stripes).clamp(FIRST_WINDOW, largest);
        self.window = (self.window * 2).clamp(FIRST_WINDOW, most);
        let from = self.issued.max(self.next).next_multiple_of(CHUNK);
        let to = (self.next + self.window).min(size);
        (from, to.max(from))
    }

    /// A reader past the kernel's cache reads at random more often than not, and whatever is read
    /// ahead for it in error is the disk's time: its next read must be very near.
    fn is_near(&self, (offset, end): (u64, u64), direct: bool) -> bool {
        let slack = if direct { ((end - offset) * DIRECT_SLACK).min(SLACK) } else { SLACK };
        offset <= self.next + slack && offset + slack >= self.next
    }

    /// What was asked for and is not wanted any more when the reader goes on with this range.
    pub(crate) fn strays(&self, range: (u64, u64), direct: bool) -> Option<(u64, u64)> {
        let start = self.next.saturating_sub(SLACK);
        (!self.is_near(range, direct) && self.window > 0).then_some((start, self.issued))
    }

    /// Chunks up to `to` are asked for.
    pub(crate) fn issued(&mut self, to: u64) {
        self.issued = self.issued.max(to);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sequential_reader_gets_a_growing_window_and_a_random_one_none() {
        let mut s = Stream::default();
        let size = 1 << 30;
        assert_eq!(s.on_read((0, 4096), size, 4, false), (0, START_WINDOW));
        s.issued(START_WINDOW);
        assert_eq!(s.on_read((4096, 8192), size, 4, false), (0, 0));
        let most = START_WINDOW - START_WINDOW / 4;
        let (from, to) = s.on_read((8192, most), size, 4, false);
        assert_eq!((from, to > from + START_WINDOW), (START_WINDOW, true));
        s.issued(to.next_multiple_of(CHUNK));
        assert_eq!(s.strays((most, most + 4096), false), None);
        let left = Some((most - SLACK, to.next_multiple_of(CHUNK)));
        assert_eq!(s.strays((500 << 20, (500 << 20) + 4096), false), left);
        assert_eq!(s.on_read((500 << 20, (500 << 20) + 4096), size, 4, false), (0, 0));
    }

    #[test]
    fn a_reader_within_a_file_shows_first_that_it_goes_on() {
        let (mut s, size) = (Stream::default(), 1 << 30);
        assert_eq!(s.on_read((64 << 20, (64 << 20) + 4096), size, 4, false), (0, 0));
        let (from, to) = {
            s.on_read(((64 << 20) + 4096, (64 << 20) + 8192), size, 4, false);
            s.on_read(((64 << 20) + 8192, (64 << 20) + 12288), size, 4, false)
        };
        assert_eq!((from, to > from), (65 << 20, true));
        assert_eq!(Stream::default().on_read((0, 4096), 4096, 4, false), (0, 0));
        assert_eq!(Stream::default().on_read((0, 4096), 8192, 4, false), (0, 8192));
    }

    #[test]
    fn past_the_cache_a_reader_must_go_on_where_it_was() {
        let (mut s, size) = (Stream::default(), 1 << 30);
        for at in [0, 1 << 20, 64 << 10, 512 << 10] {
            assert_eq!(s.on_read((at, at + 4096), size, 4, true), (0, 0));
        }
        let (at, mut window) = (512 << 10, (0, 0));
        for n in 1..4 {
            window = s.on_read((at + n * 4096, at + (n + 1) * 4096), size, 4, true);
        }
        assert!(window.1 > window.0 && window.1 - window.0 <= LARGEST_DIRECT_WINDOW);
    }

    #[test]
    fn a_slot_that_was_dropped_stays_dropped_when_its_bytes_come() {
        let pool = Arc::new(AtomicU64::new(0));
        let mut a = Ahead::default();
        let n = a.reserve(0, CHUNK, &pool);
        assert_eq!(a.take(5, 4), Some(None));
        a.invalidate(10, 11);
        assert_eq!(pool.load(Relaxed), 0);
        let m = a.reserve(0, CHUNK, &pool);
        a.fill(0, n, Some(Bytes::from_static(b"old")));
        assert_eq!(a.take(0, 4), Some(None));
        a.fill(0, m, Some(Bytes::from_static(b"new")));
        assert_eq!(a.take(1, 2), Some(Some(Bytes::from_static(b"ew"))));
        assert_eq!(a.take(3, 2), None);
        assert_eq!(pool.load(Relaxed), 0);
    }
}
