//! Capability bits of the INIT exchange (`FUSE_*` in linux/fuse.h).
//!
//! [`Config::wanted`](crate::Config::wanted) names those a file system would like; the kernel's choice comes back in
//! [`InitInfo::granted`](crate::InitInfo::granted). WRITEBACK_CACHE does not exist here on purpose: with it the kernel owns the
//! size of files and silently truncates reads after another node grew one.

pub const ASYNC_READ: u64 = 1 << 0;
pub const POSIX_LOCKS: u64 = 1 << 1;
/// O_TRUNC comes with open instead of as a setattr of its own.
pub const ATOMIC_O_TRUNC: u64 = 1 << 3;
/// Nodes that the kernel has forgotten are found again by their number: it looks up their names `.` and `..`, the former of
/// files, too.
pub const EXPORT_SUPPORT: u64 = 1 << 4;
pub const BIG_WRITES: u64 = 1 << 5;
/// The file system applies the umask (needed with default ACLs).
pub const DONT_MASK: u64 = 1 << 6;
pub const FLOCK_LOCKS: u64 = 1 << 10;
pub const HAS_IOCTL_DIR: u64 = 1 << 11;
pub const AUTO_INVAL_DATA: u64 = 1 << 12;
pub const DO_READDIRPLUS: u64 = 1 << 13;
pub const READDIRPLUS_AUTO: u64 = 1 << 14;
pub const ASYNC_DIO: u64 = 1 << 15;
pub const NO_OPEN_SUPPORT: u64 = 1 << 17;
pub const PARALLEL_DIROPS: u64 = 1 << 18;
pub const POSIX_ACL: u64 = 1 << 20;
pub const MAX_PAGES: u64 = 1 << 22;
pub const CACHE_SYMLINKS: u64 = 1 << 23;
pub const NO_OPENDIR_SUPPORT: u64 = 1 << 24;
/// Cached data is only dropped by notifications and by opens without KEEP_CACHE.
pub const EXPLICIT_INVAL_DATA: u64 = 1 << 25;
/// The file system clears set-id bits itself: at chown always, else where a request says `kill_suidgid`.
pub const HANDLE_KILLPRIV_V2: u64 = 1 << 28;
pub const SETXATTR_EXT: u64 = 1 << 29;
/// Flags beyond the 32nd bit are understood; always asked for.
pub const INIT_EXT: u64 = 1 << 30;
/// Security contexts come with create, mkdir, mknod and symlink.
pub const SECURITY_CTX: u64 = 1 << 32;
/// Create requests carry one supplementary group where it matters.
pub const CREATE_SUPP_GROUP: u64 = 1 << 34;
pub const HAS_EXPIRE_ONLY: u64 = 1 << 35;
/// Shared mmap of files opened with DIRECT_IO.
pub const DIRECT_IO_ALLOW_MMAP: u64 = 1 << 36;
/// Requests come through io_uring; asked for as [`IoUring`](crate::IoUring) says.
pub const OVER_IO_URING: u64 = 1 << 41;

/// What a file system with its own coherence wants: everything above but EXPORT_SUPPORT, AUTO_INVAL_DATA (made needless
/// by EXPLICIT_INVAL_DATA), POSIX_ACL (implies kernel permission checks), NO_OPEN_SUPPORT, NO_OPENDIR_SUPPORT and
/// SECURITY_CTX.
pub const DEFAULT: u64 = ASYNC_READ
    | POSIX_LOCKS
    | ATOMIC_O_TRUNC
    | BIG_WRITES
    | DONT_MASK
    | FLOCK_LOCKS
    | HAS_IOCTL_DIR
    | DO_READDIRPLUS
    | READDIRPLUS_AUTO
    | ASYNC_DIO
    | PARALLEL_DIROPS
    | MAX_PAGES
    | CACHE_SYMLINKS
    | EXPLICIT_INVAL_DATA
    | HANDLE_KILLPRIV_V2
    | SETXATTR_EXT
    | INIT_EXT
    | CREATE_SUPP_GROUP
    | HAS_EXPIRE_ONLY
    | DIRECT_IO_ALLOW_MMAP;

/// Every bit this layer can honour.
pub(crate) const SUPPORTED: u64 = DEFAULT
    | EXPORT_SUPPORT
    | AUTO_INVAL_DATA
    | POSIX_ACL
    | NO_OPEN_SUPPORT
    | NO_OPENDIR_SUPPORT
    | SECURITY_CTX;
