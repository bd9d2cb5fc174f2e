//! Checksums of one open object in memory: what is known of each 4 KiB block.
//!
//! Role: keep sums in step with writes of any size and alignment without reading the disk, tell
//! reads what to compare, hand sums of durable bytes to the sidecar. Assumptions: the caller holds
//! the range lock of the blocks it changes. A partial write into a part of a block known to be
//! zero (the usual case of records that do not end at blocks) updates the sum by crc's linearity:
//! crc(a^b) = crc(a)^crc(b)^crc(0). Anything else leaves the block without a sum until the next
//! commit makes it from the page cache. Never does: data I/O.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::marked::Marked;

use proto::CHECKSUM_BLOCK;
use rustix::io::Errno;

use crate::boot::Boot;
use crate::files::Dir;
use crate::sidecar::Sidecar;

const BLOCK: u64 = CHECKSUM_BLOCK as u64;
/// Blocks of one chunk; a chunk is loaded and dropped as a whole (4 MiB of data).
pub(crate) const CHUNK: u64 = 1024;
/// Most chunks without news one object keeps when the process has [`CHUNKS_MAX`].
pub(crate) const CLEAN_CHUNKS_MAX: usize = 8;
/// Chunks of the whole process from which on objects keep few (4.5 KiB each).
pub(crate) const CHUNKS_MAX: usize = 4096;
/// Sums up to this many are read past a chunk when there are enough of those.
const SMALL: usize = 32;
/// Most half-written blocks of one object whose zero part is remembered.
pub(crate) const FILLED_MAX: usize = 8192;
/// Most blocks of one object noted to get their sum from the page cache at commit.
pub(crate) const RECOMPUTE_MAX: usize = 4096;

static ZEROS: [u8; CHECKSUM_BLOCK] = [0; CHECKSUM_BLOCK];
static ZERO_SUM: LazyLock<u32> = LazyLock::new(|| crc32c::crc32c(&ZEROS));

type Bits = [u64; (CHUNK / 64) as usize];

fn get(bits: &Bits, i: usize) -> bool {
    bits[i / 64] >> (i % 64) & 1 == 1
}
fn set(bits: &mut Bits, i: usize, on: bool) {
    let mask = 1 << (i % 64);
    if on { bits[i / 64] |= mask } else { bits[i / 64] &= !mask }
}

struct Chunk {
    sums: [u32; CHUNK as usize],
    /// Differs from the sidecar (or is being written).
    dirty: Bits,
    /// Has bytes, but no sum is known.
    blind: Bits,
    /// The sidecar has (or may have) a sum.
    disk: Bits,
}

/// Chunks of the whole process.
static CHUNKS: AtomicUsize = AtomicUsize::new(0);

/// Whether the process has more than `times` [`CHUNKS_MAX`] chunks.
pub(crate) fn crowded(times: usize) -> bool {
    CHUNKS.load(Ordering::Relaxed) > CHUNKS_MAX * times
}

impl Drop for Chunk {
    fn drop(&mut self) {
        CHUNKS.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Chunk {
    fn new(sums: [u32; CHUNK as usize]) -> Box<Chunk> {
        CHUNKS.fetch_add(1, Ordering::Relaxed);
        let none = Bits::default();
        Box::new(Chunk { sums, dirty: none, blind: none, disk: none })
    }

    /// Notes which blocks have a sum on disk, and which of the first `used` have bytes but none.
    fn loaded(&mut self, used: usize) {
        for (w, sums) in self.sums.chunks_exact(64).enumerate() {
            let has = sums.iter().rev().fold(0u64, |bits, sum| bits << 1 | u64::from(*sum != 0));
            let below = match used.saturating_sub(w * 64) {
                n @ 0..64 => (1 << n) - 1,
                _ => u64::MAX,
            };
            self.disk[w] = has;
            self.blind[w] = below & !has;
        }
    }

    fn is_clean(&self) -> bool {
        self.dirty.iter().all(|w| *w == 0)
    }
}

/// What was known of a block that is about to be written in part.
#[derive(Clone, Copy, Debug)]
struct Before {
    /// Its sum; 0: none.
    sum: u32,
    /// No bytes but zeros.
    zero: bool,
}

/// What was known before a write, for [`Sums::written`].
pub(crate) struct Prior {
    size: u64,
    head: Option<Before>,
    tail: Option<Before>,
}

/// Sums that became due for the sidecar, taken before a sync.
pub(crate) struct Due(Vec<(u64, Box<Chunk>)>);

/// The sums of an open object with its sidecar.
pub(crate) struct Sums {
    chunks: BTreeMap<u64, Box<Chunk>>,
    /// Half-written blocks: outside `[start, end)` they are zero.
    filled: HashMap<u64, (u16, u16)>,
    /// Blocks to sum up from the page cache at commit.
    recompute: BTreeSet<u64>,
    sidecar: Sidecar,
}

/// Where sums come from and go to.
pub(crate) struct Home<'a> {
    pub(crate) objects: &'a Dir,
    pub(crate) boot: &'a Boot,
    /// Sidecars marked in this boot.
    pub(crate) marked: &'a Marked,
}

/// Cuts `[offset, offset+len)` at blocks: (block, start in it, end in it).
pub(crate) fn pieces(offset: u64, len: u64) -> impl Iterator<Item = (u64, usize, usize)> {
    let end = offset + len;
    (offset / BLOCK..end.div_ceil(BLOCK)).map(move |b| {
        let start = offset.saturating_sub(b * BLOCK) as usize;
        (b, start, (end - b * BLOCK).min(BLOCK) as usize)
    })
}

impl Sums {
    pub(crate) fn new(sidecar: Sidecar) -> Sums {
        Sums {
            chunks: BTreeMap::new(),
            filled: HashMap::new(),
            recompute: BTreeSet::new(),
            sidecar,
        }
    }

