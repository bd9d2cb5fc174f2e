//! WRITE_LIST: several places of one object are written by one message.
//!
//! All of it is checked before any of it is written. Each place is then written as by a WRITE of its
//! own, in order; what fails ends it, and may have written those before.

use bytes::Bytes;
use proto::Errno;
use proto::oss::{MAX_PIECES, W_NO_SUMS, WriteList, Written, check_sums, count_sums, sums_len};

use super::end_of;
use super::write::Arrived;
use crate::ost::Ost;
use crate::stats::Verb;

impl Ost {
    /// Writes `data` to several places; the first write makes the object.
    ///
    /// As [`Ost::write`]; and EINVAL: the places are empty, too many, out of order or overlap, or the
    /// bytes are not theirs.
    pub fn write_list(&self, req: &WriteList, data: &Bytes) -> Result<Written, Errno> {
        self.counted(Verb::Write, || {
            self.put(&req.object, req.flags, &split(req, data)?, check_sums)
        })
    }

    /// As [`Ost::write_local`].
    pub fn write_list_local(&self, req: &WriteList, data: &Bytes) -> Result<Written, Errno> {
        self.counted(Verb::Write, || {
            self.put(&req.object, req.flags, &split(req, data)?, count_sums)
        })
    }
}

/// Gives each place its bytes and its sums. Sums that lack, or are left, belong to the last one that has
/// any, where comparing finds them.
fn split<'a>(req: &'a WriteList, data: &'a [u8]) -> Result<Vec<Arrived<'a>>, Errno> {
    let pieces = &req.pieces.0;
    let total: u64 = pieces.iter().map(|p| u64::from(p.len)).sum();
    if pieces.is_empty() || pieces.len() > MAX_PIECES || total != data.len() as u64 {
        return Err(Errno::EINVAL);
    }
    let (mut bytes, mut sums) = (data, &req.sums.0[..]);
    let (mut behind, mut found) = (0, Vec::with_capacity(pieces.len()));
    for (n, piece) in pieces.iter().enumerate() {
        let len = u64::from(piece.len);
        let end = end_of(piece.offset, len)?;
        if len == 0 || piece.offset < behind {
            return Err(Errno::EINVAL);
        }
        behind = end;
        let (own, rest) = bytes.split_at(piece.len as usize);
        bytes = rest;
        let last = n + 1 == pieces.len();
        let count = if last { sums.len() } else { sums_len(piece.offset, len).min(sums.len()) };
        let (its, others) = sums.split_at(count);
        sums = others;
        let its = if req.flags & W_NO_SUMS != 0 { &[][..] } else { its };
        found.push(Arrived { offset: piece.offset, data: own, sums: its });
    }
    Ok(found)
}
