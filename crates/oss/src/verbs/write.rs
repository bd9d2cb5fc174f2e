//! WRITE: checked on arrival, written to the page cache or past it, unstable until COMMIT.
//!
//! What several verbs that write need is here, too: each gives the pieces that arrived.

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

/// Compares bytes that arrived with their sums; the number of the first that does not fit.
pub(super) type Compare = fn(u64, &[u8], &[u32]) -> Result<(), usize>;

/// Bytes for one place of an object, and the sums they arrived with; none when they are switched off.
pub(super) struct Arrived<'a> {
    pub(super) offset: u64,
    pub(super) data: &'a [u8],
    pub(super) sums: &'a [u32],
}

impl Arrived<'_> {
    fn len(&self) -> u64 {
        self.data.len() as u64
    }

    fn end(&self) -> u64 {
        self.offset + self.len()
    }
}

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
            end_of(req.offset, data.len() as u64)?;
            let sums = if req.flags & W_NO_SUMS != 0 { &[][..] } else { &req.sums.0[..] };
            let piece = Arrived { offset: req.offset, data, sums };
            self.put(&req.object, req.flags, &[piece], compare)
        })
    }

    /// EBADMSG unless the bytes fit their sums, or these are switched off.
    fn arrived_well(
        &self,
        object: &ObjectId,
        flags: u8,
        piece: &Arrived<'_>,
        compare: Compare,
    ) -> Result<(), Errno> {
        if flags & W_NO_SUMS != 0 {
            return Ok(());
        }
        let Err(block) = compare(piece.offset, piece.data, piece.sums) else { return Ok(()) };
        add(&self.counters.writes_damaged, 1);
        let object = crate::name::object_name(object);
        let offset = piece.offset;
        tracing::warn!(ost = self.name(), object, offset, block, "write arrived damaged");
        Err(Errno::EBADMSG)
    }

    /// Writes pieces, once all of them are found to have arrived well.
    pub(super) fn put(
        &self,
        id: &ObjectId,
        flags: u8,
        pieces: &[Arrived<'_>],
        compare: Compare,
    ) -> Result<Written, Errno> {
        pieces.iter().try_for_each(|piece| self.arrived_well(id, flags, piece, compare))?;
        if pieces.iter().all(|piece| piece.data.is_empty()) {
            return match self.existing(id)? {
                Some(object) => self.written(&object),
                None => Ok(self.nothing_written()),
            };
        }
        let places = pieces.iter().map(|p| (p.offset, p.len()));
        let object = match self.room_for(id, places)? {
            Some(object) => object,
            None => self.make(id)?,
        };
        let mut out = Vec::new();
        for piece in pieces {
            let cached = self.put_piece(&object, flags, piece)?;
            add(&self.counters.bytes_written, piece.len());
            if cached {
                out.extend(object.note_write(piece.offset, piece.len()));
            }
        }
        if crowded(4) {
            self.hand(Note::CommitAll);
        }
        // Checksums of unstable writes take memory: far above the limit, writers wait for the disk.
        if flags & W_SYNC != 0 || crowded(8) {
            self.commit_object(&object)?;
        } else {
            out.into_iter().for_each(|(a, n)| self.hand(Note::WriteOut(object.clone(), a, n)));
        }
        self.written(&object)
    }

    /// Whether the page cache has any of it.
    fn put_piece(&self, object: &Object, flags: u8, piece: &Arrived<'_>) -> Result<bool, Errno> {
        let (offset, len) = (piece.offset, piece.len());
        let _range = object.lock_blocks(offset, piece.end());
        let begun = object.sums.lock().begin(&self.home(), offset, len, object.size());
        let prior = begun.map_err(errno)?;
        let cached = match self.put_bytes(object, flags, piece) {
            Ok(cached) => cached,
            Err(e) => {
                object.sums.lock().lost(offset, len);
                object.grow(rustix::fs::fstat(object.fd()).map_or(0, |s| s.st_size as u64));
                // A write that failed may still have changed bytes.
                self.changed(object);
                return Err(e);
            }
        };
        object.sums.lock().written(offset, piece.data, piece.sums, &prior);
        object.grow(piece.end());
        self.changed(object);
        Ok(cached)
    }

    /// Writes whole blocks past the page cache when asked, or when there are many; the rest into it.
    /// The kernel keeps both ways coherent. Whether the page cache has any of it.
    fn put_bytes(&self, object: &Object, flags: u8, piece: &Arrived<'_>) -> Result<bool, Errno> {
        let from = self.direct_write_min();
        let asked = flags & W_DIRECT != 0;
        let (start, end, data) = (piece.offset, piece.end(), piece.data);
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

    /// ENOSPC when places (offset, bytes) need new blocks and only the reserve is left. The object,
    /// when it had to be looked at.
    pub(super) fn room_for(
        &self,
        id: &ObjectId,
        mut places: impl Iterator<Item = (u64, u64)> + Clone,
    ) -> Result<Option<Arc<Object>>, Errno> {
        match self.space.take(&self.objects, places.clone().map(|p| p.1).sum()) {
            Ok(()) => Ok(None),
            Err(rustix::io::Errno::NOSPC) => match self.existing(id)? {
                // Overwriting what is allocated needs nothing.
                Some(o) if places.all(|(at, len)| is_allocated(o.fd(), at, len)) => Ok(Some(o)),
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
