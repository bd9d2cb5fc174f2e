//! Open files.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use proto::attr::A_HAS_XATTR;
use proto::{Attr, Errno, Fid, SetAttr};

use crate::ahead::Stream;
use crate::client::Client;
use crate::core::Core;
use crate::inode::Inode;
use crate::lockahead::Steps;
use crate::mdt::own_cred;
use crate::types::Offer;
use crate::write::{At, How};

/// How a file is opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenFlags {
    /// For reading.
    pub read: bool,
    /// For writing.
    pub write: bool,
    /// O_TRUNC.
    pub trunc: bool,
    /// O_DIRECT: writes go through; reads are read ahead only in a stream, and not far.
    pub direct: bool,
    /// O_SYNC or O_DSYNC: writes are durable before they return.
    pub sync: bool,
    /// O_NOATIME.
    pub noatime: bool,
}

impl OpenFlags {
    /// From the flags of open(2).
    pub fn from_libc(flags: i32) -> OpenFlags {
        let mode = flags & libc::O_ACCMODE;
        OpenFlags {
            read: mode != libc::O_WRONLY,
            write: mode != libc::O_RDONLY,
            trunc: flags & libc::O_TRUNC != 0,
            direct: flags & libc::O_DIRECT != 0,
            sync: flags & (libc::O_SYNC | libc::O_DSYNC) != 0,
            noatime: flags & libc::O_NOATIME != 0,
        }
    }
}

/// What is written.
#[derive(Debug)]
pub enum Data<'a> {
    /// Borrowed: copied where it must outlive the call.
    Slice(&'a [u8]),
    /// Owned: kept without a copy.
    Owned(Bytes),
}

impl Data<'_> {
    /// The bytes.
    pub fn as_slice(&self) -> &[u8] {
        match self {
            Data::Slice(s) => s,
            Data::Owned(b) => b,
        }
    }
}

/// What fallocate(2) shall do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FallocMode {
    /// Reserve space, growing the file.
    Allocate,
    /// Reserve space; the size stays.
    KeepSize,
    /// Free the range; the size stays.
    Punch,
    /// Zero the range, growing the file.
    Zero,
    /// Zero the range; the size stays.
    ZeroKeepSize,
}

/// What lseek(2) looks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whence {
    /// SEEK_DATA.
    Data,
    /// SEEK_HOLE.
    Hole,
}

/// How long writes fail after one found no room, unless fsync or close tells of it before. Then it is tried again.
const REFUSED_FOR: Duration = Duration::from_secs(1);

/// The handle of a file that the MDT does not know to be open; it gives none that is 0.
pub(crate) const HERE: u64 = 0;

/// An open regular file. Dropping it without [`OpenFile::release`] releases it too.
pub struct OpenFile {
    client: Client,
    inode: Arc<Inode>,
    handle: u64,
    flags: OpenFlags,
    stream: Mutex<Stream>,
    steps: Mutex<Steps>,
    /// How many failures of the file this open file has told, or came after.
    told: AtomicU64,
    /// The same for writes, which tell of those for want of room.
    refused: AtomicU64,
    /// Losses of the MDT that were told.
    losses: AtomicU64,
    released: AtomicBool,
}

impl std::fmt::Debug for OpenFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut f = f.debug_struct("OpenFile");
        f.field("fid", &self.inode.fid).field("flags", &self.flags).finish_non_exhaustive()
    }
}

impl OpenFile {
    pub(crate) fn new(
        client: Client,
        inode: Arc<Inode>,
        handle: u64,
        flags: OpenFlags,
    ) -> OpenFile {
        let failures = inode.st.lock().failures;
        let (told, refused) = (AtomicU64::new(failures), AtomicU64::new(failures));
        let released = AtomicBool::new(false);
        let losses = AtomicU64::new(client.core().mdt.promises.opened(inode.fid));
        let (stream, steps) = (Mutex::default(), Mutex::default());
        OpenFile { client, inode, handle, flags, stream, steps, told, refused, losses, released }
    }

    pub(crate) fn inode(&self) -> &Arc<Inode> {
        &self.inode
    }

    fn core(&self) -> &Arc<Core> {
        self.client.core()
    }

    /// EBADF after release.
    fn usable(&self) -> Result<(), Errno> {
        if self.released.load(SeqCst) { Err(Errno::EBADF) } else { Ok(()) }
    }

    /// EBADF unless open for writing.
    fn writable(&self) -> Result<(), Errno> {
        if self.flags.write { self.usable() } else { Err(Errno::EBADF) }
    }

