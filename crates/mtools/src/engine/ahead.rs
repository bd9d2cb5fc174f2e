//! Reads of a file, one block ahead: while a block is written the next one is under way, by io_uring
//! where the kernel lets us, else by a thread, else by hints.
//!
//! Each thread has a helper of its own, made when it first has a large file. A buffer is written into
//! while a read is under way, therefore it belongs to the read until that has ended.

use super::buffers::Buffer;
use super::companion::Companion;
use super::range::retry;
use io_uring::{IoUring, opcode, types};
use rustix::fs::{Advice, fadvise};
use std::cell::RefCell;
use std::fs::File;
use std::io;
use std::num::NonZeroU64;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

/// Reads under way in a ring.
const RING_ENTRIES: u32 = 2;

/// What reads while its thread does something else.
enum Helper {
    Ring(Box<IoUring>),
    Thread(Companion),
}

impl Helper {
    /// A thread where a ring is refused: old kernel, or forbidden.
    fn new() -> Option<Self> {
        match IoUring::new(RING_ENTRIES) {
            Ok(ring) => Some(Self::Ring(Box::new(ring))),
            Err(_) => Companion::start().ok().map(Self::Thread),
        }
    }

    /// Begins to read; whether it does.
    ///
    /// # Safety
    /// The memory has room for `want` bytes, and neither it nor the file is given up, or the memory touched,
    /// before [`Self::land`] has answered. One read is under way at a time.
    unsafe fn ask(&mut self, file: &File, to: *mut u8, want: usize, at: u64) -> bool {
        match self {
            Self::Ring(ring) => {
                let read = opcode::Read::new(types::Fd(file.as_raw_fd()), to, want as u32);
                // SAFETY: our caller keeps both until it has landed.
                let taken = unsafe { ring.submission().push(&read.offset(at).build()) }.is_ok();
                // What the kernel did not take now it takes when it is waited for.
                let _ = ring.submit();
                taken
            }
            // SAFETY: our caller keeps both until it has landed.
            Self::Thread(thread) => unsafe { thread.ask(file.as_raw_fd(), to, want, at) },
        }
    }

    /// Waits for the read under way: its bytes, or that it has failed. `None`: the memory may still be
    /// written to.
    fn land(&mut self) -> Option<Option<usize>> {
        match self {
            Self::Ring(ring) => land(ring).map(|n| usize::try_from(n).ok()),
            Self::Thread(thread) => thread.land().map(Result::ok),
        }
    }
}

enum Kept {
    Unknown,
    None,
    Some(Helper),
}

thread_local! {
    static KEPT: RefCell<Kept> = const { RefCell::new(Kept::Unknown) };
}

/// Takes this thread's helper; it is given back when the reads end.
fn take_helper() -> Option<Helper> {
    KEPT.with_borrow_mut(|kept| match std::mem::replace(kept, Kept::None) {
        Kept::Some(helper) => Some(helper),
        Kept::Unknown => Helper::new(),
        Kept::None => None,
    })
}

/// A read that was asked for.
struct Asked<'b> {
    buffer: Buffer<'b>,
    want: usize,
    at: u64,
    /// Under way, not to be done when the bytes are wanted.
    flying: bool,
}

/// Reads from one file, at most one under way.
pub struct Reads<'f, 'b> {
    file: &'f File,
    helper: Option<Helper>,
    asked: Option<Asked<'b>>,
}

impl<'f, 'b> Reads<'f, 'b> {
    /// With `ahead` blocks are read before they are wanted.
    pub fn new(file: &'f File, ahead: bool) -> Self {
        Self::with(file, if ahead { take_helper() } else { None })
    }

    fn with(file: &'f File, helper: Option<Helper>) -> Self {
        Self { file, helper, asked: None }
    }

    /// Whether a read goes on while its caller does something else.
    pub fn flies(&self) -> bool {
        self.helper.is_some()
    }