    fn chunk(&mut self, home: &Home<'_>, no: u64, size: u64) -> Result<&mut Chunk, Errno> {
        use std::collections::btree_map::Entry;
        match self.chunks.entry(no) {
            Entry::Occupied(e) => Ok(e.into_mut()),
            Entry::Vacant(e) => {
                self.sidecar.load(home.objects, home.boot)?;
                let mut c = Chunk::new([0; CHUNK as usize]);
                self.sidecar.read(no * CHUNK, &mut c.sums)?;
                let used = size.div_ceil(BLOCK).saturating_sub(no * CHUNK);
                c.loaded(used.min(CHUNK) as usize);
                Ok(e.insert(c))
            }
        }
    }

    /// A write is about to change `[offset, offset+len)` of an object of `size` bytes: marks the
    /// sidecar when it must be, and forgets sums of the range.
    pub(crate) fn begin(
        &mut self,
        home: &Home<'_>,
        offset: u64,
        len: u64,
        size: u64,
    ) -> Result<Prior, Errno> {
        let mut prior = Prior { size, head: None, tail: None };
        if len == 0 {
            return Ok(prior);
        }
        let (first, last) = (offset / BLOCK, (offset + len - 1) / BLOCK);
        let mut on_disk = false;
        for no in first / CHUNK..=last / CHUNK {
            let c = self.chunk(home, no, size)?;
            on_disk |= span(no, first, last).any(|i| get(&c.disk, i));
        }
        if on_disk {
            self.mark(home)?;
        }
        for no in first / CHUNK..=last / CHUNK {
            let c = self.chunk(home, no, size)?;
            for i in span(no, first, last) {
                let block = no * CHUNK + i as u64;
                if block == first || block == last {
                    let zero = c.sums[i] == 0 && !get(&c.blind, i);
                    let before = Some(Before { sum: c.sums[i], zero });
                    if block == first { prior.head = before } else { prior.tail = before }
                }
                c.sums[i] = 0;
                set(&mut c.dirty, i, true);
                set(&mut c.blind, i, true);
            }
        }
        Ok(prior)
    }

    /// The write is done: `data` lies at `offset`; `sums` are its checksums, unless switched off.
    pub(crate) fn written(&mut self, offset: u64, data: &[u8], sums: &[u32], prior: &Prior) {
        let first = offset / BLOCK;
        let (hints, off) = (!self.filled.is_empty() || !self.recompute.is_empty(), sums.is_empty());
        let mut at = 0;
        let mut cached: Option<(u64, &mut Chunk)> = None;
        let mut partial = Vec::new();
        for (n, (block, start, end)) in pieces(offset, data.len() as u64).enumerate() {
            let piece = &data[at..at + end - start];
            at += piece.len();
            if hints && end - start == CHECKSUM_BLOCK {
                self.filled.remove(&block);
                self.recompute.remove(&block);
            }
            if off || end - start < CHECKSUM_BLOCK {
                partial.push((block, start, piece));
                continue;
            }
            let no = block / CHUNK;
            if cached.as_ref().is_none_or(|(have, _)| *have != no) {
                cached = self.chunks.get_mut(&no).map(|c| (no, &mut **c));
            }
            if let Some((_, c)) = &mut cached {
                put(c, (block % CHUNK) as usize, sums.get(n).copied().unwrap_or(0));
            }
        }
        for (block, start, piece) in partial {
            let before = if block == first { prior.head } else { prior.tail };
            match before {
                _ if off => self.forget(block, false),
                Some(before) => self.patch(block, start, piece, before, prior.size),
                None => self.forget(block, true),
            }
        }
    }

