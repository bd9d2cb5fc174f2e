//! Plain values that handlers receive and answer with.
//!
//! Everything here is independent of the kernel's byte layouts (those are in `abi` and `codec`).

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// An errno to answer a request with. Always a positive number such as `libc::ENOENT`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Errno(i32);

impl Errno {
    pub const EIO: Errno = Errno(libc::EIO);
    pub const ENOENT: Errno = Errno(libc::ENOENT);
    pub const ENOSYS: Errno = Errno(libc::ENOSYS);
    pub const EINVAL: Errno = Errno(libc::EINVAL);
    pub const EINTR: Errno = Errno(libc::EINTR);
    pub const ERANGE: Errno = Errno(libc::ERANGE);

    /// Makes an error from a positive errno; the kernel accepts 1..=511, anything else becomes EIO.
    pub const fn new(errno: i32) -> Errno {
        if errno >= 1 && errno < 512 { Errno(errno) } else { Errno::EIO }
    }

    pub const fn get(self) -> i32 {
        self.0
    }
}

impl From<std::io::Error> for Errno {
    fn from(error: std::io::Error) -> Errno {
        Errno::new(error.raw_os_error().unwrap_or(libc::EIO))
    }
}

impl std::fmt::Display for Errno {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::io::Error::from_raw_os_error(self.0).fmt(f)
    }
}

impl std::error::Error for Errno {}

/// Result of a handler.
pub type Result<T> = std::result::Result<T, Errno>;

/// A point in time: seconds since the epoch (may be negative) and 0..1e9 nanoseconds after it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time {
    pub sec: i64,
    pub nsec: u32,
}

impl From<SystemTime> for Time {
    fn from(t: SystemTime) -> Time {
        match t.duration_since(UNIX_EPOCH) {
            Ok(d) => Time { sec: d.as_secs() as i64, nsec: d.subsec_nanos() },
            Err(e) => {
                let d = e.duration();
                let nsec = d.subsec_nanos();
                let sec = -(d.as_secs() as i64);
                match nsec {
                    0 => Time { sec, nsec: 0 },
                    n => Time { sec: sec - 1, nsec: 1_000_000_000 - n },
                }
            }
        }
    }
}

/// Attributes of an inode, as stat(2) shows them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attr {
    /// st_ino; need not be the node id.
    pub ino: u64,
    pub size: u64,
    /// In units of 512 bytes.
    pub blocks: u64,
    pub atime: Time,
    pub mtime: Time,
    pub ctime: Time,
    /// File type (S_IFMT) and permission bits.
    pub mode: u32,
    pub nlink: u32,
    pub uid: u32,
    pub gid: u32,
    /// Device number in the kernel's 32-bit encoding, see [`encode_dev`].
    pub rdev: u32,
    /// Preferred I/O size in bytes; a power of two from 512, or 0 for the kernel's default of 4096.
    pub blksize: u32,
    /// `FUSE_ATTR_*` bits (1 = submount, 2 = DAX).
    pub flags: u32,
}

/// Packs a device number as the kernel does (`new_encode_dev`): minor 20 bits, major 12 bits.
pub const fn encode_dev(major: u32, minor: u32) -> u32 {
    (minor & 0xff) | ((major & 0xfff) << 8) | ((minor & 0xfff00) << 12)
}

/// Inverse of [`encode_dev`]: (major, minor).
pub const fn decode_dev(dev: u32) -> (u32, u32) {
    ((dev >> 8) & 0xfff, (dev & 0xff) | ((dev >> 12) & 0xfff00))
}

/// Answer to getattr and setattr.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AttrOut {
    pub attr: Attr,
    /// How long the kernel may trust the attributes.
    pub ttl: Duration,
}

/// Answer to lookup, mkdir, link, ...: a name bound to a node.
///
/// Each answered entry with a node id other than 0 adds one to the node's lookup count, which FORGET takes back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// 0 means "no such name", which the kernel caches for `entry_ttl`.
    pub nodeid: u64,
    pub generation: u64,
    pub entry_ttl: Duration,
    pub attr_ttl: Duration,
    pub attr: Attr,
}

impl Entry {
    /// "No such name", to be remembered by the kernel for `ttl`. Only valid as an answer to lookup.
    pub fn negative(ttl: Duration) -> Entry {
        Entry { entry_ttl: ttl, ..Entry::default() }
    }
}

/// Bits of [`Open::flags`].
pub mod open_flags {
    /// Bypass the page cache.
    pub const DIRECT_IO: u32 = 1 << 0;
    /// Keep cached pages of earlier opens.
    pub const KEEP_CACHE: u32 = 1 << 1;
    /// read and write only at the position, no lseek.
    pub const NONSEEKABLE: u32 = 1 << 2;
    /// Let the kernel cache this directory's entries (opendir only).
    pub const CACHE_DIR: u32 = 1 << 3;
    /// No position at all (pipes).
    pub const STREAM: u32 = 1 << 4;
    /// Send no FLUSH at close.
    pub const NOFLUSH: u32 = 1 << 5;
    /// Allow direct writes at the same time to one inode.
    pub const PARALLEL_DIRECT_WRITES: u32 = 1 << 6;
}

