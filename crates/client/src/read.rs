//! Reading.
//!
//! Role: what was written here and may not be in the objects yet lies over what the objects hold;
//! short objects are holes. What lies over is looked at before the objects are asked: bytes only
//! ever move from here to there. Never does: read beyond the file's size.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use proto::mds::{Op, Res};
use proto::oss::{R_BEHIND, R_ONCE, W_DIRECT};
use proto::{Errno, Layout};

use crate::ahead::{CHUNK, Stream};
use crate::core::Core;
use crate::cut::{self, Want};
use crate::gather::Gather;
use crate::inode::{Inode, Place};
use crate::mdt::own_cred;
use crate::ranges::Cover;

/// What holes are answered with.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// What memory says about a read.
enum Local {
    /// All of it.
    Done(Vec<Bytes>),
    /// The objects must be asked.
    Fetch(Ask),
}

/// What must come from the objects.
struct Ask {
    len: u64,
    layout: Arc<Layout>,
    /// Pieces that lie over the objects' bytes.
    over: Vec<(u64, Bytes)>,
    /// Size of the file.
    size: u64,
    /// Something was read ahead.
    slots: bool,
}

impl Core {
    /// Reads at `offset`: pieces that follow each other, fewer bytes only at the end of the file.
    pub(crate) fn read(
        self: &Arc<Core>,
        inode: &Arc<Inode>,
        stream: &Mutex<Stream>,
        offset: u64,
        len: u64,
        direct: bool,
    ) -> Result<Vec<Bytes>, Errno> {
        if len == 0 {
            return Ok(Vec::new());
        }
        let _io = inode.io.read();
        self.load(inode)?;
        if !self.caching() {
            return self.read_shared(inode, offset, len, direct);
        }
        let ask = match look(inode, offset, len)? {
            Local::Done(parts) => return Ok(parts),
            Local::Fetch(ask) => ask,
        };
        let local = self.stripe(&ask.layout, 0)?.is_local();
        let flags = match (direct, local) {
            (true, _) => W_DIRECT,
            // The kernel keeps it, in the same memory.
            (false, true) => R_ONCE,
            (false, false) => 0,
        };
        // The kernel reads ahead too, and that is enough where a request costs next to nothing.
        let ahead = (direct || !local) && self.options.max_read_ahead_mb > 0;
        let parts = if ahead {
            self.fetch_ahead(inode, &ask, stream, offset, flags)?
        } else {
            self.fetch(inode, &ask.layout, offset, ask.len, flags)?.0
        };
        Ok(if ask.over.is_empty() { parts } else { lay_over(&ask, offset, &parts) })
    }

    /// Reads from the objects, in parallel; what they lack is zero. Also how far they reached.
    pub(crate) fn fetch(
        self: &Arc<Core>,
        inode: &Inode,
        layout: &Layout,
        offset: u64,
        len: u64,
        flags: u8,
    ) -> Result<(Vec<Bytes>, u64), Errno> {
        let max = u64::from(self.options.max_rpc_bytes.clamp(4096, proto::MAX_BULK));
        let mut wants = cut::reads(layout, offset, len, max);
        let here = match wants.pop() {
            Some(want) if wants.is_empty() || self.stripe(layout, want.stripe)?.is_local() => {
                Some(want)
            }
            other => {
                wants.extend(other);
                None
            }
        };
        let gather = Gather::new();
        for want in wants {
            let ticket = gather.ticket();
            let ost = self.stripe(layout, want.stripe)?;
            let object = layout.object(inode.fid, want.stripe);
            let (at, len, permit) = (want.object_offset, want.len as u32, ost.permit());
            let flags = flags | R_BEHIND;
            ost.read(permit, object, at, len, flags, move |r| ticket.put((want, r)));
        }
        let now = |want: Want| {
            let ost = self.stripe(layout, want.stripe)?;
            let object = layout.object(inode.fid, want.stripe);
            let data = ost.read_now(object, want.object_offset, want.len as u32, flags)?;
            Ok::<_, Errno>((want, data))
        };
        let mut came = Vec::new();
        if let Some(want) = here {
            came.push(now(want));
        }
        for (want, data) in gather.wait() {
            came.push(match data {
                // Damaged on its way.
                Err(Errno::EBADMSG) => now(want),
                other => other.map(|data| (want, data)),
            });
        }
        Ok(assemble(offset, came.into_iter().collect::<Result<_, _>>()?))
    }

