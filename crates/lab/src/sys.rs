//! The few system calls that `rustix` does not offer in the raw form a file system test needs
//! (negative lengths, unknown `whence`, open-file-description locks, shared mappings).

use std::ffi::CStr;
use std::os::fd::{AsRawFd, BorrowedFd};

pub type Sys<T> = Result<T, i32>;

pub(crate) fn errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)
}

pub fn truncate(path: &CStr, len: i64) -> Sys<()> {
    // SAFETY: `path` is a valid C string for the length of the call.
    if unsafe { libc::truncate(path.as_ptr(), len) } == 0 { Ok(()) } else { Err(errno()) }
}

pub fn lseek(fd: BorrowedFd<'_>, off: i64, whence: i32) -> Sys<i64> {
    // SAFETY: plain integers; the descriptor is borrowed for the call.
    let at = unsafe { libc::lseek(fd.as_raw_fd(), off, whence) };
    if at >= 0 { Ok(at) } else { Err(errno()) }
}

/// An open-file-description lock request; `test` asks F_OFD_GETLK and returns the type found.
pub fn ofd_lock(fd: BorrowedFd<'_>, kind: i32, start: i64, len: i64, test: bool) -> Sys<i32> {
    // SAFETY: flock is plain data, for which zero is a valid value.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = kind as i16;
    lock.l_whence = libc::SEEK_SET as i16;
    lock.l_start = start;
    lock.l_len = len;
    let command = if test { libc::F_OFD_GETLK } else { libc::F_OFD_SETLK };
    // SAFETY: `lock` outlives the call and has the type the command expects.
    match unsafe { libc::fcntl(fd.as_raw_fd(), command, &mut lock) } {
        0 => Ok(i32::from(lock.l_type)),
        _ => Err(errno()),
    }
}

/// Waits for a lock on a range: of the process (POSIX), or of the open file description.
pub fn range_wait(fd: BorrowedFd<'_>, posix: bool, kind: i32, start: i64, len: i64) -> Sys<()> {
    // SAFETY: flock is plain data, for which zero is a valid value.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = kind as i16;
    lock.l_whence = libc::SEEK_SET as i16;
    lock.l_start = start;
    lock.l_len = len;
    let command = if posix { libc::F_SETLKW } else { libc::F_OFD_SETLKW };
    // SAFETY: `lock` outlives the call and has the type the command expects.
    match unsafe { libc::fcntl(fd.as_raw_fd(), command, &mut lock) } {
        0 => Ok(()),
        _ => Err(errno()),
    }
}

/// A shared mapping of part of a file, unmapped on drop.
pub struct Mapping {
    addr: *mut u8,
    len: usize,
}

// SAFETY: the mapping is plain memory owned by this value; access goes through &self/&mut self.
unsafe impl Send for Mapping {}

