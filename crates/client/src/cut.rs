//! Cutting runs of a file into RPCs to its objects.
//!
//! Role: pure arithmetic on layouts. Runs that follow each other in an object become one RPC even
//! where they lie apart in the file, and so do small ones that lie apart in the object. Never does: I/O.

use bytes::Bytes;
use proto::Layout;
use proto::oss::{MAX_PIECES, Piece};

/// Most parts of one RPC (below Linux's IOV_MAX, with room for header and body).
pub(crate) const MAX_PARTS: usize = 512;
/// Pieces up to this long share an RPC with others; larger ones are worth one of their own, which
/// another thread of the target may serve meanwhile, bytes.
const SHARES_MAX: u64 = 128 << 10;

/// Whether pieces that lie apart in an object may go together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Apart {
    #[default]
    Together,
    Singly,
}

/// One write.
#[derive(Debug)]
pub(crate) struct Rpc {
    pub(crate) stripe: u16,
    /// Places in the object, ascending.
    pub(crate) pieces: Vec<Piece>,
    pub(crate) len: u64,
    /// File offsets and bytes, in object order: the pieces' one after the other.
    pub(crate) parts: Vec<(u64, Bytes)>,
}

impl Rpc {
    fn new(stripe: u16) -> Rpc {
        Rpc { stripe, pieces: Vec::new(), len: 0, parts: Vec::new() }
    }

    /// Where its bytes lie in the file.
    pub(crate) fn ranges(&self) -> Vec<(u64, u64)> {
        self.parts.iter().map(|(at, bytes)| (*at, at + bytes.len() as u64)).collect()
    }

    /// Behind its last byte in the object.
    fn end(&self) -> Option<u64> {
        self.pieces.last().map(|p| p.offset + u64::from(p.len))
    }

    /// Whether `len` bytes at `offset` of the object, or as many of them as there is room for, may
    /// be added. One of several pieces is not cut where that can be helped: the rest would begin at
    /// an odd place.
    fn takes(&self, offset: u64, len: u64, max: u64, apart: Apart) -> bool {
        if self.parts.len() >= MAX_PARTS || self.len >= max {
            return false;
        }
        let fits = self.len + len <= max;
        if self.end() == Some(offset) {
            return fits || self.pieces.len() == 1;
        }
        let small = |len: u64| len <= SHARES_MAX;
        apart == Apart::Together
            && fits
            && self.pieces.len() < MAX_PIECES
            && small(len)
            && self.pieces.last().is_some_and(|p| small(p.len.into()))
    }

    fn add(&mut self, offset: u64, from: u64, bytes: Bytes) {
        let (len, end) = (bytes.len() as u32, self.end());
        match self.pieces.last_mut() {
            Some(last) if end == Some(offset) => last.len += len,
            _ => self.pieces.push(Piece { offset, len }),
        }
        self.len += u64::from(len);
        self.parts.push((from, bytes));
    }
}

/// Cuts runs (ascending, disjoint) into RPCs of at most `max` bytes.
pub(crate) fn writes(layout: &Layout, runs: Vec<(u64, Bytes)>, max: u64, apart: Apart) -> Vec<Rpc> {
    let mut done = Vec::new();
    let mut open: Vec<Option<Rpc>> = (0..layout.osts.len()).map(|_| None).collect();
    for (at, bytes) in runs {
        for e in layout.extents(at, bytes.len() as u64) {
            let mut offset = e.object_offset;
            let mut from = e.file_offset;
            let end = e.file_offset + e.len;
            while from < end {
                let slot = &mut open[usize::from(e.stripe)];
                let full = slot.take_if(|rpc| !rpc.takes(offset, end - from, max, apart));
                done.extend(full);
                let rpc = slot.get_or_insert_with(|| Rpc::new(e.stripe));
                let len = (end - from).min(max - rpc.len);
                let (a, b) = ((from - at) as usize, (from + len - at) as usize);
                rpc.add(offset, from, bytes.slice(a..b));
                offset += len;
                from += len;
            }
        }
    }
    done.extend(open.into_iter().flatten());
    done
}

/// One read: object range, and where its parts go.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Want {
    pub(crate) stripe: u16,
    pub(crate) object_offset: u64,
    pub(crate) len: u64,
    /// File offsets and lengths, in object order.
    pub(crate) parts: Vec<(u64, u64)>,
}

