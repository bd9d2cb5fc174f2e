//! Reading.
//!
//! Role: what was written here and may not be in the objects yet lies over what the objects hold;
//! short objects are holes. What lies over is looked at before the objects are asked: bytes only
//! ever move from here to there. Never does: read beyond the file's size.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use proto::mds::{Op, Res};
use proto::oss::W_DIRECT;
use proto::{Errno, Layout};

use crate::ahead::{CHUNK, Stream};
use crate::core::Core;
use crate::cut::{self, Want};
use crate::gather::Gather;
use crate::inode::{Inode, Place};
use crate::mdt::own_cred;
use crate::ranges::Cover;

/// What memory says about a read.
enum Local {
    /// All of it.
    Done(usize),
    /// Up to this many bytes, from the objects, with these pieces over them.
    Fetch(usize, Arc<Layout>, Vec<(u64, Bytes)>),
}

impl Core {
    /// Reads at `offset`; fewer bytes only at the end of the file.
    pub(crate) fn read(
        self: &Arc<Core>,
        inode: &Arc<Inode>,
        stream: &Mutex<Stream>,
        offset: u64,
        into: &mut [u8],
        direct: bool,
    ) -> Result<usize, Errno> {
        if into.is_empty() {
            return Ok(0);
        }
        let _io = inode.io.read();
        self.load(inode)?;
        if !self.caching() {
            return self.read_shared(inode, offset, into, direct);
        }
        match look(inode, offset, into)? {
            Local::Done(n) => Ok(n),
            Local::Fetch(n, layout, over) => {
                let into = &mut into[..n];
                if direct || self.options.max_read_ahead_mb == 0 {
                    self.fetch(inode, &layout, offset, into, W_DIRECT * u8::from(direct))?;
                } else {
                    self.fetch_ahead(inode, &layout, stream, offset, into)?;
                }
                lay_over(&over, offset, into);
                Ok(n)
            }
        }
    }

    /// Reads from the objects, in parallel; what they lack is zero. How far the objects reached.
    pub(crate) fn fetch(
        self: &Arc<Core>,
        inode: &Inode,
        layout: &Layout,
        offset: u64,
        into: &mut [u8],
        flags: u8,
    ) -> Result<u64, Errno> {
        let max = u64::from(self.options.max_rpc_bytes.clamp(4096, proto::MAX_BULK));
        let wants = cut::reads(layout, offset, into.len() as u64, max);
        if let [want] = &wants[..]
            && want.parts.len() == 1
        {
            let ost = self.stripe(layout, want.stripe)?;
            let object = layout.object(inode.fid, want.stripe);
            let n = ost.read_into(object, want.object_offset, into, flags)?;
            into[n..].fill(0);
            return Ok(n as u64);
        }
        let gather = Gather::new();
        for want in wants {
            let ticket = gather.ticket();
            let ost = self.stripe(layout, want.stripe)?;
            let object = layout.object(inode.fid, want.stripe);
            let (at, len, permit) = (want.object_offset, want.len as u32, ost.permit());
            ost.read(permit, object, at, len, flags, move |r| ticket.put((want, r)));
        }
        let mut reached = 0;
        for (want, data) in gather.wait() {
            reached = reached.max(scatter(&want, &data?, offset, into));
        }
        Ok(reached)
    }

    /// As `fetch`, through the slots of read-ahead.
    fn fetch_ahead(
        self: &Arc<Core>,
        inode: &Arc<Inode>,
        layout: &Arc<Layout>,
        stream: &Mutex<Stream>,
        offset: u64,
        into: &mut [u8],
    ) -> Result<(), Errno> {
        let end = offset + into.len() as u64;
        let size = inode.st.lock().size;
        let (from, to) = stream.lock().on_read(offset, end, size, layout.count());
        let mut at = offset;
        while at < end {
            let piece = (at / CHUNK * CHUNK + CHUNK).min(end);
            let part = &mut into[(at - offset) as usize..(piece - offset) as usize];
            if self.read_slot(inode, at, part) {
                at = piece;
                continue;
            }
            // No slot here: everything up to the next slot comes at once.
            let mut stop = piece;
            {
                let st = inode.st.lock();
                while stop < end && !st.ahead.has(stop) {
                    stop = (stop + CHUNK).min(end);
                }
            }
            if at == offset {
                self.issue(inode, layout, stream, from, to);
            }
            let part = &mut into[(at - offset) as usize..(stop - offset) as usize];
            self.fetch(inode, layout, at, part, 0)?;
            at = stop;
        }
        self.issue(inode, layout, stream, from, to);
        Ok(())
    }

