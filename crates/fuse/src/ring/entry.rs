//! One entry of a ring: memory that carries one request to us and its answer back, over and over.
//!
//! A page of headers lies before the page-aligned payload. The kernel writes only while a submission of the entry is with
//! it, and it copies in the context of the thread that submitted. Between a completion and the next submission the memory
//! is ours: the thread that got the request copies it out, and whoever claims the answer, once, puts it here. The handler
//! has nothing of the entry's, so where a caller is killed the entry is answered, and carries other requests, while the
//! handler goes on; unless the handler asked for the payload to have an answer put there, as a [`Landing`].

use super::hub::Hub;
use crate::abi::{InHeader, OutHeader, ReadIn, RingEntInOut, WriteIn, op};
use crate::buf::{AlignedBuf, HUGE};
use crate::channel::Shared;
use crate::parse::{Malformed, Parsed};
use std::io;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use zerocopy::{FromBytes, FromZeros, IntoBytes};

const PAGE: usize = 4096;
/// Places within the page of headers: struct fuse_uring_req_header, then what is our own.
const IN_OUT: usize = 0;
const OP_IN: usize = 128;
const RING: usize = 256;
const IOVECS: usize = 512;

/// Bytes of struct fuse_uring_req_header.
const HEADERS_LEN: usize = 288;
/// Most bytes of the fixed part of a request.
const OP_MAX: usize = RING - OP_IN;
/// Payloads from which on an idle entry gives its memory back.
const LARGE: usize = 64 << 10;

/// How far the request is: the low bits of the state, which also tells whose they are.
mod phase {
    /// The handler runs, and nothing is answered.
    pub(super) const RUNNING: u64 = 0;
    /// The handler has returned without an answer.
    pub(super) const DEFERRED: u64 = 1;
    /// The answer is being put here; the handler's thread will hand it in.
    pub(super) const CLAIMED: u64 = 2;
    /// The same, and the steward will.
    pub(super) const CLAIMED_LATE: u64 = 3;
    /// The answer is here for the handler's thread.
    pub(super) const ANSWERED: u64 = 4;
    /// It is here for the steward.
    pub(super) const LATE: u64 = 5;
    /// Besides, the payload is the handler's, until it gives it back.
    pub(super) const LANDING: u64 = 8;
    pub(super) const BITS: u32 = 4;
}

/// The state of a request; numbers of requests count up from 1.
const fn state(unique: u64, phase: u64) -> u64 {
    unique << phase::BITS | phase
}

pub(crate) struct Entry {
    /// Index among the entries of the session; what completions carry.
    pub(crate) id: usize,
    /// The CPU whose requests come in it.
    pub(crate) queue: usize,
    /// What was mapped, and how much.
    mapped: (NonNull<u8>, usize),
    /// The page of headers, just before the payload.
    base: NonNull<u8>,
    payload_len: usize,
    state: AtomicU64,
    node: AtomicU64,
    /// The payload has been large since its memory was last given back.
    large: AtomicBool,
    /// The payload is to lie in huge pages.
    huge: AtomicBool,
    hub: Arc<Hub>,
}

// SAFETY: the mapping belongs to the entry until it is dropped; who may touch it when is said above, and `state` orders
// what one thread writes before what another reads.
unsafe impl Send for Entry {}
// SAFETY: as above.
unsafe impl Sync for Entry {}

/// A request out of an entry.
pub(crate) enum Message {
    /// A WRITE: header, fixed part, data.
    Write(InHeader, [u8; size_of::<WriteIn>()], AlignedBuf),
    /// Any other, as it would come from /dev/fuse.
    Plain,
}

