//! Bytes by offset: written data that a file's objects do not hold for certain.
//!
//! Role: a map of disjoint runs of bytes; a later insert wins. Assumptions: offsets stay below
//! `MAX_FILE_SIZE`, so that ends do not overflow. Never does: count or limit memory (the budget
//! does), lock.

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::slab::{self, Slab};

/// Owned data below this size is copied, so that a small write does not pin a large buffer.
pub(crate) const COPY_BELOW: usize = 32 << 10;
/// So many small bytes, or pieces, in one chunk and they are gathered in memory for all of it.
const GATHER_FROM: usize = slab::CHUNK / 8;
const GATHER_PIECES: usize = 32;
const CHUNK: u64 = slab::CHUNK as u64;

/// Bytes that are shared, or a small piece that still grows.
#[derive(Debug)]
pub(crate) enum Buf {
    Shared(Bytes),
    Own(Vec<u8>),
}

impl Buf {
    pub(crate) fn as_slice(&self) -> &[u8] {
        match self {
            Buf::Shared(b) => b,
            Buf::Own(v) => v,
        }
    }

    pub(crate) fn len(&self) -> u64 {
        self.as_slice().len() as u64
    }

    pub(crate) fn into_bytes(self) -> Bytes {
        match self {
            Buf::Shared(b) => b,
            Buf::Own(v) => Bytes::from(v),
        }
    }

    /// Bytes that are as good as they get: waiting makes no better piece of them.
    fn ripe(&self) -> u64 {
        match self {
            Buf::Shared(b) => b.len() as u64,
            Buf::Own(_) => 0,
        }
    }

    /// Splits at `at`; `self` keeps the head.
    fn split_off(&mut self, at: usize) -> Buf {
        match self {
            Buf::Shared(b) => Buf::Shared(b.split_off(at)),
            Buf::Own(v) => Buf::Own(v.split_off(at)),
        }
    }
}

/// One run of bytes.
#[derive(Debug)]
pub(crate) struct Seg<T> {
    pub(crate) data: Buf,
    pub(crate) tag: T,
}

/// Disjoint runs by offset. Small ones of one chunk lie together in a slab, which is taken as a
/// whole; runs and slabs never overlap.
#[derive(Debug)]
pub(crate) struct RangeMap<T> {
    map: BTreeMap<u64, Seg<T>>,
    slabs: BTreeMap<u64, (Slab, T)>,
    bytes: u64,
    ripe: u64,
}

impl<T> Default for RangeMap<T> {
    fn default() -> Self {
        RangeMap { map: BTreeMap::new(), slabs: BTreeMap::new(), bytes: 0, ripe: 0 }
    }
}

impl<T: Clone> RangeMap<T> {
    /// Bytes held.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Bytes that better go now: large as they came, or whole chunks.
    pub(crate) fn ripe(&self) -> u64 {
        self.ripe
    }

    /// Chunks being gathered.
    pub(crate) fn slabs(&self) -> usize {
        self.slabs.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.map.is_empty() && self.slabs.is_empty()
    }

    /// Behind the last byte held.
    pub(crate) fn end(&self) -> Option<u64> {
        let run = self.map.last_key_value().map(|(at, seg)| at + seg.data.len());
        let last = self.slabs.last_key_value().and_then(|(chunk, (slab, _))| {
            slab.pieces().map(|(at, piece)| chunk + (at + piece.len()) as u64).last()
        });
        run.max(last)
    }

    /// Runs beside slabs; there are no slabs where nothing was put in by `insert_copy`.
    pub(crate) fn runs(&self) -> impl Iterator<Item = (u64, &Seg<T>)> {
        self.map.iter().map(|(at, seg)| (*at, seg))
    }

    fn put(&mut self, at: u64, seg: Seg<T>) {
        self.bytes += seg.data.len();
        self.ripe += seg.data.ripe();
        self.map.insert(at, seg);
    }

    fn take(&mut self, at: u64) -> Option<Seg<T>> {
        let seg = self.map.remove(&at)?;
        self.bytes -= seg.data.len();
        self.ripe -= seg.data.ripe();
        Some(seg)
    }

    fn take_slab(&mut self, chunk: u64) -> Option<(Slab, T)> {
        let (slab, tag) = self.slabs.remove(&chunk)?;
        self.bytes -= slab.bytes();
        self.ripe -= if slab.is_full() { CHUNK } else { 0 };
        Some((slab, tag))
    }

    /// Puts bytes in; whatever they cover is replaced.
    pub(crate) fn insert(&mut self, at: u64, data: Buf, tag: T) {
        if data.len() > 0 {
            self.remove(at, at + data.len());
            self.put(at, Seg { data, tag });
        }
    }

    /// Puts a copy of `data` in. Small pieces of a chunk are gathered, whatever their order.
    pub(crate) fn insert_copy(&mut self, mut at: u64, mut data: &[u8], tag: T) {
        while !data.is_empty() {
            let room = (CHUNK - at % CHUNK) as usize;
            let (now, later) = data.split_at(room.min(data.len()));
            self.gather(at, now, tag.clone());
            at += now.len() as u64;
            data = later;
        }
    }

