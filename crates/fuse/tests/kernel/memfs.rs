//! A small file system in memory: enough of a model to be used through system calls, with switches for tests.

use crate::locks::Locks;
use crate::tree::{Node, Tree, now};
use pinstripe_fuse::*;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

pub const BTIME: Time = Time { sec: 981_173_106, nsec: 7 };

#[derive(Default)]
pub struct Switches {
    pub ttl: Duration,
    pub open_flags: u32,
    pub keep_writes: bool,
}

pub struct MemFs {
    pub tree: Mutex<Tree>,
    pub locks: Arc<Locks>,
    pub switches: Switches,
    /// How often each method was called.
    pub calls: Mutex<HashMap<&'static str, u64>>,
    pub largest_write: AtomicU64,
    pub unaligned: AtomicBool,
    pub kept: Mutex<Vec<AlignedBuf>>,
    pub supp_groups: Mutex<Vec<u32>>,
    /// Reads of a file named `gate` wait here until the number is reached.
    pub gate: (Mutex<u64>, Condvar),
    pub gate_width: u64,
    pub destroyed: AtomicBool,
}

impl MemFs {
    pub fn new(switches: Switches) -> Arc<MemFs> {
        MemFs::with_gate(switches, 0)
    }

    pub fn with_gate(switches: Switches, gate_width: u64) -> Arc<MemFs> {
        let mut tree = Tree::default();
        assert_eq!(tree.make(libc::S_IFDIR | 0o777, 0, 0), 1);
        tree.nodes.get_mut(&1).unwrap().attr.nlink = 2;
        Arc::new(MemFs {
            tree: Mutex::new(tree),
            locks: Arc::default(),
            switches,
            calls: Mutex::default(),
            largest_write: AtomicU64::new(0),
            unaligned: AtomicBool::new(false),
            kept: Mutex::default(),
            supp_groups: Mutex::default(),
            gate: Default::default(),
            gate_width,
            destroyed: AtomicBool::new(false),
        })
    }

    pub fn called(&self, what: &'static str) -> u64 {
        self.calls.lock().unwrap().get(what).copied().unwrap_or(0)
    }

    fn count(&self, what: &'static str) {
        *self.calls.lock().unwrap().entry(what).or_default() += 1;
    }

    pub fn tree(&self) -> MutexGuard<'_, Tree> {
        self.tree.lock().unwrap()
    }

    fn entry(&self, node: &mut Node) -> Entry {
        node.lookups += 1;
        self.plain_entry(node)
    }

    fn plain_entry(&self, node: &Node) -> Entry {
        Entry {
            nodeid: node.attr.ino,
            generation: 0,
            entry_ttl: self.switches.ttl,
            attr_ttl: self.switches.ttl,
            attr: node.attr,
        }
    }

    fn attr(&self, id: u64) -> Result<AttrOut> {
        Ok(AttrOut { attr: self.tree().node(id)?.attr, ttl: self.switches.ttl })
    }

    fn open_flags(&self) -> Open {
        Open { fh: 0, flags: self.switches.open_flags }
    }

    fn make_in(&self, req: &Request, parent: u64, name: &OsStr, mode: u32) -> Result<(u64, Entry)> {
        self.supp_groups.lock().unwrap().extend(req.supp_groups());
        let mut tree = self.tree();
        if name.len() > 255 {
            return Err(Errno::new(libc::ENAMETOOLONG));
        }
        if tree.find(parent, name).is_ok() {
            return Err(Errno::new(libc::EEXIST));
        }
        let id = tree.make(mode, req.uid(), req.gid());
        tree.add(parent, name, id);
        let entry = self.entry(tree.node(id)?);
        Ok((id, entry))
    }

    fn pass_gate(&self) {
        let (count, changed) = &self.gate;
        let mut count = count.lock().unwrap();
        *count += 1;
        changed.notify_all();
        while *count < self.gate_width {
            count = changed.wait(count).unwrap();
        }
    }
}

impl Filesystem for MemFs {
    fn destroy(&self) {
        self.destroyed.store(true, Ordering::SeqCst);
    }

