//! Copies a range of one file: data by data, hole by hole.

use super::plan::Plan;
use super::{Data, Engine, Fault, extents, interrupt, offload, pump, zeros};
use rustix::fs::{FallocateFlags, fallocate, fstat};
use rustix::io::Errno;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};

/// What all ranges of one file share.
pub struct Range<'a> {
    pub engine: &'a Engine,
    pub data: &'a Data,
    pub plan: &'a Plan,
    /// Another range failed: whatever this one does is in vain.
    pub stop: &'a AtomicBool,
}

/// How far a range came.
#[derive(Default, Debug)]
pub struct Reached {
    /// Everything before it is copied.
    pub at: u64,
    /// The last byte written, plus one.
    pub written: u64,
    pub moved: u64,
    /// The source ended here.
    pub ended: bool,
    /// All of it was moved within the file system.
    pub offloaded: bool,
    pub fault: Option<Fault>,
}

impl Reached {
    /// Adds another range; where they reached together is for the caller to say.
    pub fn add(&mut self, other: &Self) {
        self.written = self.written.max(other.written);
        self.moved += other.moved;
        self.ended |= other.ended;
        self.offloaded &= other.offloaded;
    }
}

/// Zeros written where holes must not be.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

impl Range<'_> {
    /// Copies [from, to), or as much of it as the source has.
    pub fn copy(&self, from: u64, to: u64) -> Reached {
        let mut reached = Reached { at: from, ..Reached::default() };
        if let Err(fault) = self.parts(to, &mut reached) {
            reached.fault = Some(fault);
        }
        reached
    }

    fn parts(&self, to: u64, reached: &mut Reached) -> Result<(), Fault> {
        while reached.at < to && !reached.ended && !self.stopped() {
            if !self.plan.told {
                self.bytes(to, reached)?;
                continue;
            }
            match extents::next(&self.data.src, reached.at, to).map_err(Fault::Seek)? {
                Some((start, end)) => {
                    self.hole(start, reached)?;
                    self.bytes(end, reached)?;
                }
                None => {
                    let size = fstat(&self.data.src).map_err(|e| Fault::Seek(e.into()))?.st_size;
                    let end = to.min(size.max(0) as u64).max(reached.at);
                    reached.ended = end < to;
                    self.hole(end, reached)?;
                }
            }
        }
        Ok(())
    }

    /// Data up to `end`.
    fn bytes(&self, end: u64, reached: &mut Reached) -> Result<(), Fault> {
        if self.plan.zeros == 0 && self.plan.offloads() && offload::copy(self, end, reached)? {
            return Ok(());
        }
        pump::copy(self, end, reached)
    }

    /// Another range failed, or a signal came.
    pub fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed) || interrupt::pending()
    }

    /// Writes what belongs at [`Reached::at`], zeros as holes where that is wanted.
    pub fn write(&self, bytes: &[u8], reached: &mut Reached) -> Result<(), Fault> {
        if self.plan.zeros == 0 {
            return self.put(bytes, reached);
        }
        for run in zeros::runs(bytes, reached.at, self.plan.zeros) {
            if run.zero {
                self.hole(run.at + run.bytes.len() as u64, reached)?;
            } else {
                self.put(run.bytes, reached)?;
            }
        }
        Ok(())
    }

    fn put(&self, bytes: &[u8], reached: &mut Reached) -> Result<(), Fault> {
        let mut rest = bytes;
        while !rest.is_empty() {
            let n = retry(|| self.data.dst.write_at(rest, reached.at)).map_err(Fault::Write)?;
            if n == 0 {
                return Err(Fault::Write(io::ErrorKind::WriteZero.into()));
            }
            rest = &rest[n..];
            reached.at += n as u64;
            reached.moved += n as u64;
            self.engine.count(n);
            reached.written = reached.at;
        }
        Ok(())
    }

    /// A hole up to `end`.
    fn hole(&self, end: u64, reached: &mut Reached) -> Result<(), Fault> {
        // What the destination had there must go; behind its old end there is nothing.
        let old = end.min(self.plan.had);
        if !self.plan.filled && reached.at < old && !self.punch(reached.at, old)? {
            self.fill(old, reached)?;
        }
        if self.plan.filled {
            return self.fill(end, reached);
        }
        reached.at = reached.at.max(end);
        Ok(())
    }

    fn fill(&self, end: u64, reached: &mut Reached) -> Result<(), Fault> {
        while reached.at < end && !self.stopped() {
            let n = (end - reached.at).min(ZEROS.len() as u64) as usize;
            self.put(&ZEROS[..n], reached)?;
        }
        Ok(())
    }

    /// `false`: this file system makes no holes.
    fn punch(&self, from: u64, to: u64) -> Result<bool, Fault> {
        let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match fallocate(&self.data.dst, how, from, to - from) {
            Ok(()) => Ok(true),
            Err(Errno::NOTSUP | Errno::NOSYS) => Ok(false),
            Err(e) => Err(Fault::Write(e.into())),
        }
    }
}

/// Calls again when a signal came in between.
pub fn retry<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}

/// Reads at a place.
pub fn read_at(data: &Data, buffer: &mut [u8], at: u64) -> Result<usize, Fault> {
    retry(|| data.src.read_at(buffer, at)).map_err(Fault::Read)
}