impl Entry {
    pub(crate) fn new(
        id: usize,
        queue: usize,
        payload_len: usize,
        hub: &Arc<Hub>,
    ) -> io::Result<Entry> {
        // Somewhere in it begins a huge page that follows a page and precedes the whole payload.
        let room = payload_len.next_multiple_of(HUGE);
        let len = HUGE + room;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), len, protection, flags, -1, 0) };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // A child has no use for it, and must not make us copy it. Best effort.
        // SAFETY: the range just mapped.
        unsafe { libc::madvise(at, len, libc::MADV_DONTFORK) };
        let at: NonNull<u8> = NonNull::new(at.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        let skipped = (at.addr().get() + PAGE).next_multiple_of(HUGE) - PAGE - at.addr().get();
        // SAFETY: less than HUGE, so within the mapping.
        let base = unsafe { at.add(skipped) };
        Ok(Entry {
            id,
            queue,
            mapped: (at, len),
            base,
            payload_len,
            state: AtomicU64::new(0),
            node: AtomicU64::new(0),
            large: AtomicBool::new(false),
            huge: AtomicBool::new(false),
            hub: hub.clone(),
        })
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.hub.shared
    }

    /// # Safety
    /// Nobody may write to the range meanwhile.
    unsafe fn bytes(&self, at: usize, len: usize) -> &[u8] {
        assert!(at + len <= PAGE + self.payload_len);
        // SAFETY: within the mapping, which is zeroed at first; the caller keeps writers away.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr().add(at), len) }
    }

    /// # Safety
    /// Nobody else may use the range meanwhile.
    #[allow(clippy::mut_from_ref, reason = "the memory is not part of self")]
    unsafe fn bytes_mut(&self, at: usize, len: usize) -> &mut [u8] {
        assert!(at + len <= PAGE + self.payload_len);
        // SAFETY: within the mapping; the caller keeps others away.
        unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr().add(at), len) }
    }

    fn load<T: FromBytes + FromZeros>(&self, at: usize) -> T {
        // SAFETY: headers are only written by the kernel before the completion and by the responder at its end.
        let bytes = unsafe { self.bytes(at, size_of::<T>()) };
        T::read_from_bytes(bytes).unwrap_or_else(|_| T::new_zeroed())
    }

    /// Where the kernel finds the headers and the payload; valid as long as the entry.
    pub(crate) fn iovecs(&self) -> *const libc::iovec {
        let (headers, payload) = (self.base.as_ptr(), self.base.as_ptr().wrapping_add(PAGE));
        let vecs = [
            libc::iovec { iov_base: headers.cast(), iov_len: HEADERS_LEN },
            libc::iovec { iov_base: payload.cast(), iov_len: self.payload_len },
        ];
        // SAFETY: aligned, within the page of headers, and only written here, before the entry is known to others.
        unsafe {
            let place = self.base.as_ptr().add(IOVECS).cast::<[libc::iovec; 2]>();
            place.write(vecs);
            place.cast_const().cast()
        }
    }

    /// The number that names the request in the submission which answers it.
    pub(crate) fn commit_id(&self) -> u64 {
        self.load::<RingEntInOut>(RING).commit_id
    }

    /// Copies out the request that the kernel has put here; all but a WRITE goes into `plain`.
    pub(crate) fn receive(&self, plain: &mut Vec<u8>) -> Parsed<Message> {
        let header = self.header();
        self.state.store(state(header.unique, phase::RUNNING), Ordering::Release);
        self.node.store(header.nodeid, Ordering::Relaxed);
        let payload_len = self.load::<RingEntInOut>(RING).payload_sz as usize;
        let fixed_len = (header.len as usize)
            .checked_sub(size_of::<InHeader>() + payload_len)
            .filter(|&len| len <= OP_MAX && payload_len <= self.payload_len)
            .ok_or(Malformed)?;
        if payload_len >= LARGE {
            self.large.store(true, Ordering::Relaxed);
        }
        // SAFETY: the kernel is done, and nobody can have claimed the answer to what is only being received.
        let (fixed, payload) =
            unsafe { (self.bytes(OP_IN, fixed_len), self.bytes(PAGE, payload_len)) };
        if header.opcode == op::WRITE && fixed_len == size_of::<WriteIn>() {
            let fixed = fixed.try_into().map_err(|_| Malformed)?;
            let mut data = self.shared().pool.get_for(payload_len);
            data.set_len(payload_len);
            if data.len() != payload_len {
                return Err(Malformed);
            }
            data.copy_from_slice(payload);
            if payload_len >= self.payload_len / 2 {
                // It was copied out, and the next to come may well be as large.
                self.use_huge();
            }
            return Ok(Message::Write(header, fixed, data));
        }
        plain.clear();
        plain.extend_from_slice(header.as_bytes());
        plain.extend_from_slice(fixed);
        plain.extend_from_slice(payload);
        Ok(Message::Plain)
    }

    /// Who asks what. Only before it is answered.
    pub(crate) fn header(&self) -> InHeader {
        self.load(IN_OUT)
    }

    /// The node that the request received last is about.
    pub(crate) fn node(&self) -> u64 {
        self.node.load(Ordering::Relaxed)
    }

    /// Changes the phase of a request, if it is this one's turn; what it was.
    fn step(&self, unique: u64, to: impl Fn(u64) -> Option<u64>) -> Option<u64> {
        let base = state(unique, 0);
        let step = |now: u64| to(now.wrapping_sub(base)).map(|phase| base | phase);
        let was = self.state.fetch_update(Ordering::AcqRel, Ordering::Acquire, step);
        was.ok().map(|was| was - base)
    }

    /// As `step`, of what is the same while the payload is the handler's.
    fn advance(&self, unique: u64, to: impl Fn(u64) -> Option<u64>) -> Option<u64> {
        let landing = phase::LANDING;
        self.step(unique, |now| to(now & !landing).map(|phase| phase | now & landing))
    }

    /// The payload, if nobody has answered; it is the handler's until it gives it back, and then, too, its killed caller
    /// waits.
    pub(crate) fn land(entry: &Arc<Entry>, unique: u64) -> Option<Landing> {
        let running = |now| (now == phase::RUNNING).then_some(phase::RUNNING | phase::LANDING);
        entry.step(unique, running)?;
        entry.use_huge();
        entry.large.store(true, Ordering::Relaxed);
        Some(Landing { entry: entry.clone(), unique })
    }

    /// Puts the answer here; it goes to the kernel when the handler has returned. False: the request has an answer already.
    pub(crate) fn answer(entry: &Arc<Entry>, unique: u64, error: i32, parts: &[&[u8]]) -> bool {
        let claimed = entry.advance(unique, |now| match now {
            phase::RUNNING => Some(phase::CLAIMED),
            phase::DEFERRED => Some(phase::CLAIMED_LATE),
            _ => None,
        });
        if claimed.is_some() {
            entry.fill(unique, error, parts);
        }
        claimed.is_some()
    }

    /// Answers in the handler's place while that runs, with an error. False: there is an answer, or too many handlers go on
    /// in this way.
    pub(crate) fn take_over(entry: &Arc<Entry>, unique: u64, error: i32) -> bool {
        if !entry.hub.abandon() {
            return false;
        }
        let running = |now| (now == phase::RUNNING).then_some(phase::CLAIMED_LATE);
        let claimed = entry.step(unique, running);
        match claimed {
            Some(_) => entry.fill(unique, error, &[]),
            None => entry.hub.abandoned_less(),
        }
        claimed.is_some()
    }

    /// The answer of who claimed it.
    fn fill(self: &Arc<Entry>, unique: u64, error: i32, parts: &[&[u8]]) {
        let len = parts.iter().map(|p| p.len()).sum::<usize>();
        if len > self.payload_len {
            tracing::warn!(unique, len, "an answer that is too long");
            return self.conclude(unique, -libc::EIO, 0);
        }
        let mut to = self.base.as_ptr().wrapping_add(PAGE);
        for part in parts {
            if part.as_ptr() != to.cast_const() {
                // SAFETY: within the payload, as was looked at above. There is one claim of a request, and nobody else
                // writes to the payload until the answer is handed in; a part may be what landed there.
                unsafe { std::ptr::copy(part.as_ptr(), to, part.len()) };
            }
            to = to.wrapping_add(part.len());
        }
        if len >= LARGE {
            self.large.store(true, Ordering::Relaxed);
        }
        self.conclude(unique, error, len);
    }

    fn conclude(self: &Arc<Entry>, unique: u64, error: i32, len: usize) {
        // The kernel's own bound of an answer is far below 4 GiB.
        let len = len as u32;
        let head = OutHeader { len: size_of::<OutHeader>() as u32 + len, error, unique };
        let mut about: RingEntInOut = self.load(RING);
        about.payload_sz = len;
        // SAFETY: as above: the headers are of who claimed the answer.
        unsafe {
            self.bytes_mut(IN_OUT, size_of::<OutHeader>()).copy_from_slice(head.as_bytes());
            self.bytes_mut(RING, size_of::<RingEntInOut>()).copy_from_slice(about.as_bytes());
        }
        let was = self.advance(unique, |now| match now {
            phase::CLAIMED => Some(phase::ANSWERED),
            phase::CLAIMED_LATE => Some(phase::LATE),
            _ => None,
        });
        // With a landing, who gives that back sees to it.
        if was == Some(phase::CLAIMED_LATE) {
            self.hub.late(self.clone());
        }
    }

    /// The handler has returned, once. False: its thread has no answer to hand in; the steward has, or will.
    pub(crate) fn returned(&self, unique: u64) -> bool {
        let was = self.step(unique, |now| match now {
            phase::ANSWERED => Some(phase::ANSWERED),
            now => {
                let phase = match now & !phase::LANDING {
                    phase::RUNNING => phase::DEFERRED,
                    phase::CLAIMED => phase::CLAIMED_LATE,
                    // Somebody still reads what is to be handed in.
                    phase::ANSWERED => phase::LATE,
                    _ => return None,
                };
                Some(phase | now & phase::LANDING)
            }
        });
        if was.is_none() {
            // Only `take_over` goes on without the handler's return.
            self.hub.abandoned_less();
        }
        was == Some(phase::ANSWERED)
    }

    /// Does the request that is here move much, or did one since the last `trim`?
    pub(crate) fn moves_much(&self) -> bool {
        self.is_large() || {
            let header = self.header();
            let asked = match header.opcode {
                op::READ => self.load::<ReadIn>(OP_IN).size,
                _ => header.len,
            };
            asked as usize >= LARGE
        }
    }

    /// Has it carried much since the last `trim`?
    pub(crate) fn is_large(&self) -> bool {
        self.large.load(Ordering::Relaxed)
    }

    /// Gives the payload's memory back, and, if no entry carried large data for `quiet`, what such data was copied to.
    /// Only by the thread that submitted the entry: the kernel copies in its context.
    pub(crate) fn trim(&self, quiet: Duration) {
        self.shared().pool.trim_huge(quiet);
        self.large.store(false, Ordering::Relaxed);
        self.huge.store(false, Ordering::Relaxed);
        self.advise(libc::MADV_NOHUGEPAGE);
    }

    /// Has the payload lie in huge pages until the next `trim`. What is in it now may be lost.
    fn use_huge(&self) {
        if !self.huge.swap(true, Ordering::Relaxed) {
            self.advise(libc::MADV_HUGEPAGE);
        }
    }

    /// Empties the payload, and says what pages it is to get. In huge ones the disk finds a large answer's place in one
    /// piece, not in more pieces than it takes at a time, and large data is copied out faster. Best effort.
    fn advise(&self, pages: libc::c_int) {
        let payload = self.base.as_ptr().wrapping_add(PAGE).cast();
        let len = self.payload_len.next_multiple_of(HUGE);
        // SAFETY: the payload of this mapping, which nobody uses, and what is left of its last huge page; it reads as zeros
        // afterwards.
        unsafe {
            libc::madvise(payload, len, libc::MADV_DONTNEED);
            libc::madvise(payload, len, pages);
        }
    }
}