    /// An error of write-behind that fsync(2) has not told by this open file yet (invariant 6).
    fn untold(&self) -> Result<(), Errno> {
        let st = self.inode.st.lock();
        match st.failure {
            Some(e) if self.told.load(SeqCst) != st.failures => Err(e),
            _ => Ok(()),
        }
    }

    /// The same; it is told with that.
    fn failure(&self) -> Result<(), Errno> {
        let st = self.inode.st.lock();
        let told = self.told.swap(st.failures, SeqCst);
        match st.failure {
            Some(e) if told != st.failures => Err(e),
            _ => Ok(()),
        }
    }

    /// No room was found for what was written before: whoever goes on writing hears of it at once, as on a local file
    /// system. It is not forgiven with that: fsync and close tell it, too, since what was lost had been answered.
    fn refuses(&self) -> Result<(), Errno> {
        let st = self.inode.st.lock();
        if self.told.load(SeqCst) == st.failures {
            return Ok(());
        }
        let first = self.refused.swap(st.failures, SeqCst) != st.failures;
        // The kernel cuts a long write into pieces, and tells how many were taken instead of the error of a later one: the
        // next write must fail, too.
        let lately = st.failed_at.is_some_and(|at| at.elapsed() < REFUSED_FOR);
        match st.failure {
            Some(e @ (Errno::ENOSPC | Errno::EDQUOT | Errno::EFBIG)) if first || lately => Err(e),
            _ => Ok(()),
        }
    }

