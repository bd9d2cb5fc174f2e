//! Cutting runs of a file into RPCs to its objects.
//!
//! Role: pure arithmetic on layouts. Runs that follow each other in an object become one RPC even
//! where they lie apart in the file. Never does: I/O.

use bytes::Bytes;
use proto::Layout;

/// Most pieces of one RPC (below Linux's IOV_MAX, with room for header and body).
pub(crate) const MAX_PARTS: usize = 512;

/// One write.
#[derive(Debug)]
pub(crate) struct Rpc {
    pub(crate) stripe: u16,
    pub(crate) object_offset: u64,
    pub(crate) len: u64,
    /// File offsets and bytes, in object order.
    pub(crate) parts: Vec<(u64, Bytes)>,
}

/// Cuts runs (ascending, disjoint) into RPCs of at most `max` bytes.
pub(crate) fn writes(layout: &Layout, runs: Vec<(u64, Bytes)>, max: u64) -> Vec<Rpc> {
    let mut done = Vec::new();
    let mut open: Vec<Option<Rpc>> = (0..layout.osts.len()).map(|_| None).collect();
    for (at, bytes) in runs {
        for e in layout.extents(at, bytes.len() as u64) {
            let mut offset = e.object_offset;
            let mut from = e.file_offset;
            let end = e.file_offset + e.len;
            while from < end {
                let slot = &mut open[usize::from(e.stripe)];
                let follows = slot.as_ref().is_some_and(|r| {
                    r.object_offset + r.len == offset && r.len < max && r.parts.len() < MAX_PARTS
                });
                if !follows && let Some(full) = slot.take() {
                    done.push(full);
                }
                let rpc = slot.get_or_insert_with(|| Rpc {
                    stripe: e.stripe,
                    object_offset: offset,
                    len: 0,
                    parts: Vec::new(),
                });
                let len = (end - from).min(max - rpc.len);
                let (a, b) = ((from - at) as usize, (from + len - at) as usize);
                rpc.parts.push((from, bytes.slice(a..b)));
                rpc.len += len;
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

    proptest! {
        /// Against objects written byte by byte.
        #[test]
        fn writes_fill_objects_as_the_layout_says(
            count in 1usize..5,
            max in 30_000u64..200_000,
            lens in proptest::collection::vec((0u64..90_000, 1usize..150_000), 1..8),
        ) {
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
            for rpc in writes(&layout, runs.clone(), max) {
                prop_assert!(rpc.len <= max && rpc.len > 0);
                let mut offset = rpc.object_offset;
                for (file, part) in &rpc.parts {
                    prop_assert_eq!(layout.locate(*file), (rpc.stripe, offset));
                    let (start, run) = runs.iter().rev().find(|(s, _)| s <= file).unwrap();
                    let a = (file - start) as usize;
                    prop_assert_eq!(&run[a..a + part.len()], &part[..]);
                    offset += part.len() as u64;
                }
                prop_assert_eq!(offset - rpc.object_offset, rpc.len);
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
