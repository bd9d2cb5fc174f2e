//! Regular files: open, read, write, close, and what the kernel may keep of their data.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::SystemTime;

use bytes::Bytes;
use client::{Data, FallocMode, OpenFile, OpenFlags, Place, Whence};
use fuse::{
    CopyIn, CreateIn, Created, Errno, Open, OpenIn, ReadIn, ReleaseIn, Reply, Request, WriteData,
    WriteIn, open_flags,
};
use proto::attr::*;
use proto::mds::{C_EXCL, C_TRUNC, Cred};

use crate::caches::Mark;
use crate::convert::{cred, entry, errno, name_errno};
use crate::fs::PinstripeFs;
use crate::handles::{Handle, OPENED_TO_RUN};
use crate::unheard::Doubt;
use crate::xattrs::CAPABILITY;

/// Writes from this size on are kept without a copy, bytes; smaller ones would hold a whole
/// buffer each.
const KEEP: usize = 256 << 10;

/// How long a file must not have been changed for the kernel to know where it ends when it is opened, in seconds.
const QUIET: i64 = 2;

/// Files up to this many bytes are kept by the kernel when they are opened first, also those that several write.
const SMALL: u64 = 4 << 20;

/// Reads from which on a copy less is worth the trouble.
const LANDING_FROM: u32 = 64 << 10;

impl PinstripeFs {
    pub(crate) fn open_file(&self, req: &Request, node: u64, o: OpenIn) -> Result<Open, Errno> {
        let fid = self.caches.fid(node);
        let flags = OpenFlags::from_libc(o.flags as i32);
        // Where only reading is asked for, the kernel refuses to cut a running program after it has been cut.
        if flags.trunc && !flags.write && self.handles.runs(fid) {
            return Err(Errno::new(libc::ETXTBSY));
        }
        if self.opens_again(req, node) {
            // As if it had lost a race: the kernel gives up at the second ESTALE.
            return Err(self.lost(req, proto::Errno::ESTALE));
        }
        let mark = self.caches.mark();
        let file = self.client.open(&cred(req), fid, flags).map_err(|e| {
            if flags.trunc {
                // Some of its objects may have been cut, others not.
                self.caches.doubt(Doubt::node(node));
            }
            self.lost(req, e)
        })?;
        self.has_opened(req);
        if o.kill_suidgid {
            self.kill_suid(req, &file)?;
        }
        self.opened(file, o.flags, mark)
    }

    /// What the kernel is told of an open file.
    fn opened(&self, file: Arc<OpenFile>, asked: u32, mark: Mark) -> Result<Open, Errno> {
        let flags = OpenFlags::from_libc(asked as i32);
        let append = asked as i32 & libc::O_APPEND != 0;
        let (valid, node) = (self.caches.valid(mark), self.caches.node(file.fid()));
        // The kernel's idea of the end, where appended bytes would go, may be an old one.
        let unleased = !valid && self.caches.keeps_unleased() && !append;
        let told = !valid && !self.caches.keeps_unleased() && self.is_told_of(&file, asked);
        let mut bits = 0;
        // Without a lease no page may outlive the read that brought it.
        if flags.direct || !(valid || unleased || told) {
            bits |= open_flags::DIRECT_IO | open_flags::PARALLEL_DIRECT_WRITES;
        } else if flags.trunc {
            // What it held is gone.
        } else if unleased {
            bits |= if self.caches.still_good(&file) { open_flags::KEEP_CACHE } else { 0 };
        } else if !(atime_is_due(&file) || told && self.pages.may_be_old(node)) {
            bits |= open_flags::KEEP_CACHE;
        }
        if !flags.write && !self.posix_locks.load(Ordering::Relaxed) {
            bits |= open_flags::NOFLUSH;
        }
        let keeps_pages = bits & open_flags::DIRECT_IO == 0;
        if told && keeps_pages {
            self.pages.follow(node, &file, ends(&file));
        }
        let fh = self.handles.add(file, asked, keeps_pages)?;
        Ok(Open { fh, flags: bits })
    }

    /// Whether a file is opened among others, to be read only, of which the kernel may keep pages: each write of
    /// others is told here before it returns, and none of this mount is under way, for which the kernel would wait.
    /// Not a large one that this mount has written beside others, and opens first: who looks at what his neighbours have
    /// put between, once and in his own way, is faster past the kernel's pages.
    fn is_told_of(&self, file: &OpenFile, asked: u32) -> bool {
        let (fid, runs) = (file.fid(), asked & OPENED_TO_RUN != 0);
        let small = || file.known_attr().is_some_and(|a| a.size <= SMALL);
        let again = self.caches.nodes.opened(self.caches.node(fid));
        !file.flags().write
            && (again || runs || small() || !self.client.wrote_beside_others(fid))
            && self.client.vouches_for_data(fid)
            && !self.client.writes(fid)
    }

