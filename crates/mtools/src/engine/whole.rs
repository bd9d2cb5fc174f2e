//! Copies one file in this thread, from its start to its end; what others do not finish ends here, too.

use super::plan::{Plan, Sides};
use super::range::{Range, Reached, read_at, retry};
use super::{Copied, Data, Engine, Fault, Sparse, Switch, Tried, interrupt, zeros};
use rustix::fs::{FallocateFlags, SeekFrom, fallocate, fstat, ftruncate, seek};
use rustix::io::Errno;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::sync::atomic::AtomicBool;

/// The whole of `plan` in this thread.
pub fn copy(engine: &Engine, data: &Data, plan: &Plan, copied: &mut Copied) -> Result<(), Fault> {
    let stop = AtomicBool::new(false);
    let range = Range { engine, data, plan, stop: &stop };
    let mut reached = range.copy(plan.start, plan.end);
    if let Some(fault) = reached.fault.take() {
        return Err(fault);
    }
    if range.stopped() {
        return Err(Fault::Interrupted);
    }
    end(&range, &mut reached, copied)
}

/// After all ranges were copied up to `reached`: what the source has got more since, and the size.
pub fn end(range: &Range<'_>, reached: &mut Reached, copied: &mut Copied) -> Result<(), Fault> {
    if !range.plan.closed && !reached.ended {
        grown(range, reached)?;
    }
    size(range, reached)?;
    copied.bytes = reached.at;
    copied.moved += reached.moved;
    copied.sparse = range.plan.detection;
    copied.offload = if reached.offloaded { Tried::Yes } else { Tried::No };
    Ok(())
}

/// Copies until the source has no more.
fn grown(range: &Range<'_>, reached: &mut Reached) -> Result<(), Fault> {
    let buffers = range.engine.buffers();
    let mut buffer = buffers.take().map_err(Fault::Read)?;
    loop {
        if interrupt::pending() {
            return Err(Fault::Interrupted);
        }
        let n = read_at(range.data, &mut buffer, reached.at)?;
        if n == 0 {
            return Ok(());
        }
        range.write(&buffer[..n], reached)?;
    }
}

/// Gives the destination the size of what was copied.
fn size(range: &Range<'_>, reached: &Reached) -> Result<(), Fault> {
    let (plan, dst) = (range.plan, &range.data.dst);
    let longer = reached.at > reached.written.max(plan.had);
    // Bytes of an older, longer file go, unless only a part was to be copied.
    let shorter = plan.had > reached.at && !plan.closed;
    if longer || shorter {
        ftruncate(dst, reached.at).map_err(|e| Fault::Extend(e.into()))?;
    }
    Ok(())
}

/// Has the file system find room for all of a file before its first byte, where that is asked for: the
/// blocks lie together, and a full disk is known at once. Its size does not change.
pub fn preallocate(engine: &Engine, data: &Data, plan: &Plan) -> Result<(), Fault> {
    let wanted = engine.settings().preallocate == Switch::On;
    // What is to have holes is not given blocks.
    if !wanted || plan.told || plan.zeros > 0 || plan.len() == 0 {
        return Ok(());
    }
    match fallocate(&data.dst, FallocateFlags::KEEP_SIZE, plan.start, plan.len()) {
        Err(e @ (Errno::NOSPC | Errno::DQUOT | Errno::FBIG)) => Err(Fault::Write(e.into())),
        // Where it cannot be done it is not needed.
        _ => Ok(()),
    }
}

/// A small file with one read and one write; `None`: it is no such file, nothing was done.
pub fn small(
    engine: &Engine,
    data: &Data,
    plan: &Plan,
    copied: &mut Copied,
) -> Option<Result<(), Fault>> {
    let plain = !plan.told && plan.zeros == 0 && plan.had == 0 && !plan.closed;
    let size = plan.len();
    if !plain || plan.offloads() || size >= engine.settings().buffer_size as u64 {
        return None;
    }
    let stop = AtomicBool::new(false);
    let range = Range { engine, data, plan, stop: &stop };
    Some(one_read(&range, size, copied))
}

fn one_read(range: &Range<'_>, size: u64, copied: &mut Copied) -> Result<(), Fault> {
    let buffers = range.engine.buffers();
    let mut buffer = buffers.take().map_err(Fault::Read)?;
    let mut reached = Reached::default();
    let n = read_at(range.data, &mut buffer, 0)?;
    range.write(&buffer[..n], &mut reached)?;
    // More was asked for and exactly the size came: that was all.
    reached.ended = n as u64 == size || n == 0;
    drop(buffer);
    end(range, &mut reached, copied)
}

/// From or to what is no regular file, or one whose size is not known: to the end of the source, in order.
pub fn stream(
    engine: &Engine,
    data: &Data,
    sides: &Sides,
    copied: &mut Copied,
) -> Result<(), Fault> {
    let to_file = rustix::fs::FileType::from_raw_mode(sides.dst.st_mode).is_file();
    let block = match data.sparse {
        Sparse::Always if to_file => sides.dst.st_blksize.max(512) as usize,
        _ => 0,
    };
    let buffers = engine.buffers();
    let mut buffer = buffers.take().map_err(Fault::Read)?;
    let mut hole = false;
    loop {
        if interrupt::pending() {
            return Err(Fault::Interrupted);
        }
        let n = read(&data.src, &mut buffer)?;
        if n == 0 {
            break;
        }
        let at = copied.bytes;
        for run in zeros::runs(&buffer[..n], at, if block == 0 { usize::MAX } else { block }) {
            hole = run.zero && block > 0;
            if hole {
                let over = SeekFrom::Current(run.bytes.len() as i64);
                seek(&data.dst, over).map_err(|e| Fault::Write(e.into()))?;
            } else {
                (&data.dst).write_all(run.bytes).map_err(Fault::Write)?;
                copied.moved += run.bytes.len() as u64;
                engine.count(run.bytes.len());
            }
        }
        copied.bytes += n as u64;
    }
    copied.offload = Tried::No;
    match hole || (to_file && !data.fresh) {
        true => ftruncate(&data.dst, position(&data.dst)?).map_err(|e| Fault::Extend(e.into())),
        false => Ok(()),
    }
}

fn position(file: impl AsFd) -> Result<u64, Fault> {
    seek(file, SeekFrom::Current(0)).map_err(|e| Fault::Extend(e.into()))
}

fn read(mut file: &File, buffer: &mut [u8]) -> Result<usize, Fault> {
    retry(|| file.read(buffer)).map_err(Fault::Read)
}

/// Cuts a destination that could not be finished to what is whole in it.
pub fn cut(data: &Data, plan: &Plan, whole: u64) {
    if plan.closed || plan.had > 0 {
        return;
    }
    // The fault that brought us here is told; a size that cannot be set is not worth another.
    if fstat(&data.dst).is_ok_and(|s| s.st_size.max(0) as u64 > whole) {
        let _ = ftruncate(&data.dst, whole);
    }
}
