//! What every entry of a ring knows: the session's buffers and interrupts, and whom to tell of a late answer.

use super::entry::Entry;
use crate::channel::Shared;
use parking_lot::Mutex;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Tells the steward's thread of work.
pub(crate) struct Hub {
    pub(crate) shared: Arc<Shared>,
    /// An eventfd; the steward's ring reads it.
    bell: OwnedFd,
    late: Mutex<Late>,
    /// Handlers that go on without an entry.
    abandoned: AtomicUsize,
}

#[derive(Default)]
struct Late {
    entries: Vec<Arc<Entry>>,
    ended: bool,
}

impl Hub {
    pub(crate) fn new(shared: Arc<Shared>) -> io::Result<Hub> {
        // SAFETY: no memory is involved.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: just made, owned by nobody else.
        let bell = unsafe { OwnedFd::from_raw_fd(fd) };
        let abandoned = AtomicUsize::new(0);
        Ok(Hub { shared, bell, late: Mutex::default(), abandoned })
    }

    pub(crate) fn bell(&self) -> RawFd {
        self.bell.as_raw_fd()
    }

    /// Wakes the steward.
    pub(crate) fn ring(&self) {
        let one = 1u64.to_ne_bytes();
        // SAFETY: eight bytes are read. The counter cannot get full in practice, so this does not block.
        unsafe { libc::write(self.bell(), one.as_ptr().cast(), one.len()) };
    }

    /// Counts a handler that is to go on without its entry; false: there are [`super::RING_ABANDONED_MAX`].
    pub(crate) fn abandon(&self) -> bool {
        let more = |n| (n < super::RING_ABANDONED_MAX).then_some(n + 1);
        self.abandoned.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).is_ok()
    }

    /// One of them was not, or has returned.
    pub(crate) fn abandoned_less(&self) {
        self.abandoned.fetch_sub(1, Ordering::AcqRel);
    }

    /// Has the steward hand in an answer that came after its handler had returned.
    pub(crate) fn late(&self, entry: Arc<Entry>) {
        let mut late = self.late.lock();
        if !late.ended {
            late.entries.push(entry);
            drop(late);
            self.ring();
        }
    }

    pub(crate) fn take_late(&self) -> Vec<Arc<Entry>> {
        std::mem::take(&mut self.late.lock().entries)
    }

    /// The kernel takes no more answers.
    pub(crate) fn end(&self) {
        let mut late = self.late.lock();
        late.ended = true;
        late.entries.clear();
        drop(late);
        self.ring();
    }

    pub(crate) fn ended(&self) -> bool {
        self.late.lock().ended
    }
}
