//! Memory in huge pages, cut into buffers.
//!
//! A disk takes a limited number of segments in one request: 1 MiB in scattered pages of 4 KiB is more than many take, and
//! becomes two requests (a virtual disk with 254: 1,016 and 8 KiB). In huge pages it is one segment, or two. Buffers, each
//! with its page of head room, lie in a row, so that little of the huge pages is left over.
//!
//! Best effort: where there are no huge pages, the memory is as any other. Never does: know who uses which part.

use std::ptr::NonNull;

/// A huge page of most machines. Elsewhere nothing is lost but addresses.
pub(crate) const HUGE: usize = 2 << 20;

/// Bytes of an arena, or of one buffer if that is larger: seven buffers of 1 MiB leave an eighth over.
const ARENA: usize = 4 * HUGE;

pub(super) struct Arena {
    /// What was mapped, and how much.
    mapped: (NonNull<u8>, usize),
    /// Where its first huge page begins, and how far it reaches.
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: it owns the mapping, which is not tied to a thread.
unsafe impl Send for Arena {}
// SAFETY: it only tells addresses.
unsafe impl Sync for Arena {}

impl Arena {
    /// Room for one part at least. None: there is no memory.
    pub(super) fn new(part: usize) -> Option<Arena> {
        let len = part.next_multiple_of(HUGE).max(ARENA);
        let mapped = len + HUGE;
        let (prot, how) = (
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
        );
        // SAFETY: a new mapping, which nothing else refers to; its length is not zero.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), mapped, prot, how, -1, 0) };
        if at == libc::MAP_FAILED {
            return None;
        }
        let at = NonNull::new(at.cast::<u8>())?;
        let skipped = at.addr().get().next_multiple_of(HUGE) - at.addr().get();
        // SAFETY: less than HUGE, so within the mapping.
        let base = unsafe { at.add(skipped) };
        // SAFETY: the part of the mapping from `base` on; it says only what pages are wanted.
        unsafe { libc::madvise(base.as_ptr().cast(), len, libc::MADV_HUGEPAGE) };
        Some(Arena { mapped: (at, mapped), base, len })
    }

    /// Where its parts of this length begin; they do not overlap.
    pub(super) fn parts(&self, part: usize) -> impl Iterator<Item = NonNull<u8>> {
        // SAFETY: the last part ends within the mapping.
        (0..self.len / part).map(move |n| unsafe { self.base.add(n * part) })
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: mapped in `new`, and unmapped once, when no buffer of it is left.
        unsafe { libc::munmap(self.mapped.0.as_ptr().cast(), self.mapped.1) };
    }
}