    fn lookup(&self, _: &Request, parent: u64, name: &OsStr, reply: Reply<Entry>) {
        self.count("lookup");
        assert_ne!(name, "panic", "a handler that panics");
        if name == "dropped" {
            return drop(reply);
        }
        let mut tree = self.tree();
        let found = tree.find(parent, name);
        reply.send(match found {
            Ok(id) => tree.node(id).map(|node| self.entry(node)),
            Err(Errno::ENOENT) => Ok(Entry::negative(self.switches.ttl)),
            Err(e) => Err(e),
        });
    }

    fn forget(&self, nodeid: u64, nlookup: u64) {
        self.count("forget");
        if let Some(node) = self.tree().nodes.get_mut(&nodeid) {
            node.lookups = node.lookups.saturating_sub(nlookup);
        }
    }

    fn getattr(&self, _: &Request, nodeid: u64, _: Option<u64>, reply: Reply<AttrOut>) {
        self.count("getattr");
        reply.send(self.attr(nodeid));
    }

    fn setattr(&self, _: &Request, nodeid: u64, set: SetAttr, reply: Reply<AttrOut>) {
        self.count("setattr");
        let change = || {
            let mut tree = self.tree();
            let node = tree.node(nodeid)?;
            let time = |t: SetTime| match t {
                SetTime::Now => now(),
                SetTime::At(t) => t,
            };
            let a = &mut node.attr;
            a.mode = set.mode.map_or(a.mode, |m| a.mode & libc::S_IFMT | m & 0o7777);
            a.uid = set.uid.unwrap_or(a.uid);
            a.gid = set.gid.unwrap_or(a.gid);
            a.atime = set.atime.map_or(a.atime, time);
            a.mtime = set.mtime.map_or(a.mtime, time);
            a.ctime = now();
            if let Some(size) = set.size {
                a.size = size;
                node.data.resize(size as usize, 0);
            }
            Ok(())
        };
        reply.send(change().and_then(|()| self.attr(nodeid)));
    }

    fn readlink(&self, _: &Request, nodeid: u64, reply: Reply<Data>) {
        self.count("readlink");
        reply.send_bytes(self.tree().node(nodeid).map(|n| n.data.clone()));
    }

