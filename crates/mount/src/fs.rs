//! The requests of the kernel, one by one.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use client::Client;
use fuse::*;
use proto::mds::{RN_EXCHANGE, RN_NOREPLACE, RN_WHITEOUT};

use crate::belief::Asked;
use crate::caches::Caches;
use crate::convert::{
    absent, asked_attr, attr, attr_out, caller, cred, entry, errno, found, name_errno, rdev, time,
};
use crate::export::is_asked_of_node;
use crate::handles::Handles;
use crate::holds::{OpenDirs, What};
use crate::keeps::{LISTED_ALONE, NO_ATIME};
use crate::locks::{Owners, Waits};
use crate::pages::Pages;
use crate::retries::Retries;
use crate::unheard::Doubt;

/// Block size shown by statfs, bytes.
const BLOCK: u64 = 4096;

/// How long an unmount waits until what was written is stored.
const UNMOUNT_WAIT: Duration = Duration::from_secs(60);

/// A mounted file system.
pub struct PinstripeFs {
    pub(crate) client: Client,
    pub(crate) caches: Arc<Caches>,
    pub(crate) handles: Arc<Handles>,
    pub(crate) waits: Arc<Waits>,
    pub(crate) owners: Owners,
    /// Somebody uses fcntl locks here: from now on every close is announced, because the close of
    /// any descriptor of a file ends its process's locks.
    pub(crate) posix_locks: AtomicBool,
    pub(crate) retries: Arc<Retries>,
    pub(crate) open_dirs: OpenDirs,
    pub(crate) pages: Arc<Pages>,
}

impl PinstripeFs {
    /// The file system of a client.
    pub fn new(client: Client, caches: Arc<Caches>) -> PinstripeFs {
        let (pages, handles) = (Arc::clone(&caches.pages), Arc::clone(&caches.handles));
        PinstripeFs {
            client,
            caches,
            handles,
            waits: Arc::default(),
            owners: Owners::default(),
            posix_locks: AtomicBool::new(false),
            retries: Arc::default(),
            open_dirs: OpenDirs::default(),
            pages,
        }
    }

    /// Makes an inode that is not opened.
    fn make(
        &self,
        req: &Request,
        parent: u64,
        name: &OsStr,
        mode: u32,
        umask: u32,
        dev: u64,
        target: &[u8],
    ) -> Result<Entry> {
        let dir = self.caches.fid(parent);
        let mark = self.caches.mark();
        let excl = proto::mds::C_EXCL;
        let made = self
            .client
            .create(&cred(req), dir, name.as_bytes(), mode, umask, dev, target, excl, None)
            .map_err(name_errno);
        self.caches.touched(parent);
        Ok(entry(&self.caches, &made?.attr, mark, Some((parent, name))))
    }

    fn find(&self, req: &Request, parent: u64, name: &OsStr) -> Result<Entry> {
        let mark = self.caches.mark();
        match self.look_up(req, &cred(req), parent, name) {
            Ok(a) => Ok(found(&self.caches, &a, mark, (parent, name), req.pid())),
            Err(proto::Errno::ENOENT) => absent(&self.caches, mark, (parent, name)),
            Err(e) => Err(name_errno(e)),
        }
    }

    /// Attributes, also of what was removed and is still held.
    pub(crate) fn stat(&self, req: &Request, node: u64) -> Result<proto::Attr> {
        match self.client.getattr(&cred(req), self.caches.fid(node)) {
            Ok(a) => {
                self.caches.nodes.seen(node, &a);
                Ok(a)
            }
            Err(proto::Errno::ESTALE) => {
                self.caches.nodes.gone(node).ok_or_else(|| self.lost(req, proto::Errno::ESTALE))
            }
            Err(e) => Err(errno(e)),
        }
    }

    fn attributes(&self, req: &Request, node: u64) -> Result<AttrOut> {
        let mark = self.caches.mark();
        let a = self.stat(req, node)?;
        Ok(asked_attr(&self.caches, &a, mark))
    }

    pub(crate) fn answer_attributes(&self, req: &Request, node: u64, reply: Reply<AttrOut>) {
        self.tell_attr(reply, self.attributes(req, node), Doubt::default);
    }
}

