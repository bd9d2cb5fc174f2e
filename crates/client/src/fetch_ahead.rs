//! Reading through the slots of read-ahead.
//!
//! Role: asks the OSTs for what a reader will want next, as far as the pool and the wire have room, and
//! hands out what came. To be called only while the file is known ([`Core::knows`]): a call-back drops
//! the slots. Never does: decide what may be believed.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use parking_lot::Mutex;
use proto::oss::{R_BEHIND, R_ONCE, W_DIRECT};
use proto::{Errno, Layout};

use crate::ahead::{CHUNK, Stream};
use crate::core::Core;
use crate::cut::{self, Want};
use crate::filling::{Filling, Reserved};
use crate::inode::Inode;
use crate::read::Ask;
use crate::stride::Blocks;

/// Blocks from this length on are read by an OST's own threads, bytes.
const LONG_BLOCK: u64 = 256 << 10;

/// How far behind a reader in a stride what it left out is dropped, bytes.
const PASSED: u64 = 8 << 20;

impl Core {
    /// As `fetch`, through the slots of read-ahead.
    pub(crate) fn fetch_ahead(
        self: &Arc<Core>,
        inode: &Arc<Inode>,
        ask: &Ask,
        stream: &Mutex<Stream>,
        offset: u64,
        flags: u8,
    ) -> Result<Vec<Bytes>, Errno> {
        let (layout, end) = (&ask.layout, offset + ask.len);
        let direct = flags & W_DIRECT != 0;
        let (strays, blocks, window) = {
            let mut stream = stream.lock();
            let mut strays = [stream.stride.strays(offset), stream.strays((offset, end), direct)];
            let blocks = stream.stride.on_read((offset, end)).filter(|_| !direct);
            if blocks.is_some_and(|b| b.count > 0) {
                // Chunks from before the stride was known are never read to their end.
                let behind = offset.saturating_sub(CHUNK);
                strays[1] = Some((behind.saturating_sub(PASSED), behind));
            }
            let window = match blocks {
                Some(_) => (0, 0),
                None => stream.on_read((offset, end), ask.size, layout.count(), direct),
            };
            (strays, blocks, window)
        };
        for (from, to) in strays.into_iter().flatten() {
            inode.st.lock().ahead.invalidate(from, to);
        }
        match blocks {
            Some(blocks) => self.issue_blocks(inode, layout, stream, blocks, flags),
            None if window.0 == window.1 && !ask.slots => {
                return Ok(self.fetch(inode, layout, offset, ask.len, flags)?.0);
            }
            None => self.issue(inode, layout, stream, window, flags),
        }
        let mut parts = Vec::new();
        let mut at = offset;
        while at < end {
            let piece = (at / CHUNK * CHUNK + CHUNK).min(end);
            let begun = Instant::now();
            if let Some(data) = take_slot(inode, at, piece - at) {
                at += data.len() as u64;
                parts.push(data);
                continue;
            }
            if self.waited_in_vain(begun) {
                return Err(Errno::EIO);
            }
            // No slot here: everything up to the next slot comes at once.
            let mut stop = piece;
            {
                let st = inode.st.lock();
                while stop < end && !st.ahead.has(stop) {
                    stop = (stop + CHUNK).min(end);
                }
            }
            parts.extend(self.fetch(inode, layout, at, stop - at, flags)?.0);
            at = stop;
        }
        Ok(parts)
    }

    /// Asks for the chunks of `[from, to)` while there is room in the pool and on the wire: one
    /// message for what follows each other in an object.
    fn issue(
        self: &Arc<Core>,
        inode: &Arc<Inode>,
        layout: &Arc<Layout>,
        stream: &Mutex<Stream>,
        (from, to): (u64, u64),
        flags: u8,
    ) {
        let mut at = from;
        while at < to {
            let run = self.reserve_slots(inode, at, to, CHUNK);
            let Some(last) = run.last() else { break };
            let end = last.chunk + last.len;
            let lacking = if run.iter().any(|slot| slot.number.is_some()) {
                self.issue_run(inode, layout, run, flags)
            } else {
                None
            };
            at = end.next_multiple_of(CHUNK);
            if let Some(lacking) = lacking {
                at = lacking;
                break;
            }
        }
        stream.lock().issued(at);
    }

