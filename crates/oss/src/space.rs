//! How much room is left, without asking the file system at every write.
//!
//! Below the reserve, requests that need new blocks get ENOSPC while removing goes on, so that the
//! metadata on the same disk can always record an unlink. Several targets may share a disk: each
//! asks again after a share of what is left, the oftener the less there is.

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

use rustix::fs::{StatVfs, fstat, fstatvfs};
use rustix::io::Errno;

/// Reserve where nobody chose one, in bytes; at most a quarter of the file system. Above what the
/// MDT and its store keep (docs/operations.md): OSTs on the same disk stop first.
pub const DEFAULT_RESERVE: u64 = 128 << 20;
/// Most bytes written until the file system is asked again.
pub const REFRESH_BYTES: i64 = 32 << 20;

#[derive(Debug)]
pub(crate) struct Space {
    reserve: u64,
    /// Which file system of which host this is.
    fsid: u64,
    /// Bytes that may be written before the next look.
    budget: AtomicI64,
}

impl Space {
    pub(crate) fn new(dir: impl AsFd, reserve: Option<u64>) -> Result<Space, Errno> {
        let vfs = fstatvfs(&dir)?;
        let fsid = fsid(fstat(&dir)?.st_dev);
        let quarter = vfs.f_blocks.saturating_mul(vfs.f_frsize) / 4;
        let reserve = reserve.unwrap_or(DEFAULT_RESERVE.min(quarter));
        Ok(Space { reserve, fsid, budget: AtomicI64::new(0) })
    }

    /// Bytes free above the reserve.
    pub(crate) fn free(&self, vfs: &StatVfs) -> u64 {
        vfs.f_bavail.saturating_mul(vfs.f_frsize).saturating_sub(self.reserve)
    }

    /// The same for targets on one local file system.
    pub(crate) fn fsid(&self) -> u64 {
        self.fsid
    }

    /// Takes `bytes` from what is left; ENOSPC when that is too little.
    pub(crate) fn take(&self, dir: impl AsFd, bytes: u64) -> Result<(), Errno> {
        let want = i64::try_from(bytes).unwrap_or(i64::MAX);
        if want <= REFRESH_BYTES && self.budget.fetch_sub(want, Relaxed) >= want {
            return Ok(());
        }
        let free = i64::try_from(self.free(&fstatvfs(dir)?)).unwrap_or(i64::MAX);
        if free < want {
            self.budget.store(0, Relaxed);
            return Err(Errno::NOSPC);
        }
        self.budget.store(((free - want) / 16).min(REFRESH_BYTES), Relaxed);
        Ok(())
    }
}

/// The device number with the running kernel's identity (FNV-1a).
fn fsid(device: u64) -> u64 {
    let host = std::fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let bytes = host.iter().copied().chain(device.to_le_bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |h, b| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3))
}

/// Whether every block of a range is allocated (also if never written), so that overwriting it
/// needs no space. False when the file system cannot tell.
pub(crate) fn is_allocated(fd: impl AsFd, offset: u64, len: u64) -> bool {
    use std::os::fd::AsRawFd;
    /// Extents asked for at once.
    const EXTENTS: usize = 32;
    #[repr(C)]
    #[derive(Clone, Copy, Default)]
    struct Extent {
        logical: u64,
        physical: u64,
        length: u64,
        reserved: [u64; 2],
        flags: u32,
        reserved2: [u32; 3],
    }
    #[repr(C)]
    struct Map {
        start: u64,
        length: u64,
        flags: u32,
        mapped: u32,
        count: u32,
        reserved: u32,
        extents: [Extent; EXTENTS],
    }
    /// `_IOWR('f', 11, struct fiemap)`.
    const FS_IOC_FIEMAP: libc::c_ulong = 0xc020_660b;
    let (mut at, end) = (offset, offset.saturating_add(len));
    while at < end {
        let mut map = Map {
            start: at,
            length: end - at,
            flags: 0,
            mapped: 0,
            count: EXTENTS as u32,
            reserved: 0,
            extents: [Extent::default(); EXTENTS],
        };
        // SAFETY: `map` has the layout of `struct fiemap` followed by `count` extents; the kernel
        // writes no more than those.
        let done = unsafe { libc::ioctl(fd.as_fd().as_raw_fd(), FS_IOC_FIEMAP as _, &mut map) };
        if done != 0 || map.mapped == 0 {
            return false;
        }
        for e in map.extents.iter().take(map.mapped as usize) {
            if e.logical > at {
                return false;
            }
            at = at.max(e.logical.saturating_add(e.length));
        }
    }
    true
}
