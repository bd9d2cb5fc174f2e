//! Open files.

use std::sync::Arc;

use bytes::Bytes;
use proto::{Attr, Errno, Fid};

/// How a file is opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenFlags {
    /// For reading.
    pub read: bool,
    /// For writing.
    pub write: bool,
    /// O_TRUNC.
    pub trunc: bool,
    /// O_DIRECT: writes go through, reads are not read ahead.
    pub direct: bool,
    /// O_SYNC or O_DSYNC: writes are durable before they return.
    pub sync: bool,
    /// O_NOATIME.
    pub noatime: bool,
}

impl OpenFlags {
    /// From the flags of open(2).
    pub fn from_libc(flags: i32) -> OpenFlags {
        let mode = flags & libc::O_ACCMODE;
        OpenFlags {
            read: mode != libc::O_WRONLY,
            write: mode != libc::O_RDONLY,
            trunc: flags & libc::O_TRUNC != 0,
            direct: flags & libc::O_DIRECT != 0,
            sync: flags & (libc::O_SYNC | libc::O_DSYNC) != 0,
            noatime: flags & libc::O_NOATIME != 0,
        }
    }
}

/// What is written.
#[derive(Debug)]
pub enum Data<'a> {
    /// Borrowed: copied where it must outlive the call.
    Slice(&'a [u8]),
    /// Owned: kept without a copy.
    Owned(Bytes),
}

impl Data<'_> {
    /// The bytes.
    pub fn as_slice(&self) -> &[u8] {
        match self {
            Data::Slice(s) => s,
            Data::Owned(b) => b,
        }
    }
}

/// What fallocate(2) shall do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FallocMode {
    /// Reserve space, growing the file.
    Allocate,
    /// Reserve space; the size stays.
    KeepSize,
    /// Free the range; the size stays.
    Punch,
    /// Zero the range, growing the file.
    Zero,
    /// Zero the range; the size stays.
    ZeroKeepSize,
}

/// What lseek(2) looks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whence {
    /// SEEK_DATA.
    Data,
    /// SEEK_HOLE.
    Hole,
}

/// An open regular file. Dropping it without [`OpenFile::release`] releases it too.
#[derive(Debug)]
pub struct OpenFile {}

const LATER: Errno = Errno::ENOSYS;

impl OpenFile {
    /// The file.
    pub fn fid(&self) -> Fid {
        Fid::NONE
    }
    /// Attributes, as [`crate::Client::getattr`] but without a message while SOLE.
    pub fn attr(&self) -> Result<Attr, Errno> {
        Err(LATER)
    }
    /// Reads at `offset`; fewer bytes only at the end of the file.
    pub fn read(&self, _offset: u64, _into: &mut [u8]) -> Result<usize, Errno> {
        Err(LATER)
    }
    /// Writes all of `data` at `offset`; the number of bytes.
    pub fn write(&self, _offset: u64, _data: Data<'_>) -> Result<usize, Errno> {
        Err(LATER)
    }
    /// Writes at the end of the file (O_APPEND); where it began.
    pub fn append(&self, _data: Data<'_>) -> Result<u64, Errno> {
        Err(LATER)
    }
    /// close(2) of a descriptor: written bytes are with their servers, and an error of an earlier
    /// write is told, once (invariant 6).
    pub fn flush(&self) -> Result<(), Errno> {
        Err(LATER)
    }
    /// fsync(2), or fdatasync(2) with `datasync`.
    pub fn fsync(&self, _datasync: bool) -> Result<(), Errno> {
        Err(LATER)
    }
    /// The last descriptor is gone. Does not wait for servers; later calls answer EBADF.
    pub fn release(&self) {}
    /// ftruncate(2).
    pub fn truncate(&self, _size: u64) -> Result<Attr, Errno> {
        Err(LATER)
    }
    /// fallocate(2); EOPNOTSUPP for what is not in [`FallocMode`] is the caller's.
    pub fn fallocate(&self, _mode: FallocMode, _offset: u64, _len: u64) -> Result<(), Errno> {
        Err(LATER)
    }
    /// lseek(2) with SEEK_DATA or SEEK_HOLE; ENXIO.
    pub fn seek(&self, _offset: u64, _whence: Whence) -> Result<u64, Errno> {
        Err(LATER)
    }
    /// copy_file_range(2): bytes copied, fewer at the end of `self`.
    pub fn copy_range(
        &self,
        _offset: u64,
        _to: &Arc<OpenFile>,
        _to_offset: u64,
        _len: u64,
    ) -> Result<u64, Errno> {
        Err(LATER)
    }
}
