//! An open object: its descriptors, its checksums, and what of it is not yet durable.
//!
//! There is at most one per object and target (see [`crate::cache`]), so that checksums in memory
//! and the dirty flag have one home.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use proto::CHECKSUM_BLOCK;
use proto::layout::ObjectId;
use rustix::fs::{OFlags, fdatasync, fstat, fsync};
use rustix::io::Errno;

use crate::files::Dir;
use crate::io::read_at;
use crate::name::{bucket, object_path};
use crate::range::RangeLock;
use crate::sidecar::Sidecar;
use crate::sums::{Due, Home, Sums};

/// Bytes written to an object until the kernel is asked to begin writing them out.
pub(crate) const EARLY_BYTES: u64 = 8 << 20;

pub(crate) struct Object {
    pub(crate) id: ObjectId,
    file: OwnedFd,
    direct: OnceLock<Option<OwnedFd>>,
    size: AtomicU64,
    pub(crate) ranges: RangeLock,
    pub(crate) sums: Mutex<Sums>,
    /// Has writes that no sync covered.
    dirty: AtomicBool,
    /// Its directory entry is not known to be durable.
    entry_new: AtomicBool,
    /// Held while this object is synced: a second commit waits for the first.
    syncing: Mutex<()>,
    /// Looked up since the cache last went by.
    pub(crate) used: AtomicBool,
    early: Mutex<Early>,
}

/// Writes since the last early write-out.
#[derive(Default)]
struct Early {
    bytes: u64,
    start: u64,
    end: u64,
}

impl Object {
    /// Opens the object's file; `create`: makes it. `None`: there is none.
    pub(crate) fn open(
        objects: &Dir,
        id: &ObjectId,
        create: bool,
    ) -> Result<Option<Object>, Errno> {
        let path = object_path(id);
        let (file, made) = match objects.file(&path, OFlags::RDWR) {
            Ok(fd) => (fd, false),
            Err(Errno::NOENT) if create => {
                (objects.file(&path, OFlags::RDWR | OFlags::CREATE)?, true)
            }
            Err(Errno::NOENT) => return Ok(None),
            Err(e) => return Err(e),
        };
        let stat = fstat(&file)?;
        if rustix::fs::FileType::from_raw_mode(stat.st_mode) != rustix::fs::FileType::RegularFile {
            return Err(Errno::IO);
        }
        Ok(Some(Object {
            id: id.clone(),
            file,
            direct: OnceLock::new(),
            size: AtomicU64::new(stat.st_size as u64),
            ranges: RangeLock::default(),
            sums: Mutex::new(Sums::new(Sidecar::new(id.clone()))),
            dirty: AtomicBool::new(false),
            entry_new: AtomicBool::new(made),
            syncing: Mutex::new(()),
            used: AtomicBool::new(true),
            early: Mutex::default(),
        }))
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// A descriptor that goes past the page cache, where the file system has such.
    pub(crate) fn direct_fd(&self, objects: &Dir) -> Option<BorrowedFd<'_>> {
        let open = || objects.file(&object_path(&self.id), OFlags::RDWR | OFlags::DIRECT).ok();
        self.direct.get_or_init(open).as_ref().map(|fd| fd.as_fd())
    }

    /// Whether the file was unlinked meanwhile.
    pub(crate) fn is_gone(&self) -> bool {
        fstat(&self.file).is_ok_and(|s| s.st_nlink == 0)
    }

    /// Whether it was made when it was opened.
    pub(crate) fn is_new(&self) -> bool {
        self.entry_new.load(Ordering::Relaxed)
    }

    /// Bytes, as this process changed them.
    pub(crate) fn size(&self) -> u64 {
        self.size.load(Ordering::Acquire)
    }
    /// Bytes up to `end` were written.
    pub(crate) fn grow(&self, end: u64) {
        self.size.fetch_max(end, Ordering::AcqRel);
    }
    /// The object was cut or grown to `size`.
    pub(crate) fn set_size(&self, size: u64) {
        self.size.store(size, Ordering::Release);
    }

