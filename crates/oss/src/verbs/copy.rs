//! COPY: a range from one object of this target to another, holes staying holes.

use std::sync::Arc;

use proto::Errno;
use proto::layout::ObjectId;
use proto::oss::{CopyReq, Written};
use rustix::fs::{SeekFrom, copy_file_range, ftruncate, seek};

use super::{BLOCK, block_range, end_of};
use crate::object::Object;
use crate::ost::{Ost, errno};
use crate::range::RangeGuard;
use crate::stats::Verb;

/// Most bytes handed to the kernel at once.
const STEP: u64 = 64 << 20;

impl Ost {
    /// Copies a range. What lies beyond the source's end reads as zeros in the target, which does
    /// not grow for it.
    ///
    /// EINVAL: the ranges overlap in one object. ENOSPC, EFBIG as for writes.
    pub fn copy(&self, req: &CopyReq) -> Result<Written, Errno> {
        self.counted(Verb::Copy, || {
            let from_end = end_of(req.from_offset, req.len)?;
            let to_end = end_of(req.to_offset, req.len)?;
            let crossing = req.from_offset < to_end && req.to_offset < from_end;
            if req.from == req.to && crossing && req.len > 0 {
                return Err(Errno::EINVAL);
            }
            let from = self.existing(&req.from)?;
            let size = from.as_ref().map_or(0, |f| f.size());
            let have = size.saturating_sub(req.from_offset).min(req.len);
            let Some(from) = from.filter(|_| have > 0) else {
                return self.copy_nothing(req, to_end);
            };
            self.room_for(&req.to, std::iter::once((req.to_offset, have)))?;
            let to = self.make(&req.to)?;
            {
                let _ranges = lock_both(req, &from, &to);
                self.copy_locked(req, &from, &to, have)?;
                self.clear_rest(&to, req.to_offset + have, to_end)?;
            }
            self.written(&to)
        })
    }

    fn copy_nothing(&self, req: &CopyReq, to_end: u64) -> Result<Written, Errno> {
        let Some(to) = self.existing(&req.to)? else { return Ok(self.nothing_written()) };
        {
            let _range = to.lock_blocks(req.to_offset, to_end);
            self.clear_rest(&to, req.to_offset, to_end)?;
        }
        self.written(&to)
    }

    /// Zeroes what of `[start, end)` the object has.
    fn clear_rest(&self, to: &Object, start: u64, end: u64) -> Result<(), Errno> {
        let end = end.min(to.size());
        if start < end { self.clear_locked(to, start, end, false) } else { Ok(()) }
    }

    /// Copies the `have` bytes the source has, one run of data after the other.
    fn copy_locked(
        &self,
        req: &CopyReq,
        from: &Object,
        to: &Object,
        have: u64,
    ) -> Result<(), Errno> {
        let (mut at, end) = (req.from_offset, req.from_offset + have);
        let shift = |from_offset: u64| from_offset - req.from_offset + req.to_offset;
        while at < end {
            let data = match seek(from.fd(), SeekFrom::Data(at)) {
                Ok(data) => data.min(end),
                Err(rustix::io::Errno::NXIO) => end,
                Err(e) => return Err(errno(e)),
            };
            self.clear_rest(to, shift(at), shift(data))?;
            if data == end {
                break;
            }
            let hole = seek(from.fd(), SeekFrom::Hole(data)).map_err(errno)?.min(end);
            at = data;
            while at < hole {
                let len = (hole - at).min(STEP);
                self.copy_run(from, at, to, shift(at), len)?;
                at += len;
            }
        }
        if shift(end) > to.size() {
            ftruncate(to.fd(), shift(end)).map_err(errno)?;
            to.grow(shift(end));
            self.changed(to);
        }
        Ok(())
    }

    fn copy_run(
        &self,
        from: &Object,
        from_offset: u64,
        to: &Object,
        to_offset: u64,
        len: u64,
    ) -> Result<(), Errno> {
        let home = self.home();
        to.sums.lock().begin(&home, to_offset, len, to.size()).map_err(errno)?;
        let done = copy_bytes(from, from_offset, to, to_offset, len);
        to.sums.lock().lost(to_offset, len);
        if done.is_ok() {
            to.grow(to_offset + len);
            self.copy_sums(from, from_offset, to, to_offset, len)?;
        }
        self.changed(to);
        done.map_err(errno)
    }

    /// Whole blocks that lie alike in both keep the sum they had (invariant 7).
    fn copy_sums(
        &self,
        from: &Object,
        from_offset: u64,
        to: &Object,
        to_offset: u64,
        len: u64,
    ) -> Result<(), Errno> {
        let (first, last) = (to_offset.div_ceil(BLOCK), (to_offset + len) / BLOCK);
        if !(from_offset ^ to_offset).is_multiple_of(BLOCK) || first >= last {
            return Ok(());
        }
        let mut sums = vec![0; (last - first) as usize];
        let (home, source) = (self.home(), from_offset.div_ceil(BLOCK));
        from.sums.lock().expect(&home, source, from.size(), &mut sums).map_err(errno)?;
        to.sums.lock().adopt(first, &sums);
        Ok(())
    }
}

fn copy_bytes(
    from: &Object,
    from_offset: u64,
    to: &Object,
    to_offset: u64,
    len: u64,
) -> Result<(), rustix::io::Errno> {
    let (mut off_in, mut off_out, end) = (from_offset, to_offset, from_offset + len);
    while off_in < end {
        let left = (end - off_in) as usize;
        match copy_file_range(from.fd(), Some(&mut off_in), to.fd(), Some(&mut off_out), left) {
            // The source was cut meanwhile: the rest reads as zeros.
            Ok(0) => return Ok(()),
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// Locks both ranges in an order in which no two copies can wait for each other.
fn lock_both<'a>(req: &CopyReq, from: &'a Arc<Object>, to: &'a Arc<Object>) -> Vec<RangeGuard<'a>> {
    let a = block_range(req.from_offset, req.from_offset + req.len);
    let b = block_range(req.to_offset, req.to_offset + req.len);
    if Arc::ptr_eq(from, to) {
        // Neighbours may share a block: one range over both.
        return vec![from.ranges.lock(a.0.min(b.0), a.1.max(b.1))];
    }
    let key = |id: &ObjectId| (id.fid, id.comp, id.stripe);
    if key(&from.id) < key(&to.id) {
        vec![from.ranges.lock(a.0, a.1), to.ranges.lock(b.0, b.1)]
    } else {
        let second = to.ranges.lock(b.0, b.1);
        vec![from.ranges.lock(a.0, a.1), second]
    }
}
