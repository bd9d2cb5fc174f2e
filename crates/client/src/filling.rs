//! Chunks of read-ahead whose bytes are coming.
//!
//! Role: the answers to reads, each of which may bring pieces of several chunks, become the bytes of
//! those chunks; without a copy where one answer holds a whole one. What an object lacks is zero.
//! Never does: ask for anything.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use proto::Errno;

use crate::ahead::CHUNK;
use crate::cut::Want;
use crate::inode::Inode;

/// A chunk, and the number of its slot if one was reserved.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reserved {
    pub(crate) chunk: u64,
    pub(crate) number: Option<u64>,
    pub(crate) len: u64,
}

/// Bytes of a chunk so far.
#[derive(Default)]
struct Parts {
    bytes: BytesMut,
    /// Pieces to come.
    missing: usize,
    failed: bool,
}

/// Chunks that follow each other.
pub(crate) struct Filling {
    inode: Arc<Inode>,
    chunks: Vec<(Reserved, Mutex<Parts>)>,
    /// Bytes of a chunk.
    cut: u64,
}

/// Calls `hit` for each piece of a read that lies within one chunk of `cut` bytes: where in the file, where in the
/// answer, and its length.
fn pieces(want: &Want, cut: u64, mut hit: impl FnMut(u64, usize, u64)) {
    let mut from = 0;
    for (start, len) in &want.parts {
        let (mut at, end) = (*start, start + len);
        while at < end {
            let stop = (at / cut * cut).saturating_add(cut).min(end);
            hit(at, from, stop - at);
            from += (stop - at) as usize;
            at = stop;
        }
    }
}

impl Filling {
    /// `chunks` follow each other; `wants` are all reads that bring their bytes.
    pub(crate) fn new(inode: Arc<Inode>, chunks: Vec<Reserved>, wants: &[Want]) -> Filling {
        Filling::cut(inode, chunks, wants, CHUNK)
    }

    /// One block, wherever it lies.
    pub(crate) fn block(inode: Arc<Inode>, block: Reserved, wants: &[Want]) -> Filling {
        Filling::cut(inode, vec![block], wants, u64::MAX)
    }

    fn cut(inode: Arc<Inode>, chunks: Vec<Reserved>, wants: &[Want], cut: u64) -> Filling {
        let mut chunks: Vec<_> = chunks.into_iter().map(|c| (c, Parts::default())).collect();
        let base = chunks.first().map_or(0, |(c, _)| c.chunk);
        for want in wants {
            pieces(want, cut, |at, _, _| {
                if let Some((_, parts)) = chunks.get_mut(((at - base) / cut) as usize) {
                    parts.missing += 1;
                }
            });
        }
        let chunks = chunks.into_iter().map(|(c, parts)| (c, Mutex::new(parts))).collect();
        Filling { inode, chunks, cut }
    }

    /// A read was answered, or could not be sent.
    pub(crate) fn came(&self, want: &Want, data: Result<Bytes, Errno>) {
        let base = self.chunks.first().map_or(0, |(c, _)| c.chunk);
        pieces(want, self.cut, |at, from, len| {
            let Some((slot, parts)) = self.chunks.get(((at - base) / self.cut) as usize) else {
                return;
            };
            let piece = data.as_ref().ok().map(|data| {
                data.slice(from.min(data.len())..(from + len as usize).min(data.len()))
            });
            if let Some(done) = parts.lock().put(slot, at, piece) {
                let mut st = self.inode.st.lock();
                if let Some(number) = slot.number {
                    st.ahead.fill(slot.chunk, number, done);
                }
                drop(st);
                self.inode.landed.notify_all();
            }
        });
    }
}

impl Parts {
    /// A piece of the chunk came, or will not; its bytes (or none) when it was the last.
    fn put(&mut self, slot: &Reserved, at: u64, piece: Option<Bytes>) -> Option<Option<Bytes>> {
        self.missing -= 1;
        match piece {
            // One answer held it all: no copy.
            Some(piece) if piece.len() as u64 == slot.len => return Some(Some(piece)),
            Some(piece) => {
                self.bytes.resize(slot.len as usize, 0);
                let at = (at - slot.chunk) as usize;
                self.bytes[at..at + piece.len()].copy_from_slice(&piece);
            }
            None => self.failed = true,
        }
        if self.missing > 0 {
            return None;
        }
        Some((!self.failed).then(|| std::mem::take(&mut self.bytes).freeze()))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::cut;
    use parking_lot::Mutex as Lock;
    use proptest::prelude::*;
    use proto::{Attr, Fid, Layout, TimeSpec};
    use std::sync::atomic::AtomicU64;

    fn layout(count: usize, stripe: u32) -> Layout {
        Layout { generation: 1, stripe_size: stripe, osts: (0..count as u32).collect() }
    }

    /// A regular file's, of no file in particular.
    pub(crate) fn attr() -> Attr {
        let never = TimeSpec::default();
        Attr {
            fid: Fid::NONE,
            mode: libc::S_IFREG,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            size: 0,
            blocks: 0,
            atime: never,
            mtime: never,
            ctime: never,
            btime: never,
            flags: 0,
            version: 1,
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

        /// Whatever the stripes and the order of answers, slots hold the file's bytes; short
        /// objects end in zeros.
        #[test]
        fn chunks_are_what_the_objects_hold(
            count in 1usize..5, stripe in 1u32..80, first in 0u64..3, chunks in 1u64..6,
            tail in 1u64..CHUNK, short in 0usize..90_000, seed in any::<u64>(),
        ) {
            let layout = layout(count, stripe << 16);
            let inode = Arc::new(Inode::new(attr()));
            let pool = Arc::new(AtomicU64::new(0));
            let run: Vec<Reserved> = (first..first + chunks)
                .map(|n| {
                    let len = if n + 1 == first + chunks { tail } else { CHUNK };
                    let number = inode.st.lock().ahead.reserve(n * CHUNK, len, &pool);
                    Reserved { chunk: n * CHUNK, number: Some(number), len }
                })
                .collect();
            let len = (chunks - 1) * CHUNK + tail;
            let mut wants = cut::reads(&layout, first * CHUNK, len, 4 << 20);
            let filling = Filling::new(inode.clone(), run.clone(), &wants);
            let byte = |at: u64| (at.wrapping_mul(31) >> 7) as u8 | 1;
            let cut_short = Lock::new(Vec::new());
            let turn = seed as usize % wants.len();
            wants.rotate_left(turn);
            for want in &wants {
                let places = want.parts.iter().flat_map(|(at, n)| *at..at + n);
                let places: Vec<u64> = places.collect();
                let have = places.len().saturating_sub(short);
                cut_short.lock().extend_from_slice(&places[have..]);
                let data: Vec<u8> = places[..have].iter().map(|at| byte(*at)).collect();
                filling.came(want, Ok(data.into()));
            }
            let holes: std::collections::HashSet<u64> = cut_short.into_inner().into_iter().collect();
            for slot in run {
                let got = inode.st.lock().ahead.take(slot.chunk, slot.len).unwrap().unwrap();
                prop_assert_eq!(got.len() as u64, slot.len);
                for (i, b) in got.iter().enumerate() {
                    let at = slot.chunk + i as u64;
                    prop_assert_eq!(*b, if holes.contains(&at) { 0 } else { byte(at) });
                }
            }
        }
    }
}