    /// Copies from a slot, waiting for its bytes; false when there is none.
    fn read_slot(&self, inode: &Inode, at: u64, into: &mut [u8]) -> bool {
        let mut st = inode.st.lock();
        loop {
            match st.ahead.take(at, into) {
                None => return false,
                Some(Some(n)) if n == into.len() => return true,
                Some(Some(_)) => return false,
                Some(None) => inode.landed.wait(&mut st),
            }
        }
    }

    /// Asks for the chunks of `[from, to)` while there is room in the pool and on the wire.
    fn issue(
        self: &Arc<Core>,
        inode: &Arc<Inode>,
        layout: &Arc<Layout>,
        stream: &Mutex<Stream>,
        from: u64,
        to: u64,
    ) {
        let pool = u64::from(self.options.max_read_ahead_mb) << 20;
        let mut chunk = from;
        while chunk < to {
            if self.ahead_bytes.load(std::sync::atomic::Ordering::Relaxed) + CHUNK > pool {
                break;
            }
            if !self.issue_chunk(inode, layout, chunk) {
                break;
            }
            chunk += CHUNK;
        }
        stream.lock().issued(chunk);
    }

    /// Asks for one chunk; false when the wire is full.
    fn issue_chunk(self: &Arc<Core>, inode: &Arc<Inode>, layout: &Arc<Layout>, chunk: u64) -> bool {
        let (number, len) = {
            let mut st = inode.st.lock();
            let len = CHUNK.min(st.size.saturating_sub(chunk));
            let end = chunk + len;
            let over = st.dirty.overlaps(chunk, end)
                || st.flight.overlaps(chunk, end)
                || st.unstable.overlaps(chunk, end);
            if len == 0 || over || st.ahead.has(chunk) {
                return true;
            }
            (st.ahead.reserve(chunk, len, &self.ahead_bytes), len)
        };
        let wants = cut::reads(layout, chunk, len, CHUNK);
        let mut ready = Vec::with_capacity(wants.len());
        for want in wants {
            let ost = self.stripe(layout, want.stripe).ok();
            match ost.and_then(|ost| ost.try_permit().map(|p| (ost, p))) {
                Some((ost, permit)) => ready.push((want, ost, permit)),
                None => {
                    let mut st = inode.st.lock();
                    st.ahead.fill(chunk, number, None);
                    inode.landed.notify_all();
                    return false;
                }
            }
        }
        let filling = Arc::new(Filling {
            inode: inode.clone(),
            chunk,
            number,
            parts: Mutex::new((BytesMut::new(), false, ready.len())),
            len,
        });
        for (want, ost, permit) in ready {
            let object = layout.object(inode.fid, want.stripe);
            let (at, n, filling) = (want.object_offset, want.len as u32, filling.clone());
            ost.read(permit, object, at, n, 0, move |r| filling.came(&want, r));
        }
        true
    }

    /// A read while others may write: the OSTs are asked, and for the end of the file the MDT too.
    fn read_shared(
        self: &Arc<Core>,
        inode: &Arc<Inode>,
        offset: u64,
        into: &mut [u8],
        direct: bool,
    ) -> Result<usize, Errno> {
        let layout = match &inode.st.lock().place {
            Place::Striped(layout) => Some(layout.clone()),
            _ => None,
        };
        let layout = match layout {
            Some(layout) => layout,
            None => match self.mdt.one(&own_cred(), Op::ReadInline { fid: inode.fid })? {
                Res::Inline { attr, data: Some(data), .. } => {
                    return Ok(copy_inline(&data, attr.size, offset, into));
                }
                Res::Inline { attr, data: None, layout: None } => {
                    return Ok(copy_inline(&[], attr.size, offset, into));
                }
                Res::Inline { layout: Some(layout), .. } => Arc::new(layout),
                _ => return Err(Errno::EPROTO),
            },
        };
        let flags = W_DIRECT * u8::from(direct);
        let reached = self.fetch(inode, &layout, offset, into, flags)?;
        if reached == into.len() as u64 {
            return Ok(into.len());
        }
        let size = self.size_now(inode)?;
        Ok(into.len().min(size.saturating_sub(offset).min(into.len() as u64) as usize))
    }
}