    pub(crate) fn is_dirty(&self) -> bool {
        self.dirty.load(Ordering::Acquire)
    }

    /// Notes a change that no sync covers; whether it is the first.
    pub(crate) fn set_dirty(&self) -> bool {
        !self.dirty.load(Ordering::Acquire) && !self.dirty.swap(true, Ordering::AcqRel)
    }

    /// Counts a write; a range that should be written out now, when enough came together and lies
    /// close together.
    pub(crate) fn note_write(&self, offset: u64, len: u64) -> Option<(u64, u64)> {
        let mut e = self.early.lock();
        if e.bytes == 0 {
            (e.start, e.end) = (offset, offset + len);
        }
        e.start = e.start.min(offset);
        e.end = e.end.max(offset + len);
        e.bytes += len;
        if e.bytes < EARLY_BYTES {
            return None;
        }
        let range = (e.end - e.start <= e.bytes * 4).then_some((e.start, e.end - e.start));
        *e = Early::default();
        range
    }

    /// Makes everything written so far durable; whether anything had to be done. On an error the
    /// object stays dirty, and bytes may be lost: the caller changes the verifier.
    pub(crate) fn commit(&self, home: &Home<'_>) -> Result<bool, Errno> {
        let Some(started) = self.begin_commit(home) else { return Ok(false) };
        let synced = fdatasync(&self.file).and_then(|()| self.sync_entry(home.objects));
        self.end_commit(home, started, synced)?;
        Ok(true)
    }

    /// First half of a commit: takes what is due. `None`: nothing is.
    pub(crate) fn begin_commit(&self, home: &Home<'_>) -> Option<Started<'_>> {
        let alone = self.syncing.lock();
        if !self.dirty.swap(false, Ordering::AcqRel) {
            return None;
        }
        self.recompute(home);
        Some(Started { _alone: alone, due: self.sums.lock().take_due() })
    }

    /// Second half, after the sync.
    pub(crate) fn end_commit(
        &self,
        home: &Home<'_>,
        started: Started<'_>,
        synced: Result<(), Errno>,
    ) -> Result<(), Errno> {
        let mut sums = self.sums.lock();
        match synced {
            // Sums of a destroyed object would only be litter.
            Ok(()) if self.is_gone() => {}
            Ok(()) => sums.store(home, started.due),
            Err(_) => {
                sums.put_back(started.due);
                self.dirty.store(true, Ordering::Release);
            }
        }
        synced
    }

    /// Makes the directory entry of a new object durable.
    fn sync_entry(&self, objects: &Dir) -> Result<(), Errno> {
        if self.entry_new.load(Ordering::Acquire) {
            fsync(objects.sub(&bucket(&self.id))?)?;
            self.entry_new.store(false, Ordering::Release);
        }
        Ok(())
    }

    /// A sync of the whole file system covered the directory entry.
    pub(crate) fn entry_synced(&self) {
        self.entry_new.store(false, Ordering::Release);
    }

    /// Sums up blocks written in unlucky pieces, from the page cache.
    fn recompute(&self, home: &Home<'_>) {
        const BLOCK: u64 = CHECKSUM_BLOCK as u64;
        loop {
            let Some(block) = self.sums.lock().next_recompute() else { return };
            let _range = self.ranges.lock(block * BLOCK, (block + 1) * BLOCK);
            let mut bytes = [0; CHECKSUM_BLOCK];
            // Its disk sum, if any, was marked when the block was changed.
            if matches!(read_at(self.fd(), &mut bytes, block * BLOCK), Ok(n) if n > 0) {
                let sum = crc32c::crc32c(&bytes);
                self.sums.lock().recomputed(home, block, sum, self.size());
            }
        }
    }
}

/// A commit under way.
pub(crate) struct Started<'a> {
    _alone: parking_lot::MutexGuard<'a, ()>,
    due: Due,
}
