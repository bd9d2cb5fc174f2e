//! ALLOCATE: reserves space, so that later writes of the range cannot fail for want of it.

use proto::Errno;
use proto::oss::{Allocate, Written};
use rustix::fs::{FallocateFlags, fallocate};

use super::end_of;
use crate::ost::{Ost, errno};
use crate::stats::Verb;

impl Ost {
    /// Reserves `[offset, end)`; makes the object.
    ///
    /// EINVAL: an empty range. ENOSPC: less than that is left above the reserve.
    pub fn allocate(&self, req: &Allocate) -> Result<Written, Errno> {
        self.counted(Verb::Allocate, || {
            let len = req.end.checked_sub(req.offset).filter(|l| *l > 0).ok_or(Errno::EINVAL)?;
            end_of(req.end, 0)?;
            self.room_for(&req.object, std::iter::once((req.offset, len)))?;
            let object = self.make(&req.object)?;
            let _range = object.lock_blocks(req.offset, req.end);
            let keep = FallocateFlags::KEEP_SIZE;
            let how = if req.keep_size { keep } else { FallocateFlags::empty() };
            let done = fallocate(object.fd(), how, req.offset, len);
            self.changed(&object);
            done.map_err(errno)?;
            if !req.keep_size {
                object.grow(req.end);
            }
            self.written(&object)
        })
    }
}
