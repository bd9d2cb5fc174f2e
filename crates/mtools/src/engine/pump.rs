//! Reads and writes a range of data, in the way that is fastest for this pair of files.

use super::ahead::Reads;
use super::buffers::Buffer;
use super::direct::{ALIGN, DIRECT_MIN};
use super::range::{Range, Reached, retry};
use super::trial::Trial;
use super::{Fault, Switch, cached};
use rustix::fs::{Advice, fadvise};
use std::fs::File;
use std::num::NonZeroU64;
use std::os::unix::fs::FileExt;
use std::time::Instant;

/// Ranges shorter than this are read and written in turn.
pub const AHEAD_MIN: u64 = 2 << 20;
/// Bytes between two looks at how it is best done.
const PIECE: u64 = 8 << 20;
/// Bytes of a block where the source is in memory: it must not fall out of the processor's cache between
/// being read and being written.
const WARM_BLOCK: usize = 256 << 10;

/// How a piece is copied.
#[derive(Clone, Copy)]
struct Way {
    direct_read: bool,
    direct_write: bool,
    ahead: bool,
    block: usize,
    /// The source is in memory.
    warm: bool,
}

/// Copies data up to `end`, or as much as there is.
pub fn copy(range: &Range<'_>, end: u64, reached: &mut Reached) -> Result<(), Fault> {
    let pair = &range.plan.pair;
    while reached.at < end && !reached.ended && !range.stopped() {
        let (from, left) = (reached.at, end - reached.at);
        let open = left > PIECE && (pair.direct_read.open() || pair.direct_write.open());
        let mut way = choose(range, from, left);
        piece(range, &mut way, if open { from + PIECE } else { end }, reached)?;
        if range.plan.len() >= DIRECT_MIN {
            learn(range, &way, reached.at - from);
        }
    }
    Ok(())
}

/// One question after the other: first how to read, then how to write.
fn learn(range: &Range<'_>, way: &Way, bytes: u64) {
    let (set, pair, now) = (range.engine.settings(), &range.plan.pair, Instant::now());
    let reads = set.direct_read == Switch::Auto && !way.warm;
    if reads {
        pair.direct_read.moved(bytes, now);
    }
    let writes = set.direct_write == Switch::Auto && !pair.to_memory;
    if writes && (!reads || pair.direct_read.settled()) {
        pair.direct_write.moved(bytes, now);
    }
}

/// How the next bytes are copied best.
fn choose(range: &Range<'_>, at: u64, left: u64) -> Way {
    let (set, plan) = (range.engine.settings(), range.plan);
    let cached = || cached::mostly(&range.data.src, at, left.min(PIECE));
    let warm = left >= AHEAD_MIN && (plan.pair.from_memory || cached());
    let direct = |wish: Switch, trial: &Trial, useful: bool| match wish {
        Switch::On => at.is_multiple_of(ALIGN),
        Switch::Off => false,
        Switch::Auto => {
            useful && plan.len() >= DIRECT_MIN && at.is_multiple_of(ALIGN) && trial.direct()
        }
    };
    let read = direct(set.direct_read, &plan.pair.direct_read, !warm);
    let write = direct(set.direct_write, &plan.pair.direct_write, !plan.pair.to_memory);
    let ahead = match set.double_buffer {
        Switch::On => true,
        Switch::Off => false,
        Switch::Auto => left >= AHEAD_MIN && !warm,
    };
    let block = if warm && !write { set.buffer_size.min(WARM_BLOCK) } else { set.buffer_size };
    Way { direct_read: read, direct_write: write, ahead, block, warm }
}

