//! What is asked of a name or an open file, in one struct whatever it was asked of.

use rustix::fs::{AtFlags, CWD, FileType, Timespec};
use std::io;
use std::os::fd::AsFd;
use std::path::Path;

/// Bits that chmod(2) can set.
pub const CHMOD_BITS: u32 = 0o7777;

#[derive(Clone, Copy, Debug)]
pub struct Stat {
    pub dev: u64,
    pub ino: u64,
    /// Type and permissions.
    pub mode: u32,
    pub nlink: u64,
    pub uid: u32,
    pub gid: u32,
    pub rdev: u64,
    pub size: u64,
    pub atime: Timespec,
    pub mtime: Timespec,
    /// Nanoseconds of the last change of the inode: what the file system can tell apart.
    pub ctime_nsec: i64,
}

impl Stat {
    /// Follows symbolic links.
    pub fn follow(path: &Path) -> io::Result<Self> {
        Ok(rustix::fs::statat(CWD, path, AtFlags::empty())?.into())
    }

    /// Does not follow a symbolic link at the end.
    pub fn nofollow(path: &Path) -> io::Result<Self> {
        Ok(rustix::fs::statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW)?.into())
    }

    pub fn open(file: impl AsFd) -> io::Result<Self> {
        Ok(rustix::fs::fstat(file)?.into())
    }

    pub fn kind(&self) -> FileType {
        FileType::from_raw_mode(self.mode)
    }

    pub fn is_dir(&self) -> bool {
        self.kind() == FileType::Directory
    }

    pub fn is_file(&self) -> bool {
        self.kind() == FileType::RegularFile
    }

    pub fn is_symlink(&self) -> bool {
        self.kind() == FileType::Symlink
    }

    pub fn perm(&self) -> u32 {
        self.mode & CHMOD_BITS
    }

    /// What tells a file from all others that exist at this time.
    pub fn id(&self) -> (u64, u64) {
        (self.dev, self.ino)
    }

    pub fn same(&self, other: &Self) -> bool {
        self.id() == other.id()
    }

    pub fn same_owner(&self, other: &Self) -> bool {
        (self.uid, self.gid) == (other.uid, other.gid)
    }
}

impl From<rustix::fs::Stat> for Stat {
    fn from(st: rustix::fs::Stat) -> Self {
        Self {
            dev: st.st_dev,
            ino: st.st_ino,
            mode: st.st_mode,
            nlink: st.st_nlink,
            uid: st.st_uid,
            gid: st.st_gid,
            rdev: st.st_rdev,
            size: u64::try_from(st.st_size).unwrap_or(0),
            atime: Timespec { tv_sec: st.st_atime, tv_nsec: st.st_atime_nsec as _ },
            mtime: Timespec { tv_sec: st.st_mtime, tv_nsec: st.st_mtime_nsec as _ },
            ctime_nsec: st.st_ctime_nsec as i64,
        }
    }
}