/// A chunk of read-ahead whose pieces are coming.
struct Filling {
    inode: Arc<Inode>,
    chunk: u64,
    number: u64,
    len: u64,
    /// Bytes, whether a piece failed, pieces still missing.
    parts: Mutex<(BytesMut, bool, usize)>,
}

impl Filling {
    fn came(&self, want: &Want, data: Result<Bytes, Errno>) {
        let whole = {
            let mut parts = self.parts.lock();
            parts.2 -= 1;
            match data {
                // One object held it all: no copy.
                Ok(data) if data.len() as u64 == self.len && want.parts.len() == 1 => Some(data),
                Ok(data) => {
                    if parts.0.is_empty() {
                        parts.0.resize(self.len as usize, 0);
                    }
                    scatter(want, &data, self.chunk, &mut parts.0);
                    None
                }
                Err(_) => {
                    parts.1 = true;
                    None
                }
            }
            .or_else(|| {
                let done = parts.2 == 0 && !parts.1;
                done.then(|| std::mem::take(&mut parts.0).freeze())
            })
            .map(Some)
            .or_else(|| (parts.2 == 0).then_some(None))
        };
        if let Some(data) = whole {
            self.inode.st.lock().ahead.fill(self.chunk, self.number, data);
            self.inode.landed.notify_all();
        }
    }
}

/// Puts the bytes of a read to their places; returns how far they reach in `into`.
fn scatter(want: &Want, data: &[u8], base: u64, into: &mut [u8]) -> u64 {
    let (mut from, mut reached) = (0usize, 0);
    for (at, len) in &want.parts {
        let (a, n) = ((at - base) as usize, *len as usize);
        let rest = data.get(from..).unwrap_or(&[]);
        let have = rest.len().min(n);
        into[a..a + have].copy_from_slice(&rest[..have]);
        into[a + have..a + n].fill(0);
        if have > 0 {
            reached = reached.max((a + have) as u64);
        }
        from += n;
    }
    reached
}

fn copy_inline(data: &[u8], size: u64, offset: u64, into: &mut [u8]) -> usize {
    let n = size.saturating_sub(offset).min(into.len() as u64) as usize;
    let have = data.get(offset.min(data.len() as u64) as usize..).unwrap_or(&[]);
    let k = have.len().min(n);
    into[..k].copy_from_slice(&have[..k]);
    into[k..n].fill(0);
    n
}

/// Answers from memory, or takes what must lie over the objects' bytes.
fn look(inode: &Inode, offset: u64, into: &mut [u8]) -> Result<Local, Errno> {
    let st = inode.st.lock();
    let n = st.size.saturating_sub(offset).min(into.len() as u64) as usize;
    if n == 0 {
        return Ok(Local::Done(0));
    }
    let layout = match &st.place {
        Place::Unknown => return Err(Errno::EIO),
        Place::Inline(inline) => {
            return Ok(Local::Done(copy_inline(&inline.data, st.size, offset, into)));
        }
        Place::Striped(layout) => layout.clone(),
    };
    let end = offset + n as u64;
    let (unstable, flight, dirty) = (&st.unstable, &st.flight, &st.dirty);
    if unstable.is_empty() && flight.is_empty() && dirty.is_empty() {
        return Ok(Local::Fetch(n, layout, Vec::new()));
    }
    let mut cover = Cover::default();
    unstable.ranges(offset, end, |a, b| cover.add(a, b));
    flight.ranges(offset, end, |a, b| cover.add(a, b));
    dirty.ranges(offset, end, |a, b| cover.add(a, b));
    if cover.covers(offset, end) {
        unstable.copy_to(offset, &mut into[..n]);
        flight.copy_to(offset, &mut into[..n]);
        dirty.copy_to(offset, &mut into[..n]);
        return Ok(Local::Done(n));
    }
    let mut over = Vec::new();
    unstable.snapshot(offset, end, &mut over);
    flight.snapshot(offset, end, &mut over);
    dirty.snapshot(offset, end, &mut over);
    Ok(Local::Fetch(n, layout, over))
}

fn lay_over(over: &[(u64, Bytes)], offset: u64, into: &mut [u8]) {
    for (at, bytes) in over {
        let from = (at - offset) as usize;
        into[from..from + bytes.len()].copy_from_slice(bytes);
    }
}