    /// Asks for bytes; what was asked before must have been fetched.
    pub fn ask(&mut self, buffer: Buffer<'b>, want: usize, at: u64) {
        let want = want.min(buffer.len());
        let asked = self.asked.insert(Asked { buffer, want, at, flying: false });
        if let Some(helper) = &mut self.helper {
            let to = asked.buffer.as_mut_ptr();
            // SAFETY: the file is borrowed for longer than `self` lives, and the buffer is kept in
            // `asked` until the read has ended (`land`, also when dropped).
            asked.flying = unsafe { helper.ask(self.file, to, want, at) };
        } else if let Some(length) = NonZeroU64::new(want as u64) {
            // A hint: what comes of it is seen by the read.
            let _ = fadvise(self.file, at, Some(length), Advice::WillNeed);
        }
    }

    /// The bytes asked for: the buffer and how many were read, none at the end of the file.
    pub fn fetch(&mut self) -> io::Result<(Buffer<'b>, usize)> {
        let Some(mut asked) = self.asked.take() else { return Err(io::ErrorKind::NotFound.into()) };
        if asked.flying
            && let Some(helper) = &mut self.helper
        {
            match helper.land() {
                Some(Some(n)) => return Ok((asked.buffer, n)),
                // Told again, and better, by a plain read.
                Some(None) => {}
                None => {
                    // It may still be written into: it must not be used again.
                    std::mem::forget(asked.buffer);
                    self.helper = None;
                    return Err(io::Error::other("reading ahead does not answer"));
                }
            }
        }
        let (want, at) = (asked.want, asked.at);
        let n = retry(|| self.file.read_at(&mut asked.buffer[..want], at))?;
        Ok((asked.buffer, n))
    }
}

/// Waits for the read under way; `None` when the ring is broken.
fn land(ring: &mut IoUring) -> Option<i32> {
    loop {
        if let Some(done) = ring.completion().next() {
            return Some(done.result());
        }
        match ring.submit_and_wait(1) {
            Ok(_) => {}
            Err(e) => match e.raw_os_error() {
                Some(libc::EINTR | libc::EAGAIN | libc::EBUSY) => {}
                _ => return None,
            },
        }
    }
}

impl Drop for Reads<'_, '_> {
    fn drop(&mut self) {
        let Some(mut helper) = self.helper.take() else { return };
        if let Some(asked) = self.asked.take()
            && asked.flying
            && helper.land().is_none()
        {
            std::mem::forget(asked.buffer);
            return;
        }
        KEPT.with_borrow_mut(|kept| *kept = Kept::Some(helper));
    }
}

#[cfg(test)]
mod tests {
    use super::super::buffers::Buffers;
    use super::*;

    /// Beside the bytes themselves, with a ring, with a thread, and with neither.
    #[test]
    fn every_helper_reads_what_is_there() {
        let wanted: Vec<u8> = (0..300_001u32).map(|n| (n.wrapping_mul(n) >> 7) as u8).collect();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, &wanted).unwrap();
        let file = File::open(&path).unwrap();
        let buffers = Buffers::new(8192);
        let ring = || IoUring::new(RING_ENTRIES).ok().map(|ring| Helper::Ring(Box::new(ring)));
        let thread = || Some(Helper::Thread(Companion::start().unwrap()));
        for helper in [ring(), thread(), None] {
            let mut reads = Reads::with(&file, helper);
            let (mut at, mut found, mut spare) = (0, Vec::new(), None);
            reads.ask(buffers.take().unwrap(), 5000, at);
            loop {
                let (buffer, n) = reads.fetch().unwrap();
                at += n as u64;
                if n > 0 {
                    let other = spare.take().map_or_else(|| buffers.take(), Ok).unwrap();
                    reads.ask(other, 5000, at);
                }
                found.extend_from_slice(&buffer[..n]);
                if n == 0 {
                    break;
                }
                spare = Some(buffer);
            }
            assert!(found == wanted, "{} bytes", found.len());
            // One that is under way when nobody wants it any more.
            reads.ask(buffers.take().unwrap(), 8192, 0);
        }
    }

    /// A read that fails in the helper is told by a plain one.
    #[test]
    fn what_fails_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let file = File::open(dir.path()).unwrap();
        let buffers = Buffers::new(4096);
        for helper in [Helper::new(), Some(Helper::Thread(Companion::start().unwrap())), None] {
            let mut reads = Reads::with(&file, helper);
            reads.ask(buffers.take().unwrap(), 4096, 0);
            let error = reads.fetch().map(|(_, n)| n).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::EISDIR));
        }
    }
}
