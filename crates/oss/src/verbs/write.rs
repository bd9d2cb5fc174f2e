//! WRITE: checked on arrival, written to the page cache or past it, unstable until COMMIT.

use std::sync::Arc;

use bytes::Bytes;
use proto::Errno;
use proto::layout::ObjectId;
use proto::oss::{W_DIRECT, W_NO_SUMS, W_SYNC, WriteReq, Written, check_sums};

use super::{BLOCK, end_of};
use crate::buffer::{ALIGN, Buffer};
use crate::flush::Note;
use crate::io::{start_write_out, write_at};
use crate::object::Object;
use crate::ost::{Ost, errno};
use crate::space::is_allocated;
use crate::stats::{Verb, add};
use crate::sums::crowded;

impl Ost {
    /// Writes `data`; the first write makes the object.
    ///
    /// EBADMSG: it arrived damaged, nothing was written. ENOSPC: only the reserve is left. EFBIG:
    /// beyond what the protocol or the local file system can hold.
    pub fn write(&self, req: &WriteReq, data: &Bytes) -> Result<Written, Errno> {
        self.counted(Verb::Write, || {
            let end = end_of(req.offset, data.len() as u64)?;
            let sums = self.arrived_well(req, data)?;
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
    fn arrived_well<'a>(&self, req: &'a WriteReq, data: &Bytes) -> Result<&'a [u32], Errno> {
        if req.flags & W_NO_SUMS != 0 {
            return Ok(&[]);
        }
        let Err(piece) = check_sums(req.offset, data, &req.sums.0) else { return Ok(&req.sums.0) };
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
        {
            let _range = object.lock_blocks(req.offset, end);
            let home = self.home();
            let begun = object.sums.lock().begin(&home, req.offset, len, object.size());
            let prior = begun.map_err(errno)?;
            let done = self.put_bytes(&object, req, data);
            if let Err(e) = done {
                object.sums.lock().lost(req.offset, len);
                object.grow(rustix::fs::fstat(object.fd()).map_or(0, |s| s.st_size as u64));
                // A write that failed may still have changed bytes.
                self.changed(&object);
                return Err(e);
            }
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
        } else if let Some((start, len)) = object.note_write(req.offset, len) {
            self.hand(Note::WriteOut(object.clone(), start, len));
        }
        self.written(&object)
    }

    /// Writes past the page cache when asked and possible, else into it.
    fn put_bytes(&self, object: &Object, req: &WriteReq, data: &Bytes) -> Result<(), Errno> {
        let direct = req.flags & W_DIRECT != 0;
        let aligned = req.offset.is_multiple_of(BLOCK) && data.len().is_multiple_of(ALIGN);
        if direct
            && aligned
            && let Some(fd) = object.direct_fd(&self.objects)
        {
            if data.as_ptr().addr().is_multiple_of(ALIGN) {
                return write_at(fd, data, req.offset).map_err(errno);
            }
            let mut copy = Buffer::new(data.len());
            copy.as_mut().copy_from_slice(data);
            return write_at(fd, copy.as_ref(), req.offset).map_err(errno);
        }
        write_at(object.fd(), data, req.offset).map_err(errno)?;
        if direct {
            start_write_out(object.fd(), req.offset, data.len() as u64);
        }
        Ok(())
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