/// The payload of an entry while it is the handler's, to have the answer put there.
pub struct Landing {
    entry: Arc<Entry>,
    unique: u64,
}

impl AsRef<[u8]> for Landing {
    /// Begins on a page boundary.
    fn as_ref(&self) -> &[u8] {
        // SAFETY: while it exists, nothing but the answer to its request is written to the payload, and not where that
        // lies there already.
        unsafe { self.entry.bytes(PAGE, self.entry.payload_len) }
    }
}

impl AsMut<[u8]> for Landing {
    fn as_mut(&mut self) -> &mut [u8] {
        // SAFETY: there is one landing of a request, and &mut self makes the access exclusive.
        unsafe { self.entry.bytes_mut(PAGE, self.entry.payload_len) }
    }
}

impl Drop for Landing {
    fn drop(&mut self) {
        let landing = phase::LANDING;
        let was =
            self.entry.step(self.unique, |now| (now & landing != 0).then_some(now & !landing));
        if was == Some(phase::LATE | landing) {
            self.entry.hub.late(self.entry.clone());
        }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        // SAFETY: mapped in `new`, unmapped once; the session keeps entries until the kernel has let go of them.
        unsafe { libc::munmap(self.mapped.0.as_ptr().cast(), self.mapped.1) };
    }
}

#[cfg(test)]
mod tests;
