//! Aligned buffers that are used again, and bounded in number by the threads that hold them.
//!
//! A thread holds at most two at once: one is read into while the other is written. Memory is mapped, not allocated: pages nobody touched
//! cost nothing, so that a copy of small files stays small.

use parking_lot::Mutex;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use std::io;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// Bytes at the start of a page.
struct Pages {
    start: NonNull<u8>,
    size: usize,
}

// SAFETY: owns its memory, as a Vec does.
unsafe impl Send for Pages {}

impl Pages {
    fn new(size: usize) -> io::Result<Self> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: new memory, at a place the kernel chooses.
        let start =
            unsafe { mmap_anonymous(std::ptr::null_mut(), size, access, MapFlags::PRIVATE) }?;
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { start, size })
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: mapped by `new` with this size; nobody refers to it any more.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.size) };
    }
}

/// Buffers of one size that are free.
pub struct Buffers {
    size: usize,
    free: Mutex<Vec<Pages>>,
}

impl Buffers {
    pub fn new(size: usize) -> Self {
        Self { size, free: Mutex::new(Vec::new()) }
    }

    /// One of the free ones, or a new one.
    pub fn take(&self) -> io::Result<Buffer<'_>> {
        let free = self.free.lock().pop();
        let pages = free.map_or_else(|| Pages::new(self.size), Ok)?;
        Ok(Buffer { home: self, pages: Some(pages) })
    }
}

/// A buffer in use; goes back when dropped.
pub struct Buffer<'a> {
    home: &'a Buffers,
    pages: Option<Pages>,
}

impl Deref for Buffer<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.pages {
            // SAFETY: mapped readable with this size, zeroed at first, and ours alone.
            Some(p) => unsafe { std::slice::from_raw_parts(p.start.as_ptr(), p.size) },
            None => &[],
        }
    }
}

impl DerefMut for Buffer<'_> {
    fn deref_mut(&mut self) -> &mut [u8] {
        match &mut self.pages {
            // SAFETY: mapped writable with this size, and borrowed by nobody else.
            Some(p) => unsafe { std::slice::from_raw_parts_mut(p.start.as_ptr(), p.size) },
            None => &mut [],
        }
    }
}

impl Drop for Buffer<'_> {
    fn drop(&mut self) {
        self.home.free.lock().extend(self.pages.take());
    }
}

#[cfg(test)]
mod tests {
    use super::Buffers;

    #[test]
    fn a_buffer_is_aligned_and_comes_back() {
        let buffers = Buffers::new(1 << 20);
        let mut one = buffers.take().unwrap();
        assert_eq!((one.len(), one.as_ptr() as usize % 4096), (1 << 20, 0));
        one[5] = 7;
        let at = one.as_ptr();
        let other = buffers.take().unwrap();
        assert_ne!(at, other.as_ptr());
        drop(one);
        assert_eq!(buffers.take().unwrap().as_ptr(), at);
    }
}
