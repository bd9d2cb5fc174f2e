//! Reading.
//!
//! Role: what was written here and may not be in the objects yet lies over what the objects hold;
//! short objects are holes. What lies over is looked at before the objects are asked: bytes only
//! ever move from here to there. Never does: read beyond the file's size.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::Mutex;
use proto::mds::{LS_READ, O_WRITE, Op, Res};
use proto::oss::{R_BEHIND, R_ONCE, W_DIRECT};
use proto::{Errno, Layout};

use crate::ahead::Stream;
use crate::core::Core;
use crate::cut::{self, Want};
use crate::gather::Gather;
use crate::inode::{Inode, Place, State};
use crate::mdt::own_cred;
use crate::ranges::{Cover, RangeMap};
use crate::types::Offer;

/// Reads of a file that others may write after which its reader asks for a lease again, first and at the
/// latest.
const ASK_FROM: u32 = 4;
const ASK_EVERY: u32 = 1024;

/// After a read that failed what the kernel asks for once more comes within this.
const ASKED_AGAIN_WITHIN: Duration = Duration::from_millis(100);

/// What holes are answered with.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// What memory says about a read.
enum Local {
    /// All of it.
    Done(Vec<Bytes>),
    /// The objects must be asked.
    Fetch(Ask),
    /// Others may be changing it: all must be asked.
    Shared,
    /// The same, but the servers lack what was written here while it was this client's alone.
    Untold,
}

/// What must come from the objects.
pub(crate) struct Ask {
    pub(crate) len: u64,
    pub(crate) layout: Arc<Layout>,
    /// Pieces that lie over the objects' bytes.
    over: Vec<(u64, Bytes)>,
    /// Size of the file.
    pub(crate) size: u64,
    /// Something was read ahead.
    pub(crate) slots: bool,
}

impl Core {
    /// Reads at `offset`: pieces that follow each other, fewer bytes only at the end of the file. What comes in one piece
    /// from an object of this process may lie in the place that is offered.
    pub(crate) fn read(
        self: &Arc<Core>,
        inode: &Arc<Inode>,
        stream: &Mutex<Stream>,
        (offset, len): (u64, u64),
        direct: bool,
        offer: Offer<'_>,
    ) -> Result<Vec<Bytes>, Errno> {
        if len == 0 {
            return Ok(Vec::new());
        }
        let _io = inode.io.read();
        let begun = Instant::now();
        let outcome = self.read_from(inode, stream, (offset, len), direct, offer);
        if outcome.is_err() && self.waited_in_vain(begun) {
            inode.st.lock().gave_up = Some(Instant::now());
        }
        outcome
    }

    /// As `read`, of more than nothing; holds `io` shared.
    fn read_from(
        self: &Arc<Core>,
        inode: &Arc<Inode>,
        stream: &Mutex<Stream>,
        (offset, len): (u64, u64),
        direct: bool,
        offer: Offer<'_>,
    ) -> Result<Vec<Bytes>, Errno> {
        let ask = loop {
            self.roam(inode)?;
            self.load_to_read(inode)?;
            self.options.pauses.point();
            let local = self.look(inode, offset, len)?;
            if !matches!(local, Local::Done(_)) && self.gave_up(inode) {
                return Err(Errno::EIO);
            }
            match local {
                Local::Done(parts) => return Ok(parts),
                Local::Fetch(ask) => break ask,
                Local::Untold => {}
                Local::Shared => {
                    if self.asks_to_believe(inode) {
                        self.load_now(inode)?;
                        continue;
                    }
                    if let Some(parts) = self.read_shared(inode, offset, len, direct)? {
                        return Ok(parts);
                    }
                }
            }
        };
        let local = self.stripe(&ask.layout, 0)?.is_local();
        let flags = match (direct, local) {
            (true, _) => W_DIRECT,
            // The kernel keeps it, in the same memory.
            (false, true) if self.caching() => R_ONCE,
            (false, _) => 0,
        };
        // The kernel reads ahead too, and that is enough where a request costs next to nothing.
        let ahead = (direct || !local) && self.options.max_read_ahead_mb > 0;
        let parts = if ahead {
            self.fetch_ahead(inode, &ask, stream, offset, flags)?
        } else {
            self.fetch_to(inode, &ask.layout, (offset, ask.len), flags, offer)?.0
        };
        Ok(if ask.over.is_empty() { parts } else { lay_over(&ask, offset, &parts) })
    }

    /// Whether what failed now was waited for since `begun` because an OST is lost. What failed sooner says nothing of how
    /// long that has been away.
    pub(crate) fn waited_in_vain(&self, begun: Instant) -> bool {
        begun.elapsed() >= self.options.request_timeout / 2 && self.lacks_osts()
    }

    /// Whether a read of this file has waited for a lost OST just now, in vain. A kernel that reads ahead asks up to three
    /// times for what it cannot have before it tells who reads: that waits once.
    fn gave_up(&self, inode: &Inode) -> bool {
        let gave_up = inode.st.lock().gave_up;
        gave_up.is_some_and(|at| at.elapsed() < ASKED_AGAIN_WITHIN) && self.lacks_osts()
    }

    /// Whether to ask once more for the right to believe what is read: those who wrote when this file was
    /// opened may have closed it since. Ever more rarely, as long as they have not.
    fn asks_to_believe(&self, inode: &Inode) -> bool {
        let mut st = inode.st.lock();
        let writes = st.handles.iter().any(|(_, flags)| flags & O_WRITE != 0);
        if writes || !self.leases.on() || !matches!(st.place, Place::Striped(_)) {
            return false;
        }
        st.direct_reads += 1;
        let n = st.direct_reads;
        (n >= ASK_FROM && n.is_power_of_two()) || n.is_multiple_of(ASK_EVERY)
    }