    /// As `fetch`, through the slots of read-ahead.
    fn fetch_ahead(
        self: &Arc<Core>,
        inode: &Arc<Inode>,
        ask: &Ask,
        stream: &Mutex<Stream>,
        offset: u64,
        flags: u8,
    ) -> Result<Vec<Bytes>, Errno> {
        let (layout, end) = (&ask.layout, offset + ask.len);
        let direct = flags & W_DIRECT != 0;
        let (strays, window) = {
            let mut stream = stream.lock();
            let strays = stream.strays((offset, end), direct);
            (strays, stream.on_read((offset, end), ask.size, layout.count(), direct))
        };
        if let Some((from, to)) = strays {
            inode.st.lock().ahead.invalidate(from, to);
        }
        if window.0 == window.1 && !ask.slots {
            return Ok(self.fetch(inode, layout, offset, ask.len, flags)?.0);
        }
        self.issue(inode, layout, stream, window, flags);
        let mut parts = Vec::new();
        let mut at = offset;
        while at < end {
            let piece = (at / CHUNK * CHUNK + CHUNK).min(end);
            if let Some(data) = take_slot(inode, at, piece - at) {
                at += data.len() as u64;
                parts.push(data);
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
            parts.extend(self.fetch(inode, layout, at, stop - at, flags)?.0);
            at = stop;
        }
        Ok(parts)
    }

    /// Asks for the chunks of `[from, to)` while there is room in the pool and on the wire.
    fn issue(
        self: &Arc<Core>,
        inode: &Arc<Inode>,
        layout: &Arc<Layout>,
        stream: &Mutex<Stream>,
        (from, to): (u64, u64),
        flags: u8,
    ) {
        let pool = u64::from(self.options.max_read_ahead_mb) << 20;
        let mut chunk = from;
        while chunk < to {
            if self.ahead_bytes.load(std::sync::atomic::Ordering::Relaxed) + CHUNK > pool {
                break;
            }
            if !self.issue_chunk(inode, layout, chunk, flags) {
                break;
            }
            chunk += CHUNK;
        }
        stream.lock().issued(chunk);
    }

    /// Asks for one chunk; false when the wire is full.
    fn issue_chunk(
        self: &Arc<Core>,
        inode: &Arc<Inode>,
        layout: &Arc<Layout>,
        chunk: u64,
        flags: u8,
    ) -> bool {
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
            ost.read(permit, object, at, n, flags | R_BEHIND, move |r| filling.came(&want, r));
        }
        true
    }

