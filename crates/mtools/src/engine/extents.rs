//! Where a source has data, and where holes.

use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;
use std::fs::File;
use std::io;

/// The first data at or after `at`, before `end`; `None`: a hole to the end.
pub fn next(src: &File, at: u64, end: u64) -> io::Result<Option<(u64, u64)>> {
    if at >= end {
        return Ok(None);
    }
    let start = match seek(src, SeekFrom::Data(at)) {
        Ok(start) if start < end => start,
        // Beyond the end, or no data after `at`.
        Ok(_) | Err(Errno::NXIO) => return Ok(None),
        Err(e) => return Err(e.into()),
    };
    let stop = match seek(src, SeekFrom::Hole(start)) {
        Ok(stop) => stop.min(end),
        // The file became shorter in between: a read finds out where it ends.
        Err(Errno::NXIO) => end,
        Err(e) => return Err(e.into()),
    };
    Ok(Some((start, stop.max(start + 1))))
}

/// Whether the file system tells holes; an error that says it does not know the question is `false`.
pub fn told(src: &File) -> io::Result<bool> {
    match seek(src, SeekFrom::Data(0)) {
        Ok(_) | Err(Errno::NXIO) => Ok(true),
        Err(Errno::INVAL | Errno::NOTSUP | Errno::NOSYS | Errno::NOTTY) => Ok(false),
        Err(e) => Err(e.into()),
    }
}