    /// As `insert_copy`, within one chunk.
    fn gather(&mut self, at: u64, data: &[u8], tag: T) {
        let chunk = at / CHUNK * CHUNK;
        self.remove_runs(at, at + data.len() as u64);
        if !self.slabs.contains_key(&chunk) {
            let small = self.map.range(chunk..chunk + CHUNK);
            let small = small.filter(|(_, seg)| matches!(seg.data, Buf::Own(_)));
            let (mut pieces, mut bytes) = (0, data.len());
            for (_, seg) in small.take(GATHER_PIECES) {
                (pieces, bytes) = (pieces + 1, bytes + seg.data.len() as usize);
            }
            if pieces < GATHER_PIECES && bytes < GATHER_FROM {
                return self.put_small(at, data, tag);
            }
            self.begin_slab(chunk, tag.clone());
        }
        let Some((slab, old)) = self.slabs.get_mut(&chunk) else { return };
        let (bytes, full) = (slab.bytes(), slab.is_full());
        slab.put((at - chunk) as usize, data);
        self.bytes += slab.bytes() - bytes;
        self.ripe += if slab.is_full() && !full { CHUNK } else { 0 };
        *old = tag;
    }

    /// A small piece where nothing is: behind the one it follows, or on its own.
    fn put_small(&mut self, at: u64, data: &[u8], tag: T) {
        let before = self.map.range_mut(at / CHUNK * CHUNK..at).next_back();
        if let Some((start, Seg { data: Buf::Own(v), tag: old })) = before
            && start + v.len() as u64 == at
        {
            v.extend_from_slice(data);
            self.bytes += data.len() as u64;
            *old = tag;
            return;
        }
        self.put(at, Seg { data: Buf::Own(data.to_vec()), tag });
    }

    /// Moves the small pieces of a chunk into a slab.
    fn begin_slab(&mut self, chunk: u64, tag: T) {
        let small = self.map.range(chunk..chunk + CHUNK);
        let small = small.filter(|(_, seg)| matches!(seg.data, Buf::Own(_)));
        let small: Vec<u64> = small.map(|(at, _)| *at).collect();
        let mut slab = Slab::new();
        for at in small {
            if let Some(seg) = self.take(at) {
                slab.put((at - chunk) as usize, seg.data.as_slice());
            }
        }
        self.bytes += slab.bytes();
        self.slabs.insert(chunk, (slab, tag));
    }

    /// The pieces of a slab become runs.
    fn melt(&mut self, chunk: u64) {
        let Some((slab, tag)) = self.take_slab(chunk) else { return };
        for (at, bytes) in slab.freeze() {
            self.put(chunk + at as u64, Seg { data: Buf::Shared(bytes), tag: tag.clone() });
        }
    }

    /// Takes `[start, end)` out; the runs taken, cut to the range.
    pub(crate) fn remove(&mut self, start: u64, end: u64) -> Vec<(u64, Seg<T>)> {
        let chunks = self.slabs.range(start / CHUNK * CHUNK..end.max(start / CHUNK * CHUNK));
        let chunks: Vec<u64> = chunks.map(|(chunk, _)| *chunk).collect();
        chunks.into_iter().for_each(|chunk| self.melt(chunk));
        self.remove_runs(start, end)
    }

    fn remove_runs(&mut self, start: u64, end: u64) -> Vec<(u64, Seg<T>)> {
        self.split(start);
        self.split(end);
        let keys: Vec<u64> = self.map.range(start..end.max(start)).map(|(at, _)| *at).collect();
        keys.into_iter().filter_map(|at| Some((at, self.take(at)?))).collect()
    }

    /// Takes out what `pick` says so for, by its range and whether it is ripe; ascending.
    pub(crate) fn extract(
        &mut self,
        mut pick: impl FnMut(u64, u64, bool) -> bool,
    ) -> Vec<(u64, Seg<T>)> {
        let mut taken = self.extract_runs(|at, seg| {
            pick(at, at + seg.data.len(), matches!(seg.data, Buf::Shared(_)))
        });
        let ripe = |(chunk, (slab, _)): (&u64, &(Slab, T))| {
            let full = slab.is_full();
            let piece = |(at, b): (usize, &[u8])| (chunk + at as u64, b.len() as u64);
            let picked = slab.pieces().map(piece).all(|(at, len)| pick(at, at + len, full));
            picked.then_some(*chunk)
        };
        let chunks: Vec<u64> = self.slabs.iter().filter_map(ripe).collect();
        for chunk in chunks {
            let Some((slab, tag)) = self.take_slab(chunk) else { continue };
            taken.extend(slab.freeze().into_iter().map(|(at, bytes)| {
                (chunk + at as u64, Seg { data: Buf::Shared(bytes), tag: tag.clone() })
            }));
        }
        taken.sort_unstable_by_key(|(at, _)| *at);
        taken
    }

