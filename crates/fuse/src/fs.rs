//! The trait a file system implements: one method per kind of request.
//!
//! Rules for implementors:
//! - Every method with a [`Reply`] must send it exactly once, now or later, from any thread. A reply that is dropped
//!   answers EIO. The defaults answer ENOSYS, which the kernel remembers for several kinds of request (flush, fsync,
//!   access, open, opendir, getlk, ...) and then never sends again.
//! - Methods run on the reader threads, several at once. A method may block: the layer starts further threads up to
//!   `Config::max_threads`.
//! - Never send a notification from inside a handler: the kernel may wait in it for this very request.
//! - A panic is caught, logged and answered with EIO.

use crate::buf::WriteData;
use crate::dir::{DirBuf, DirPlusBuf};
use crate::reply::{Data, Reply, Xattr};
use crate::request::Request;
use crate::session::InitInfo;
use crate::types::*;
use std::ffi::OsStr;

/// A file system as the kernel sees it. Node 1 is the root.
#[allow(unused_variables, reason = "the defaults document parameter names")]
pub trait Filesystem: Send + Sync + 'static {
    /// Called once, before any other method, with what the kernel granted. An error ends the session.
    fn init(&self, info: &InitInfo) -> Result<()> {
        Ok(())
    }

    /// Called once, after the last request. With a block-device mount (`forward_sync`) umount(2) waits for it.
    fn destroy(&self) {}

    /// Finds `name` in directory `parent`. A name that is absent: [`Entry::negative`] (cached) or ENOENT (not cached).
    fn lookup(&self, req: &Request, parent: u64, name: &OsStr, reply: Reply<Entry>) {
        reply.err(Errno::ENOSYS);
    }

    /// The kernel gives back `nlookup` of the lookups of `nodeid`. No answer. Not sent for live nodes at unmount.
    fn forget(&self, nodeid: u64, nlookup: u64) {}

    /// Several forgets: (nodeid, nlookup).
    fn batch_forget(&self, forgets: &mut dyn Iterator<Item = (u64, u64)>) {
        for (nodeid, nlookup) in forgets {
            self.forget(nodeid, nlookup);
        }
    }

    fn getattr(&self, req: &Request, nodeid: u64, fh: Option<u64>, reply: Reply<AttrOut>) {
        reply.err(Errno::ENOSYS);
    }

    fn setattr(&self, req: &Request, nodeid: u64, set: SetAttr, reply: Reply<AttrOut>) {
        reply.err(Errno::ENOSYS);
    }

    /// The target, without a NUL, below 4096 bytes.
    fn readlink(&self, req: &Request, nodeid: u64, reply: Reply<Data>) {
        reply.err(Errno::ENOSYS);
    }

    fn symlink(
        &self,
        req: &Request,
        parent: u64,
        name: &OsStr,
        target: &OsStr,
        reply: Reply<Entry>,
    ) {
        reply.err(Errno::ENOSYS);
    }

    /// `mode` carries the file type; `rdev` is in the encoding of [`encode_dev`].
    fn mknod(
        &self,
        req: &Request,
        parent: u64,
        name: &OsStr,
        mode: u32,
        umask: u32,
        rdev: u32,
        reply: Reply<Entry>,
    ) {
        reply.err(Errno::ENOSYS);
    }

    fn mkdir(
        &self,
        req: &Request,
        parent: u64,
        name: &OsStr,
        mode: u32,
        umask: u32,
        reply: Reply<Entry>,
    ) {
        reply.err(Errno::ENOSYS);
    }

    fn unlink(&self, req: &Request, parent: u64, name: &OsStr, reply: Reply<()>) {
        reply.err(Errno::ENOSYS);
    }

    fn rmdir(&self, req: &Request, parent: u64, name: &OsStr, reply: Reply<()>) {
        reply.err(Errno::ENOSYS);
    }

    /// `flags`: 0, RENAME_NOREPLACE, RENAME_EXCHANGE or RENAME_WHITEOUT.
    fn rename(
        &self,
        req: &Request,
        parent: u64,
        name: &OsStr,
        new_parent: u64,
        new_name: &OsStr,
        flags: u32,
        reply: Reply<()>,
    ) {
        reply.err(Errno::ENOSYS);
    }

    fn link(
        &self,
        req: &Request,
        nodeid: u64,
        new_parent: u64,
        new_name: &OsStr,
        reply: Reply<Entry>,
    ) {
        reply.err(Errno::ENOSYS);
    }

    /// With NO_OPEN_SUPPORT an answer of ENOSYS ends all OPENs and RELEASEs of the connection.
    fn open(&self, req: &Request, nodeid: u64, open: OpenIn, reply: Reply<Open>) {
        reply.err(Errno::ENOSYS);
    }

    /// Creates and opens at once. `open.flags` has O_EXCL when the name must be new.
    fn create(
        &self,
        req: &Request,
        parent: u64,
        name: &OsStr,
        create: CreateIn,
        reply: Reply<Created>,
    ) {
        reply.err(Errno::ENOSYS);
    }

    /// O_TMPFILE in directory `parent`.
    fn tmpfile(&self, req: &Request, parent: u64, create: CreateIn, reply: Reply<Created>) {
        reply.err(Errno::ENOSYS);
    }

    /// Fewer bytes than asked for mean end of file.
    fn read(&self, req: &Request, nodeid: u64, read: ReadIn, reply: Reply<Data>) {
        reply.err(Errno::ENOSYS);
    }

    /// Answers the number of bytes written. `data` lies page-aligned in memory; `data.take()` keeps it without a copy.
    fn write(
        &self,
        req: &Request,
        nodeid: u64,
        write: WriteIn,
        data: WriteData<'_>,
        reply: Reply<u32>,
    ) {
        reply.err(Errno::ENOSYS);
    }

    /// Sent at each close(2) of a descriptor, with the POSIX lock owner whose locks end.
    fn flush(&self, req: &Request, nodeid: u64, fh: u64, lock_owner: u64, reply: Reply<()>) {
        reply.err(Errno::ENOSYS);
    }

    /// The last descriptor of an open file is gone. Nobody sees the answer's error.
    fn release(&self, req: &Request, nodeid: u64, release: ReleaseIn, reply: Reply<()>) {
        reply.err(Errno::ENOSYS);
    }

    fn fsync(&self, req: &Request, nodeid: u64, fh: u64, datasync: bool, reply: Reply<()>) {
        reply.err(Errno::ENOSYS);
    }

    fn opendir(&self, req: &Request, nodeid: u64, flags: u32, reply: Reply<Open>) {
        reply.err(Errno::ENOSYS);
    }

    /// Entries after cookie `offset` (0 = from the start), at most `size` bytes: `DirBuf::new(size)`. Empty = the end.
    fn readdir(
        &self,
        req: &Request,
        nodeid: u64,
        fh: u64,
        offset: u64,
        size: u32,
        reply: Reply<DirBuf>,
    ) {
        reply.err(Errno::ENOSYS);
    }

    /// As readdir, and each entry but `.` and `..` counts as a lookup.
    fn readdirplus(
        &self,
        req: &Request,
        nodeid: u64,
        fh: u64,
        offset: u64,
        size: u32,
        reply: Reply<DirPlusBuf>,
    ) {
        reply.err(Errno::ENOSYS);
    }

    fn releasedir(&self, req: &Request, nodeid: u64, release: ReleaseIn, reply: Reply<()>) {
        reply.err(Errno::ENOSYS);
    }

    fn fsyncdir(&self, req: &Request, nodeid: u64, fh: u64, datasync: bool, reply: Reply<()>) {
        reply.err(Errno::ENOSYS);
    }

    fn statfs(&self, req: &Request, nodeid: u64, reply: Reply<Statfs>) {
        reply.err(Errno::ENOSYS);
    }

    /// `flags`: XATTR_CREATE, XATTR_REPLACE. `kill_sgid`: setting an access ACL must clear set-gid (SETXATTR_EXT).
    fn setxattr(
        &self,
        req: &Request,
        nodeid: u64,
        name: &OsStr,
        value: &[u8],
        flags: u32,
        kill_sgid: bool,
        reply: Reply<()>,
    ) {
        reply.err(Errno::ENOSYS);
    }

    /// Answer with `reply.value(..)` whatever the size asked for: the layer answers size queries and ERANGE itself.
    fn getxattr(&self, req: &Request, nodeid: u64, name: &OsStr, reply: Reply<Xattr>) {
        reply.err(Errno::ENOSYS);
    }

    /// The value is all names, each ended by a NUL.
    fn listxattr(&self, req: &Request, nodeid: u64, reply: Reply<Xattr>) {
        reply.err(Errno::ENOSYS);
    }

    fn removexattr(&self, req: &Request, nodeid: u64, name: &OsStr, reply: Reply<()>) {
        reply.err(Errno::ENOSYS);
    }

    /// access(2); not sent with `default_permissions`. `mask` as in access(2).
    fn access(&self, req: &Request, nodeid: u64, mask: u32, reply: Reply<()>) {
        reply.err(Errno::ENOSYS);
    }

    /// Answers a conflicting lock, or one with kind F_UNLCK.
    fn getlk(&self, req: &Request, nodeid: u64, lock: LockIn, reply: Reply<FileLock>) {
        reply.err(Errno::ENOSYS);
    }

    /// With `lock.wait`, keep the reply; see [`Reply::on_interrupt`] for the waiter that gets a signal.
    fn setlk(&self, req: &Request, nodeid: u64, lock: LockIn, reply: Reply<()>) {
        reply.err(Errno::ENOSYS);
    }

    /// `mode`: FALLOC_FL_* bits.
    fn fallocate(
        &self,
        req: &Request,
        nodeid: u64,
        fh: u64,
        offset: u64,
        len: u64,
        mode: u32,
        reply: Reply<()>,
    ) {
        reply.err(Errno::ENOSYS);
    }

    /// Only SEEK_DATA and SEEK_HOLE arrive. Answers the new position.
    fn lseek(
        &self,
        req: &Request,
        nodeid: u64,
        fh: u64,
        offset: u64,
        whence: u32,
        reply: Reply<u64>,
    ) {
        reply.err(Errno::ENOSYS);
    }

    /// Answers the number of bytes copied.
    fn copy_file_range(&self, req: &Request, nodeid: u64, copy: CopyIn, reply: Reply<u64>) {
        reply.err(Errno::ENOSYS);
    }

    fn ioctl(
        &self,
        req: &Request,
        nodeid: u64,
        ioctl: IoctlIn,
        data: &[u8],
        reply: Reply<IoctlOut>,
    ) {
        reply.err(Errno::new(libc::ENOTTY));
    }

    fn statx(&self, req: &Request, nodeid: u64, statx: StatxIn, reply: Reply<Statx>) {
        reply.err(Errno::ENOSYS);
    }

    /// syncfs(2) or sync(2): make everything acknowledged so far durable. Sent only to `forward_sync` mounts.
    fn syncfs(&self, req: &Request, nodeid: u64, reply: Reply<()>) {
        reply.err(Errno::ENOSYS);
    }
}
