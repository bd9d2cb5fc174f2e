//! Page-aligned buffers and the pool they return to.
//!
//! A request is read so that the data of a WRITE begins on a page boundary: one page of head room lies before the data,
//! and the read starts `HEADER_SPACE` bytes before the boundary. Idle buffers are kept, at most
//! [`POOL_FREE_MAX`] of either kind, because fresh memory costs a page fault for every 4 KiB; most go when the session is
//! quiet.
//!
//! There are two kinds. What is about to be filled for a good part lies in the huge pages of an [`arena`], so that the disk
//! finds it in one or two pieces; where little is expected memory comes page by page, and a buffer costs what was touched.

mod arena;

use arena::Arena;
pub(crate) use arena::HUGE;
use parking_lot::Mutex;
use std::alloc::{Layout, handle_alloc_error};
use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Bytes of head room before the data; the alignment too.
const PAGE: usize = 4096;

/// A request's header and the fixed part of a WRITE: what precedes the data.
pub(crate) const HEADER_SPACE: usize = 80;

/// Idle buffers a pool keeps; more are freed. As many as a file system may hold back of written bytes and still read into.
pub const POOL_FREE_MAX: usize = 160;

/// Idle buffers a quiet session keeps.
const POOL_CALM_MAX: usize = 16;

/// Capacity from which on there are buffers in huge pages.
const HUGE_FROM: usize = 512 << 10;

/// Smallest buffer the kernel accepts for a read, rounded up.
pub(crate) const MIN_CAPACITY: usize = 8192;

struct Raw {
    base: NonNull<u8>,
    capacity: usize,
    /// What it is a part of; None: a mapping of its own.
    arena: Option<Arc<Arena>>,
}

// SAFETY: Raw owns its allocation, or its part of an arena, exclusively; the pointer is not tied to a thread.
unsafe impl Send for Raw {}
// SAFETY: shared access only reads through &self.
unsafe impl Sync for Raw {}

impl Raw {
    /// Mapped, not allocated: pages come, zeroed, when they are touched, so that a thread that only
    /// ever sees small requests costs little.
    fn new(capacity: usize) -> Raw {
        let (prot, how) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping, which nothing else refers to; its length is not zero.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), PAGE + capacity, prot, how, -1, 0) };
        match NonNull::new(base.cast::<u8>()) {
            Some(base) if base.as_ptr().cast() != libc::MAP_FAILED => {
                Raw { base, capacity, arena: None }
            }
            // Capacity is bounded by `Pool::new`, so the layout cannot fail.
            _ => handle_alloc_error(
                Layout::from_size_align(PAGE + capacity, PAGE).unwrap_or(Layout::new::<u8>()),
            ),
        }
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        if self.arena.is_some() {
            return;
        }
        // SAFETY: mapped in `new` with this length, and unmapped once.
        unsafe { libc::munmap(self.base.as_ptr().cast(), PAGE + self.capacity) };
    }
}

/// Buffers of one capacity.
pub(crate) struct Pool {
    capacity: usize,
    free: Mutex<Free>,
}

/// Idle buffers.
struct Free {
    plain: Vec<Raw>,
    huge: Vec<Raw>,
    /// A huge one was wanted last.
    wanted: Instant,
    /// That was long ago: arenas go as soon as nothing in them is used.
    calm: bool,
}

/// Largest capacity of a pool's buffers.
pub(crate) const CAPACITY_MAX: usize = 64 << 20;

impl Pool {
    pub(crate) fn new(capacity: usize) -> Arc<Pool> {
        let capacity = capacity.clamp(MIN_CAPACITY, CAPACITY_MAX).next_multiple_of(PAGE);
        let free =
            Free { plain: Vec::new(), huge: Vec::new(), wanted: Instant::now(), calm: false };
        Arc::new(Pool { capacity, free: Mutex::new(free) })
    }

    /// A buffer of length 0. Its memory may hold bytes of earlier requests.
    pub(crate) fn get(self: &Arc<Pool>) -> AlignedBuf {
        let raw = self.free.lock().plain.pop();
        self.buffer(raw.unwrap_or_else(|| Raw::new(self.capacity)))
    }

    /// As `get`, in huge pages if `len` bytes are worth it.
    pub(crate) fn get_for(self: &Arc<Pool>, len: usize) -> AlignedBuf {
        if !self.is_much(len) {
            return self.get();
        }
        let raw = {
            let mut free = self.free.lock();
            (free.wanted, free.calm) = (Instant::now(), false);
            free.huge.pop()
        };
        match raw.or_else(|| self.more_huge()) {
            Some(raw) => self.buffer(raw),
            None => self.get(),
        }
    }

    /// At most half of the memory of huge pages is wasted. Small buffers are no trouble to a disk.
    fn is_much(&self, len: usize) -> bool {
        self.capacity >= HUGE_FROM && len >= self.capacity / 2
    }

    fn buffer(self: &Arc<Pool>, raw: Raw) -> AlignedBuf {
        AlignedBuf { raw: Some(raw), start: PAGE, len: 0, pool: self.clone() }
    }

    /// One buffer of a new arena, whose others are idle.
    fn more_huge(&self) -> Option<Raw> {
        let capacity = self.capacity;
        let arena = Arc::new(Arena::new(PAGE + capacity)?);
        let raw = |base| Raw { base, capacity, arena: Some(arena.clone()) };
        let mut parts: Vec<Raw> = arena.parts(PAGE + capacity).map(raw).collect();
        let one = parts.pop();
        self.free.lock().huge.append(&mut parts);
        one
    }

