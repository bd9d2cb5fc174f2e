//! Bytes by offset: written data that a file's objects do not hold for certain.
//!
//! Role: a map of disjoint runs of bytes; a later insert wins. Assumptions: offsets stay below
//! `MAX_FILE_SIZE`, so that ends do not overflow. Never does: count or limit memory (the budget
//! does), lock.

use std::collections::BTreeMap;

use bytes::Bytes;

/// Runs of small writes are gathered in one allocation of at most this many bytes.
pub(crate) const GATHER_MAX: usize = 256 << 10;
/// Owned data below this size is copied, so that a small write does not pin a large buffer.
pub(crate) const COPY_BELOW: usize = 32 << 10;

/// Bytes that are shared, or still grow.
#[derive(Clone, Debug, PartialEq, Eq)]
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

    /// Splits at `at`; `self` keeps the head.
    fn split_off(&mut self, at: usize) -> Buf {
        match self {
            Buf::Shared(b) => Buf::Shared(b.split_off(at)),
            Buf::Own(v) => Buf::Own(v.split_off(at)),
        }
    }
}

/// One run of bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seg<T> {
    pub(crate) data: Buf,
    pub(crate) tag: T,
}

/// Disjoint runs by offset.
#[derive(Clone, Debug)]
pub(crate) struct RangeMap<T> {
    map: BTreeMap<u64, Seg<T>>,
    bytes: u64,
}

impl<T> Default for RangeMap<T> {
    fn default() -> Self {
        RangeMap { map: BTreeMap::new(), bytes: 0 }
    }
}

impl<T: Clone> RangeMap<T> {
    /// Bytes held.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.map.is_empty()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, &Seg<T>)> {
        self.map.iter().map(|(at, seg)| (*at, seg))
    }

    /// Puts bytes in; whatever they cover is replaced.
    pub(crate) fn insert(&mut self, at: u64, data: Buf, tag: T) {
        if data.len() == 0 {
            return;
        }
        self.remove(at, at + data.len());
        self.bytes += data.len();
        self.map.insert(at, Seg { data, tag });
    }

    /// Puts a copy of `data` in, growing or overwriting a gathered run where that is possible.
    pub(crate) fn insert_copy(&mut self, at: u64, data: &[u8], tag: T) {
        let end = at + data.len() as u64;
        let room = self.map.range(..=at).next_back().and_then(|(start, seg)| {
            let seg_end = start + seg.data.len();
            let fits = matches!(seg.data, Buf::Own(_))
                && at <= seg_end
                && end.max(seg_end) - start <= GATHER_MAX as u64;
            fits.then_some((*start, seg_end))
        });
        let Some((start, seg_end)) = room else {
            return self.insert(at, Buf::Own(data.to_vec()), tag);
        };
        if end > seg_end {
            self.remove(seg_end, end);
        }
        if let Some(Seg { data: Buf::Own(v), tag: old }) = self.map.get_mut(&start) {
            let from = (at - start) as usize;
            let inside = data.len().min(v.len() - from);
            v[from..from + inside].copy_from_slice(&data[..inside]);
            v.extend_from_slice(&data[inside..]);
            self.bytes += (data.len() - inside) as u64;
            *old = tag;
        }
    }

    /// Takes `[start, end)` out; the runs taken, cut to the range.
    pub(crate) fn remove(&mut self, start: u64, end: u64) -> Vec<(u64, Seg<T>)> {
        self.split(start);
        self.split(end);
        let keys: Vec<u64> = self.map.range(start..end.max(start)).map(|(at, _)| *at).collect();
        let mut taken = Vec::with_capacity(keys.len());
        for at in keys {
            if let Some(seg) = self.map.remove(&at) {
                self.bytes -= seg.data.len();
                taken.push((at, seg));
            }
        }
        taken
    }

    /// Takes everything out for which `pick` says so.
    pub(crate) fn extract(
        &mut self,
        mut pick: impl FnMut(u64, &Seg<T>) -> bool,
    ) -> Vec<(u64, Seg<T>)> {
        let keys: Vec<u64> =
            self.map.iter().filter(|(at, seg)| pick(**at, seg)).map(|(at, _)| *at).collect();
        let mut taken = Vec::with_capacity(keys.len());
        for at in keys {
            if let Some(seg) = self.map.remove(&at) {
                self.bytes -= seg.data.len();
                taken.push((at, seg));
            }
        }
        taken
    }

    /// Makes `at` a boundary.
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
    pub(crate) fn touching(&self, start: u64, end: u64) -> impl Iterator<Item = (u64, &Seg<T>)> {
        let first = match self.map.range(..=start).next_back() {
            Some((at, seg)) if at + seg.data.len() > start => *at,
            _ => start,
        };
        self.map.range(first..end.max(first)).map(|(at, seg)| (*at, seg))
    }

    pub(crate) fn overlaps(&self, start: u64, end: u64) -> bool {
        start < end && self.touching(start, end).next().is_some()
    }

    /// Calls `hit` for each range held within `[start, end)`.
    pub(crate) fn ranges(&self, start: u64, end: u64, mut hit: impl FnMut(u64, u64)) {
        for (at, seg) in self.touching(start, end) {
            hit(at.max(start), (at + seg.data.len()).min(end));
        }
    }

    /// Copies what is here of `[at, at + into.len())` into `into`.
    pub(crate) fn copy_to(&self, at: u64, into: &mut [u8]) {
        let end = at + into.len() as u64;
        for (start, seg) in self.touching(at, end) {
            let (from, to) = (start.max(at), (start + seg.data.len()).min(end));
            let src = &seg.data.as_slice()[(from - start) as usize..(to - start) as usize];
            into[(from - at) as usize..(to - at) as usize].copy_from_slice(src);
        }
    }

    /// Shares (or copies what still grows) the pieces within `[start, end)`.
    pub(crate) fn snapshot(&self, start: u64, end: u64, out: &mut Vec<(u64, Bytes)>) {
        for (at, seg) in self.touching(start, end) {
            let (from, to) = (at.max(start), (at + seg.data.len()).min(end));
            let (a, b) = ((from - at) as usize, (to - at) as usize);
            out.push((
                from,
                match &seg.data {
                    Buf::Shared(bytes) => bytes.slice(a..b),
                    Buf::Own(v) => Bytes::copy_from_slice(&v[a..b]),
                },
            ));
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