/// Copies up to `end` in one way; what cannot be done directly is done through the page cache.
fn piece(range: &Range<'_>, way: &mut Way, end: u64, reached: &mut Reached) -> Result<(), Fault> {
    let (data, plan) = (range.data, range.plan);
    let direct = if way.direct_read { plan.direct_src.of(&data.src, false) } else { None };
    let sink = if way.direct_write { plan.direct_dst.of(&data.dst, true) } else { None };
    if way.direct_read && direct.is_none() {
        plan.pair.direct_read.never();
    }
    if way.direct_write && sink.is_none() {
        plan.pair.direct_write.never();
    }
    let buffers = range.engine.buffers();
    let mut reads = Reads::new(direct.unwrap_or(&data.src), way.ahead);
    let want = |at: u64| (end - at).min(way.block as u64) as usize;
    // Whole blocks are asked for; what is more than wanted is left.
    let asked =
        |at: u64| want(at).next_multiple_of(if direct.is_some() { ALIGN as usize } else { 1 });
    reads.ask(buffers.take().map_err(Fault::Read)?, asked(reached.at), reached.at);
    let mut spare: Option<Buffer<'_>> = None;
    loop {
        let at = reached.at;
        let (buffer, got) = match reads.fetch() {
            Ok(fetched) => fetched,
            Err(_) if direct.is_some() => {
                // The page cache may do what the disk refuses.
                plan.pair.direct_read.never();
                drop(reads);
                way.direct_read = false;
                return piece(range, way, end, reached);
            }
            Err(e) => return Err(Fault::Read(e)),
        };
        let got = got.min(want(at));
        reached.ended = got == 0;
        let next = at + got as u64;
        let more = got > 0 && next < end && !range.stopped();
        // A read that ended between blocks goes on through the page cache.
        let astray = direct.is_some() && !next.is_multiple_of(ALIGN);
        let flies = more && !astray && reads.flies();
        if flies {
            let other = spare.take().map_or_else(|| buffers.take(), Ok).map_err(Fault::Read)?;
            reads.ask(other, asked(next), next);
        }
        write(range, sink, &buffer[..got], reached)?;
        settle(range, at, next);
        if !more {
            return Ok(());
        }
        if astray {
            way.direct_read = false;
            drop(reads);
            drop(buffer);
            return piece(range, way, end, reached);
        }
        if flies {
            spare = Some(buffer);
        } else {
            reads.ask(buffer, asked(next), next);
        }
    }
}

/// Writes past the page cache what can be, the rest through it.
fn write(
    range: &Range<'_>,
    sink: Option<&File>,
    bytes: &[u8],
    reached: &mut Reached,
) -> Result<(), Fault> {
    let whole = bytes.len() / ALIGN as usize * ALIGN as usize;
    let aligned = reached.at.is_multiple_of(ALIGN) && range.plan.zeros == 0;
    let Some(sink) = sink.filter(|_| aligned && whole > 0) else {
        return range.write(bytes, reached);
    };
    let n = match retry(|| sink.write_at(&bytes[..whole], reached.at)) {
        Ok(n) => n,
        Err(_) => {
            // A disk that is full, or one that refuses: the plain write will tell.
            range.plan.pair.direct_write.never();
            0
        }
    };
    reached.at += n as u64;
    reached.moved += n as u64;
    range.engine.count(n);
    reached.written = reached.written.max(reached.at);
    range.write(&bytes[n..], reached)
}

/// What the settings say about the page cache once a block is copied.
fn settle(range: &Range<'_>, from: u64, to: u64) {
    let (set, data) = (range.engine.settings(), range.data);
    let Some(length) = NonZeroU64::new(to - from) else { return };
    // Advice: what it is worth is up to the kernel.
    if set.fadvise_read == Switch::On {
        let _ = fadvise(&data.src, from, Some(length), Advice::DontNeed);
    }
    if set.fadvise_write == Switch::On {
        // Only what is on its way to the disk is dropped, so that the block before this one goes now.
        write_out(&data.dst, from, length.get());
        let _ =
            fadvise(&data.dst, from.saturating_sub(length.get()), Some(length), Advice::DontNeed);
    }
}

fn write_out(file: &File, at: u64, length: u64) {
    use std::os::fd::AsRawFd;
    let how = libc::SYNC_FILE_RANGE_WRITE;
    // SAFETY: no memory is involved.
    let _ = unsafe { libc::sync_file_range(file.as_raw_fd(), at as i64, length as i64, how) };
}
