//! Messages of an object storage target.
//!
//! Checksums (`sums`) are crc32c, one for each piece of the bulk cut at multiples of
//! [`crate::CHECKSUM_BLOCK`] of the object's offset; the first and the last may be partial.

use crate::layout::ObjectId;
use crate::wire::List;
use crate::{CHECKSUM_BLOCK, attr::TimeSpec};

/// Write is durable before the answer (O_SYNC).
pub const W_SYNC: u8 = 1;
/// Write comes from an O_DIRECT open: the target may bypass its page cache.
pub const W_DIRECT: u8 = 2;
/// No checksums were computed (switched off): `sums` is empty.
pub const W_NO_SUMS: u8 = 4;
/// Of a read: who asks keeps the bytes, so the target need not.
pub const R_ONCE: u8 = 8;
/// Of a read: who asks, in the target's process, does not wait for it; another thread does it.
pub const R_BEHIND: u8 = 16;

/// Pieces of one [`WriteList`] at most.
pub const MAX_PIECES: usize = 256;

crate::wire_struct! {
    /// Reads `[offset, offset+len)`; the answer is short at the end of the object.
    Read {
        /// The object; one that does not exist reads as empty.
        object: ObjectId,
        /// Where to begin.
        offset: u64,
        /// Bytes wanted, at most [`crate::MAX_BULK`].
        len: u32,
        /// `W_DIRECT`, `W_NO_SUMS`, `R_ONCE`, `R_BEHIND`.
        flags: u8,
    }
    /// Answer to [`Read`]; bytes are in the bulk part.
    ReadReply {
        /// Checksums of the bulk.
        sums: List<u32>,
    }
    /// Writes the bulk at `offset`; the first write makes the object.
    WriteReq {
        /// The object.
        object: ObjectId,
        /// Where to begin.
        offset: u64,
        /// `W_*`.
        flags: u8,
        /// Checksums of the bulk.
        sums: List<u32>,
    }
    /// A place of an object that a [`WriteList`] writes.
    Piece {
        /// Where it begins in the object.
        offset: u64,
        /// Bytes, at least one.
        len: u32,
    }
    /// Writes the bulk to several places of one object: all of it arrives well, or nothing is written.
    /// What fails later may have written some of it.
    WriteList {
        /// The object.
        object: ObjectId,
        /// `W_*`.
        flags: u8,
        /// One to [`MAX_PIECES`], each behind the one before; together they are as long as the bulk,
        /// in which they lie one after the other.
        pieces: List<Piece>,
        /// Checksums of the pieces, one piece's after the other's.
        sums: List<u32>,
    }
    /// Answer to a write, punch, copy or allocation.
    Written {
        /// Changes when the server restarted: unstable writes it took before may be gone.
        verifier: u64,
        /// Size of the object now.
        size: u64,
        /// 512-byte blocks of the object now.
        blocks: u64,
    }
    /// Makes earlier writes of these objects durable; none named: of the whole target.
    CommitReq {
        /// The objects.
        objects: List<ObjectId>,
    }
    /// Answer to a commit.
    Committed {
        /// As in [`Written`].
        verifier: u64,
    }
    /// Changes a range without bytes.
    Punch {
        /// The object.
        object: ObjectId,
        /// Where to begin.
        offset: u64,
        /// Where to end (exclusive); ignored by `P_TRUNCATE`.
        end: u64,
        /// `P_*`.
        how: u8,
    }
    /// Asks for sizes and times of objects.
    Glimpse {
        /// The objects.
        objects: List<ObjectId>,
    }
    /// What is known of one object.
    ObjectAttr {
        /// Whether it exists.
        exists: bool,
        /// Bytes.
        size: u64,
        /// 512-byte blocks.
        blocks: u64,
        /// Last write.
        mtime: TimeSpec,
    }
    /// Answer to [`Glimpse`], in its order.
    Glimpsed {
        /// One for each object.
        objects: List<ObjectAttr>,
    }
    /// Removes objects; absent ones are no error.
    Destroy {
        /// The objects.
        objects: List<ObjectId>,
    }
    /// Space of a target.
    Statfs {
        /// Bytes of the local file system.
        total: u64,
        /// Bytes free for writes.
        free: u64,
        /// Inodes of the local file system.
        files: u64,
        /// Inodes free.
        files_free: u64,
        /// Objects held.
        objects: u64,
        /// Which local file system this is (st_dev mixed with the host's identity): targets that
        /// share one count its space once.
        fsid: u64,
    }
    /// Finds data or a hole at or after `offset`; ENXIO beyond the object's end.
    Seek {
        /// The object.
        object: ObjectId,
        /// Where to begin.
        offset: u64,
        /// Hole (true) or data (false).
        hole: bool,
    }
    /// Answer to [`Seek`].
    Found {
        /// Where it begins.
        offset: u64,
    }
    /// Copies within this target, sharing extents where the local file system can.
    CopyReq {
        /// From.
        from: ObjectId,
        /// To.
        to: ObjectId,
        /// Offset in `from`.
        from_offset: u64,
        /// Offset in `to`.
        to_offset: u64,
        /// Bytes.
        len: u64,
    }
    /// Reserves space for a range.
    Allocate {
        /// The object.
        object: ObjectId,
        /// Where to begin.
        offset: u64,
        /// Where to end (exclusive).
        end: u64,
        /// Do not grow the object's size.
        keep_size: bool,
    }
    /// The client was evicted: its sessions end, and neither they nor those of its earlier
    /// incarnations ([`crate::mgs::incarnation`]) are opened again.
    Fence {
        /// As in [`crate::mgs::Hello::client`].
        client: [u8; 16],
    }
}