    pub(crate) fn create_file(
        &self,
        req: &Request,
        parent: u64,
        name: Option<&OsStr>,
        c: CreateIn,
    ) -> Result<Created, Errno> {
        let dir = self.caches.fid(parent);
        let flags = OpenFlags::from_libc(c.flags as i32);
        let mark = self.caches.mark();
        let cred = cred(req);
        let made = match name {
            None => self.client.tmpfile(&cred, dir, c.mode, c.umask, flags),
            Some(name) => {
                let mut how = 0;
                if c.flags as i32 & libc::O_EXCL != 0 {
                    how |= C_EXCL;
                }
                if flags.trunc {
                    how |= C_TRUNC;
                }
                let name = name.as_bytes();
                self.client.create(&cred, dir, name, c.mode, c.umask, 0, &[], how, Some(flags))
            }
        };
        self.caches.touched(parent);
        let made = made.map_err(name_errno)?;
        let Some(file) = made.file else {
            // The name is something that cannot be opened here; the kernel looks it up and decides.
            return Err(not_a_file(&made.attr));
        };
        if c.kill_suidgid && !made.created {
            self.kill_suid(req, &file)?;
        }
        let open = self.opened(file, c.flags, mark)?;
        Ok(Created {
            entry: entry(&self.caches, &made.attr, mark, name.map(|n| (parent, n))),
            open,
        })
    }

    /// The kernel takes less than it asked for as the end of the file.
    fn ends_short(&self, node: u64, r: &ReadIn, len: usize) {
        if (len as u64) < u64::from(r.size) && !self.client.is_sole() {
            self.pages.ends.short(node, r.offset + len as u64);
        }
    }

    pub(crate) fn read_file(&self, node: u64, r: ReadIn, reply: Reply<fuse::Data>) {
        let offer = || if r.size >= LANDING_FROM { reply.landing().map(Place::new) } else { None };
        let read =
            |h: Arc<Handle>| h.file.read_parts_to(r.offset, r.size.into(), &offer).map_err(errno);
        match self.handles.get(r.fh).and_then(read) {
            Ok(parts) => {
                self.ends_short(node, &r, parts.iter().map(Bytes::len).sum());
                let slices: Vec<&[u8]> = parts.iter().map(|p| &p[..]).collect();
                reply.slices(&slices)
            }
            Err(e) => reply.err(e),
        }
    }

    /// Writes; how many bytes, and where.
    pub(crate) fn write_file(
        &self,
        req: &Request,
        w: WriteIn,
        data: WriteData<'_>,
    ) -> Result<(u32, u64), Errno> {
        let h = self.handles.get(w.fh)?;
        if h.closing.load(Ordering::Relaxed) {
            h.closing.store(false, Ordering::Relaxed);
        }
        if w.kill_suidgid {
            self.kill_suid(req, &h.file)?;
        } else if !w.from_cache && (w.flags as i32 & libc::O_DIRECT != 0 || !h.keeps_pages) {
            self.kill_capability_of(req, &h)?;
        }
        let len = data.len();
        let append = w.flags as i32 & libc::O_APPEND != 0 && !w.from_cache;
        let owned;
        let data = if len >= KEEP {
            owned = Bytes::from_owner(data.take());
            Data::Owned(owned)
        } else {
            return self.put(&h, &w, append, Data::Slice(&data));
        };
        self.put(&h, &w, append, data)
    }

    /// What is appended goes where the file ends by then. The kernel's idea of the end knows only what this mount
    /// has done since it asked last: while others were there, or came and went, they may have moved it.
    fn put(
        &self,
        h: &Handle,
        w: &WriteIn,
        append: bool,
        data: Data<'_>,
    ) -> Result<(u32, u64), Errno> {
        if !append {
            return h.file.write(w.offset, data).map(|n| (n as u32, w.offset)).map_err(errno);
        }
        let len = data.as_slice().len() as u32;
        let at = h.file.append(data).map_err(errno)?;
        if at != w.offset && h.keeps_pages {
            // The kernel has put the bytes into pages of where it thought the end was.
            self.pages.discard(self.caches.node(h.file.fid()));
        }
        Ok((len, at))
    }

    /// A write by somebody without the privilege takes set-uid, set-gid and file capabilities.
    fn kill_suid(&self, req: &Request, file: &OpenFile) -> Result<(), Errno> {
        let cred = &cred(req);
        let attr = file.attr().map_err(errno)?;
        let left = without_suid(req, &attr);
        if left != attr.mode {
            let set = SetAttr { valid: S_MODE, mode: left, ..SetAttr::none() };
            self.client.setattr(cred, file.fid(), set, Some(file)).map_err(errno)?;
            self.caches.touched(self.caches.node(file.fid()));
        }
        if attr.flags & A_HAS_XATTR != 0 {
            self.kill_capability(cred, file)?;
        }
        Ok(())
    }