/// Cuts `[at, at + len)` into reads of at most `max` bytes.
pub(crate) fn reads(layout: &Layout, at: u64, len: u64, max: u64) -> Vec<Want> {
    let mut done = Vec::new();
    let mut open: Vec<Option<Want>> = (0..layout.osts.len()).map(|_| None).collect();
    for e in layout.extents(at, len) {
        let (mut offset, mut from) = (e.object_offset, e.file_offset);
        let end = e.file_offset + e.len;
        while from < end {
            let slot = &mut open[usize::from(e.stripe)];
            if slot.as_ref().is_some_and(|w| w.len >= max)
                && let Some(full) = slot.take()
            {
                done.push(full);
            }
            let want = slot.get_or_insert_with(|| Want {
                stripe: e.stripe,
                object_offset: offset,
                len: 0,
                parts: Vec::new(),
            });
            let n = (end - from).min(max - want.len);
            want.parts.push((from, n));
            want.len += n;
            offset += n;
            from += n;
        }
    }
    done.extend(open.into_iter().flatten());
    done
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Sizes of the pieces of each RPC.
    fn sizes(runs: &[(u64, usize)], apart: Apart) -> Vec<Vec<u32>> {
        let layout = Layout { generation: 1, stripe_size: 4 << 20, osts: vec![0] };
        let bytes = |(at, len): &(u64, usize)| (*at, Bytes::from(vec![1; *len]));
        let rpcs = writes(&layout, runs.iter().map(bytes).collect(), 1 << 20, apart);
        rpcs.iter().map(|rpc| rpc.pieces.iter().map(|p| p.len).collect()).collect()
    }

    #[test]
    fn small_pieces_share_messages_and_large_ones_do_not() {
        let small: Vec<(u64, usize)> = (0..600).map(|n| (n * 8192, 100)).collect();
        let shared = sizes(&small, Apart::Together);
        let counts: Vec<usize> = shared.iter().map(Vec::len).collect();
        assert_eq!(counts, [MAX_PIECES, MAX_PIECES, 600 - 2 * MAX_PIECES]);
        assert_eq!(sizes(&small, Apart::Singly).len(), 600);
        let (kib, large) = (1024u32, SHARES_MAX as usize + 1);
        let strided: Vec<(u64, usize)> = (0..20).map(|n| (n * 200_000, 100 << 10)).collect();
        assert_eq!(sizes(&strided, Apart::Together), [vec![100 * kib; 10], vec![100 * kib; 10]]);
        let mixed = [(0, 4096), (1 << 20, large), (2 << 20, 4096), (3 << 20, 4096)];
        let expected = [vec![4096], vec![large as u32], vec![4096, 4096]];
        assert_eq!(sizes(&mixed, Apart::Together), expected);
        // The second run does not fit beside the first: it is not torn for that.
        let long = [(0, 100 << 10), (512 << 10, 1 << 20)];
        assert_eq!(sizes(&long, Apart::Together), [vec![100 * kib], vec![1024 * kib]]);
    }

    proptest! {
        /// Against objects written byte by byte.
        #[test]
        fn writes_fill_objects_as_the_layout_says(
            count in 1usize..5,
            max in 30_000u64..200_000,
            lens in proptest::collection::vec((0u64..90_000, 1usize..150_000), 1..8),
            singly: bool,
        ) {
            let apart = if singly { Apart::Singly } else { Apart::Together };
            let layout = Layout { generation: 1, stripe_size: 65536, osts: (0..count as u32).collect() };
            let (mut at, mut seed) = (0u64, 0u8);
            let mut runs = Vec::new();
            for (gap, len) in lens {
                at += gap;
                seed = seed.wrapping_add(37);
                let data: Vec<u8> = (0..len).map(|i| (i as u8).wrapping_mul(7) ^ seed).collect();
                runs.push((at, Bytes::from(data)));
                at += len as u64;
            }
            let total: u64 = runs.iter().map(|(_, b)| b.len() as u64).sum();
            let mut sent = 0;
            for rpc in writes(&layout, runs.clone(), max, apart) {
                prop_assert!(rpc.len <= max && rpc.len > 0);
                prop_assert!(rpc.pieces.len() == 1 || apart == Apart::Together);
                // Where each part goes, piece by piece.
                let places = rpc.pieces.iter().flat_map(|p| p.offset..p.offset + u64::from(p.len));
                let places: Vec<u64> = places.collect();
                prop_assert!(places.is_sorted_by(|a, b| a < b));
                let mut done = 0;
                for (file, part) in &rpc.parts {
                    let offset = places[done];
                    prop_assert_eq!(places[done + part.len() - 1] - offset, part.len() as u64 - 1);
                    prop_assert_eq!(layout.locate(*file), (rpc.stripe, offset));
                    let (start, run) = runs.iter().rev().find(|(s, _)| s <= file).unwrap();
                    let a = (file - start) as usize;
                    prop_assert_eq!(&run[a..a + part.len()], &part[..]);
                    done += part.len();
                }
                prop_assert_eq!((done, done as u64), (places.len(), rpc.len));
                sent += rpc.len;
            }
            prop_assert_eq!(sent, total);
        }

        #[test]
        fn reads_cover_the_range_once(
            count in 1usize..5, at in 0u64..500_000, len in 1u64..900_000, max in 30_000u64..300_000,
        ) {
            let layout = Layout { generation: 1, stripe_size: 65536, osts: (0..count as u32).collect() };
            let mut seen = vec![0u8; len as usize];
            for want in reads(&layout, at, len, max) {
                prop_assert!(want.len <= max);
                let mut offset = want.object_offset;
                for (file, n) in &want.parts {
                    prop_assert_eq!(layout.locate(*file), (want.stripe, offset));
                    seen[(file - at) as usize..(file - at + n) as usize].iter_mut().for_each(|b| *b += 1);
                    offset += n;
                }
            }
            prop_assert!(seen.iter().all(|b| *b == 1));
        }
    }
}
