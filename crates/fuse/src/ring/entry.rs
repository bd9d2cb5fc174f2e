//! One entry of a ring: memory that carries one request to us and its answer back, over and over.
//!
//! A page of headers lies before the page-aligned payload. The kernel writes only while a submission of the entry is with
//! it, and it copies in the context of the thread that submitted. Between a completion and the next submission the memory
//! is ours: the thread that got the request reads it, and the one responder of the request writes the answer. Only the data
//! of a WRITE is lent to the handler; its answer therefore waits aside until the handler has returned.

use super::hub::Hub;
use crate::abi::{InHeader, OutHeader, ReadIn, RingEntInOut, WriteIn, op};
use crate::channel::Shared;
use crate::parse::{Malformed, Parsed};
use std::io;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

const PAGE: usize = 4096;
/// Places within the page of headers: struct fuse_uring_req_header, then what is our own.
const IN_OUT: usize = 0;
const OP_IN: usize = 128;
const RING: usize = 256;
const IOVECS: usize = 512;
const STAGED: usize = 1024;

/// Bytes of struct fuse_uring_req_header.
const HEADERS_LEN: usize = 288;
/// Most bytes of the fixed part of a request.
const OP_MAX: usize = RING - OP_IN;
/// Most bytes of an answer to WRITE.
const STAGED_MAX: usize = 64;

/// Payloads from which on an idle entry gives its memory back.
const LARGE: usize = 64 << 10;

/// The handler runs, and nothing is answered.
const RUNNING: u8 = 0;
/// The handler has returned without an answer.
const DEFERRED: u8 = 1;
/// The answer lies in the entry.
const ANSWERED: u8 = 2;

pub(crate) struct Entry {
    /// Index among the entries of the session; what completions carry.
    pub(crate) id: usize,
    /// The CPU whose requests come in it.
    pub(crate) queue: usize,
    base: NonNull<u8>,
    payload_len: usize,
    state: AtomicU8,
    node: AtomicU64,
    /// The payload is lent to the handler.
    lent: AtomicBool,
    /// Bytes of the answer that wait aside.
    staged: AtomicUsize,
    /// The payload has been large since its memory was last given back.
    large: AtomicBool,
    hub: Arc<Hub>,
}

// SAFETY: the mapping belongs to the entry until it is dropped; who may touch it when is said above, and `state` orders
// what one thread writes before what another reads.
unsafe impl Send for Entry {}
// SAFETY: as above.
unsafe impl Sync for Entry {}

