//! PUNCH: truncate, punch a hole, zero a range.

use proto::Errno;
use proto::oss::{P_HOLE, P_TRUNCATE, P_ZERO, Punch, Written};
use rustix::fs::{FallocateFlags, fallocate, ftruncate};

use super::{BLOCK, end_of};
use crate::object::Object;
use crate::ost::{Ost, errno};
use crate::stats::Verb;

impl Ost {
    /// Changes a range without bytes. An object that does not exist is made only to grow it.
    ///
    /// EINVAL: unknown way, or the end lies before the beginning. EFBIG as for writes.
    pub fn punch(&self, req: &Punch) -> Result<Written, Errno> {
        self.counted(Verb::Punch, || match req.how {
            P_TRUNCATE => self.truncate(req),
            P_HOLE | P_ZERO => self.clear(req),
            _ => Err(Errno::EINVAL),
        })
    }

    fn truncate(&self, req: &Punch) -> Result<Written, Errno> {
        end_of(req.offset, 0)?;
        let object = match self.existing(&req.object)? {
            Some(object) => object,
            None if req.offset == 0 => return Ok(self.nothing_written()),
            None => self.make(&req.object)?,
        };
        {
            let _range = object.ranges.lock(req.offset / BLOCK * BLOCK, u64::MAX);
            let size = object.size();
            object.sums.lock().cut(&self.home(), req.offset, size).map_err(errno)?;
            let done = ftruncate(object.fd(), req.offset);
            self.changed(&object);
            done.map_err(errno)?;
            object.set_size(req.offset);
        }
        self.written(&object)
    }

    fn clear(&self, req: &Punch) -> Result<Written, Errno> {
        let len = req.end.checked_sub(req.offset).ok_or(Errno::EINVAL)?;
        end_of(req.end, 0)?;
        let Some(object) = self.existing(&req.object)? else { return Ok(self.nothing_written()) };
        if len > 0 {
            if req.how == P_ZERO {
                self.room_for(&req.object, std::iter::once((req.offset, len)))?;
            }
            let _range = object.lock_blocks(req.offset, req.end);
            self.clear_locked(&object, req.offset, req.end, req.how == P_ZERO)?;
        }
        self.written(&object)
    }

    /// Zeroes a range whose lock is held; `keep`: it stays allocated.
    pub(super) fn clear_locked(
        &self,
        object: &Object,
        start: u64,
        end: u64,
        keep: bool,
    ) -> Result<(), Errno> {
        object.sums.lock().zero(&self.home(), start, end, object.size()).map_err(errno)?;
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let (fd, len) = (object.fd(), end - start);
        let done = if keep {
            match fallocate(fd, FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE, start, len)
            {
                // Not every file system has it; the two steps come to the same.
                Err(rustix::io::Errno::OPNOTSUPP) => fallocate(fd, hole, start, len)
                    .and_then(|()| fallocate(fd, FallocateFlags::KEEP_SIZE, start, len)),
                other => other,
            }
        } else {
            fallocate(fd, hole, start, len)
        };
        self.changed(object);
        done.map_err(errno)
    }
}
