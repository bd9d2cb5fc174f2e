//! Page-aligned memory in which small writes gather, used again.
//!
//! Role: buffers of one chunk each; what is idle is kept, because fresh memory costs a page fault
//! for every 4 KiB. Bytes lie in a buffer as they lie in the file's chunk, so that a full chunk
//! goes to the disk as it is, without a copy. Never does: know files; keep more than [`IDLE_MAX`].

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;

use bytes::Bytes;
use net::idle::Idle;
use parking_lot::Mutex;

/// Bytes of a chunk; chunks begin at multiples of it in a file.
pub(crate) const CHUNK: usize = 1 << 20;
/// Idle buffers the process keeps; [`trim`] gives back what a while did not need.
pub(crate) const IDLE_MAX: usize = 128;
const ALIGN: usize = 4096;

struct Memory(NonNull<u8>);

// SAFETY: `Memory` owns its allocation and nothing else points to it.
unsafe impl Send for Memory {}
// SAFETY: a shared reference only reads.
unsafe impl Sync for Memory {}

const LAYOUT: Layout = match Layout::from_size_align(CHUNK, ALIGN) {
    Ok(layout) => layout,
    Err(_) => panic!("a chunk has a layout"),
};

impl Memory {
    fn new() -> Memory {
        // SAFETY: the layout's size is not zero.
        match NonNull::new(unsafe { alloc_zeroed(LAYOUT) }) {
            Some(at) => Memory(at),
            None => handle_alloc_error(LAYOUT),
        }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout.
        unsafe { dealloc(self.0.as_ptr(), LAYOUT) }
    }
}

static IDLE: Mutex<Idle<Memory>> = Mutex::new(Idle::new(IDLE_MAX));

/// Frees the idle buffers nobody needed since the last call.
pub(crate) fn trim() {
    let unused = IDLE.lock().unused();
    drop(unused);
}

/// Bytes of one chunk that still grow, wherever in it they lie.
pub(crate) struct Slab {
    /// None only while dropping.
    memory: Option<Memory>,
    /// What is filled: ascending, with gaps between.
    filled: Vec<(usize, usize)>,
}

impl Slab {
    /// An empty one.
    pub(crate) fn new() -> Slab {
        let recycled = IDLE.lock().take();
        Slab { memory: Some(recycled.unwrap_or_else(Memory::new)), filled: Vec::new() }
    }

    /// Writes `data`, which does not reach beyond the chunk, at `at` of it.
    pub(crate) fn put(&mut self, at: usize, data: &[u8]) {
        if let Some(memory) = &mut self.memory {
            // SAFETY: the whole allocation, initialised, and borrowed exclusively.
            let all = unsafe { std::slice::from_raw_parts_mut(memory.0.as_ptr(), CHUNK) };
            all[at..at + data.len()].copy_from_slice(data);
        }
        let (mut start, mut end) = (at, at + data.len());
        let first = self.filled.partition_point(|(_, e)| *e < start);
        let last = self.filled.partition_point(|(s, _)| *s <= end);
        if first < last {
            start = start.min(self.filled[first].0);
            end = end.max(self.filled[last - 1].1);
        }
        self.filled.splice(first..last, [(start, end)]);
    }

    /// How much is filled.
    pub(crate) fn bytes(&self) -> u64 {
        self.filled.iter().map(|(s, e)| (e - s) as u64).sum()
    }

    /// Whether the whole chunk is here.
    pub(crate) fn is_full(&self) -> bool {
        self.filled == [(0, CHUNK)]
    }

    /// What is filled: places in the chunk, and bytes.
    pub(crate) fn pieces(&self) -> impl Iterator<Item = (usize, &[u8])> {
        self.filled.iter().map(|(s, e)| (*s, &self.as_ref()[*s..*e]))
    }

    /// No more grows: the pieces, shared. Few bytes do not keep a whole chunk of memory.
    pub(crate) fn freeze(mut self) -> Vec<(usize, Bytes)> {
        if self.bytes() < CHUNK as u64 / 2 {
            return self.pieces().map(|(at, piece)| (at, Bytes::copy_from_slice(piece))).collect();
        }
        let filled = std::mem::take(&mut self.filled);
        let whole = Bytes::from_owner(self);
        filled.into_iter().map(|(s, e)| (s, whole.slice(s..e))).collect()
    }
}

impl AsRef<[u8]> for Slab {
    fn as_ref(&self) -> &[u8] {
        match &self.memory {
            // SAFETY: as in `put`, shared.
            Some(memory) => unsafe { std::slice::from_raw_parts(memory.0.as_ptr(), CHUNK) },
            None => &[],
        }
    }
}

impl std::fmt::Debug for Slab {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Slab({:?})", self.filled)
    }
}

impl Drop for Slab {
    fn drop(&mut self) {
        let Some(memory) = self.memory.take() else { return };
        let surplus = IDLE.lock().keep(memory);
        drop(surplus);
    }
}