    fn symlink(
        &self,
        req: &Request,
        parent: u64,
        name: &OsStr,
        target: &OsStr,
        reply: Reply<Entry>,
    ) {
        let made = self.make_in(req, parent, name, libc::S_IFLNK | 0o777);
        reply.send(made.and_then(|(id, _)| {
            let mut tree = self.tree();
            let node = tree.node(id)?;
            node.data = target.as_bytes().to_vec();
            node.attr.size = node.data.len() as u64;
            Ok(self.plain_entry(node))
        }));
    }

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
        let made = self.make_in(req, parent, name, mode & !umask);
        reply.send(made.and_then(|(id, _)| {
            let mut tree = self.tree();
            let node = tree.node(id)?;
            node.attr.rdev = rdev;
            Ok(self.plain_entry(node))
        }));
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
        let mode = libc::S_IFDIR | mode & !umask;
        reply.send(self.make_in(req, parent, name, mode).map(|(_, entry)| entry));
    }

    fn unlink(&self, _: &Request, parent: u64, name: &OsStr, reply: Reply<()>) {
        self.count("unlink");
        reply.send(self.tree().remove(parent, name).map(|_| ()));
    }

    fn rmdir(&self, _: &Request, parent: u64, name: &OsStr, reply: Reply<()>) {
        let mut tree = self.tree();
        let empty = tree.find(parent, name).and_then(|id| Ok(tree.node(id)?.names.is_empty()));
        reply.send(match empty {
            Ok(true) => tree.remove(parent, name).map(|_| ()),
            Ok(false) => Err(Errno::new(libc::ENOTEMPTY)),
            Err(e) => Err(e),
        });
    }

    fn rename(
        &self,
        _: &Request,
        from: u64,
        name: &OsStr,
        to: u64,
        new: &OsStr,
        flags: u32,
        reply: Reply<()>,
    ) {
        let mut tree = self.tree();
        let change = |tree: &mut Tree| {
            let there = tree.find(to, new);
            match flags {
                libc::RENAME_EXCHANGE => {
                    let (a, b) = (tree.remove(from, name)?, tree.remove(to, new)?);
                    tree.add(from, name, b);
                    tree.add(to, new, a);
                    return Ok(());
                }
                libc::RENAME_NOREPLACE if there.is_ok() => return Err(Errno::new(libc::EEXIST)),
                0 | libc::RENAME_NOREPLACE => {}
                _ => return Err(Errno::EINVAL),
            }
            if there.is_ok() {
                tree.remove(to, new)?;
            }
            let id = tree.remove(from, name)?;
            tree.add(to, new, id);
            Ok(())
        };
        reply.send(change(&mut tree));
    }

    fn link(&self, _: &Request, nodeid: u64, parent: u64, name: &OsStr, reply: Reply<Entry>) {
        let mut tree = self.tree();
        tree.add(parent, name, nodeid);
        reply.send(tree.node(nodeid).map(|n| self.entry(n)));
    }

    fn open(&self, _: &Request, nodeid: u64, open: OpenIn, reply: Reply<Open>) {
        self.count("open");
        if open.flags & libc::O_TRUNC as u32 != 0
            && let Ok(node) = self.tree().node(nodeid)
        {
            node.data.clear();
            node.attr.size = 0;
        }
        reply.ok(self.open_flags());
    }

    fn create(
        &self,
        req: &Request,
        parent: u64,
        name: &OsStr,
        create: CreateIn,
        reply: Reply<Created>,
    ) {
        self.count("create");
        let mode = libc::S_IFREG | create.mode & !create.umask & 0o7777;
        let made = self.make_in(req, parent, name, mode);
        reply.send(made.map(|(_, entry)| Created { entry, open: self.open_flags() }));
    }

    fn tmpfile(&self, req: &Request, _parent: u64, create: CreateIn, reply: Reply<Created>) {
        let mut tree = self.tree();
        let id = tree.make(libc::S_IFREG | create.mode & 0o7777, req.uid(), req.gid());
        let open = self.open_flags();
        reply.send(tree.node(id).map(|n| Created { entry: self.entry(n), open }));
    }

    fn read(&self, _: &Request, nodeid: u64, read: ReadIn, reply: Reply<Data>) {
        self.count("read");
        if self.gate_width > 0 {
            self.pass_gate();
        }
        let mut tree = self.tree();
        reply.fill(|buf| {
            let data = &tree.node(nodeid)?.data;
            let rest = data.get(read.offset as usize..).unwrap_or(&[]);
            let n = rest.len().min(buf.len());
            buf[..n].copy_from_slice(&rest[..n]);
            Ok(n)
        });
    }

    fn write(
        &self,
        _: &Request,
        nodeid: u64,
        write: WriteIn,
        data: WriteData<'_>,
        reply: Reply<u32>,
    ) {
        self.count("write");
        self.largest_write.fetch_max(data.len() as u64, Ordering::SeqCst);
        if !(data.as_ptr() as usize).is_multiple_of(4096) {
            self.unaligned.store(true, Ordering::SeqCst);
        }
        let mut tree = self.tree();
        let len = data.len();
        let put = |tree: &mut Tree, bytes: &[u8]| {
            let node = tree.node(nodeid)?;
            let start = write.offset as usize;
            let end = start + bytes.len();
            if node.data.len() < end {
                node.data.resize(end, 0);
            }
            node.data[start..end].copy_from_slice(bytes);
            node.attr.size = node.data.len() as u64;
            node.attr.mtime = now();
            Ok(len as u32)
        };
        reply.send(if self.switches.keep_writes {
            let kept = data.take();
            let result = put(&mut tree, &kept);
            self.kept.lock().unwrap().push(kept);
            result
        } else {
            put(&mut tree, &data)
        });
    }

    fn flush(&self, _: &Request, nodeid: u64, _: u64, lock_owner: u64, reply: Reply<()>) {
        self.count("flush");
        self.locks.close(nodeid, lock_owner);
        reply.ok(());
    }

    fn release(&self, _: &Request, nodeid: u64, release: ReleaseIn, reply: Reply<()>) {
        self.count("release");
        if let (Some(owner), true) = (release.lock_owner, release.flock_unlock) {
            self.locks.close(nodeid, owner);
        }
        reply.ok(());
    }

    fn fsync(&self, _: &Request, _: u64, _: u64, datasync: bool, reply: Reply<()>) {
        self.count(if datasync { "fdatasync" } else { "fsync" });
        reply.ok(());
    }

    fn opendir(&self, _: &Request, _: u64, _: u32, reply: Reply<Open>) {
        reply.ok(Open::default());
    }

    fn readdir(
        &self,
        _: &Request,
        nodeid: u64,
        _: u64,
        offset: u64,
        size: u32,
        reply: Reply<DirBuf>,
    ) {
        self.count("readdir");
        let mut tree = self.tree();
        let list = |tree: &mut Tree| {
            let mut out = DirBuf::new(size);
            for (&cookie, (name, id)) in tree.node(nodeid)?.names.range(offset + 1..) {
                if !out.add(*id, cookie, libc::S_IFREG, name) {
                    break;
                }
            }
            Ok(out)
        };
        reply.send(list(&mut tree));
    }

    fn readdirplus(
        &self,
        _: &Request,
        nodeid: u64,
        _: u64,
        offset: u64,
        size: u32,
        reply: Reply<DirPlusBuf>,
    ) {
        self.count("readdirplus");
        let mut tree = self.tree();
        let mut out = DirPlusBuf::new(size);
        let names = match tree.node(nodeid) {
            Ok(dir) => dir.names.range(offset + 1..).take(10_000),
            Err(e) => return reply.err(e),
        };
        let names: Vec<_> = names.map(|(c, (n, id))| (*c, n.clone(), *id)).collect();
        for (cookie, name, id) in names {
            let Ok(node) = tree.node(id) else { continue };
            if !out.add(&self.plain_entry(node), cookie, &name) {
                break;
            }
            node.lookups += 1;
        }
        reply.ok(out);
    }

    fn releasedir(&self, _: &Request, _: u64, _: ReleaseIn, reply: Reply<()>) {
        reply.ok(());
    }

    fn fsyncdir(&self, _: &Request, _: u64, _: u64, _: bool, reply: Reply<()>) {
        self.count("fsyncdir");
        reply.ok(());
    }

    fn statfs(&self, _: &Request, _: u64, reply: Reply<Statfs>) {
        let space = Statfs {
            blocks: 1000,
            bfree: 900,
            bavail: 800,
            bsize: 4096,
            frsize: 4096,
            ..Statfs::default()
        };
        reply.ok(Statfs { files: 70, ffree: 60, namelen: 255, ..space });
    }

    fn setxattr(
        &self,
        _: &Request,
        nodeid: u64,
        name: &OsStr,
        value: &[u8],
        flags: u32,
        _: bool,
        reply: Reply<()>,
    ) {
        let mut tree = self.tree();
        let Ok(node) = tree.node(nodeid) else { return reply.err(Errno::ENOENT) };
        match (flags as i32, node.xattrs.contains_key(name)) {
            (libc::XATTR_CREATE, true) => return reply.err(Errno::new(libc::EEXIST)),
            (libc::XATTR_REPLACE, false) => return reply.err(Errno::new(libc::ENODATA)),
            _ => node.xattrs.insert(name.to_owned(), value.to_vec()),
        };
        reply.ok(());
    }

    fn getxattr(&self, _: &Request, nodeid: u64, name: &OsStr, reply: Reply<Xattr>) {
        let mut tree = self.tree();
        let value =
            tree.node(nodeid).and_then(|n| n.xattrs.get(name).ok_or(Errno::new(libc::ENODATA)));
        reply.send_value(value);
    }

    fn listxattr(&self, _: &Request, nodeid: u64, reply: Reply<Xattr>) {
        let mut tree = self.tree();
        reply.send_value(tree.node(nodeid).map(|node| {
            node.xattrs.keys().flat_map(|k| [k.as_bytes(), b"\0"].concat()).collect::<Vec<u8>>()
        }));
    }

    fn removexattr(&self, _: &Request, nodeid: u64, name: &OsStr, reply: Reply<()>) {
        let mut tree = self.tree();
        let gone =
            tree.node(nodeid).and_then(|n| n.xattrs.remove(name).ok_or(Errno::new(libc::ENODATA)));
        reply.send(gone.map(|_| ()));
    }

    fn access(&self, _: &Request, _: u64, _: u32, reply: Reply<()>) {
        reply.ok(());
    }

    fn getlk(&self, _: &Request, nodeid: u64, lock: LockIn, reply: Reply<FileLock>) {
        reply.ok(self.locks.test(nodeid, &lock));
    }

    fn setlk(&self, _: &Request, nodeid: u64, lock: LockIn, reply: Reply<()>) {
        self.count("setlk");
        Locks::set(&self.locks, nodeid, lock, reply);
    }

    fn fallocate(
        &self,
        _: &Request,
        nodeid: u64,
        _: u64,
        offset: u64,
        len: u64,
        mode: u32,
        reply: Reply<()>,
    ) {
        let mut tree = self.tree();
        let Ok(node) = tree.node(nodeid) else { return reply.err(Errno::ENOENT) };
        let (start, end) = (offset as usize, (offset + len) as usize);
        if mode & libc::FALLOC_FL_KEEP_SIZE as u32 == 0 && node.data.len() < end {
            node.data.resize(end, 0);
            node.attr.size = end as u64;
        }
        if mode & libc::FALLOC_FL_PUNCH_HOLE as u32 != 0 {
            let size = node.data.len();
            node.data[start.min(size)..end.min(size)].fill(0);
        }
        reply.ok(());
    }

    /// Zero blocks are holes.
    fn lseek(&self, _: &Request, nodeid: u64, _: u64, offset: u64, whence: u32, reply: Reply<u64>) {
        let mut tree = self.tree();
        let Ok(node) = tree.node(nodeid) else { return reply.err(Errno::ENOENT) };
        let want_hole = whence == libc::SEEK_HOLE as u32;
        let blocks = node.data.chunks(4096).enumerate().skip(offset as usize / 4096);
        let found = blocks.filter(|(_, b)| b.iter().all(|&x| x == 0) == want_hole);
        let found = found.map(|(i, _)| offset.max(i as u64 * 4096)).next();
        reply.send(match (offset < node.attr.size, found, want_hole) {
            (true, Some(at), _) => Ok(at),
            (true, None, true) => Ok(node.attr.size),
            _ => Err(Errno::new(libc::ENXIO)),
        });
    }

    fn copy_file_range(&self, _: &Request, nodeid: u64, copy: CopyIn, reply: Reply<u64>) {
        self.count("copy_file_range");
        let mut tree = self.tree();
        let mut go = || {
            let from = &tree.node(nodeid)?.data;
            let start = (copy.off_in as usize).min(from.len());
            let end = (start + copy.len as usize).min(from.len());
            let bytes = from[start..end].to_vec();
            let node = tree.node(copy.nodeid_out)?;
            let at = copy.off_out as usize;
            node.data.resize(node.data.len().max(at + bytes.len()), 0);
            node.data[at..at + bytes.len()].copy_from_slice(&bytes);
            node.attr.size = node.data.len() as u64;
            Ok(bytes.len() as u64)
        };
        reply.send(go());
    }

    fn statx(&self, _: &Request, nodeid: u64, _: StatxIn, reply: Reply<Statx>) {
        self.count("statx");
        let attr = self.attr(nodeid);
        reply.send(attr.map(|a| Statx {
            attr: a.attr,
            btime: Some(BTIME),
            ttl: a.ttl,
            ..Statx::default()
        }));
    }

    fn syncfs(&self, _: &Request, _: u64, reply: Reply<()>) {
        self.count("syncfs");
        reply.ok(());
    }
}