    fn how(&self) -> How<'_> {
        How { direct: self.flags.direct, sync: self.flags.sync, steps: Some(&self.steps) }
    }

    /// After a write: O_SYNC.
    fn written(&self) -> Result<(), Errno> {
        if !self.flags.sync {
            return Ok(());
        }
        self.durably(true)
    }

    /// All that was answered is durable; or an error that was not told here yet (invariant 6): also what
    /// a restarted MDT has lost, which would find nothing left to wait for.
    fn durably(&self, datasync: bool) -> Result<(), Errno> {
        let outcome = self.core().fsync(&self.inode, datasync);
        let told = self.failure();
        let lost = self.core().mdt.promises.check(self.inode.fid, &self.losses);
        outcome.and(told).and(lost)
    }

    /// The file.
    pub fn fid(&self) -> Fid {
        self.inode.fid
    }

    /// How it was opened.
    pub fn flags(&self) -> OpenFlags {
        self.flags
    }

    /// Attributes, as [`Client::getattr`] but without a message while they are known.
    pub fn attr(&self) -> Result<Attr, Errno> {
        match self.known_attr() {
            Some(attr) => Ok(attr),
            None => self.client.getattr(&own_cred(), self.inode.fid),
        }
    }

    /// Attributes, if they are known without a message.
    pub fn known_attr(&self) -> Option<Attr> {
        let st = self.inode.st.lock();
        self.core().knows(&st).then(|| st.show())
    }

    /// Whether it has extended attributes, as far as this client has heard.
    pub fn has_xattrs(&self) -> bool {
        self.inode.st.lock().attr.flags & A_HAS_XATTR != 0
    }

    /// Reads at `offset`; fewer bytes only at the end of the file.
    pub fn read(&self, offset: u64, into: &mut [u8]) -> Result<usize, Errno> {
        Ok(gathered(&self.read_parts(offset, into.len() as u64)?, into))
    }

    /// As [`OpenFile::read`], on nobody's behalf: the access time stays.
    pub fn peek(&self, offset: u64, into: &mut [u8]) -> Result<usize, Errno> {
        self.usable()?;
        let (range, direct) = ((offset, into.len() as u64), self.flags.direct);
        let parts = self.core().read(&self.inode, &Mutex::default(), range, direct, &|| None)?;
        Ok(gathered(&parts, into))
    }

    /// As [`OpenFile::read`], without a copy: pieces that follow each other.
    pub fn read_parts(&self, offset: u64, len: u64) -> Result<Vec<Bytes>, Errno> {
        self.read_parts_to(offset, len, &|| None)
    }

    /// As [`OpenFile::read_parts`]; where it spares a copy, the piece lies in the place that `offer` is then asked for.
    pub fn read_parts_to(
        &self,
        offset: u64,
        len: u64,
        offer: Offer<'_>,
    ) -> Result<Vec<Bytes>, Errno> {
        self.usable()?;
        let direct = self.flags.direct;
        let parts = self.core().read(&self.inode, &self.stream, (offset, len), direct, offer)?;
        if !self.flags.noatime {
            self.core().accessed(&self.inode);
        }
        Ok(parts)
    }

    /// Writes all of `data` at `offset`; the number of bytes.
    pub fn write(&self, offset: u64, data: Data<'_>) -> Result<usize, Errno> {
        self.writable()?;
        self.refuses()?;
        let len = data.as_slice().len();
        self.core().write(&self.inode, At::Offset(offset), data, self.how())?;
        self.written()?;
        Ok(len)
    }

    /// Writes at the end of the file (O_APPEND); where it began.
    pub fn append(&self, data: Data<'_>) -> Result<u64, Errno> {
        self.writable()?;
        self.refuses()?;
        let at = self.core().write(&self.inode, At::End, data, self.how())?;
        self.written()?;
        Ok(at)
    }

    /// close(2) of a descriptor: bytes of striped files are with their OSTs, and an error of an
    /// earlier write is told; it stays for fsync(2) to tell. Who closes may be a child that got a copy
    /// of the descriptor and does not care: what it is told must not be hidden from who does
    /// (invariant 6). Inline data goes with the release; where that ever failed it goes here.
    pub fn flush(&self) -> Result<(), Errno> {
        self.usable()?;
        let core = self.core();
        core.note_lost();
        let _told_below = core.drain(&self.inode);
        let shared = !core.owns(&self.inode.st.lock());
        if core.careful.load(SeqCst) || shared {
            // Among others the size is told before close(2) returns: told later, with the last
            // close, it could undo a truncation that came after it.
            core.tell(&self.inode, shared, false)?;
            core.careful.store(false, SeqCst);
        }
        self.untold()
    }

    /// fsync(2), or fdatasync(2) with `datasync`.
    pub fn fsync(&self, datasync: bool) -> Result<(), Errno> {
        self.usable()?;
        let outcome = self.durably(datasync);
        // Refused after it had been answered, when nobody had the file open.
        let refused = self.core().lost_dirs.lock().remove(&self.inode.fid);
        outcome.and(refused.map_or(Ok(()), Err))
    }

    /// The last descriptor is gone. Does not wait for servers; later calls answer EBADF.
    pub fn release(&self) {
        if !self.released.swap(true, SeqCst) {
            let core = self.core();
            if self.flags.write {
                core.leases.end_late(self.inode.fid);
            }
            if self.handle == HERE {
                return core.close_here(&self.inode);
            }
            if core.close_untold(&self.inode, self.handle) {
                return;
            }
            let wait = core.can_wait(&self.inode, self.flags.write);
            core.close_late(&self.inode, Some(self.handle), wait);
        }
    }

    /// ftruncate(2).
    pub fn truncate(&self, size: u64) -> Result<Attr, Errno> {
        self.writable()?;
        self.client.setattr(&own_cred(), self.inode.fid, SetAttr::size(size), Some(self))
    }

    /// fallocate(2); EOPNOTSUPP for what is not in [`FallocMode`] is the caller's.
    pub fn fallocate(&self, mode: FallocMode, offset: u64, len: u64) -> Result<(), Errno> {
        self.writable()?;
        self.core().fallocate(&self.inode, mode, offset, len)?;
        self.written()
    }

    /// lseek(2) with SEEK_DATA or SEEK_HOLE; ENXIO.
    pub fn seek(&self, offset: u64, whence: Whence) -> Result<u64, Errno> {
        self.usable()?;
        self.core().seek(&self.inode, offset, whence == Whence::Hole)
    }

    /// copy_file_range(2): bytes copied, fewer at the end of `self`.
    pub fn copy_range(
        &self,
        offset: u64,
        to: &Arc<OpenFile>,
        to_offset: u64,
        len: u64,
    ) -> Result<u64, Errno> {
        self.usable()?;
        to.writable()?;
        let target = (&to.inode, to_offset);
        let n = self.core().copy((&self.inode, offset), target, len, to.how())?;
        to.written()?;
        if !self.flags.noatime {
            self.core().accessed(&self.inode);
        }
        Ok(n)
    }
}

/// Puts pieces behind each other; the number of bytes.
fn gathered(parts: &[Bytes], into: &mut [u8]) -> usize {
    let mut n = 0;
    for part in parts {
        into[n..n + part.len()].copy_from_slice(part);
        n += part.len();
    }
    n
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        self.release();
    }
}