/// Answer to open, opendir.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Open {
    /// The file system's own handle; comes back with each request on this open file.
    pub fh: u64,
    /// [`open_flags`] bits.
    pub flags: u32,
}

/// Answer to create and tmpfile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Created {
    pub entry: Entry,
    pub open: Open,
}

/// A time to set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTime {
    Now,
    At(Time),
}

/// What a setattr wants changed; `None` stays as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetAttr {
    pub mode: Option<u32>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub size: Option<u64>,
    pub atime: Option<SetTime>,
    pub mtime: Option<SetTime>,
    /// Only sent with write-back caching, which this layer never negotiates; kept for completeness.
    pub ctime: Option<Time>,
    /// Handle of the open file (ftruncate).
    pub fh: Option<u64>,
    pub lock_owner: Option<u64>,
    /// The file system must clear set-uid and set-gid (with HANDLE_KILLPRIV_V2).
    pub kill_suidgid: bool,
}

/// Arguments of read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadIn {
    pub fh: u64,
    pub offset: u64,
    /// At most the negotiated `max_write` bytes.
    pub size: u32,
    /// O_* flags of the open file.
    pub flags: u32,
    pub lock_owner: Option<u64>,
}

/// Arguments of write, besides the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteIn {
    pub fh: u64,
    pub offset: u64,
    /// O_* flags of the open file.
    pub flags: u32,
    pub lock_owner: Option<u64>,
    /// Written back from the page cache (shared mmap), not by write(2): uid, gid and pid mean nothing.
    pub from_cache: bool,
    /// The file system must clear set-uid and set-gid (with HANDLE_KILLPRIV_V2).
    pub kill_suidgid: bool,
}

/// Arguments of open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenIn {
    /// O_* flags; O_CREAT, O_EXCL, O_NOCTTY are filtered out, O_TRUNC only comes with ATOMIC_O_TRUNC.
    pub flags: u32,
    /// The file system must clear set-uid and set-gid (O_TRUNC with HANDLE_KILLPRIV_V2).
    pub kill_suidgid: bool,
}

/// Arguments of create and tmpfile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CreateIn {
    /// S_IFREG and permission bits; not masked when DONT_MASK was negotiated.
    pub mode: u32,
    pub umask: u32,
    /// O_* flags.
    pub flags: u32,
    pub kill_suidgid: bool,
}

/// Arguments of release and releasedir.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReleaseIn {
    pub fh: u64,
    pub flags: u32,
    /// The closing owner, when POSIX or flock locks may be held.
    pub lock_owner: Option<u64>,
    /// Drop the owner's flock locks.
    pub flock_unlock: bool,
}

/// An advisory lock, or its absence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileLock {
    /// First byte.
    pub start: u64,
    /// Last byte, inclusive; `i64::MAX as u64` is to the end of file.
    pub end: u64,
    /// F_RDLCK, F_WRLCK or F_UNLCK.
    pub kind: i32,
    pub pid: u32,
}

/// Arguments of getlk and setlk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockIn {
    pub fh: u64,
    pub owner: u64,
    pub lock: FileLock,
    /// flock(2) rather than fcntl(2).
    pub flock: bool,
    /// Wait for the lock (SETLKW); must be answered with EINTR when interrupted.
    pub wait: bool,
}

/// Answer to statfs; units as in statvfs(3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statfs {
    pub blocks: u64,
    pub bfree: u64,
    pub bavail: u64,
    pub files: u64,
    pub ffree: u64,
    pub bsize: u32,
    pub namelen: u32,
    pub frsize: u32,
}

/// Arguments of statx.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatxIn {
    pub fh: Option<u64>,
    /// AT_STATX_* synchronisation flags.
    pub flags: u32,
    /// STATX_* mask wanted.
    pub mask: u32,
}

/// Answer to statx: all basic fields, and the time of birth if known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statx {
    pub attr: Attr,
    pub btime: Option<Time>,
    pub ttl: Duration,
    /// STATX_ATTR_* bits, and which of them are meaningful.
    pub attributes: u64,
    pub attributes_mask: u64,
}

/// Arguments of ioctl.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IoctlIn {
    pub fh: u64,
    pub cmd: u32,
    pub arg: u64,
    /// FUSE_IOCTL_* bits.
    pub flags: u32,
    /// Most bytes the answer may carry.
    pub out_size: u32,
}

/// Answer to ioctl.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IoctlOut {
    /// What ioctl(2) returns, if not negative.
    pub result: i32,
    pub data: Vec<u8>,
}

/// Arguments of copy_file_range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyIn {
    pub fh_in: u64,
    pub off_in: u64,
    pub nodeid_out: u64,
    pub fh_out: u64,
    pub off_out: u64,
    pub len: u64,
    pub flags: u64,
}
