//! WRITE: checked on arrival, written to the page cache or past it, unstable until COMMIT.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use bytes::Bytes;
use proto::Errno;
use proto::layout::ObjectId;
use proto::oss::{W_DIRECT, W_NO_SUMS, W_SYNC, WriteReq, Written, check_sums, count_sums};

use super::{BLOCK, end_of};
use crate::buffer::{ALIGN, Buffer};
use crate::flush::Note;
use crate::io::{start_write_out, write_at};
use crate::object::Object;
use crate::ost::{Ost, errno};
use crate::space::is_allocated;
use crate::stats::{Verb, add};
use crate::sums::crowded;

/// Compares bytes that arrived with their sums; the number of the first piece that does not fit.
type Compare = fn(u64, &[u8], &[u32]) -> Result<(), usize>;

impl Ost {
    /// Writes `data`; the first write makes the object.
    ///
    /// EBADMSG: it arrived damaged, nothing was written. ENOSPC: only the reserve is left. EFBIG:
    /// beyond what the protocol or the local file system can hold.
    pub fn write(&self, req: &WriteReq, data: &Bytes) -> Result<Written, Errno> {
        self.write_compared(req, data, check_sums)
    }

    /// As [`Ost::write`], of bytes that are still where their sums were made: these are stored beside
    /// them, so that damage from now on shows when they are read, and looking twice tells nothing.
    pub fn write_local(&self, req: &WriteReq, data: &Bytes) -> Result<Written, Errno> {
        self.write_compared(req, data, count_sums)
    }

    fn write_compared(
        &self,
        req: &WriteReq,
        data: &Bytes,
        compare: Compare,
    ) -> Result<Written, Errno> {
        self.counted(Verb::Write, || {
            let end = end_of(req.offset, data.len() as u64)?;
            let sums = self.arrived_well(req, data, compare)?;
            if !data.is_empty() {
                return self.write_checked(req, data, sums, end);
            }
            match self.existing(&req.object)? {
                Some(object) => self.written(&object),
                None => Ok(self.nothing_written()),
            }
        })
    }

    /// The sums the bytes arrived with; none when they are switched off.
    fn arrived_well<'a>(
        &self,
        req: &'a WriteReq,
        data: &Bytes,
        compare: Compare,
    ) -> Result<&'a [u32], Errno> {
        if req.flags & W_NO_SUMS != 0 {
            return Ok(&[]);
        }
        let Err(piece) = compare(req.offset, data, &req.sums.0) else { return Ok(&req.sums.0) };
        add(&self.counters.writes_damaged, 1);
        let object = crate::name::object_name(&req.object);
        let offset = req.offset;
        tracing::warn!(ost = self.name(), object, offset, piece, "write arrived damaged");
        Err(Errno::EBADMSG)
    }

    fn write_checked(
        &self,
        req: &WriteReq,
        data: &Bytes,
        sums: &[u32],
        end: u64,
    ) -> Result<Written, Errno> {
        let len = data.len() as u64;
        let object = match self.room_for(&req.object, req.offset, len)? {
            Some(object) => object,
            None => self.make(&req.object)?,
        };
        let cached;
        {
            let _range = object.lock_blocks(req.offset, end);
            let home = self.home();
            let begun = object.sums.lock().begin(&home, req.offset, len, object.size());
            let prior = begun.map_err(errno)?;
            cached = match self.put_bytes(&object, req, data) {
                Ok(cached) => cached,
                Err(e) => {
                    object.sums.lock().lost(req.offset, len);
                    object.grow(rustix::fs::fstat(object.fd()).map_or(0, |s| s.st_size as u64));
                    // A write that failed may still have changed bytes.
                    self.changed(&object);
                    return Err(e);
                }
            };
            object.sums.lock().written(req.offset, data, sums, &prior);
            object.grow(end);
            self.changed(&object);
        }
        add(&self.counters.bytes_written, len);
        if crowded(4) {
            self.hand(Note::CommitAll);
        }
        // Checksums of unstable writes take memory: far above the limit, writers wait for the disk.
        if req.flags & W_SYNC != 0 || crowded(8) {
            self.commit_object(&object)?;
        } else if cached && let Some((start, len)) = object.note_write(req.offset, len) {
            self.hand(Note::WriteOut(object.clone(), start, len));
        }
        self.written(&object)
    }

    /// Writes whole blocks past the page cache when asked, or when there are many; the rest into it.
    /// The kernel keeps both ways coherent. Whether the page cache has any of it.
    fn put_bytes(&self, object: &Object, req: &WriteReq, data: &Bytes) -> Result<bool, Errno> {
        let from = self.direct_write_min();
        let asked = req.flags & W_DIRECT != 0;
        let (start, end) = (req.offset, req.offset + data.len() as u64);
        let (first, last) = (start.next_multiple_of(BLOCK), end / BLOCK * BLOCK);
        if first < last
            && (asked || (from > 0 && data.len() >= from))
            && let Some(fd) = object.direct_fd(&self.objects)
        {
            let (a, b) = ((first - start) as usize, (last - start) as usize);
            if put_direct(fd, &data[a..b], first)? {
                write_at(object.fd(), &data[..a], start).map_err(errno)?;
                write_at(object.fd(), &data[b..], last).map_err(errno)?;
                return Ok(a > 0 || b < data.len());
            }
        }
        write_at(object.fd(), data, start).map_err(errno)?;
        if asked {
            start_write_out(object.fd(), start, end - start);
        }
        Ok(true)
    }

    /// ENOSPC when new blocks are needed and only the reserve is left. The object, when it had to
    /// be looked at.
    pub(super) fn room_for(
        &self,
        id: &ObjectId,
        offset: u64,
        len: u64,
    ) -> Result<Option<Arc<Object>>, Errno> {
        match self.space.take(&self.objects, len) {
            Ok(()) => Ok(None),
            Err(rustix::io::Errno::NOSPC) => match self.existing(id)? {
                // Overwriting what is allocated needs nothing.
                Some(o) if is_allocated(o.fd(), offset, len) => Ok(Some(o)),
                _ => Err(Errno::ENOSPC),
            },
            Err(e) => Err(errno(e)),
        }
    }
}

/// Writes whole blocks past the page cache; false when this file system wants other blocks.
fn put_direct(fd: BorrowedFd<'_>, data: &[u8], offset: u64) -> Result<bool, Errno> {
    let done = if data.as_ptr().addr().is_multiple_of(ALIGN) {
        write_at(fd, data, offset)
    } else {
        let mut copy = Buffer::new(data.len());
        copy.as_mut().copy_from_slice(data);
        write_at(fd, copy.as_ref(), offset)
    };
    match done {
        Ok(()) => Ok(true),
        Err(rustix::io::Errno::INVAL) => Ok(false),
        Err(e) => Err(errno(e)),
    }
}
