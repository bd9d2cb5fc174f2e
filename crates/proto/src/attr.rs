//! Attributes of an inode, and the message that changes them.

use crate::fid::Fid;
use crate::wire::{Dec, DecodeError, Enc, Wire};

/// A time: seconds since 1970 and nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default, Hash)]
pub struct TimeSpec {
    /// Seconds, may be negative.
    pub sec: i64,
    /// Nanoseconds, below 10^9.
    pub nsec: u32,
}

impl From<std::time::SystemTime> for TimeSpec {
    fn from(t: std::time::SystemTime) -> TimeSpec {
        match t.duration_since(std::time::UNIX_EPOCH) {
            Ok(d) => TimeSpec { sec: d.as_secs() as i64, nsec: d.subsec_nanos() },
            Err(e) => {
                let d = e.duration();
                let (sec, nsec) = (d.as_secs() as i64, d.subsec_nanos());
                match nsec {
                    0 => TimeSpec { sec: -sec, nsec: 0 },
                    n => TimeSpec { sec: -sec - 1, nsec: 1_000_000_000 - n },
                }
            }
        }
    }
}

impl Wire for TimeSpec {
    fn enc(&self, e: &mut Enc) {
        e.put(&self.sec).put(&self.nsec);
    }
    fn dec(d: &mut Dec<'_>) -> Result<TimeSpec, DecodeError> {
        let (sec, nsec): (i64, u32) = (d.get()?, d.get()?);
        if nsec >= 1_000_000_000 {
            return Err(DecodeError::Unknown { what: "nanoseconds", value: nsec.into() });
        }
        Ok(TimeSpec { sec, nsec })
    }
}

/// What an inode is; the numbers are those of `S_IFMT >> 12`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum FileKind {
    /// Named pipe.
    Fifo = 1,
    /// Character device.
    Char = 2,
    /// Directory.
    Dir = 4,
    /// Block device.
    Block = 6,
    /// Regular file.
    File = 8,
    /// Symbolic link.
    Symlink = 10,
    /// Socket.
    Socket = 12,
}

impl FileKind {
    /// From the number; `None` for anything else.
    pub fn from_u8(v: u8) -> Option<FileKind> {
        use FileKind::*;
        [Fifo, Char, Dir, Block, File, Symlink, Socket].into_iter().find(|k| *k as u8 == v)
    }
    /// From `st_mode`.
    pub fn from_mode(mode: u32) -> Option<FileKind> {
        FileKind::from_u8(((mode >> 12) & 0xf) as u8)
    }
    /// The type bits of `st_mode`.
    pub fn mode_bits(self) -> u32 {
        (self as u32) << 12
    }
}

impl Wire for FileKind {
    fn enc(&self, e: &mut Enc) {
        e.put(&(*self as u8));
    }
    fn dec(d: &mut Dec<'_>) -> Result<FileKind, DecodeError> {
        let v = d.get::<u8>()?;
        FileKind::from_u8(v).ok_or(DecodeError::Unknown { what: "file kind", value: v.into() })
    }
}

/// Data lives inline with the metadata.
pub const A_INLINE: u32 = 1;
/// A writer is (or died) active: size and mtime on the MDT may lag behind the objects; ask the
/// OSTs (glimpse) for a true size.
pub const A_SIZE_LAGS: u32 = 2;
/// The inode has extended attributes (user-visible ones).
pub const A_HAS_XATTR: u32 = 4;
/// The inode has an access ACL.
pub const A_HAS_ACL: u32 = 8;
/// The inode has a layout of its own stored (files), or a default layout (directories).
pub const A_HAS_LAYOUT: u32 = 16;

crate::wire_struct! {
    /// What `stat` shows of an inode.
    Attr {
        /// The inode.
        fid: Fid,
        /// `st_mode`: type and permission bits.
        mode: u32,
        /// Link count.
        nlink: u32,
        /// Owner.
        uid: u32,
        /// Group.
        gid: u32,
        /// Device number (`makedev` form) of device nodes.
        rdev: u64,
        /// Size in bytes.
        size: u64,
        /// 512-byte blocks allocated.
        blocks: u64,
        /// Last access.
        atime: TimeSpec,
        /// Last change of data.
        mtime: TimeSpec,
        /// Last change of the inode.
        ctime: TimeSpec,
        /// Creation.
        btime: TimeSpec,
        /// `A_*`.
        flags: u32,
        /// Changes with every change of the inode; a cache that holds the same is valid.
        version: u64,
    }

    /// Which attributes to set, and to what; fields without their bit are ignored.
    SetAttr {
        /// `S_*` bits.
        valid: u32,
        /// Permission bits (07777).
        mode: u32,
        /// Owner.
        uid: u32,
        /// Group.
        gid: u32,
        /// Size in bytes.
        size: u64,
        /// Access time.
        atime: TimeSpec,
        /// Modification time.
        mtime: TimeSpec,
        /// Change time (only from a client's write-behind report).
        ctime: TimeSpec,
    }
}

/// `mode` is set.
pub const S_MODE: u32 = 1;
/// `uid` is set.
pub const S_UID: u32 = 2;
/// `gid` is set.
pub const S_GID: u32 = 4;
/// `size` is set.
pub const S_SIZE: u32 = 8;
/// `atime` is set.
pub const S_ATIME: u32 = 16;
/// `mtime` is set.
pub const S_MTIME: u32 = 32;
/// `atime` becomes the server's now (UTIME_NOW: a writer may, not only the owner).
pub const S_ATIME_NOW: u32 = 64;
/// `mtime` becomes the server's now.
pub const S_MTIME_NOW: u32 = 128;
/// `ctime` is set (size reports only).
pub const S_CTIME: u32 = 256;
/// Drop setuid/setgid as a write or truncate does.
pub const S_KILL_SUID: u32 = 512;
/// The caller holds the file open for writing: permission was checked at open (ftruncate).
pub const S_OPENED: u32 = 1024;

impl SetAttr {
    /// Nothing set.
    pub fn none() -> SetAttr {
        let t = TimeSpec::default();
        SetAttr { valid: 0, mode: 0, uid: 0, gid: 0, size: 0, atime: t, mtime: t, ctime: t }
    }
    /// Only the size.
    pub fn size(size: u64) -> SetAttr {
        SetAttr { valid: S_SIZE, size, ..SetAttr::none() }
    }
}

impl Attr {
    /// What the inode is.
    pub fn kind(&self) -> FileKind {
        FileKind::from_mode(self.mode).unwrap_or(FileKind::File)
    }
    /// Whether it is a directory.
    pub fn is_dir(&self) -> bool {
        self.kind() == FileKind::Dir
    }
}
