//! The mirror: each request is done on the backing directory, then journaled, then answered. The
//! session handles one request at a time, so the journal's order is the order things happened.
//!
//! Assumes that nobody else changes the backing directory while mounted, so the kernel may cache
//! names and attributes. Never syncs the backing: what is durable is the journal's to say.

use super::convert::{attr, kind, spec};
use super::journal::{Entry, Recorder};
use super::nodes::{Nodes, Res, c_name};
use crate::sys;
use fuser::{FileType as Kind, Filesystem, Request, TimeOrNow};
use rustix::fs::{self as rfs, AtFlags, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

const TTL: Duration = Duration::from_secs(3600);

struct Handle {
    file: OwnedFd,
    /// A directory's entries as it was opened.
    entries: Vec<(u64, Kind, Vec<u8>)>,
}

pub(crate) struct Mirror {
    nodes: Nodes,
    journal: Recorder,
    handles: HashMap<u64, Handle>,
    next_handle: u64,
}

/// Replies with the errno and leaves, or goes on with the value.
macro_rules! or_fail {
    ($reply:ident, $result:expr) => {
        match $result {
            Ok(value) => value,
            Err(e) => return $reply.error(Errno::raw_os_error(e)),
        }
    };
}

impl Mirror {
    pub(crate) fn new(nodes: Nodes, journal: Recorder) -> Mirror {
        Mirror { nodes, journal, handles: HashMap::new(), next_handle: 1 }
    }

    fn note(&mut self, entry: &Entry) -> Res<()> {
        self.note_data(entry, &[])
    }

    fn note_data(&mut self, entry: &Entry, data: &[u8]) -> Res<()> {
        self.journal.add(entry, data).map_err(|e| {
            eprintln!("forgetful: journal: {e}");
            Errno::IO
        })
    }

    fn handle(&mut self, file: OwnedFd, entries: Vec<(u64, Kind, Vec<u8>)>) -> u64 {
        let number = self.next_handle;
        self.next_handle += 1;
        self.handles.insert(number, Handle { file, entries });
        number
    }

    fn file(&self, handle: u64) -> Res<&OwnedFd> {
        self.handles.get(&handle).map(|h| &h.file).ok_or(Errno::BADF)
    }

    /// Makes an inode, gives it to the caller and journals it.
    fn make(
        &mut self,
        req: &Request<'_>,
        parent: u64,
        name: &OsStr,
        mode: u32,
        rdev: u32,
        target: &[u8],
    ) -> Res<(u64, Stat)> {
        let (dir, c) = (self.nodes.fd(parent)?, c_name(name)?);
        let kind = FileType::from_raw_mode(mode);
        let bits = Mode::from_raw_mode(mode & 0o7777);
        match kind {
            FileType::Directory => rfs::mkdirat(dir, &c, bits)?,
            FileType::Symlink => rfs::symlinkat(target, dir, &c)?,
            _ => rfs::mknodat(dir, &c, kind, bits, u64::from(rdev))?,
        }
        let above = rfs::fstat(dir)?;
        let inherits = above.st_mode & libc::S_ISGID != 0;
        let gid = if inherits { above.st_gid } else { req.gid() };
        let owner = (Some(rfs::Uid::from_raw(req.uid())), Some(rfs::Gid::from_raw(gid)));
        rfs::chownat(dir, &c, owner.0, owner.1, AtFlags::SYMLINK_NOFOLLOW)?;
        if kind != FileType::Symlink {
            let extra = if inherits && kind == FileType::Directory { libc::S_ISGID } else { 0 };
            rfs::chmodat(dir, &c, Mode::from_raw_mode(mode & 0o7777 | extra), AtFlags::empty())?;
        }
        let (id, stat) = self.nodes.lookup(parent, name)?;
        self.note(&Entry::Create {
            parent,
            name: name.as_bytes().into(),
            id,
            mode: stat.st_mode,
            uid: stat.st_uid,
            gid: stat.st_gid,
            rdev,
            target: target.into(),
        })?;
        Ok((id, stat))
    }

    fn remove(&mut self, parent: u64, name: &OsStr, flags: AtFlags) -> Res<()> {
        rfs::unlinkat(self.nodes.fd(parent)?, c_name(name)?, flags)?;
        self.note(&Entry::Unlink { parent, name: name.as_bytes().into() })
    }

    fn open_file(&mut self, id: u64, flags: i32) -> Res<u64> {
        // Always writable, so that write-behind of mapped pages works through any handle; the
        // kernel has checked the caller's rights. O_TRUNC comes as a setattr.
        let wants = OFlags::from_bits_retain(flags as u32) & OFlags::ACCMODE;
        let file = match self.nodes.open(id, OFlags::RDWR) {
            Err(Errno::ACCESS | Errno::PERM | Errno::ROFS) => self.nodes.open(id, wants)?,
            other => other?,
        };
        Ok(self.handle(file, Vec::new()))
    }

    fn list(&mut self, id: u64) -> Res<u64> {
        let file = self.nodes.open(id, OFlags::RDONLY | OFlags::DIRECTORY)?;
        let mut entries = Vec::new();
        for entry in rfs::Dir::read_from(&file)? {
            let entry = entry?;
            let number = self.nodes.id(entry.ino()).0;
            let name = entry.file_name().to_bytes().to_vec();
            entries.push((number, kind(entry.file_type()), name));
        }
        Ok(self.handle(file, entries))
    }

    /// Gives the bytes written: fewer than asked when the backing runs full, and just those are
    /// journaled.
    fn write_at(&mut self, id: u64, fh: u64, off: u64, data: &[u8], flags: i32) -> Res<u32> {
        let file = self.file(fh)?;
        let mut done = 0;
        while done < data.len() {
            match rustix::io::pwrite(file, &data[done..], off + done as u64) {
                Ok(count) => done += count,
                Err(e) if done == 0 => return Err(e),
                Err(_) => break,
            }
        }
        let durable = flags & (libc::O_SYNC | libc::O_DSYNC) != 0;
        let len = done as u32;
        self.note_data(&Entry::Write { id, off, len, durable }, &data[..done])?;
        Ok(len)
    }

    fn resize(&mut self, id: u64, size: u64) -> Res<()> {
        rfs::ftruncate(self.nodes.open(id, OFlags::WRONLY)?, size)?;
        self.note(&Entry::Truncate { id, size })
    }

    fn change(
        &mut self,
        id: u64,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
    ) -> Res<()> {
        let path = self.nodes.path(id)?;
        // A chown to nobody (no bit set) still changes ctime.
        if uid.is_some() || gid.is_some() || mode.is_none() {
            let owner = (uid.map(rfs::Uid::from_raw), gid.map(rfs::Gid::from_raw));
            rfs::chownat(self.nodes.fd(id)?, c"", owner.0, owner.1, AtFlags::EMPTY_PATH)?;
        }
        if let Some(mode) = mode {
            rfs::chmod(path, Mode::from_raw_mode(mode & 0o7777))?;
        }
        self.note(&Entry::Attr { id, mode, uid, gid })
    }

    fn touch(&self, id: u64, atime: Option<TimeOrNow>, mtime: Option<TimeOrNow>) -> Res<()> {
        let times = rfs::Timestamps { last_access: spec(atime), last_modification: spec(mtime) };
        rfs::utimensat(rfs::CWD, self.nodes.path(id)?, &times, AtFlags::empty())
    }

    fn xattr(&self, id: u64, name: Option<&OsStr>, size: u32) -> Res<Vec<u8>> {
        let path = self.nodes.path(id)?;
        let mut room = vec![0; 70_000];
        let len = match name {
            Some(name) => rfs::getxattr(path, c_name(name)?, &mut room[..])?,
            None => rfs::listxattr(path, &mut room[..])?,
        };
        room.truncate(len);
        if size != 0 && len > size as usize { Err(Errno::RANGE) } else { Ok(room) }
    }
}

impl Filesystem for Mirror {
    fn lookup(&mut self, _: &Request<'_>, parent: u64, name: &OsStr, reply: fuser::ReplyEntry) {
        let (id, stat) = or_fail!(reply, self.nodes.lookup(parent, name));
        reply.entry(&TTL, &attr(id, &stat), 0);
    }

    fn forget(&mut self, _: &Request<'_>, id: u64, count: u64) {
        self.nodes.forget(id, count);
    }

    fn getattr(&mut self, _: &Request<'_>, id: u64, _: Option<u64>, reply: fuser::ReplyAttr) {
        let stat = or_fail!(reply, self.nodes.stat(id));
        reply.attr(&TTL, &attr(id, &stat));
    }

    fn setattr(
        &mut self,
        _: &Request<'_>,
        id: u64,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<u64>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<u32>,
        reply: fuser::ReplyAttr,
    ) {
        if let Some(size) = size {
            or_fail!(reply, self.resize(id, size));
        }
        let timeless = size.is_none() && atime.is_none() && mtime.is_none();
        if mode.is_some() || uid.is_some() || gid.is_some() || timeless {
            or_fail!(reply, self.change(id, mode, uid, gid));
        }
        if atime.is_some() || mtime.is_some() {
            or_fail!(reply, self.touch(id, atime, mtime));
        }
        let stat = or_fail!(reply, self.nodes.stat(id));
        reply.attr(&TTL, &attr(id, &stat));
    }

    fn readlink(&mut self, _: &Request<'_>, id: u64, reply: fuser::ReplyData) {
        let fd = or_fail!(reply, self.nodes.fd(id));
        let target = or_fail!(reply, rfs::readlinkat(fd, c"", Vec::new()));
        reply.data(target.as_bytes());
    }

    fn mknod(
        &mut self,
        req: &Request<'_>,
        parent: u64,
        name: &OsStr,
        mode: u32,
        _: u32,
        rdev: u32,
        reply: fuser::ReplyEntry,
    ) {
        let (id, stat) = or_fail!(reply, self.make(req, parent, name, mode, rdev, b""));
        reply.entry(&TTL, &attr(id, &stat), 0);
    }

    fn mkdir(
        &mut self,
        req: &Request<'_>,
        parent: u64,
        name: &OsStr,
        mode: u32,
        _: u32,
        reply: fuser::ReplyEntry,
    ) {
        let mode = mode & 0o7777 | libc::S_IFDIR;
        let (id, stat) = or_fail!(reply, self.make(req, parent, name, mode, 0, b""));
        reply.entry(&TTL, &attr(id, &stat), 0);
    }

    fn symlink(
        &mut self,
        req: &Request<'_>,
        parent: u64,
        name: &OsStr,
        target: &Path,
        reply: fuser::ReplyEntry,
    ) {
        let (mode, target) = (libc::S_IFLNK | 0o777, target.as_os_str().as_bytes());
        let (id, stat) = or_fail!(reply, self.make(req, parent, name, mode, 0, target));
        reply.entry(&TTL, &attr(id, &stat), 0);
    }

    fn unlink(&mut self, _: &Request<'_>, parent: u64, name: &OsStr, reply: fuser::ReplyEmpty) {
        or_fail!(reply, self.remove(parent, name, AtFlags::empty()));
        reply.ok();
    }

    fn rmdir(&mut self, _: &Request<'_>, parent: u64, name: &OsStr, reply: fuser::ReplyEmpty) {
        or_fail!(reply, self.remove(parent, name, AtFlags::REMOVEDIR));
        reply.ok();
    }

    fn rename(
        &mut self,
        _: &Request<'_>,
        parent: u64,
        name: &OsStr,
        new_parent: u64,
        new_name: &OsStr,
        flags: u32,
        reply: fuser::ReplyEmpty,
    ) {
        let (from, to) =
            (or_fail!(reply, self.nodes.fd(parent)), or_fail!(reply, self.nodes.fd(new_parent)));
        let (a, b) = (or_fail!(reply, c_name(name)), or_fail!(reply, c_name(new_name)));
        let bits = rfs::RenameFlags::from_bits_retain(flags);
        or_fail!(reply, rfs::renameat_with(from, a, to, b, bits));
        let exchange = bits.contains(rfs::RenameFlags::EXCHANGE);
        let (name, new_name) = (name.as_bytes().into(), new_name.as_bytes().into());
        let entry = Entry::Rename { parent, name, new_parent, new_name, exchange };
        or_fail!(reply, self.note(&entry));
        reply.ok();
    }

    fn link(
        &mut self,
        _: &Request<'_>,
        id: u64,
        parent: u64,
        name: &OsStr,
        reply: fuser::ReplyEntry,
    ) {
        let (fd, dir) =
            (or_fail!(reply, self.nodes.fd(id)), or_fail!(reply, self.nodes.fd(parent)));
        let c = or_fail!(reply, c_name(name));
        or_fail!(reply, rfs::linkat(fd, c"", dir, c, AtFlags::EMPTY_PATH));
        let (id, stat) = or_fail!(reply, self.nodes.lookup(parent, name));
        or_fail!(reply, self.note(&Entry::Link { id, parent, name: name.as_bytes().into() }));
        reply.entry(&TTL, &attr(id, &stat), 0);
    }

    fn create(
        &mut self,
        req: &Request<'_>,
        parent: u64,
        name: &OsStr,
        mode: u32,
        _: u32,
        flags: i32,
        reply: fuser::ReplyCreate,
    ) {
        let mode = mode & 0o7777 | libc::S_IFREG;
        let (id, stat) = or_fail!(reply, self.make(req, parent, name, mode, 0, b""));
        let fh = or_fail!(reply, self.open_file(id, flags));
        reply.created(&TTL, &attr(id, &stat), 0, fh, fuser::consts::FOPEN_KEEP_CACHE);
    }

    fn open(&mut self, _: &Request<'_>, id: u64, flags: i32, reply: fuser::ReplyOpen) {
        let fh = or_fail!(reply, self.open_file(id, flags));
        reply.opened(fh, fuser::consts::FOPEN_KEEP_CACHE);
    }

    fn read(
        &mut self,
        _: &Request<'_>,
        _: u64,
        fh: u64,
        off: i64,
        size: u32,
        _: i32,
        _: Option<u64>,
        reply: fuser::ReplyData,
    ) {
        let file = or_fail!(reply, self.file(fh));
        let mut data = vec![0; size as usize];
        let mut got = 0;
        while got < data.len() {
            let at = off as u64 + got as u64;
            match or_fail!(reply, rustix::io::pread(file, &mut data[got..], at)) {
                0 => break,
                n => got += n,
            }
        }
        reply.data(&data[..got]);
    }

    fn write(
        &mut self,
        _: &Request<'_>,
        id: u64,
        fh: u64,
        off: i64,
        data: &[u8],
        _: u32,
        flags: i32,
        _: Option<u64>,
        reply: fuser::ReplyWrite,
    ) {
        let count = or_fail!(reply, self.write_at(id, fh, off as u64, data, flags));
        reply.written(count);
    }

    fn flush(&mut self, _: &Request<'_>, _: u64, _: u64, _: u64, reply: fuser::ReplyEmpty) {
        reply.ok();
    }

    fn release(
        &mut self,
        _: &Request<'_>,
        _: u64,
        fh: u64,
        _: i32,
        _: Option<u64>,
        _: bool,
        reply: fuser::ReplyEmpty,
    ) {
        self.handles.remove(&fh);
        reply.ok();
    }

    fn fsync(
        &mut self,
        _: &Request<'_>,
        id: u64,
        _: u64,
        data_only: bool,
        reply: fuser::ReplyEmpty,
    ) {
        or_fail!(reply, self.note(&Entry::Sync { id, data_only }));
        reply.ok();
    }

    fn opendir(&mut self, _: &Request<'_>, id: u64, _: i32, reply: fuser::ReplyOpen) {
        let fh = or_fail!(reply, self.list(id));
        reply.opened(fh, 0);
    }

    fn readdir(
        &mut self,
        _: &Request<'_>,
        _: u64,
        fh: u64,
        off: i64,
        mut reply: fuser::ReplyDirectory,
    ) {
        let Some(handle) = self.handles.get(&fh) else { return reply.error(libc::EBADF) };
        for (at, (id, kind, name)) in handle.entries.iter().enumerate().skip(off as usize) {
            if reply.add(*id, at as i64 + 1, *kind, OsStr::from_bytes(name)) {
                break;
            }
        }
        reply.ok();
    }

    fn releasedir(&mut self, _: &Request<'_>, _: u64, fh: u64, _: i32, reply: fuser::ReplyEmpty) {
        self.handles.remove(&fh);
        reply.ok();
    }

    fn fsyncdir(&mut self, _: &Request<'_>, id: u64, _: u64, _: bool, reply: fuser::ReplyEmpty) {
        or_fail!(reply, self.note(&Entry::SyncDir { id }));
        reply.ok();
    }

    fn statfs(&mut self, _: &Request<'_>, id: u64, reply: fuser::ReplyStatfs) {
        let fd = or_fail!(reply, self.nodes.fd(id).or_else(|_| self.nodes.fd(super::nodes::ROOT)));
        let s = or_fail!(reply, rfs::fstatvfs(fd.as_fd()));
        let (block, name) = (s.f_bsize as u32, s.f_namemax as u32);
        let frag = s.f_frsize as u32;
        reply.statfs(s.f_blocks, s.f_bfree, s.f_bavail, s.f_files, s.f_ffree, block, name, frag);
    }

    fn setxattr(
        &mut self,
        _: &Request<'_>,
        id: u64,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _: u32,
        reply: fuser::ReplyEmpty,
    ) {
        let (path, c) = (or_fail!(reply, self.nodes.path(id)), or_fail!(reply, c_name(name)));
        let flags = rfs::XattrFlags::from_bits_retain(flags as u32);
        or_fail!(reply, rfs::setxattr(path, c, value, flags));
        let (name, value) = (name.as_bytes().into(), value.into());
        or_fail!(reply, self.note(&Entry::SetXattr { id, name, value }));
        reply.ok();
    }

    fn getxattr(
        &mut self,
        _: &Request<'_>,
        id: u64,
        name: &OsStr,
        size: u32,
        reply: fuser::ReplyXattr,
    ) {
        let value = or_fail!(reply, self.xattr(id, Some(name), size));
        if size == 0 { reply.size(value.len() as u32) } else { reply.data(&value) }
    }

    fn listxattr(&mut self, _: &Request<'_>, id: u64, size: u32, reply: fuser::ReplyXattr) {
        let value = or_fail!(reply, self.xattr(id, None, size));
        if size == 0 { reply.size(value.len() as u32) } else { reply.data(&value) }
    }

    fn removexattr(&mut self, _: &Request<'_>, id: u64, name: &OsStr, reply: fuser::ReplyEmpty) {
        let (path, c) = (or_fail!(reply, self.nodes.path(id)), or_fail!(reply, c_name(name)));
        or_fail!(reply, rfs::removexattr(path, c));
        or_fail!(reply, self.note(&Entry::RemoveXattr { id, name: name.as_bytes().into() }));
        reply.ok();
    }

    fn fallocate(
        &mut self,
        _: &Request<'_>,
        id: u64,
        fh: u64,
        off: i64,
        len: i64,
        mode: i32,
        reply: fuser::ReplyEmpty,
    ) {
        let (off, len) = (off as u64, len as u64);
        let file = or_fail!(reply, self.file(fh));
        let bits = rfs::FallocateFlags::from_bits_retain(mode as u32);
        or_fail!(reply, rfs::fallocate(file, bits, off, len));
        or_fail!(reply, self.note(&Entry::Allocate { id, mode, off, len }));
        reply.ok();
    }

    fn lseek(
        &mut self,
        _: &Request<'_>,
        _: u64,
        fh: u64,
        off: i64,
        whence: i32,
        reply: fuser::ReplyLseek,
    ) {
        let file = or_fail!(reply, self.file(fh));
        match sys::lseek(file.as_fd(), off, whence) {
            Ok(at) => reply.offset(at),
            Err(e) => reply.error(e),
        }
    }
}
