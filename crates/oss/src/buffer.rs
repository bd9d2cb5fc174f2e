//! Page-aligned read buffers, used again: a fresh 1 MiB allocation costs 256 page faults.
//!
//! Shared by all targets of a process; what is kept idle is bounded per size, and given back when it was not needed for
//! a while ([`trim`]).

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;
use std::time::{Duration, Instant};

use net::idle::Idle;
use net::place::{self, Place};
use parking_lot::Mutex;

/// Alignment of every buffer, in bytes; what O_DIRECT may ask for.
pub(crate) const ALIGN: usize = 4096;
/// Sizes of buffers in bytes and how many of each are kept idle in the process.
const CLASSES: [(usize, usize); 4] = [(4 << 10, 64), (64 << 10, 32), (1 << 20, 48), (4 << 20, 2)];

static IDLE: [Mutex<Idle<Aligned>>; 4] = [
    Mutex::new(Idle::new(CLASSES[0].1)),
    Mutex::new(Idle::new(CLASSES[1].1)),
    Mutex::new(Idle::new(CLASSES[2].1)),
    Mutex::new(Idle::new(CLASSES[3].1)),
];

/// When idle buffers were looked at last.
static TRIMMED: Mutex<Option<Instant>> = Mutex::new(None);

/// Frees the idle buffers nobody needed since they were looked at last; not again within `pause`, whichever target asks.
pub(crate) fn trim(pause: Duration) {
    let mut trimmed = TRIMMED.lock();
    if trimmed.is_some_and(|at| at.elapsed() < pause) {
        return;
    }
    *trimmed = Some(Instant::now());
    for idle in &IDLE {
        let unused = idle.lock().unused();
        drop(unused);
    }
}

struct Aligned {
    at: NonNull<u8>,
    layout: Layout,
}

// SAFETY: `Aligned` owns its memory and nothing else points to it.
unsafe impl Send for Aligned {}
// SAFETY: a shared reference only reads.
unsafe impl Sync for Aligned {}

impl Aligned {
    fn new(size: usize) -> Aligned {
        let size = size.next_multiple_of(ALIGN).max(ALIGN);
        let Ok(layout) = Layout::from_size_align(size, ALIGN) else {
            handle_alloc_error(Layout::new::<[u8; ALIGN]>())
        };
        // SAFETY: the layout's size is at least ALIGN, so not zero.
        match NonNull::new(unsafe { alloc_zeroed(layout) }) {
            Some(at) => Aligned { at, layout },
            None => handle_alloc_error(layout),
        }
    }
}

impl Drop for Aligned {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout.
        unsafe { dealloc(self.at.as_ptr(), self.layout) }
    }
}

/// Whose memory a buffer is.
enum Memory {
    /// Goes back to the idle ones.
    Own(Option<Aligned>),
    /// The reader's, in this process.
    Callers(Place),
}

/// A page-aligned buffer.
pub(crate) struct Buffer {
    memory: Memory,
    len: usize,
}

impl Buffer {
    /// As `new`, in memory that the caller on this thread offers for the answer, if it does.
    pub(crate) fn for_answer(len: usize) -> Buffer {
        // Whole pages, as O_DIRECT wants them.
        match place::offered(len.next_multiple_of(ALIGN)) {
            Some(place) => Buffer { memory: Memory::Callers(place), len },
            None => Buffer::new(len),
        }
    }

    /// A buffer of `len` bytes with any (initialised) content.
    pub(crate) fn new(len: usize) -> Buffer {
        let class = CLASSES.iter().position(|(size, _)| len <= *size);
        let idle = class.and_then(|c| IDLE[c].lock().take());
        let memory = idle.unwrap_or_else(|| Aligned::new(class.map_or(len, |c| CLASSES[c].0)));
        Buffer { memory: Memory::Own(Some(memory)), len }
    }
    /// Cuts the buffer to its first `len` bytes.
    pub(crate) fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }
    /// Changes the length, at most to the next multiple of [`ALIGN`].
    pub(crate) fn resize(&mut self, len: usize) {
        let room = match &self.memory {
            Memory::Own(memory) => memory.as_ref().map_or(0, |m| m.layout.size()),
            Memory::Callers(place) => place.as_ref().len(),
        };
        self.len = len.min(room);
    }
    /// The bytes, to change.
    pub(crate) fn as_mut(&mut self) -> &mut [u8] {
        match &mut self.memory {
            // SAFETY: `len` is within the allocation, which is initialised and owned.
            Memory::Own(Some(m)) => unsafe {
                std::slice::from_raw_parts_mut(m.at.as_ptr(), self.len)
            },
            Memory::Own(None) => &mut [],
            Memory::Callers(place) => &mut place.as_mut()[..self.len],
        }
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        match &self.memory {
            // SAFETY: as in `as_mut`.
            Memory::Own(Some(m)) => unsafe { std::slice::from_raw_parts(m.at.as_ptr(), self.len) },
            Memory::Own(None) => &[],
            Memory::Callers(place) => &place.as_ref()[..self.len],
        }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let Memory::Own(memory) = &mut self.memory else { return };
        let Some(memory) = memory.take() else { return };
        let Some(c) = CLASSES.iter().position(|(size, _)| *size == memory.layout.size()) else {
            return;
        };
        let surplus = IDLE[c].lock().keep(memory);
        drop(surplus);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_aligned_and_bounded() {
        for len in [0, 1, 4096, 65536, 65537, 1 << 20, 3 << 20, 5 << 20] {
            let mut b = Buffer::new(len);
            assert_eq!(b.as_ref().len(), len);
            assert!(b.as_ref().as_ptr().addr().is_multiple_of(ALIGN));
            b.as_mut().fill(1);
            b.truncate(10);
            assert_eq!(b.as_ref().len(), len.min(10));
        }
        let many: Vec<Buffer> = (0..100).map(|_| Buffer::new(4096)).collect();
        drop(many);
        assert!(IDLE[0].lock().len() <= CLASSES[0].1);
    }
}