    fn put(&self, raw: Raw) {
        let mut free = self.free.lock();
        let sweep = free.calm && raw.arena.is_some();
        let kind = if raw.arena.is_some() { &mut free.huge } else { &mut free.plain };
        let unused = if kind.len() < POOL_FREE_MAX {
            kind.push(raw);
            None
        } else {
            Some(raw)
        };
        let unused = (unused, if sweep { free.whole_arenas() } else { Vec::new() });
        drop(free);
        drop(unused);
    }

    /// Frees all idle buffers but a few: the session is quiet.
    pub(crate) fn trim(&self) {
        let unused = {
            let mut free = self.free.lock();
            let keep = free.plain.len().min(POOL_CALM_MAX);
            free.plain.split_off(keep)
        };
        drop(unused);
        self.trim_huge(Duration::ZERO);
    }

    /// Frees huge pages, now and as they become idle, if nobody has wanted any for so long.
    pub(crate) fn trim_huge(&self, after: Duration) {
        let unused = {
            let mut free = self.free.lock();
            if free.wanted.elapsed() < after {
                return;
            }
            free.calm = true;
            free.whole_arenas()
        };
        drop(unused);
    }
}

impl Free {
    /// Takes the buffers of arenas that are idle as a whole. One that is not keeps all its memory, so its idle buffers stay
    /// to be used.
    fn whole_arenas(&mut self) -> Vec<Raw> {
        let mut idle: BTreeMap<*const Arena, usize> = BTreeMap::new();
        for arena in self.huge.iter().filter_map(|raw| raw.arena.as_ref()) {
            *idle.entry(Arc::as_ptr(arena)).or_default() += 1;
        }
        // Every buffer of an arena holds it once.
        let whole = |arena: &Arc<Arena>| idle[&Arc::as_ptr(arena)] == Arc::strong_count(arena);
        let goes = |raw: &Raw| raw.arena.as_ref().is_some_and(whole);
        let (unused, kept) = std::mem::take(&mut self.huge).into_iter().partition(goes);
        self.huge = kept;
        unused
    }
}

/// An owned buffer whose bytes begin on a page boundary; returns to its pool when dropped.
pub struct AlignedBuf {
    /// None only while dropping.
    raw: Option<Raw>,
    start: usize,
    len: usize,
    pool: Arc<Pool>,
}

impl AlignedBuf {
    /// The largest length.
    pub fn capacity(&self) -> usize {
        self.pool.capacity
    }

    /// Exchanges it, unless it is of the kind that suits a next request as long as this one.
    pub(crate) fn suit(&mut self, len: usize) {
        let huge = self.raw.as_ref().is_some_and(|raw| raw.arena.is_some());
        if huge != self.pool.is_much(len) {
            let other = self.pool.get_for(len);
            *self = other;
        }
    }

    /// Sets the length, at most to the capacity. Bytes that become visible are zero or left over from earlier requests.
    pub fn set_len(&mut self, len: usize) {
        self.start = PAGE;
        self.len = len.min(self.capacity());
    }

    /// Everything a request may be read into: from `HEADER_SPACE` before the page boundary.
    pub(crate) fn read_area(&mut self) -> &mut [u8] {
        self.start = PAGE - HEADER_SPACE;
        self.len = self.capacity() + HEADER_SPACE;
        self
    }

    /// The first `len` bytes of the read area.
    pub(crate) fn request(&self, len: usize) -> &[u8] {
        let len = len.min(self.capacity() + HEADER_SPACE);
        self.slice(PAGE - HEADER_SPACE, len)
    }

    fn slice(&self, start: usize, len: usize) -> &[u8] {
        debug_assert!(start + len <= PAGE + self.capacity());
        match &self.raw {
            // SAFETY: start + len lies within the allocation (every caller bounds it), which was zeroed when it was
            // made, so all bytes are initialised; &self keeps writers away.
            Some(raw) => unsafe { std::slice::from_raw_parts(raw.base.as_ptr().add(start), len) },
            None => &[],
        }
    }
}

impl Deref for AlignedBuf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.slice(self.start, self.len)
    }
}

impl DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        match &mut self.raw {
            // SAFETY: as in `slice`; &mut self makes the access exclusive.
            Some(raw) => unsafe {
                std::slice::from_raw_parts_mut(raw.base.as_ptr().add(self.start), self.len)
            },
            None => &mut [],
        }
    }
}

impl AsRef<[u8]> for AlignedBuf {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl std::fmt::Debug for AlignedBuf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "AlignedBuf({} bytes)", self.len)
    }
}

impl Drop for AlignedBuf {
    fn drop(&mut self) {
        if let Some(raw) = self.raw.take() {
            self.pool.put(raw);
        }
    }
}

/// The bytes of a write request, in the buffer they came in until taken.
pub struct WriteData<'a> {
    slot: &'a mut AlignedBuf,
    len: usize,
}

impl<'a> WriteData<'a> {
    /// The data is the first `len` bytes from the page boundary of `slot`.
    pub(crate) fn pooled(slot: &'a mut AlignedBuf, len: usize) -> WriteData<'a> {
        slot.set_len(len);
        let len = slot.len();
        WriteData { slot, len }
    }

    /// Keeps the data beyond the call without copying it: the reader thread goes on with another buffer of the pool.
    ///
    /// The buffer has the capacity of the largest write, so small writes that are kept for long are better copied.
    pub fn take(self) -> AlignedBuf {
        let fresh = self.slot.pool.get_for(self.len);
        std::mem::replace(self.slot, fresh)
    }
}

impl Deref for WriteData<'_> {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.slot.slice(PAGE, self.len)
    }
}

#[cfg(test)]
mod tests;
