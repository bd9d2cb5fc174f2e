//! Positioned reads and writes that finish what the kernel cut short.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use rustix::io::{Errno, ReadWriteFlags};

/// Reads until `buf` is full or the file ends; how much was read.
pub(crate) fn read_at(fd: BorrowedFd<'_>, buf: &mut [u8], offset: u64) -> Result<usize, Errno> {
    let mut done = 0;
    while done < buf.len() {
        match rustix::io::pread(fd, &mut buf[done..], offset + done as u64) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(Errno::INTR) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(done)
}

/// As [`read_at`], but only what memory holds; `None` when the disk would be waited for.
pub(crate) fn read_cached(fd: BorrowedFd<'_>, buf: &mut [u8], offset: u64) -> Option<usize> {
    let mut done = 0;
    while done < buf.len() {
        let mut part = [std::io::IoSliceMut::new(&mut buf[done..])];
        let at = offset + done as u64;
        match rustix::io::preadv2(fd, &mut part, at, ReadWriteFlags::NOWAIT) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(Errno::INTR) => {}
            Err(_) => return None,
        }
    }
    Some(done)
}

/// Writes all of `data`.
pub(crate) fn write_at(fd: BorrowedFd<'_>, data: &[u8], offset: u64) -> Result<(), Errno> {
    let mut done = 0;
    while done < data.len() {
        match rustix::io::pwrite(fd, &data[done..], offset + done as u64) {
            Ok(0) => return Err(Errno::IO),
            Ok(n) => done += n,
            Err(Errno::INTR) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// Asks the kernel to begin writing a range to the disk, so that a later sync is short.
pub(crate) fn start_write_out(fd: impl AsFd, offset: u64, len: u64) {
    let fd = fd.as_fd().as_raw_fd();
    let (Ok(offset), Ok(len)) = (offset.try_into(), len.try_into()) else { return };
    // SAFETY: plain integers; the descriptor is open for the length of the call. Errors only mean
    // that the sync takes longer.
    unsafe { libc::sync_file_range(fd, offset, len, libc::SYNC_FILE_RANGE_WRITE) };
}

/// One read, however short.
pub(crate) fn read_once(fd: BorrowedFd<'_>, buf: &mut [u8], offset: u64) -> Result<usize, Errno> {
    loop {
        match rustix::io::pread(fd, &mut *buf, offset) {
            Err(Errno::INTR) => {}
            other => return other,
        }
    }
}

/// cachestat(2), on all architectures.
const SYS_CACHESTAT: libc::c_long = 451;

#[repr(C)]
struct Range {
    offset: u64,
    len: u64,
}

/// Pages of a range in the page cache, by their state.
#[repr(C)]
#[derive(Default)]
struct CacheStat {
    cached: u64,
    dirty: u64,
    writeback: u64,
    evicted: u64,
    recently_evicted: u64,
}

/// Whether reading a range past the page cache costs nothing: it lacks pages of it, and has none
/// that are not on disk. False where the kernel cannot tell (before 6.5).
pub(crate) fn better_uncached(fd: BorrowedFd<'_>, offset: u64, len: u64) -> bool {
    let (range, mut stat) = (Range { offset, len }, CacheStat::default());
    // SAFETY: both structs are laid out as the kernel's and outlive the call.
    let rc = unsafe { libc::syscall(SYS_CACHESTAT, fd.as_raw_fd(), &range, &mut stat, 0u32) };
    let pages = (offset + len).div_ceil(4096) - offset / 4096;
    rc == 0 && stat.cached < pages && stat.dirty == 0 && stat.writeback == 0
}
