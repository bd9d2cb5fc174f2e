//! Open files by handle number.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use client::OpenFile;
use fuse::Errno;
use parking_lot::{Mutex, RwLock};
use proto::Fid;

/// Most files one mount holds open; above it ENFILE (invariant 8).
pub const MAX_HANDLES: usize = 1 << 20;

/// Longest wait for the RELEASE of a file that may be closed already: the kernel sends it after close(2) has
/// returned or the program has ended.
const LATE_RELEASE: Duration = Duration::from_millis(100);

/// How often it is looked for meanwhile.
const LOOK_AGAIN: Duration = Duration::from_millis(1);

/// The kernel's mark on what execve(2) opens (`__FMODE_EXEC`), which it keeps open while the program runs.
pub const OPENED_TO_RUN: u32 = 0x20;

/// An open file.
pub struct Handle {
    /// The client's side.
    pub file: Arc<OpenFile>,
    /// Owners of range locks taken through it. Those of open file descriptions are not announced
    /// when they end; they go with the last close.
    pub owners: Mutex<Vec<u64>>,
    /// A descriptor of it was closed and nothing written since: its RELEASE may be on its way.
    pub closing: AtomicBool,
    /// What is read and written through it the kernel keeps in its pages.
    pub keeps_pages: bool,
    /// Tells it from all others of this mount, also closed ones: the kernel's number of an open file comes again.
    pub serial: u64,
    /// A lock was asked for through it.
    pub locked: AtomicBool,
    /// What [`crate::caches::Caches::capabilities`] was when the file was last seen to have none.
    pub plain_at: AtomicU64,
    /// Opened by execve(2).
    runs: bool,
}

impl Handle {
    fn writes_through_pages(&self) -> bool {
        self.keeps_pages && self.file.flags().write
    }
}

#[derive(Default)]
struct Table {
    slots: Vec<Option<Arc<Handle>>>,
    free: Vec<usize>,
}

/// All open files of a mount.
#[derive(Default)]
pub struct Handles {
    table: RwLock<Table>,
    /// Of the next one.
    serial: AtomicU64,
    /// How many are written through pages of the kernel.
    through_pages: AtomicUsize,
}

impl Handles {
    /// Keeps an open file, opened with the kernel's `flags`; its number.
    pub fn add(&self, file: Arc<OpenFile>, flags: u32, keeps_pages: bool) -> Result<u64, Errno> {
        let through = usize::from(keeps_pages && file.flags().write);
        let handle = Some(Arc::new(Handle {
            file,
            owners: Mutex::default(),
            closing: AtomicBool::new(false),
            keeps_pages,
            locked: AtomicBool::new(false),
            plain_at: AtomicU64::new(0),
            serial: self.serial.fetch_add(1, Ordering::Relaxed),
            runs: flags & OPENED_TO_RUN != 0,
        }));
        let mut t = self.table.write();
        self.through_pages.fetch_add(through, Ordering::Relaxed);
        match t.free.pop() {
            Some(at) => {
                t.slots[at] = handle;
                Ok(at as u64)
            }
            None if t.slots.len() >= MAX_HANDLES => {
                self.through_pages.fetch_sub(through, Ordering::Relaxed);
                Err(Errno::new(libc::ENFILE))
            }
            None => {
                t.slots.push(handle);
                Ok(t.slots.len() as u64 - 1)
            }
        }
    }

    /// An open file.
    pub fn get(&self, fh: u64) -> Result<Arc<Handle>, Errno> {
        let t = self.table.read();
        t.slots.get(fh as usize).cloned().flatten().ok_or(Errno::new(libc::EBADF))
    }

    /// Whether a file is open for writing through the kernel's pages. Looks at all that is open if any is.
    pub fn writes_through_pages(&self, fid: Fid) -> bool {
        let through = |h: &Arc<Handle>| h.writes_through_pages() && h.file.fid() == fid;
        self.through_pages.load(Ordering::Relaxed) > 0
            && self.table.read().slots.iter().flatten().any(through)
    }

    /// Whether a file is open for writing here. Looks at all that is open.
    pub fn written(&self, fid: Fid) -> bool {
        let closing = |h: &Handle| h.closing.load(Ordering::Relaxed);
        self.outlasts(|h| h.file.fid() == fid && h.file.flags().write, closing)
    }

    /// Whether a program that was started from this mount runs from a file. Looks at all that is open.
    pub fn runs(&self, fid: Fid) -> bool {
        self.outlasts(|h| h.runs && h.file.fid() == fid, |_| true)
    }

    /// Waits for the RELEASE of files like `which` that were closed just now; whether there were such and all have ended.
    pub fn settled(&self, which: impl Fn(&Handle) -> bool) -> bool {
        let late = |h: &Handle| h.closing.load(Ordering::Relaxed) && which(h);
        let any = self.table.read().slots.iter().flatten().any(|h| late(h));
        any && !self.outlasts(late, |_| true)
    }

    /// Whether a file like `which` is open; those in `doubt` only count when they outlast the wait.
    fn outlasts(&self, which: impl Fn(&Handle) -> bool, doubt: impl Fn(&Handle) -> bool) -> bool {
        let end = Instant::now() + LATE_RELEASE;
        loop {
            let (mut open, mut sure) = (false, false);
            for h in self.table.read().slots.iter().flatten().filter(|h| which(h)) {
                open = true;
                sure |= !doubt(h);
            }
            if !open || sure || Instant::now() >= end {
                return open;
            }
            std::thread::sleep(LOOK_AGAIN);
        }
    }

    /// Lets go of an open file.
    pub fn remove(&self, fh: u64) -> Option<Arc<Handle>> {
        let mut t = self.table.write();
        let handle = t.slots.get_mut(fh as usize)?.take();
        if let Some(handle) = &handle {
            t.free.push(fh as usize);
            let through = usize::from(handle.writes_through_pages());
            self.through_pages.fetch_sub(through, Ordering::Relaxed);
        }
        handle
    }
}