/// Cut (or grow) the object to `offset`.
pub const P_TRUNCATE: u8 = 0;
/// Free the range; it reads as zeros; the size stays.
pub const P_HOLE: u8 = 1;
/// The range reads as zeros and stays allocated; the size may not grow.
pub const P_ZERO: u8 = 2;

/// The checksums of `data` when it lies at `offset` of an object.
pub fn sums(offset: u64, data: &[u8]) -> Vec<u32> {
    let first = CHECKSUM_BLOCK - (offset % CHECKSUM_BLOCK as u64) as usize;
    let (head, tail) = data.split_at(first.min(data.len()));
    let head = (!head.is_empty()).then(|| crc32c::crc32c(head));
    head.into_iter().chain(tail.chunks(CHECKSUM_BLOCK).map(crc32c::crc32c)).collect()
}

/// Checks that there is a sum for each piece of `data` at `offset`, not what they are: for bytes that
/// never left memory. The number of the first piece that lacks one, or of the first sum too many.
pub fn count_sums(offset: u64, data: &[u8], expect: &[u32]) -> Result<(), usize> {
    let sums = sums_len(offset, data.len() as u64);
    if sums == expect.len() { Ok(()) } else { Err(sums.min(expect.len())) }
}

/// How many sums `len` bytes have that lie at `offset` of an object.
pub fn sums_len(offset: u64, len: u64) -> usize {
    let block = CHECKSUM_BLOCK as u64;
    if len == 0 { 0 } else { (offset % block + len).div_ceil(block) as usize }
}

/// Checks `sums` against `data` at `offset`; the number of the first piece that differs.
pub fn check_sums(offset: u64, data: &[u8], expect: &[u32]) -> Result<(), usize> {
    let found = sums(offset, data);
    if found.len() != expect.len() {
        return Err(found.len().min(expect.len()));
    }
    match found.iter().zip(expect).position(|(a, b)| a != b) {
        Some(i) => Err(i),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_cut_at_blocks_of_the_object() {
        let data: Vec<u8> = (0..10_000u32).map(|i| i as u8).collect();
        let s = sums(4000, &data);
        assert_eq!(s.len(), 4);
        assert_eq!(s[0], crc32c::crc32c(&data[..96]));
        assert_eq!(s[1], crc32c::crc32c(&data[96..96 + 4096]));
        assert_eq!(s[3], crc32c::crc32c(&data[96 + 8192..]));
        assert_eq!(check_sums(4000, &data, &s), Ok(()));
        let mut bad = data.clone();
        bad[5000] ^= 1;
        assert_eq!(check_sums(4000, &bad, &s), Err(2));
        assert!(sums(5, &[]).is_empty());
    }

    #[test]
    fn golden_bytes_of_a_list() {
        use crate::{Fid, wire::Wire};
        let object = ObjectId { fid: Fid { seq: 0x0102, oid: 3, ver: 0 }, comp: 4, stripe: 5 };
        let pieces = List(vec![Piece { offset: 0x0607, len: 8 }, Piece { offset: 0x0900, len: 1 }]);
        let list = WriteList { object, flags: W_SYNC, pieces, sums: List(vec![0x0a0b_0c0d, 14]) };
        let mut expect = vec![2, 1, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 4, 0, 5, 0, 1];
        expect.extend([2, 0, 0, 0, 7, 6, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0]);
        expect.extend([0, 9, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0]);
        expect.extend([2, 0, 0, 0, 0x0d, 0x0c, 0x0b, 0x0a, 14, 0, 0, 0]);
        assert_eq!(list.to_bytes(), expect);
        assert_eq!(WriteList::from_bytes(&expect).unwrap(), list);
    }

    #[test]
    fn every_piece_has_one_sum() {
        let data = [7; 3 * CHECKSUM_BLOCK];
        for offset in [0, 1, 4095, 4096, 4097] {
            for len in [0, 1, 4095, 4096, 4097, 8191, 8192, 8193, data.len()] {
                let mut s = sums(offset, &data[..len]);
                assert_eq!(count_sums(offset, &data[..len], &s), Ok(()), "{offset} {len}");
                s.push(0);
                assert_eq!(count_sums(offset, &data[..len], &s), Err(s.len() - 1));
                assert_eq!(count_sums(offset, &[], &s), Err(0));
            }
        }
    }
}
