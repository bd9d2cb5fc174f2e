//! READ: bytes with their checksums, compared with the stored ones before they are sent.

use bytes::Bytes;
use proto::oss::{R_ONCE, Read, ReadReply, W_DIRECT, W_NO_SUMS, sums};
use proto::wire::List;
use proto::{Errno, MAX_BULK};

use super::BLOCK;
use crate::buffer::{ALIGN, Buffer};
use crate::io::{better_uncached, read_at, read_cached, read_once};
use crate::object::Object;
use crate::ost::{Ost, errno};
use crate::stats::{Verb, add};

/// Reads past the page cache wait for their turn at the device from this size on, bytes.
const QUEUED: usize = 64 << 10;

impl Ost {
    /// Reads a range; short at the object's end, empty when there is no object.
    ///
    /// EINVAL: more than [`MAX_BULK`] bytes. EIO: the disk failed, or a block does not have the
    /// checksum it was stored with.
    pub fn read(&self, req: &Read) -> Result<(ReadReply, Bytes), Errno> {
        self.counted(Verb::Read, || self.read_any(req, true)?.ok_or(Errno::EIO))
    }

    /// As [`Ost::read`] if memory holds the range; `None`: the disk would be waited for.
    pub(crate) fn read_hot(&self, req: &Read) -> Option<(ReadReply, Bytes)> {
        if req.flags & W_DIRECT != 0 || self.is_closed() {
            return None;
        }
        // Reads change nothing, so close need not wait for this one.
        let done = self.read_any(req, false).ok().flatten()?;
        add(&self.counters.requests[Verb::Read as usize], 1);
        Some(done)
    }

    fn read_any(&self, req: &Read, wait: bool) -> Result<Option<(ReadReply, Bytes)>, Errno> {
        if req.len > MAX_BULK {
            return Err(Errno::EINVAL);
        }
        let nothing = || Some((ReadReply { sums: List(Vec::new()) }, Bytes::new()));
        let Some(object) = self.existing(&req.object)? else { return Ok(nothing()) };
        let left = object.size().saturating_sub(req.offset);
        let len = left.min(req.len.into()) as usize;
        if len == 0 {
            return Ok(nothing());
        }
        let mut buffer = if wait { Buffer::for_answer(len) } else { Buffer::new(len) };
        let done = if wait {
            self.fill(&object, req, &mut buffer)?
        } else {
            match read_cached(object.fd(), buffer.as_mut(), req.offset) {
                Some(n) => n,
                None => return Ok(None),
            }
        };
        buffer.truncate(done);
        let found = if req.flags & W_NO_SUMS != 0 {
            Vec::new()
        } else {
            self.sum_up(&object, req.offset, &mut buffer)?
        };
        add(&self.counters.bytes_read, buffer.as_ref().len() as u64);
        Ok(Some((ReadReply { sums: List(found) }, Bytes::from_owner(buffer))))
    }

    /// Whether a read goes past the page cache.
    fn past_cache(&self, object: &Object, req: &Read, len: usize) -> bool {
        let large = len >= self.options.uncached_reads_from as usize;
        let once = || {
            req.flags & R_ONCE != 0 && large && better_uncached(object.fd(), req.offset, len as u64)
        };
        req.offset.is_multiple_of(ALIGN as u64) && (req.flags & W_DIRECT != 0 || once())
    }

    /// Reads from the disk or the page cache, as asked.
    fn fill(&self, object: &Object, req: &Read, buffer: &mut Buffer) -> Result<usize, Errno> {
        let want = buffer.as_ref().len();
        if self.past_cache(object, req, want)
            && let Some(fd) = object.direct_fd(&self.objects)
        {
            // Whole pages are asked for; the kernel cuts the answer at the file's end.
            buffer.resize(want.next_multiple_of(ALIGN));
            let got = {
                let _turn = (want >= QUEUED).then(|| self.device.turn(want as u64));
                read_once(fd, buffer.as_mut(), req.offset)
            };
            buffer.resize(want);
            if matches!(got, Ok(n) if n >= want) {
                add(&self.counters.reads_past_cache, 1);
                return Ok(want);
            }
        }
        read_at(object.fd(), buffer.as_mut(), req.offset).map_err(errno)
    }

    /// Checksums of what was read, each whole block compared with its stored one (invariant 7).
    fn sum_up(&self, object: &Object, offset: u64, buffer: &mut Buffer) -> Result<Vec<u32>, Errno> {
        let found = sums(offset, buffer.as_ref());
        if !self.options.verify_reads
            || self.first_bad(object, offset, buffer.as_ref().len(), &found)?.is_none()
        {
            return Ok(found);
        }
        // A write may have been under way: look again while none can be.
        let _range = object.lock_blocks(offset, offset + buffer.as_ref().len() as u64);
        let done = read_at(object.fd(), buffer.as_mut(), offset).map_err(errno)?;
        buffer.truncate(done);
        let found = sums(offset, buffer.as_ref());
        let Some(bad) = self.first_bad(object, offset, done, &found)? else { return Ok(found) };
        add(&self.counters.blocks_bad, 1);
        tracing::error!(
            ost = self.name(),
            object = %crate::name::object_name(&object.id),
            offset = bad,
            "block on disk does not have its checksum"
        );
        Err(Errno::EIO)
    }

    /// Offset of the first whole block whose sum differs from the stored one.
    fn first_bad(
        &self,
        object: &Object,
        offset: u64,
        len: usize,
        found: &[u32],
    ) -> Result<Option<u64>, Errno> {
        let skip = usize::from(!offset.is_multiple_of(BLOCK));
        let first = offset.div_ceil(BLOCK);
        let whole = ((offset + len as u64) / BLOCK).saturating_sub(first) as usize;
        if whole == 0 {
            return Ok(None);
        }
        let mut stored = vec![0; whole];
        let home = self.home();
        object.sums.lock().expect(&home, first, object.size(), &mut stored).map_err(errno)?;
        let known = stored.iter().filter(|s| **s != 0).count();
        add(&self.counters.blocks_verified, known as u64);
        let pairs = stored.iter().zip(&found[skip..skip + whole]);
        let bad = pairs.enumerate().find(|(_, (s, f))| **s != 0 && s != f);
        Ok(bad.map(|(i, _)| (first + i as u64) * BLOCK))
    }
}