    /// Reserves slots of `size` bytes from `at` on, at most to `to`: as many as follow each other, or (none of them
    /// reserved) those that are not to be asked for.
    fn reserve_slots(&self, inode: &Inode, at: u64, to: u64, size: u64) -> Vec<Reserved> {
        let pool = u64::from(self.options.max_read_ahead_mb) << 20;
        let mut st = inode.st.lock();
        let st = &mut *st;
        let mut run: Vec<Reserved> = Vec::new();
        for chunk in (at..to).step_by(size as usize) {
            let len = size.min(st.size.saturating_sub(chunk));
            let end = chunk + len;
            let over = st.dirty.overlaps(chunk, end)
                || st.flight.overlaps(chunk, end)
                || st.unstable.overlaps(chunk, end);
            let there = over || st.ahead.has(chunk);
            let mixed = run.last().is_some_and(|slot| slot.number.is_some() == there);
            if len == 0 || mixed {
                break;
            }
            let full = self.ahead_bytes.load(std::sync::atomic::Ordering::Relaxed) + CHUNK > pool;
            if !there && full {
                break;
            }
            let number = (!there).then(|| st.ahead.reserve(chunk, len, &self.ahead_bytes));
            run.push(Reserved { chunk, number, len });
        }
        run
    }

    /// Asks for blocks while there is room in the pool and on the wire.
    fn issue_blocks(
        self: &Arc<Core>,
        inode: &Arc<Inode>,
        layout: &Arc<Layout>,
        stream: &Mutex<Stream>,
        blocks: Blocks,
        flags: u8,
    ) {
        let mut issued = 0;
        for number in 0..blocks.count {
            let (from, to) = blocks.range(number);
            // What an OST has in memory comes fastest where the message arrives. Long ones it need not keep: what one reader in
            // a stride leaves out is for others.
            let flags = if to - from < LONG_BLOCK { flags } else { flags | R_BEHIND | R_ONCE };
            let slot = self.reserve_slots(inode, from, to, to - from);
            let Some(slot) = slot.first().copied() else { break };
            if slot.number.is_some() {
                let wants = cut::reads(layout, slot.chunk, slot.len, CHUNK);
                let filling = Filling::block(inode.clone(), slot, &wants);
                if self.issue_wants(inode, layout, wants, filling, flags).is_some() {
                    break;
                }
            }
            issued = number + 1;
        }
        stream.lock().stride.issued(blocks.at(issued));
    }

    /// Asks for reserved chunks that follow each other; where the wire was full, if it was.
    fn issue_run(
        self: &Arc<Core>,
        inode: &Arc<Inode>,
        layout: &Arc<Layout>,
        run: Vec<Reserved>,
        flags: u8,
    ) -> Option<u64> {
        let (from, last) = (run.first()?.chunk, run.last()?);
        let max = u64::from(self.options.max_rpc_bytes.clamp(4096, proto::MAX_BULK)).max(CHUNK);
        let wants = cut::reads(layout, from, last.chunk + last.len - from, max);
        let filling = Filling::new(inode.clone(), run, &wants);
        self.issue_wants(inode, layout, wants, filling, flags | R_BEHIND)
    }

    /// Sends what there is room for on the wire; the first chunk that is lacking.
    fn issue_wants(
        self: &Arc<Core>,
        inode: &Arc<Inode>,
        layout: &Arc<Layout>,
        wants: Vec<Want>,
        filling: Filling,
        flags: u8,
    ) -> Option<u64> {
        let filling = Arc::new(filling);
        let mut lacking = None;
        for want in wants {
            let ost = self.stripe(layout, want.stripe).ok();
            let Some((ost, permit)) = ost.and_then(|ost| ost.try_permit().map(|p| (ost, p))) else {
                let at = want.parts.iter().map(|(at, _)| *at / CHUNK * CHUNK).min();
                lacking = lacking.into_iter().chain(at).min();
                filling.came(&want, Err(Errno::EAGAIN));
                continue;
            };
            let object = layout.object(inode.fid, want.stripe);
            let (at, n, filling) = (want.object_offset, want.len as u32, filling.clone());
            ost.read(permit, object, at, n, flags, move |r| filling.came(&want, r));
        }
        lacking
    }
}

/// Bytes of a slot, waiting for them; None when there is none.
fn take_slot(inode: &Inode, at: u64, len: u64) -> Option<Bytes> {
    let mut st = inode.st.lock();
    loop {
        match st.ahead.take(at, len)? {
            None => inode.landed.wait(&mut st),
            there => return there,
        }
    }
}