    fn kill_capability(&self, cred: &Cred, file: &OpenFile) -> Result<(), Errno> {
        self.caches.unlearn(file.fid());
        match self.client.removexattr(cred, file.fid(), CAPABILITY) {
            Ok(_) | Err(proto::Errno::ENODATA) => Ok(()),
            Err(e) => Err(errno(e)),
        }
    }

    /// A write past the kernel's pages takes file capabilities, whoever writes: of others the kernel itself does it.
    fn kill_capability_of(&self, req: &Request, h: &Handle) -> Result<(), Errno> {
        let set = self.caches.capabilities.load(Ordering::SeqCst);
        if !h.file.has_xattrs() || h.plain_at.load(Ordering::SeqCst) == set {
            return Ok(());
        }
        self.kill_capability(&cred(req), &h.file)?;
        h.plain_at.store(set, Ordering::SeqCst);
        Ok(())
    }

    pub(crate) fn set_attr(
        &self,
        req: &Request,
        node: u64,
        s: fuse::SetAttr,
    ) -> Result<(Attr, Mark), Errno> {
        let fid = self.caches.fid(node);
        let mut set = crate::convert::set_attr(&s);
        let handle = match s.fh {
            Some(fh) => Some(self.handles.get(fh)?),
            None => None,
        };
        // chown(2) takes set-uid and set-gid from what is no directory, whoever calls it.
        let chown = set.valid == 0 || set.valid & (S_UID | S_GID) != 0;
        if (chown || s.kill_suidgid) && set.valid & S_MODE == 0 {
            let attr = self.stat(req, node)?;
            let left = without_suid(req, &attr);
            if !attr.is_dir() && left != attr.mode {
                // chown(-1, -1): the kernel leaves out that only the owner changes the mode. But
                // what it sends before a stranger's write looks the same.
                let stranger = req.uid() != 0 && req.uid() != attr.uid;
                if set.valid == 0 && stranger && !self.handles.written(fid) {
                    return Err(Errno::new(libc::EPERM));
                }
                set.valid |= S_MODE;
                set.mode = left;
            }
        }
        let mark = self.caches.mark();
        let file = handle.as_ref().map(|h| &*h.file);
        match self.client.setattr(&cred(req), fid, set.clone(), file) {
            Ok(attr) => Ok((attr, mark)),
            // Removed, but somebody holds it (a directory, a FIFO, by O_PATH): nobody else will
            // ever see it.
            Err(proto::Errno::ESTALE) => {
                self.caches.nodes.gone(node);
                let attr = self.caches.nodes.change(node, |a| apply(a, &set));
                Ok((attr.ok_or_else(|| self.lost(req, proto::Errno::ESTALE))?, mark))
            }
            Err(e) => Err(errno(e)),
        }
    }

    pub(crate) fn flush_file(&self, req: &Request, fh: u64, owner: u64) -> Result<(), Errno> {
        let h = self.handles.get(fh)?;
        h.closing.store(true, Ordering::Relaxed);
        let flushed = h.file.flush().map_err(errno);
        // The last close, which comes later, must not end locks this owner takes anew meanwhile.
        h.owners.lock().retain(|o| *o != owner);
        self.drop_posix(&cred(req), &h, owner, false);
        flushed
    }

    pub(crate) fn release_file(&self, req: &Request, r: ReleaseIn) {
        let Ok(h) = self.handles.get(r.fh) else { return };
        if r.flock_unlock {
            self.drop_flock(&cred(req), &h);
        }
        for owner in std::mem::take(&mut *h.owners.lock()) {
            self.drop_posix(&cred(req), &h, owner, true);
        }
        // Not before its locks are free: others wait until it is gone.
        self.handles.remove(r.fh);
        h.file.release();
    }

    pub(crate) fn allocate(&self, fh: u64, offset: u64, len: u64, mode: u32) -> Result<(), Errno> {
        const KEEP_SIZE: u32 = libc::FALLOC_FL_KEEP_SIZE as u32;
        const PUNCH: u32 = libc::FALLOC_FL_PUNCH_HOLE as u32 | KEEP_SIZE;
        const ZERO: u32 = libc::FALLOC_FL_ZERO_RANGE as u32;
        const ZERO_KEEP: u32 = ZERO | KEEP_SIZE;
        let how = match mode {
            0 => FallocMode::Allocate,
            KEEP_SIZE => FallocMode::KeepSize,
            PUNCH => FallocMode::Punch,
            ZERO => FallocMode::Zero,
            ZERO_KEEP => FallocMode::ZeroKeepSize,
            _ => return Err(Errno::new(libc::EOPNOTSUPP)),
        };
        self.handles.get(fh)?.file.fallocate(how, offset, len).map_err(errno)
    }