impl Filesystem for PinstripeFs {
    fn lookup(&self, req: &Request, parent: u64, name: &OsStr, reply: Reply<Entry>) {
        let found = match is_asked_of_node(name) {
            true => self.find_by_node(req, parent, name),
            false => self.find(req, parent, name),
        };
        self.tell_entry(reply, found, Doubt::default);
    }

    fn forget(&self, nodeid: u64, nlookup: u64) {
        if self.caches.nodes.forget(nodeid, nlookup) {
            self.pages.ends.forget(nodeid);
        }
    }

    fn getattr(&self, req: &Request, nodeid: u64, _fh: Option<u64>, reply: Reply<AttrOut>) {
        if let Some(reply) = self.caches.pass_gate(req, nodeid, reply, &self.retries) {
            self.answer_attributes(req, nodeid, reply);
        }
    }

    fn setattr(&self, req: &Request, nodeid: u64, set: SetAttr, reply: Reply<AttrOut>) {
        let cuts = set.size.is_some();
        let done = self.set_attr(req, nodeid, set);
        self.pages.ends.changed(nodeid);
        let half_done = cuts && done.is_err();
        let done = done.map(|(a, mark)| attr_out(&self.caches, &a, mark));
        self.tell_attr(reply, done, move || Doubt::node(nodeid));
        if half_done {
            // Some of its objects may have been cut, others not.
            self.caches.doubt(Doubt::node(nodeid));
        }
    }

    fn readlink(&self, req: &Request, nodeid: u64, reply: Reply<Data>) {
        let fid = self.caches.fid(nodeid);
        reply.send_bytes(self.client.readlink(&cred(req), fid).map_err(|e| self.lost(req, e)));
    }

    fn symlink(
        &self,
        req: &Request,
        parent: u64,
        name: &OsStr,
        target: &OsStr,
        reply: Reply<Entry>,
    ) {
        let _changing = self.changing(req, &[(parent, name)]);
        let mode = libc::S_IFLNK | 0o777;
        let made = self.make(req, parent, name, mode, 0, 0, target.as_bytes());
        let doubt = Doubt::name(parent, name);
        self.tell_entry(reply, made, || doubt);
    }

    fn mknod(
        &self,
        req: &Request,
        parent: u64,
        name: &OsStr,
        mode: u32,
        umask: u32,
        dev: u32,
        reply: Reply<Entry>,
    ) {
        let _changing = self.changing(req, &[(parent, name)]);
        let made = self.make(req, parent, name, mode, umask, rdev(dev), &[]);
        let doubt = Doubt::name(parent, name);
        self.tell_entry(reply, made, || doubt);
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
        let _changing = self.changing(req, &[(parent, name)]);
        let mode = libc::S_IFDIR | (mode & 0o7777);
        let made = self.make(req, parent, name, mode, umask, 0, &[]);
        let doubt = Doubt::name(parent, name);
        self.tell_entry(reply, made, || doubt);
    }

    fn unlink(&self, req: &Request, parent: u64, name: &OsStr, reply: Reply<()>) {
        let _changing = self.changing(req, &[(parent, name)]);
        let dir = self.caches.fid(parent);
        let held = self.removing(req, parent, name, What::Other);
        let done = self.client.unlink(&cred(req), dir, name.as_bytes());
        self.caches.touched(parent);
        done.iter().for_each(|a| self.caches.unnamed(a.fid, (parent, name.as_bytes())));
        let done = done.map(|a| self.removed(a, held)).map_err(name_errno);
        self.tell(reply, done, || Doubt::name(parent, name));
    }