/// A request as it lies in an entry.
pub(crate) enum Message<'a> {
    /// A WRITE: header, fixed part, data.
    Write(InHeader, [u8; size_of::<WriteIn>()], &'a [u8]),
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
        let len = PAGE + payload_len;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), len, protection, flags, -1, 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // A child has no use for it, and must not make us copy it. Best effort.
        // SAFETY: the range just mapped.
        unsafe { libc::madvise(base, len, libc::MADV_DONTFORK) };
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Entry {
            id,
            queue,
            base,
            payload_len,
            state: AtomicU8::new(RUNNING),
            node: AtomicU64::new(0),
            lent: AtomicBool::new(false),
            staged: AtomicUsize::new(0),
            large: AtomicBool::new(false),
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

    /// The first `len` bytes of the payload, to put an answer into.
    ///
    /// # Safety
    /// Only the responder of the entry's request may ask, and not for a WRITE.
    #[allow(clippy::mut_from_ref, reason = "the memory is not part of self")]
    pub(crate) unsafe fn payload_mut(&self, len: usize) -> &mut [u8] {
        // SAFETY: as the caller says.
        unsafe { self.bytes_mut(PAGE, len.min(self.payload_len)) }
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

    /// Takes the request that the kernel has put here; all but a WRITE goes into `plain`.
    pub(crate) fn receive(&self, plain: &mut Vec<u8>) -> Parsed<Message<'_>> {
        self.state.store(RUNNING, Ordering::Release);
        let header: InHeader = self.load(IN_OUT);
        self.node.store(header.nodeid, Ordering::Relaxed);
        let payload_len = self.load::<RingEntInOut>(RING).payload_sz as usize;
        let fixed_len = (header.len as usize)
            .checked_sub(size_of::<InHeader>() + payload_len)
            .filter(|&len| len <= OP_MAX && payload_len <= self.payload_len)
            .ok_or(Malformed)?;
        if payload_len >= LARGE {
            self.large.store(true, Ordering::Relaxed);
        }
        // SAFETY: the kernel is done, and whoever answers a WRITE leaves its data alone until the handler has returned.
        let (fixed, payload) =
            unsafe { (self.bytes(OP_IN, fixed_len), self.bytes(PAGE, payload_len)) };
        let lent = header.opcode == op::WRITE && fixed_len == size_of::<WriteIn>();
        self.lent.store(lent, Ordering::Release);
        if lent {
            let fixed = fixed.try_into().map_err(|_| Malformed)?;
            return Ok(Message::Write(header, fixed, payload));
        }
        plain.clear();
        plain.extend_from_slice(header.as_bytes());
        plain.extend_from_slice(fixed);
        plain.extend_from_slice(payload);
        Ok(Message::Plain)
    }

    /// The node that the request received last is about.
    pub(crate) fn node(&self) -> u64 {
        self.node.load(Ordering::Relaxed)
    }

    /// The number of the request that is here.
    pub(crate) fn unique(&self) -> u64 {
        self.load::<InHeader>(IN_OUT).unique
    }

    /// Puts the answer here; it goes to the kernel when the handler has returned.
    pub(crate) fn answer(entry: &Arc<Entry>, unique: u64, error: i32, parts: &[&[u8]]) {
        let len = parts.iter().map(|p| p.len()).sum::<usize>();
        let lent = entry.lent.load(Ordering::Acquire);
        let (at, room) = if lent { (STAGED, STAGED_MAX) } else { (PAGE, entry.payload_len) };
        if len > room {
            tracing::warn!(unique, len, "an answer that is too long");
            return entry.conclude(unique, -libc::EIO, 0);
        }
        // SAFETY: the responder's own place: the payload, or aside while that is lent.
        let mut place = unsafe { entry.bytes_mut(at, len) };
        for part in parts {
            let (head, rest) = place.split_at_mut(part.len());
            head.copy_from_slice(part);
            place = rest;
        }
        if !lent && len >= LARGE {
            entry.large.store(true, Ordering::Relaxed);
        }
        entry.staged.store(if lent { len } else { 0 }, Ordering::Relaxed);
        entry.conclude(unique, error, len);
    }

    /// As `answer`, with what lies in the payload already.
    pub(crate) fn answer_in_place(entry: &Arc<Entry>, unique: u64, len: usize) {
        if len >= LARGE {
            entry.large.store(true, Ordering::Relaxed);
        }
        entry.staged.store(0, Ordering::Relaxed);
        entry.conclude(unique, 0, len);
    }

    fn conclude(self: &Arc<Entry>, unique: u64, error: i32, len: usize) {
        // The kernel's own bound of an answer is far below 4 GiB.
        let len = len as u32;
        let head = OutHeader { len: size_of::<OutHeader>() as u32 + len, error, unique };
        let mut about: RingEntInOut = self.load(RING);
        about.payload_sz = len;
        // SAFETY: the headers are the responder's: the request was copied out of them.
        unsafe {
            self.bytes_mut(IN_OUT, size_of::<OutHeader>()).copy_from_slice(head.as_bytes());
            self.bytes_mut(RING, size_of::<RingEntInOut>()).copy_from_slice(about.as_bytes());
        }
        if self.state.swap(ANSWERED, Ordering::AcqRel) == DEFERRED {
            self.hub.late(self.clone());
        }
    }

    /// The handler has returned. False: without an answer, which will go through the hub.
    pub(crate) fn returned(&self) -> bool {
        let (from, to, order) = (RUNNING, DEFERRED, Ordering::AcqRel);
        self.state.compare_exchange(from, to, order, Ordering::Acquire).is_err()
    }

    /// The last step before the answer is handed in: what waited aside moves into the payload.
    pub(crate) fn settle(&self) {
        let len = self.staged.swap(0, Ordering::Relaxed).min(STAGED_MAX);
        if len > 0 {
            // SAFETY: the handler has returned, so nothing is lent any more; the two places do not overlap.
            unsafe { self.bytes_mut(PAGE, len).copy_from_slice(self.bytes(STAGED, len)) };
        }
    }

    /// Does the request that is here move much, or did one since the last `trim`?
    pub(crate) fn moves_much(&self) -> bool {
        self.is_large() || {
            let header: InHeader = self.load(IN_OUT);
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

    /// Gives the payload's memory back. Only by the thread that submitted the entry: the kernel copies in its context.
    pub(crate) fn trim(&self) {
        self.large.store(false, Ordering::Relaxed);
        let payload = self.base.as_ptr().wrapping_add(PAGE);
        // SAFETY: the payload of this mapping, which nobody uses; it reads as zeros afterwards.
        unsafe { libc::madvise(payload.cast(), self.payload_len, libc::MADV_DONTNEED) };
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        // SAFETY: mapped in `new`, unmapped once; the session keeps entries until the kernel has let go of them.
        unsafe { libc::munmap(self.base.as_ptr().cast(), PAGE + self.payload_len) };
    }
}

#[cfg(test)]
mod tests;