    /// Takes out the runs for which `pick` says so; for maps without slabs.
    pub(crate) fn extract_runs(
        &mut self,
        mut pick: impl FnMut(u64, &Seg<T>) -> bool,
    ) -> Vec<(u64, Seg<T>)> {
        let keys: Vec<u64> =
            self.map.iter().filter(|(at, seg)| pick(**at, seg)).map(|(at, _)| *at).collect();
        keys.into_iter().filter_map(|at| Some((at, self.take(at)?))).collect()
    }

    /// Makes `at` a boundary of runs.
    fn split(&mut self, at: u64) {
        let Some((start, seg)) = self.map.range_mut(..at).next_back() else { return };
        if start + seg.data.len() <= at {
            return;
        }
        let tail = seg.data.split_off((at - start) as usize);
        let tag = seg.tag.clone();
        self.map.insert(at, Seg { data: tail, tag });
    }

    /// The runs that touch `[start, end)`, whole.
    fn runs_touching(&self, start: u64, end: u64) -> impl Iterator<Item = (u64, &Seg<T>)> {
        let first = match self.map.range(..=start).next_back() {
            Some((at, seg)) if at + seg.data.len() > start => *at,
            _ => start,
        };
        self.map.range(first..end.max(first)).map(|(at, seg)| (*at, seg))
    }

    /// The pieces of slabs that touch `[start, end)`, whole.
    fn slabs_touching(&self, start: u64, end: u64) -> impl Iterator<Item = (u64, &[u8])> {
        let first = start / CHUNK * CHUNK;
        let pieces = self.slabs.range(first..end.max(first)).flat_map(|(chunk, (slab, _))| {
            slab.pieces().map(|(at, piece)| (*chunk + at as u64, piece))
        });
        pieces.filter(move |(at, piece)| *at < end && at + piece.len() as u64 > start)
    }

    /// What touches `[start, end)`, whole, in no order.
    pub(crate) fn touching(&self, start: u64, end: u64) -> impl Iterator<Item = (u64, &[u8])> {
        let runs = self.runs_touching(start, end).map(|(at, seg)| (at, seg.data.as_slice()));
        runs.chain(self.slabs_touching(start, end))
    }

    pub(crate) fn overlaps(&self, start: u64, end: u64) -> bool {
        start < end && self.touching(start, end).next().is_some()
    }

    /// Calls `hit` for each range held within `[start, end)`.
    pub(crate) fn ranges(&self, start: u64, end: u64, mut hit: impl FnMut(u64, u64)) {
        for (at, data) in self.touching(start, end) {
            hit(at.max(start), (at + data.len() as u64).min(end));
        }
    }

    /// Copies what is here of `[at, at + into.len())` into `into`.
    pub(crate) fn copy_to(&self, at: u64, into: &mut [u8]) {
        let end = at + into.len() as u64;
        for (start, data) in self.touching(at, end) {
            let (from, to) = (start.max(at), (start + data.len() as u64).min(end));
            let src = &data[(from - start) as usize..(to - start) as usize];
            into[(from - at) as usize..(to - at) as usize].copy_from_slice(src);
        }
    }

    /// Shares (or copies what still grows) the pieces within `[start, end)`.
    pub(crate) fn snapshot(&self, start: u64, end: u64, out: &mut Vec<(u64, Bytes)>) {
        let cut = |at: u64, len: usize| {
            let (from, to) = (at.max(start), (at + len as u64).min(end));
            (from, (from - at) as usize..(to - at) as usize)
        };
        for (at, seg) in self.runs_touching(start, end) {
            let (from, part) = cut(at, seg.data.as_slice().len());
            out.push(match &seg.data {
                Buf::Shared(bytes) => (from, bytes.slice(part)),
                Buf::Own(v) => (from, Bytes::copy_from_slice(&v[part])),
            });
        }
        for (at, piece) in self.slabs_touching(start, end) {
            let (from, part) = cut(at, piece.len());
            out.push((from, Bytes::copy_from_slice(&piece[part])));
        }
    }
}

/// Disjoint half-open ranges; used to see whether a read is covered.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cover {
    ranges: BTreeMap<u64, u64>,
}

impl Cover {
    pub(crate) fn add(&mut self, mut start: u64, mut end: u64) {
        while let Some((s, e)) = self.ranges.range(..=end).next_back().map(|(s, e)| (*s, *e)) {
            if e < start {
                break;
            }
            start = start.min(s);
            end = end.max(e);
            self.ranges.remove(&s);
        }
        self.ranges.insert(start, end);
    }

    pub(crate) fn covers(&self, start: u64, end: u64) -> bool {
        start >= end || self.ranges.range(..=start).next_back().is_some_and(|(_, e)| *e >= end)
    }
}

#[cfg(test)]
mod tests;