    /// What memory says, as far as it may be believed.
    fn look(&self, inode: &Inode, offset: u64, len: u64) -> Result<Local, Errno> {
        let st = inode.st.lock();
        // Each asked once: a call-back may come between, and is answered only after this lock.
        let (knows, owns) = (self.knows(&st), self.owns(&st));
        // Among others what was written from here may be older than what the objects hold; of what
        // is this client's alone, only what they have taken may be, and not even that if nobody else
        // could write since (invariant 3).
        let behind = || !(st.unstable.is_empty() && st.flight.is_empty() && st.dirty.is_empty());
        match knows && (owns || !behind()) {
            true => {
                let since = || self.leases.fresh(st.attr.fid, LS_READ, st.taken_at);
                look(&st, offset, len, self.caching() || (owns && since()))
            }
            false if st.is_untold() => Ok(Local::Untold),
            false => Ok(Local::Shared),
        }
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
        self.fetch_to(inode, layout, (offset, len), flags, &|| None)
    }

    /// As `fetch`; one piece from this process may lie in the place that is offered.
    fn fetch_to(
        self: &Arc<Core>,
        inode: &Inode,
        layout: &Layout,
        (offset, len): (u64, u64),
        flags: u8,
        offer: Offer<'_>,
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
        let (gather, alone) = (Gather::new(), wants.is_empty());
        for want in wants {
            let ticket = gather.ticket();
            let ost = self.stripe(layout, want.stripe)?;
            let object = layout.object(inode.fid, want.stripe);
            let (at, len, permit) = (want.object_offset, want.len as u32, ost.permit());
            let flags = flags | R_BEHIND;
            gather.asks(&ost.session);
            ost.read(permit, object, at, len, flags, move |r| ticket.put((want, r)));
        }
        let now = |want: Want| {
            let offer: Offer<'_> = if alone { offer } else { &|| None };
            let ost = self.stripe(layout, want.stripe)?;
            let object = layout.object(inode.fid, want.stripe);
            let range = (want.object_offset, want.len as u32);
            let data = ost.read_now(object, range, flags, offer)?;
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

    /// A read while others may write: the OSTs are asked, and for the end of the file the MDT too.
    /// None: it has become this client's alone.
    fn read_shared(
        self: &Arc<Core>,
        inode: &Arc<Inode>,
        offset: u64,
        len: u64,
        direct: bool,
    ) -> Result<Option<Vec<Bytes>>, Errno> {
        let layout = match &inode.st.lock().place {
            Place::Striped(layout) => Some(layout.clone()),
            _ => None,
        };
        let layout = match layout {
            Some(layout) => layout,
            None => match self.mdt.one(&own_cred(), Op::ReadInline { fid: inode.fid })? {
                Res::Inline { attr, data: Some(data), .. } => {
                    return Ok(Some(from_inline(&data, attr.size, offset, len)));
                }
                Res::Inline { attr, data: None, layout: None } => {
                    return Ok(Some(from_inline(&[], attr.size, offset, len)));
                }
                Res::Inline { layout: Some(layout), .. } => Arc::new(layout),
                _ => return Err(Errno::EPROTO),
            },
        };
        let flags = W_DIRECT * u8::from(direct);
        let (mut parts, reached) = self.fetch(inode, &layout, offset, len, flags)?;
        if reached < len {
            let end = self.read_end(inode, &layout, (offset, len), reached, flags)?;
            let Some((end, more)) = end else { return Ok(None) };
            cut_off(&mut parts, end.min(reached));
            parts.extend(more);
        }
        Ok(Some(parts))
    }

    /// Of a read while others may write the objects had bytes only up to `reached`: what lies behind
    /// is a hole, or beyond the end, or was written since they were asked. Where the file ends, and
    /// what lies behind; None: it has become this client's alone.
    fn read_end(
        self: &Arc<Core>,
        inode: &Arc<Inode>,
        layout: &Layout,
        (offset, len): (u64, u64),
        reached: u64,
        flags: u8,
    ) -> Result<Option<(u64, Vec<Bytes>)>, Errno> {
        let Some(size) = self.size_there(inode, layout)? else { return Ok(None) };
        let end = size.saturating_sub(offset).min(len);
        if end <= reached {
            return Ok(Some((end, Vec::new())));
        }
        // All that is up to this end was there before they are asked again.
        let (mut more, came) = self.fetch(inode, layout, offset + reached, end - reached, flags)?;
        if reached + came < end {
            // Unless it was cut off meanwhile, a hole.
            let Some(size) = self.size_there(inode, layout)? else { return Ok(None) };
            cut_off(&mut more, size.saturating_sub(offset + reached).max(came));
        }
        Ok(Some((end, more)))
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

fn from_inline(data: &[u8], size: u64, offset: u64, len: u64) -> Vec<Bytes> {
    let n = size.saturating_sub(offset).min(len) as usize;
    let have = data.get(offset.min(data.len() as u64) as usize..).unwrap_or(&[]);
    let mut bytes = Vec::with_capacity(n);
    bytes.extend_from_slice(&have[..have.len().min(n)]);
    bytes.resize(n, 0);
    vec![bytes.into()]
}

/// What memory says, or what must come from the objects; `taken`: also bytes that OSTs have taken and not committed.
fn look(st: &State, offset: u64, len: u64, taken: bool) -> Result<Local, Errno> {
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
    let none = RangeMap::default();
    let unstable = if taken { &st.unstable } else { &none };
    let (flight, dirty) = (&st.flight, &st.dirty);
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
