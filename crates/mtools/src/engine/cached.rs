//! Whether the page cache already has a part of a file.

use rustix::io::{ReadWriteFlags, preadv2};
use std::fs::File;
use std::io::IoSliceMut;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};

/// cachestat(2) of Linux 6.5; the same number everywhere.
const CACHESTAT: libc::c_long = 451;
const PAGE: u64 = 4096;

#[repr(C)]
struct Span {
    at: u64,
    length: u64,
}

/// What the kernel fills in: pages in the cache, and four figures more.
#[repr(C)]
#[derive(Default)]
struct Pages {
    cached: u64,
    others: [u64; 4],
}

/// At least half of the bytes are there.
pub fn mostly(file: &File, at: u64, length: u64) -> bool {
    static KNOWN: AtomicBool = AtomicBool::new(true);
    if KNOWN.load(Ordering::Relaxed) {
        let (span, mut pages) = (Span { at, length }, Pages::default());
        // SAFETY: both structures are what the kernel expects, and outlive the call.
        let rc = unsafe { libc::syscall(CACHESTAT, file.as_raw_fd(), &span, &mut pages, 0) };
        if rc == 0 {
            return pages.cached * PAGE * 2 >= length;
        }
        KNOWN.store(false, Ordering::Relaxed);
    }
    // Older kernels: does the first byte come at once?
    let mut byte = [0];
    preadv2(file, &mut [IoSliceMut::new(&mut byte)], at, ReadWriteFlags::NOWAIT).is_ok()
}