impl Mapping {
    /// Maps `len` bytes (> 0) from `off`, which must be a multiple of the page size. The caller
    /// keeps the file at least that long while it uses the mapping.
    pub fn new(fd: BorrowedFd<'_>, off: u64, len: usize, write: bool) -> Sys<Self> {
        let prot = if write { libc::PROT_READ | libc::PROT_WRITE } else { libc::PROT_READ };
        // SAFETY: a fresh mapping at an address the kernel chooses; nothing else refers to it.
        let addr = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                prot,
                libc::MAP_SHARED,
                fd.as_raw_fd(),
                off as libc::off_t,
            )
        };
        if addr == libc::MAP_FAILED { Err(errno()) } else { Ok(Mapping { addr: addr.cast(), len }) }
    }

    /// Copies out of the mapping; the range must lie inside it.
    pub fn read(&self, at: usize, out: &mut [u8]) {
        assert!(at + out.len() <= self.len);
        // SAFETY: the range was checked; volatile-free copy of bytes another process may change is
        // what shared mappings are for, and any byte value is valid.
        unsafe { std::ptr::copy_nonoverlapping(self.addr.add(at), out.as_mut_ptr(), out.len()) }
    }

    /// Copies into a writable mapping; the range must lie inside it.
    pub fn write(&mut self, at: usize, data: &[u8]) {
        assert!(at + data.len() <= self.len);
        // SAFETY: as for read; the mapping was made writable by the caller.
        unsafe { std::ptr::copy_nonoverlapping(data.as_ptr(), self.addr.add(at), data.len()) }
    }

    /// As `read`; EFAULT instead of a signal where what is mapped cannot be had any more.
    pub fn try_read(&self, at: usize, out: &mut [u8]) -> Sys<()> {
        assert!(at + out.len() <= self.len);
        let local = libc::iovec { iov_base: out.as_mut_ptr().cast(), iov_len: out.len() };
        let remote = self.range(at, out.len());
        // SAFETY: one range is `out`, the other was checked to lie in the mapping; both live for the call.
        let n = unsafe { libc::process_vm_readv(libc::getpid(), &local, 1, &remote, 1, 0) };
        self.copied(n, out.len())
    }

    /// As `write`; EFAULT instead of a signal.
    pub fn try_write(&mut self, at: usize, data: &[u8]) -> Sys<()> {
        assert!(at + data.len() <= self.len);
        let local = libc::iovec { iov_base: data.as_ptr().cast_mut().cast(), iov_len: data.len() };
        let remote = self.range(at, data.len());
        // SAFETY: as for `try_read`; `data` is only read from.
        let n = unsafe { libc::process_vm_writev(libc::getpid(), &local, 1, &remote, 1, 0) };
        self.copied(n, data.len())
    }

    fn range(&self, at: usize, len: usize) -> libc::iovec {
        // SAFETY: the callers have checked that `at` lies in the mapping.
        libc::iovec { iov_base: unsafe { self.addr.add(at) }.cast(), iov_len: len }
    }

    fn copied(&self, n: libc::ssize_t, wanted: usize) -> Sys<()> {
        match n {
            n if n == wanted as libc::ssize_t => Ok(()),
            -1 => Err(errno()),
            _ => Err(libc::EFAULT),
        }
    }

    /// msync(MS_SYNC) of the whole mapping.
    pub fn sync(&self) -> Sys<()> {
        self.msync(libc::MS_SYNC)
    }

    /// msync(MS_SYNC | MS_INVALIDATE): what others wrote before is seen after it.
    pub fn refresh(&self) -> Sys<()> {
        self.msync(libc::MS_SYNC | libc::MS_INVALIDATE)
    }

    fn msync(&self, how: libc::c_int) -> Sys<()> {
        // SAFETY: the range is exactly the mapping.
        match unsafe { libc::msync(self.addr.cast(), self.len, how) } {
            0 => Ok(()),
            _ => Err(errno()),
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours and no reference into it survives this value.
        unsafe { libc::munmap(self.addr.cast(), self.len) };
    }
}

/// A heap buffer whose start is aligned to 4,096 bytes, for O_DIRECT.
pub struct Aligned {
    raw: Vec<u8>,
    start: usize,
    len: usize,
}

impl Aligned {
    pub fn new(len: usize) -> Self {
        let raw = vec![0u8; len + 4096];
        let start = raw.as_ptr().align_offset(4096);
        Aligned { raw, start, len }
    }

    pub fn filled(data: &[u8]) -> Self {
        let mut buffer = Self::new(data.len());
        buffer.copy_from_slice(data);
        buffer
    }
}

impl std::ops::Deref for Aligned {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.raw[self.start..self.start + self.len]
    }
}

impl std::ops::DerefMut for Aligned {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.raw[self.start..self.start + self.len]
    }
}

/// SIGINT and SIGTERM, taken as events instead of ending the process.
pub struct EndSignals {
    set: libc::sigset_t,
}

impl EndSignals {
    /// Blocks them in this thread and those it starts from now on.
    pub fn block() -> std::io::Result<Self> {
        // SAFETY: sigset_t is plain data, initialised by sigemptyset before use; all pointers are
        // to it and live for the calls.
        unsafe {
            let mut set: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&mut set);
            libc::sigaddset(&mut set, libc::SIGINT);
            libc::sigaddset(&mut set, libc::SIGTERM);
            match libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut()) {
                0 => Ok(EndSignals { set }),
                e => Err(std::io::Error::from_raw_os_error(e)),
            }
        }
    }

    /// True if one of them came within `limit`.
    pub fn wait(&self, limit: std::time::Duration) -> bool {
        let limit = libc::timespec {
            tv_sec: limit.as_secs() as libc::time_t,
            tv_nsec: i64::from(limit.subsec_nanos()),
        };
        // SAFETY: the set is initialised, the time is plain data, no information is asked for.
        unsafe { libc::sigtimedwait(&self.set, std::ptr::null_mut(), &limit) > 0 }
    }
}