    fn rmdir(&self, req: &Request, parent: u64, name: &OsStr, reply: Reply<()>) {
        let _changing = self.changing(req, &[(parent, name)]);
        let dir = self.caches.fid(parent);
        let held = self.removing(req, parent, name, What::Dir);
        let done = self.client.rmdir(&cred(req), dir, name.as_bytes());
        self.caches.touched(parent);
        done.iter().for_each(|a| self.caches.unnamed(a.fid, (parent, name.as_bytes())));
        let done = done.map(|a| self.removed(a, held)).map_err(name_errno);
        self.tell(reply, done, || Doubt::name(parent, name));
    }

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
        if flags & !(RN_NOREPLACE | RN_EXCHANGE | RN_WHITEOUT) != 0 {
            return reply.err(Errno::EINVAL);
        }
        let names = [(parent, name), (new_parent, new_name)];
        let _changing = self.changing(req, &names);
        let (from, to) = (self.caches.fid(parent), self.caches.fid(new_parent));
        let held = match flags & (RN_NOREPLACE | RN_EXCHANGE) {
            0 => self.removing(req, new_parent, new_name, What::Any),
            _ => None,
        };
        let (old, new) = (name.as_bytes(), new_name.as_bytes());
        let done = self.client.rename(&cred(req), from, old, to, new, flags);
        done.iter().for_each(|done| {
            let (from, to) = ((parent, old), (new_parent, new));
            self.caches.renamed(from, to, flags & RN_EXCHANGE != 0, done);
        });
        let moved = done.iter().flat_map(|(moved, over)| std::iter::once(moved).chain(over));
        let moved = moved.map(|a| self.caches.node(a.fid));
        moved.chain([parent, new_parent]).for_each(|node| self.caches.touched(node));
        let over = done.map(|(_, over)| over).map_err(name_errno);
        let done = over.map(|over| {
            if let Some(attr) = over {
                self.removed(attr, held);
            }
        });
        let doubt = || Doubt::name(parent, name).and(Doubt::name(new_parent, new_name));
        self.tell(reply, done, doubt);
    }

    fn link(&self, req: &Request, nodeid: u64, parent: u64, name: &OsStr, reply: Reply<Entry>) {
        let _changing = self.changing(req, &[(parent, name)]);
        let (fid, dir) = (self.caches.fid(nodeid), self.caches.fid(parent));
        let mark = self.caches.mark();
        let done = self.client.link(&cred(req), fid, dir, name.as_bytes());
        self.caches.touched(parent);
        let named = |a: proto::Attr| entry(&self.caches, &a, mark, Some((parent, name)));
        let done = done.map(named).map_err(name_errno);
        let doubt = Doubt::name(parent, name).and(Doubt::node(nodeid));
        self.tell_entry(reply, done, || doubt);
    }

    fn open(&self, req: &Request, nodeid: u64, open: OpenIn, reply: Reply<Open>) {
        self.tell_open(reply, self.open_file(req, nodeid, open), nodeid);
    }

    fn create(&self, req: &Request, parent: u64, name: &OsStr, c: CreateIn, reply: Reply<Created>) {
        let _changing = self.changing(req, &[(parent, name)]);
        let made = self.create_file(req, parent, Some(name), c);
        self.tell_created(reply, made, || Doubt::name(parent, name));
    }

    fn tmpfile(&self, req: &Request, parent: u64, c: CreateIn, reply: Reply<Created>) {
        self.tell_created(reply, self.create_file(req, parent, None, c), Doubt::default);
    }

    fn read(&self, _req: &Request, nodeid: u64, read: ReadIn, reply: Reply<Data>) {
        let bytes = (read.offset, read.offset.saturating_add(read.size.into()));
        let keeps = read.lock_owner.is_none();
        let _under_way = keeps.then(|| self.pages.under_way.read(nodeid, bytes));
        let drops = keeps && self.keeps_pages(nodeid, read.fh);
        self.read_file(nodeid, read, reply);
        if drops {
            self.pages.discard(nodeid);
        }
    }

    fn write(
        &self,
        req: &Request,
        nodeid: u64,
        w: WriteIn,
        data: WriteData<'_>,
        reply: Reply<u32>,
    ) {
        let (from_cache, fh, fid) = (w.from_cache, w.fh, self.caches.fid(nodeid));
        let alone = self.client.is_alone_with(fid);
        let holds = !self.client.is_sole() && (from_cache || self.is_kept(fh));
        let writing = holds.then(|| self.pages.writing());
        let past = !from_cache && !self.is_kept(fh);
        let (asked, length) = (w.offset, data.len() as u64);
        let shown = holds && !from_cache && !alone && !self.caches.keeps_unleased();
        let until = |n: u64| (asked, asked.saturating_add(n));
        let hidden = shown.then(|| self.hide_written(nodeid, until(length)));
        let done = self.write_file(req, w, data);
        let alone = alone && self.client.is_alone_with(fid);
        let gone = |n| self.hides_written(nodeid, until(n), hidden.as_ref());
        let left = |n| past || from_cache || !gone(n);
        let drops = !alone && self.leaves_pages(nodeid, fh, from_cache);
        let drops = drops && done.as_ref().map_or(true, |(n, _)| left(u64::from(*n)));
        match done {
            // Appended bytes are where the file ended, and end for the kernel behind where it asked for.
            Ok((n, at)) if past => {
                let range = (asked.min(at), asked.max(at) + u64::from(n));
                self.caches.answer_written((nodeid, range), reply, move |caches, reply| {
                    if !reply.deliver(Ok(n)) {
                        caches.doubt(Doubt::node(nodeid));
                    }
                });
            }
            done => {
                self.pages.ends.changed(nodeid);
                self.tell(reply, done.map(|(n, _)| n), || Doubt::node(nodeid));
            }
        }
        drop((hidden, writing));
        if drops {
            self.pages.discard(nodeid);
        }
    }

    fn flush(&self, req: &Request, _nodeid: u64, fh: u64, lock_owner: u64, reply: Reply<()>) {
        reply.send(self.flush_file(req, fh, lock_owner));
    }

    fn release(&self, req: &Request, _nodeid: u64, release: ReleaseIn, reply: Reply<()>) {
        self.release_file(req, release);
        reply.ok(());
    }

    fn fsync(&self, _req: &Request, nodeid: u64, fh: u64, datasync: bool, reply: Reply<()>) {
        let done = self.handles.get(fh).and_then(|h| h.file.fsync(datasync).map_err(errno));
        self.pages.settle(nodeid, done, reply);
    }

    fn opendir(&self, _req: &Request, nodeid: u64, flags: u32, reply: Reply<Open>) {
        let quiet = if flags as i32 & libc::O_NOATIME != 0 { NO_ATIME } else { 0 };
        let keep = self.caches.valid(self.caches.mark());
        self.open_dirs.opened(nodeid);
        let flags = if keep { open_flags::CACHE_DIR | open_flags::KEEP_CACHE } else { 0 };
        reply.ok(Open { fh: quiet | if keep { LISTED_ALONE } else { 0 }, flags });
    }

    fn readdir(
        &self,
        req: &Request,
        nodeid: u64,
        fh: u64,
        offset: u64,
        size: u32,
        reply: Reply<DirBuf>,
    ) {
        let mark = self.caches.mark();
        let names = self.list(req, nodeid, offset, size);
        self.looked((nodeid, fh), offset, names.is_ok());
        let last = names.as_ref().is_ok_and(DirBuf::is_empty);
        self.listed((nodeid, fh), mark, last, || reply.send(names));
    }

    fn readdirplus(
        &self,
        req: &Request,
        nodeid: u64,
        fh: u64,
        offset: u64,
        size: u32,
        reply: Reply<DirPlusBuf>,
    ) {
        let mark = self.caches.mark();
        let names = self.list_plus(req, nodeid, offset, size);
        self.looked((nodeid, fh), offset, names.is_ok());
        let last = names.as_ref().is_ok_and(DirPlusBuf::is_empty);
        self.listed((nodeid, fh), mark, last, || reply.send(names));
    }

    fn releasedir(&self, _req: &Request, nodeid: u64, _release: ReleaseIn, reply: Reply<()>) {
        self.open_dirs.closed(nodeid);
        reply.ok(());
    }

    fn fsyncdir(&self, _req: &Request, nodeid: u64, _fh: u64, _datasync: bool, reply: Reply<()>) {
        reply.send(self.client.fsync_dir(self.caches.fid(nodeid)).map_err(errno));
    }

    /// umount(2) returns when this does: what was done here is durable then, as on a local file system, or servers have
    /// not answered for [`UNMOUNT_WAIT`].
    fn destroy(&self) {
        // Who takes a lease away looks for nothing in the kernel any more: others wait for him.
        self.caches.nodes.forget_all();
        let (client, (tell, told)) = (self.client.clone(), std::sync::mpsc::channel());
        let store = move || {
            // Whoever listened has waited long enough.
            let _ = tell.send(client.sync_all());
        };
        if let Err(error) = std::thread::Builder::new().name("unmount".into()).spawn(store) {
            tracing::error!(%error, "no thread to store what was written before the unmount");
            return;
        }
        match told.recv_timeout(UNMOUNT_WAIT) {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::error!(%error, "some of what was written could not be stored")
            }
            Err(_) => tracing::warn!(
                "unmounted before all that was written is stored: servers do not answer"
            ),
        }
    }

    fn statfs(&self, _req: &Request, _nodeid: u64, reply: Reply<Statfs>) {
        let space = self.client.statfs().map_err(errno);
        reply.send(space.map(|s| Statfs {
            blocks: s.total / BLOCK,
            bfree: s.free / BLOCK,
            bavail: s.available / BLOCK,
            files: s.files,
            ffree: s.files_free,
            bsize: BLOCK as u32,
            namelen: proto::NAME_MAX as u32,
            frsize: BLOCK as u32,
        }));
    }

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
        let done = self.set_xattr(req, nodeid, name, value, flags, kill_sgid);
        self.caches.touched(nodeid);
        self.tell(reply, done, || Doubt::node(nodeid));
    }

    fn getxattr(&self, req: &Request, nodeid: u64, name: &OsStr, reply: Reply<Xattr>) {
        self.get_xattr(req, nodeid, name, reply);
    }

    fn listxattr(&self, req: &Request, nodeid: u64, reply: Reply<Xattr>) {
        reply.send_value(self.list_xattr(req, nodeid));
    }

    fn removexattr(&self, req: &Request, nodeid: u64, name: &OsStr, reply: Reply<()>) {
        let done = self.remove_xattr(req, nodeid, name);
        self.caches.touched(nodeid);
        self.tell(reply, done, || Doubt::node(nodeid));
    }

    fn getlk(&self, req: &Request, nodeid: u64, lock: LockIn, reply: Reply<FileLock>) {
        reply.send(self.get_lock(req, nodeid, lock));
    }

    fn setlk(&self, req: &Request, nodeid: u64, lock: LockIn, reply: Reply<()>) {
        self.set_lock(req, nodeid, lock, reply);
    }

    fn fallocate(
        &self,
        _req: &Request,
        nodeid: u64,
        fh: u64,
        offset: u64,
        len: u64,
        mode: u32,
        reply: Reply<()>,
    ) {
        let done = self.allocate(fh, offset, len, mode);
        self.pages.ends.changed(nodeid);
        self.caches.touched(nodeid);
        let zeros = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_ZERO_RANGE;
        let half_done = mode as i32 & zeros != 0 && done.is_err();
        self.tell(reply, done, || Doubt::node(nodeid));
        if half_done {
            // Some of its objects may have been punched, others not.
            self.caches.doubt(Doubt::node(nodeid));
        }
    }

    fn lseek(
        &self,
        _req: &Request,
        _nodeid: u64,
        fh: u64,
        offset: u64,
        whence: u32,
        reply: Reply<u64>,
    ) {
        reply.send(self.seek(fh, offset, whence));
    }

    fn copy_file_range(&self, _req: &Request, _nodeid: u64, copy: CopyIn, reply: Reply<u64>) {
        let to = copy.nodeid_out;
        let done = self.copy(copy);
        self.pages.ends.changed(to);
        self.caches.touched(to);
        self.tell(reply, done, || Doubt::node(to));
    }

    fn statx(&self, req: &Request, nodeid: u64, _statx: StatxIn, reply: Reply<Statx>) {
        let mark = self.caches.mark();
        let stat = self.stat(req, nodeid);
        let told = stat.as_ref().ok().map(|a| (nodeid, a.size));
        self.caches.answer_size(told, reply, move |caches, reply, late| {
            reply.send(stat.map(|a| Statx {
                attr: attr(caches, &a, mark),
                btime: Some(time(a.btime)),
                ttl: match late {
                    true => Duration::ZERO,
                    false => caches.attr_ttl(&a, Asked::ByNode, mark),
                },
                attributes: 0,
                attributes_mask: 0,
            }));
        });
    }

    fn syncfs(&self, req: &Request, _nodeid: u64, reply: Reply<()>) {
        // Bounded by the client's request timeout: sync(2) of the whole machine waits for this.
        let done = match caller(req) {
            Some(caller) => self.client.sync_all_for(caller),
            None => self.client.sync_all(),
        };
        reply.send(done.map_err(errno));
    }
}
