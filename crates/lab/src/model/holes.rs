//! What SEEK_DATA and SEEK_HOLE promise, checked on one file: segments cover the file in order,
//! holes read as zeros, the last hole starts no later than the size, and beyond it is ENXIO. Where
//! exactly holes begin is each file system's own business.

use super::op::Value;
use crate::sys::{self, Aligned};
use rustix::fs as rfs;
use rustix::io::Errno;
use std::os::fd::BorrowedFd;

/// Larger files are not walked: a file system without holes would have to read them.
pub const MAX_WALK: u64 = 16 << 20;

pub(crate) fn check(file: BorrowedFd<'_>, direct: bool) -> Result<Value, Errno> {
    let stat = rfs::fstat(file)?;
    let back = sys::lseek(file, 0, libc::SEEK_CUR).map_err(Errno::from_raw_os_error)?;
    let regular = rfs::FileType::from_raw_mode(stat.st_mode).is_file();
    let size = stat.st_size as u64;
    let result = if regular && size <= MAX_WALK { walk(file, size, direct) } else { Ok(()) };
    sys::lseek(file, back, libc::SEEK_SET).map_err(Errno::from_raw_os_error)?;
    Ok(result.map_or_else(Value::Broken, |()| Value::Unit))
}

fn walk(file: BorrowedFd<'_>, size: u64, direct: bool) -> Result<(), String> {
    for whence in [libc::SEEK_DATA, libc::SEEK_HOLE] {
        match sys::lseek(file, size as i64, whence) {
            Err(libc::ENXIO) => {}
            other => return Err(format!("seek {whence} at size {size} gave {other:?}, not ENXIO")),
        }
    }
    let mut at = 0u64;
    while at < size {
        let data = match sys::lseek(file, at as i64, libc::SEEK_DATA) {
            Ok(data) => data as u64,
            Err(libc::ENXIO) => size,
            Err(e) => return Err(format!("SEEK_DATA at {at}: errno {e}")),
        };
        if data < at || data > size {
            return Err(format!("SEEK_DATA at {at} gave {data}, size {size}"));
        }
        zeros(file, at, data, direct)?;
        if data == size {
            return Ok(());
        }
        let hole = sys::lseek(file, data as i64, libc::SEEK_HOLE)
            .map_err(|e| format!("SEEK_HOLE at {data}: errno {e}"))? as u64;
        if hole <= data || hole > size {
            return Err(format!("SEEK_HOLE at {data} gave {hole}, size {size}"));
        }
        at = hole;
    }
    Ok(())
}

fn zeros(file: BorrowedFd<'_>, from: u64, to: u64, direct: bool) -> Result<(), String> {
    let mut buffer = Aligned::new(64 << 10);
    let mut at = if direct { from & !4095 } else { from };
    let start = from;
    while at < to {
        let want = if direct { buffer.len() } else { buffer.len().min((to - at) as usize) };
        let count = match rustix::io::pread(file, &mut buffer[..want], at) {
            Ok(n) => n,
            Err(Errno::BADF) => return Ok(()), // opened for writing only
            Err(e) => return Err(format!("read of a hole at {at}: {e}")),
        };
        if count == 0 {
            return Err(format!("a hole up to {to} ends at {at}"));
        }
        for (i, &b) in buffer[..count].iter().enumerate() {
            let pos = at + i as u64;
            if b != 0 && pos >= start && pos < to {
                return Err(format!("byte {pos} in a hole [{from}, {to}) is {b:#x}"));
            }
        }
        at += count as u64;
    }
    Ok(())
}