    /// Updates a sum for a write into a part of a block.
    fn patch(&mut self, block: u64, start: usize, piece: &[u8], before: Before, size: u64) {
        let end = start + piece.len();
        let hole = self.filled.get(&block).copied();
        let into_zeros = before.zero
            || hole.is_some_and(|(s, e)| end <= s.into() || start >= e.into())
            || block * BLOCK + start as u64 >= size;
        let base = if before.zero { *ZERO_SUM } else { before.sum };
        if !into_zeros || base == 0 {
            return self.forget(block, true);
        }
        let lead = crc32c::crc32c(&ZEROS[..start]);
        let sum = crc32c::crc32c_append(crc32c::crc32c_append(lead, piece), &ZEROS[end..]);
        if let Some(c) = self.chunks.get_mut(&(block / CHUNK)) {
            put(c, (block % CHUNK) as usize, base ^ sum ^ *ZERO_SUM);
        }
        let (s, e) = match hole {
            Some((s, e)) => (start.min(s.into()), end.max(e.into())),
            None if before.zero => (start, end),
            None => return,
        };
        if (s, e) == (0, CHECKSUM_BLOCK) {
            self.filled.remove(&block);
        } else if hole.is_some() || self.filled.len() < FILLED_MAX {
            self.filled.insert(block, (s as u16, e as u16));
        }
    }

    /// A block has bytes whose sum nobody knows; `again`: commit makes it from the page cache.
    fn forget(&mut self, block: u64, again: bool) {
        self.filled.remove(&block);
        if again && self.recompute.len() < RECOMPUTE_MAX {
            self.recompute.insert(block);
        }
    }

    /// After a write that failed half-way: nobody knows what the range holds.
    pub(crate) fn lost(&mut self, offset: u64, len: u64) {
        for (block, _, _) in pieces(offset, len) {
            self.forget(block, true);
        }
    }

    /// A block that a commit should sum up, if any.
    pub(crate) fn next_recompute(&mut self) -> Option<u64> {
        self.recompute.pop_first()
    }

    /// The sum of a block as the page cache has it. A sum it has on disk was marked when the block
    /// was changed.
    pub(crate) fn recomputed(&mut self, home: &Home<'_>, block: u64, sum: u32, size: u64) {
        if let Ok(c) = self.chunk(home, block / CHUNK, size) {
            put(c, (block % CHUNK) as usize, sum);
        }
    }

    /// Sums that reads of blocks `first..first+out.len()` are to be compared with; 0: none.
    pub(crate) fn expect(
        &mut self,
        home: &Home<'_>,
        first: u64,
        size: u64,
        out: &mut [u32],
    ) -> Result<(), Errno> {
        let mut done = 0;
        while done < out.len() {
            let block = first + done as u64;
            if out.len() <= SMALL && crowded(1) && !self.chunks.contains_key(&(block / CHUNK)) {
                self.sidecar.load(home.objects, home.boot)?;
                let n = ((CHUNK - block % CHUNK) as usize).min(out.len() - done);
                self.sidecar.read(block, &mut out[done..done + n])?;
                done += n;
                continue;
            }
            let c = self.chunk(home, block / CHUNK, size)?;
            let i = (block % CHUNK) as usize;
            let n = (CHUNK as usize - i).min(out.len() - done);
            out[done..done + n].copy_from_slice(&c.sums[i..i + n]);
            done += n;
        }
        self.shrink(first / CHUNK);
        Ok(())
    }

    /// Sets sums of whole blocks (a copy within the target); 0: unknown.
    pub(crate) fn adopt(&mut self, first: u64, sums: &[u32]) {
        for (block, sum) in (first..).zip(sums) {
            match self.chunks.get_mut(&(block / CHUNK)) {
                Some(c) if *sum != 0 => put(c, (block % CHUNK) as usize, *sum),
                _ => self.forget(block, true),
            }
        }
    }

    /// The object is about to be cut to `to` bytes (or grown): sums of what goes away are dropped.
    pub(crate) fn cut(&mut self, home: &Home<'_>, to: u64, size: u64) -> Result<(), Errno> {
        self.sidecar.load(home.objects, home.boot)?;
        let first = to.div_ceil(BLOCK);
        if to < size && self.sidecar.blocks() > to / BLOCK {
            self.mark(home)?;
        }
        if to < size && !to.is_multiple_of(BLOCK) {
            self.begin(home, to, 1, size)?;
            self.forget(to / BLOCK, true);
        }
        self.drop_blocks(first, u64::MAX);
        Ok(())
    }

    /// Marks the sidecar durably, unless it is (rule 2 of [`crate::sidecar`]).
    fn mark(&mut self, home: &Home<'_>) -> Result<(), Errno> {
        if self.sidecar.needs_mark(home.boot.epoch) {
            home.marked.add(self.sidecar.path());
            self.sidecar.mark(home.boot.epoch)?;
        }
        Ok(())
    }