    pub(crate) fn seek(&self, fh: u64, offset: u64, whence: u32) -> Result<u64, Errno> {
        let whence = match whence as i32 {
            libc::SEEK_DATA => Whence::Data,
            libc::SEEK_HOLE => Whence::Hole,
            _ => return Err(Errno::EINVAL),
        };
        self.handles.get(fh)?.file.seek(offset, whence).map_err(errno)
    }

    pub(crate) fn copy(&self, c: CopyIn) -> Result<u64, Errno> {
        let (from, to) = (self.handles.get(c.fh_in)?, self.handles.get(c.fh_out)?);
        let accessed = || from.file.known_attr().map(|a| a.atime);
        let before = accessed();
        let done = from.file.copy_range(c.off_in, &to.file, c.off_out, c.len).map_err(errno);
        // Of what is read here, and not by the kernel, it does not know that it was.
        if accessed() != before {
            self.caches.drop_attributes([self.caches.node(from.file.fid())]);
        }
        done
    }
}

/// Whether a file that was last changed then has not been for [`QUIET`]. A clock that is late may say so later, or never.
fn is_quiet(changed: TimeSpec, now: TimeSpec) -> bool {
    let quiet = TimeSpec { sec: changed.sec.saturating_add(QUIET), ..changed };
    quiet <= now
}

/// Where the kernel knows a file to end that is opened, which it was told a moment ago, if nobody has changed it for
/// longer; and where it ends.
fn ends(file: &OpenFile) -> (u64, u64) {
    let now = TimeSpec::from(SystemTime::now());
    let Some(a) = file.known_attr() else { return (0, 0) };
    let quiet = is_quiet(a.mtime.max(a.ctime), now);
    (if quiet { a.size } else { 0 }, a.size)
}

/// Whether the next read must move the access time: it has to come here, then.
fn atime_is_due(file: &OpenFile) -> bool {
    file.attr().is_ok_and(|a| a.size > 0 && (a.atime <= a.mtime || a.atime <= a.ctime))
}

fn not_a_file(attr: &Attr) -> Errno {
    match attr.kind() {
        FileKind::Dir => Errno::new(libc::EISDIR),
        FileKind::Symlink => Errno::new(libc::ELOOP),
        // The kernel opens these itself once it has looked the name up.
        _ => Errno::new(libc::ESTALE),
    }
}

/// A change of attributes, on an inode that exists here only.
fn apply(a: &mut Attr, set: &SetAttr) {
    let now = TimeSpec::from(SystemTime::now());
    if set.valid & S_MODE != 0 {
        a.mode = (a.mode & !0o7777) | (set.mode & 0o7777);
    }
    if set.valid & S_UID != 0 {
        a.uid = set.uid;
    }
    if set.valid & S_GID != 0 {
        a.gid = set.gid;
    }
    for (at, now_bit, time, value) in [
        (S_ATIME, S_ATIME_NOW, &mut a.atime, set.atime),
        (S_MTIME, S_MTIME_NOW, &mut a.mtime, set.mtime),
    ] {
        if set.valid & at != 0 {
            *time = value;
        }
        if set.valid & now_bit != 0 {
            *time = now;
        }
    }
    a.ctime = now;
}

/// The mode after a write, a truncation or a change of owner (Linux's `setattr_should_drop_sgid`):
/// set-uid goes; set-gid goes where the group may execute, or the caller is neither privileged nor
/// a member of the group.
fn without_suid(req: &Request, attr: &Attr) -> u32 {
    let mut mode = attr.mode & !0o4000;
    let foreign = || req.uid() != 0 && !in_group(req, attr.gid);
    if mode & 0o2000 != 0 && (mode & 0o010 != 0 || foreign()) {
        mode &= !0o2000;
    }
    mode
}

/// Whether the caller is in a group; its further groups are its kernel's to tell.
fn in_group(req: &Request, gid: u32) -> bool {
    if req.gid() == gid || req.supp_groups().contains(&gid) {
        return true;
    }
    let status = std::fs::read_to_string(format!("/proc/{}/status", req.pid()));
    let status = status.unwrap_or_default();
    let groups = status.lines().find_map(|l| l.strip_prefix("Groups:"));
    groups.is_some_and(|g| g.split_whitespace().any(|n| n.parse() == Ok(gid)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_changed_just_now_or_in_a_time_to_come_is_not_quiet() {
        let at = |sec, nsec| TimeSpec { sec, nsec };
        assert!(is_quiet(at(10, 5), at(12, 5)));
        assert!(!is_quiet(at(10, 5), at(12, 4)));
        assert!(!is_quiet(at(100, 5), at(12, 5)));
        assert!(!is_quiet(at(i64::MAX, 5), at(12, 5)), "no overflow");
    }
}