    /// A read while others may write: the OSTs are asked, and for the end of the file the MDT too.
    fn read_shared(
        self: &Arc<Core>,
        inode: &Arc<Inode>,
        offset: u64,
        len: u64,
        direct: bool,
    ) -> Result<Vec<Bytes>, Errno> {
        let layout = match &inode.st.lock().place {
            Place::Striped(layout) => Some(layout.clone()),
            _ => None,
        };
        let layout = match layout {
            Some(layout) => layout,
            None => match self.mdt.one(&own_cred(), Op::ReadInline { fid: inode.fid })? {
                Res::Inline { attr, data: Some(data), .. } => {
                    return Ok(from_inline(&data, attr.size, offset, len));
                }
                Res::Inline { attr, data: None, layout: None } => {
                    return Ok(from_inline(&[], attr.size, offset, len));
                }
                Res::Inline { layout: Some(layout), .. } => Arc::new(layout),
                _ => return Err(Errno::EPROTO),
            },
        };
        let flags = W_DIRECT * u8::from(direct);
        let (mut parts, reached) = self.fetch(inode, &layout, offset, len, flags)?;
        if reached < len {
            let size = self.size_now(inode)?;
            cut_off(&mut parts, size.saturating_sub(offset));
        }
        Ok(parts)
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

/// Puts the answers to reads in the order of the file; how far the last byte that came lies from
/// `offset`.
fn assemble(offset: u64, came: Vec<(Want, Bytes)>) -> (Vec<Bytes>, u64) {
    let mut pieces = Vec::with_capacity(came.len());
    for (want, data) in came {
        let mut from = 0;
        for (at, len) in want.parts {
            let to = (from + len as usize).min(data.len());
            pieces.push((at, len, data.slice(from.min(to)..to)));
            from += len as usize;
        }
    }
    pieces.sort_unstable_by_key(|(at, ..)| *at);
    let (mut parts, mut reached) = (Vec::with_capacity(pieces.len()), 0);
    for (at, len, bytes) in pieces {
        let mut hole = len as usize - bytes.len();
        if !bytes.is_empty() {
            reached = at + bytes.len() as u64 - offset;
            parts.push(bytes);
        }
        while hole > 0 {
            let zeros = &ZEROS[..hole.min(ZEROS.len())];
            parts.push(Bytes::from_static(zeros));
            hole -= zeros.len();
        }
    }
    (parts, reached)
}

/// Cuts pieces to `len` bytes.
fn cut_off(parts: &mut Vec<Bytes>, mut len: u64) {
    for part in parts.iter_mut() {
        part.truncate(len.min(part.len() as u64) as usize);
        len -= part.len() as u64;
    }
    parts.retain(|p| !p.is_empty());
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

/// Puts the bytes of a read to their places in `into`, which begins at `base` and holds zeros.
fn scatter(want: &Want, data: &[u8], base: u64, into: &mut [u8]) {
    let mut from = 0usize;
    for (at, len) in &want.parts {
        let (a, n) = ((at - base) as usize, *len as usize);
        let rest = data.get(from..).unwrap_or(&[]);
        let have = rest.len().min(n);
        into[a..a + have].copy_from_slice(&rest[..have]);
        from += n;
    }
}

fn from_inline(data: &[u8], size: u64, offset: u64, len: u64) -> Vec<Bytes> {
    let n = size.saturating_sub(offset).min(len) as usize;
    let have = data.get(offset.min(data.len() as u64) as usize..).unwrap_or(&[]);
    let mut bytes = Vec::with_capacity(n);
    bytes.extend_from_slice(&have[..have.len().min(n)]);
    bytes.resize(n, 0);
    vec![bytes.into()]
}

/// Answers from memory, or says what must come from the objects.
fn look(inode: &Inode, offset: u64, len: u64) -> Result<Local, Errno> {
    let st = inode.st.lock();
    let len = st.size.saturating_sub(offset).min(len);
    if len == 0 {
        return Ok(Local::Done(Vec::new()));
    }
    let layout = match &st.place {
        Place::Unknown => return Err(Errno::EIO),
        Place::Inline(inline) => {
            return Ok(Local::Done(from_inline(&inline.data, st.size, offset, len)));
        }
        Place::Striped(layout) => layout.clone(),
    };
    let (unstable, flight, dirty) = (&st.unstable, &st.flight, &st.dirty);
    let (size, slots) = (st.size, !st.ahead.is_empty());
    let mut ask = Ask { len, layout, over: Vec::new(), size, slots };
    if unstable.is_empty() && flight.is_empty() && dirty.is_empty() {
        return Ok(Local::Fetch(ask));
    }
    let end = offset + len;
    let mut cover = Cover::default();
    unstable.ranges(offset, end, |a, b| cover.add(a, b));
    flight.ranges(offset, end, |a, b| cover.add(a, b));
    dirty.ranges(offset, end, |a, b| cover.add(a, b));
    if cover.covers(offset, end) {
        let mut bytes = vec![0; len as usize];
        unstable.copy_to(offset, &mut bytes);
        flight.copy_to(offset, &mut bytes);
        dirty.copy_to(offset, &mut bytes);
        return Ok(Local::Done(vec![bytes.into()]));
    }
    unstable.snapshot(offset, end, &mut ask.over);
    flight.snapshot(offset, end, &mut ask.over);
    dirty.snapshot(offset, end, &mut ask.over);
    Ok(Local::Fetch(ask))
}

fn lay_over(ask: &Ask, offset: u64, parts: &[Bytes]) -> Vec<Bytes> {
    let mut whole = parts.concat();
    for (at, bytes) in &ask.over {
        let from = (at - offset) as usize;
        whole[from..from + bytes.len()].copy_from_slice(bytes);
    }
    vec![whole.into()]
}