    /// `[start, end)` is about to read as zeros.
    pub(crate) fn zero(
        &mut self,
        home: &Home<'_>,
        start: u64,
        end: u64,
        size: u64,
    ) -> Result<(), Errno> {
        self.sidecar.load(home.objects, home.boot)?;
        if self.sidecar.blocks() > start / BLOCK {
            self.mark(home)?;
        }
        for edge in [start, end] {
            let block = edge / BLOCK;
            if !edge.is_multiple_of(BLOCK) && block * BLOCK < size {
                self.begin(home, edge, 1, size)?;
                self.forget(block, true);
            }
        }
        self.drop_blocks(start.div_ceil(BLOCK), end / BLOCK);
        Ok(())
    }

    /// Drops sums of whole blocks `first..end`: known chunks lose them now, others on disk.
    fn drop_blocks(&mut self, first: u64, end: u64) {
        if first >= end {
            return;
        }
        self.filled.retain(|b, _| !(first..end).contains(b));
        self.recompute.retain(|b| !(first..end).contains(b));
        for (no, c) in self.chunks.range_mut(first / CHUNK..=(end - 1) / CHUNK) {
            for i in span(*no, first, end - 1) {
                c.sums[i] = 0;
                set(&mut c.blind, i, false);
                set(&mut c.dirty, i, true);
            }
        }
        if self.sidecar.free(first, end.min(self.sidecar.blocks())).is_err() {
            self.drop_stored();
        }
    }

    /// Sums on disk cannot be kept up: none is better than a stale one.
    fn drop_stored(&mut self) {
        self.sidecar.reset();
        self.chunks.values_mut().for_each(|c| c.disk = Bits::default());
    }

    /// Takes what has news, before a sync.
    pub(crate) fn take_due(&mut self) -> Due {
        let mut due = Vec::new();
        for (no, c) in &mut self.chunks {
            if !c.is_clean() {
                let mut copy = Chunk::new(c.sums);
                copy.dirty = std::mem::take(&mut c.dirty);
                due.push((*no, copy));
            }
        }
        Due(due)
    }

    /// The sync after [`Sums::take_due`] failed: everything taken is due again.
    pub(crate) fn put_back(&mut self, due: Due) {
        for (no, taken) in due.0 {
            if let Some(c) = self.chunks.get_mut(&no) {
                c.dirty.iter_mut().zip(taken.dirty).for_each(|(d, t)| *d |= t);
            }
        }
    }

    /// The bytes behind `due` are durable: writes their sums, except of blocks changed since.
    pub(crate) fn store(&mut self, home: &Home<'_>, due: Due) {
        for (no, taken) in due.0 {
            if let Err(e) = self.store_chunk(home, no, &taken) {
                tracing::warn!(chunk = no, error = %e, "checksums cannot be stored, dropped");
                self.drop_stored();
                break;
            }
        }
        self.shrink(u64::MAX);
    }

    fn store_chunk(&mut self, home: &Home<'_>, no: u64, taken: &Chunk) -> Result<(), Errno> {
        let Some(c) = self.chunks.get_mut(&no) else { return Ok(()) };
        let due = |c: &Chunk, i: usize| {
            get(&taken.dirty, i)
                && !get(&c.dirty, i)
                && c.sums[i] == taken.sums[i]
                && (c.sums[i] != 0 || get(&c.disk, i))
        };
        let mut i = 0;
        while i < CHUNK as usize {
            let end = (i..CHUNK as usize).find(|j| !due(c, *j)).unwrap_or(CHUNK as usize);
            if end > i {
                for j in i..end {
                    set(&mut c.disk, j, true);
                }
                self.sidecar.write(home.objects, no * CHUNK + i as u64, &c.sums[i..end])?;
            }
            i = end + 1;
        }
        Ok(())
    }

    /// Bounds memory: chunks without news go, but for the one in use.
    fn shrink(&mut self, keep: u64) {
        if self.chunks.len() > CLEAN_CHUNKS_MAX && crowded(1) {
            self.chunks.retain(|no, c| *no == keep || !c.is_clean());
        }
    }
}

fn put(c: &mut Chunk, i: usize, sum: u32) {
    c.sums[i] = sum;
    set(&mut c.dirty, i, true);
    // A sum that is 0 by chance counts as none.
    set(&mut c.blind, i, sum == 0);
}

/// Indexes within chunk `no` of blocks `first..=last`.
fn span(no: u64, first: u64, last: u64) -> std::ops::Range<usize> {
    let base = no * CHUNK;
    first.saturating_sub(base) as usize
        ..(last.saturating_sub(base).saturating_add(1)).min(CHUNK) as usize
}
