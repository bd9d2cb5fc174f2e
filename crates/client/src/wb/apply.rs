//! What an operation does, done here: the answer is the one the MDT will give.
//!
//! Role: the rules of the MDT's operations for what is simple and known (modes, owners, links,
//! times, versions, cookies); everything else is asked of it. Each rule mirrors the operation's file
//! in crate `mds`; the property test compares the two. Never does: I/O, permissions (the kernel's).

use bytes::Bytes;
use proto::acl::{self, Acl};
use proto::attr::*;
use proto::mds::*;
use proto::wire::List;
use proto::{Errno, Fid, FileKind, MAX_BODY, MAX_FILE_SIZE, NAME_MAX, SYMLINK_MAX, TimeSpec};

use super::{CHANGE_BYTES, Tree};
use crate::leases::Mark;
use crate::names::Found;

/// What came of an operation.
#[derive(Debug, PartialEq)]
pub(crate) enum Local {
    /// Answered from what is known.
    Known(Res),
    /// Done here; the MDT must hear of it.
    Changed(Res),
    /// It cannot be done.
    Fails(Errno),
    /// Only the MDT knows.
    Ask,
}

use Local::{Ask, Changed, Fails, Known};

/// Links from which on the MDT is asked for another: its limit is near.
const MANY_LINKS: u32 = 60_000;
/// Most entries of one page, as at the MDT.
const MAX_ENTRIES: usize = 4096;
/// Bytes an entry takes, about: with attributes, without.
const ENTRY_BYTES: (usize, usize) = (160, 32);

/// Ends an operation early.
macro_rules! known {
    ($value:expr) => {
        match $value {
            Some(v) => v,
            None => return Ask,
        }
    };
}

fn name_error(name: &[u8]) -> Option<Errno> {
    (name.len() > NAME_MAX).then_some(Errno::ENAMETOOLONG)
}

fn odd(name: &[u8]) -> bool {
    name.is_empty() || name == b"." || name == b".." || name.contains(&b'/') || name.contains(&0)
}

fn touch(a: &mut Attr, now: TimeSpec) {
    a.ctime = now;
    a.version += 1;
}

/// A file whose data is with the MDT and that nobody moves away.
pub(super) fn plain_inline(a: &Attr) -> bool {
    a.kind() == FileKind::File && a.flags & (A_INLINE | A_SIZE_LAGS | A_HAS_LAYOUT) == A_INLINE
}

type Attr = proto::Attr;

impl Tree {
    /// Does one operation if all it takes is known. Nothing is changed unless it says so: whether this
    /// client may is decided before the first change, for a lease may be called back at any time, and
    /// what was begun before it is dealt with goes out before it is given back.
    pub(crate) fn apply(&mut self, cred: &Cred, op: &Op, now: TimeSpec) -> Local {
        match op {
            Op::Lookup { dir, name } => {
                self.near.visit(*dir);
                self.lookup(*dir, name)
            }
            Op::GetAttr { fid } => self.attr(*fid),
            Op::ReadDir { dir, cookie, max_bytes, flags } => {
                self.near.visit(*dir);
                self.read_dir(*dir, *cookie, *max_bytes, *flags)
            }
            Op::ReadLink { fid } => {
                let target = known!(self.believed(*fid).and_then(|k| k.target.as_deref()));
                Known(Res::Data { data: Bytes::copy_from_slice(target) })
            }
            Op::ReadInline { fid } => self.read_layout(*fid),
            Op::GetXattr { fid, .. } => match self.has_xattr(*fid) {
                Some(false) => Fails(Errno::ENODATA),
                _ => Ask,
            },
            Op::ListXattr { fid } => match self.has_xattr(*fid) {
                Some(false) => Known(Res::Data { data: Bytes::new() }),
                _ => Ask,
            },
            Op::Create { .. } => self.create(cred, op, now),
            Op::Unlink { dir, name, rmdir } => self.unlink(*dir, name, *rmdir, now),
            Op::Rename { from_dir, from, to_dir, to, flags } => {
                self.rename((*from_dir, from), (*to_dir, to), *flags, now)
            }
            Op::Link { fid, dir, name } => self.link(*fid, *dir, name, now),
            Op::SetAttr { fid, set } => self.set_attr(*fid, set, now),
            Op::SetXattr { fid, name, value, flags: 0 } if name == acl::ACCESS => {
                self.set_minimal_acl(*fid, value, now)
            }
            Op::RemoveXattr { fid, name } if name == acl::ACCESS || name == acl::DEFAULT => {
                match self.has_xattr(*fid) {
                    Some(false) => self.attr(*fid),
                    _ => Ask,
                }
            }
            Op::WriteInline { fid, offset, data, cut: None, mtime } => {
                self.write_inline(*fid, *offset, data, *mtime, now)
            }
            Op::Report { fid, report } => self.report(*fid, report, now),
            Op::Close { fid, handle, report } => self.close(*fid, *handle, report.as_ref(), now),
            _ => Ask,
        }
    }

    fn has_xattr(&mut self, fid: Fid) -> Option<bool> {
        self.believed(fid).map(|k| k.attr.flags & A_HAS_XATTR != 0)
    }

    fn attr(&mut self, fid: Fid) -> Local {
        let attr = known!(self.believed(fid)).attr.clone();
        Known(Res::Attr { attr })
    }

    /// Where the data of a file with objects is.
    fn read_layout(&mut self, fid: Fid) -> Local {
        if !self.trust.alone() {
            return Ask;
        }
        let known = known!(self.attrs.edit(fid));
        let layout = Some(known!(known.layout()).clone());
        Known(Res::Inline { attr: known.attr.clone(), data: None, layout })
    }

    fn lookup(&mut self, dir: Fid, name: &[u8]) -> Local {
        if let Some(e) = name_error(name) {
            return Fails(e);
        }
        let fid = match name {
            b".." => known!(self.parent(dir)),
            _ if odd(name) || !self.trusts(dir) || self.is_moving(dir, name) => return Ask,
            _ => match self.names.find(dir, name) {
                Found::Is(fid, _) => fid,
                Found::Absent => return Fails(Errno::ENOENT),
                Found::Unknown => return Ask,
            },
        };
        let attr = known!(self.believed(fid)).attr.clone();
        Known(Res::Entry { attr, created: false, open: None })
    }

    fn read_dir(&mut self, dir: Fid, from: u64, max_bytes: u32, flags: u8) -> Local {
        let plus = flags & RD_PLUS != 0;
        let each = if plus { ENTRY_BYTES.0 } else { ENTRY_BYTES.1 };
        let room = (max_bytes as usize).min(MAX_BODY as usize - 16384);
        if room < each + NAME_MAX || !self.trusts(dir) || self.are_moving(dir) {
            return Ask;
        }
        let page = known!(self.names.page(dir, from, (room / each).min(MAX_ENTRIES)));
        let (mut entries, mut used, mut end) = (Vec::new(), 0, page.end);
        for (cookie, name, fid, kind) in page.entries {
            used += each + name.len();
            if used > room {
                end = false;
                break;
            }
            let attr = match plus {
                true => Some(known!(self.believed(fid)).attr.clone()),
                false => None,
            };
            entries.push(DirEntry { cookie, name, fid, kind, attr });
        }
        Known(Res::Entries { entries: List(entries), end })
    }

    /// A directory gained or lost names.
    fn touch_dir(&mut self, dir: Fid, subdirs: i64, now: TimeSpec) {
        if let Some(known) = self.attrs.edit(dir) {
            let a = &mut known.attr;
            a.nlink = (i64::from(a.nlink) + subdirs).max(0) as u32;
            a.mtime = now;
            touch(a, now);
        }
    }

    /// Takes from the space the MDT is known to have.
    fn take_room(&mut self, bytes: usize) -> Option<()> {
        self.room = self.room.checked_sub(CHANGE_BYTES + 2 * bytes as u64)?;
        Some(())
    }

    fn create(&mut self, cred: &Cred, op: &Op, now: TimeSpec) -> Local {
        let Op::Create { dir, name, fid, mode, umask, rdev, target, flags, open } = op else {
            return Ask;
        };
        if flags & C_TMPFILE != 0 {
            return Ask;
        }
        if let Some(e) = name_error(name) {
            return Fails(e);
        }
        if odd(name) {
            return Ask;
        }
        match self.own_name(*dir, name) {
            Found::Is(..) if flags & C_EXCL != 0 => return Fails(Errno::EEXIST),
            Found::Is(..) | Found::Unknown => return Ask,
            Found::Absent => {}
        }
        let kind = known!(FileKind::from_mode(*mode));
        let parent = known!(self.own(*dir)).attr.clone();
        // Attributes may be inherited: ACLs.
        if parent.flags & A_HAS_XATTR != 0 || !parent.is_dir() {
            return Ask;
        }
        let link = kind == FileKind::Symlink;
        if link && (target.is_empty() || target.len() > SYMLINK_MAX) {
            return Ask;
        }
        known!(self.take_room(name.len() + target.len()));
        let attr = new_attr(cred, &parent, *fid, kind, (*mode, *umask), *rdev, target, now);
        let mark = match self.trust.alone() {
            true => Mark::NEVER,
            false => self.trust.leases.born(*fid, kind),
        };
        self.attrs.born(attr.clone(), target, mark);
        let is_dir = kind == FileKind::Dir;
        if is_dir {
            self.names.born(*fid, *dir, mark);
        }
        self.attrs.found_in(&attr, *dir, mark);
        self.names.set(*dir, name, Some((*fid, kind)), true);
        self.touch_dir(*dir, i64::from(is_dir), now);
        let open = (flags & C_OPEN != 0 && kind == FileKind::File).then(|| OpenInfo {
            handle: self.opens.begin(*fid, *open),
            inline: Some(Bytes::new()),
            layout: None,
            shared: false,
        });
        Changed(Res::Entry { attr, created: true, open })
    }

    fn unlink(&mut self, dir: Fid, name: &[u8], rmdir: bool, now: TimeSpec) -> Local {
        if let Some(e) = name_error(name) {
            return Fails(e);
        }
        match name {
            b"." => return Fails(Errno::EINVAL),
            b".." => return Fails(Errno::ENOTEMPTY),
            _ if odd(name) => return Ask,
            _ => {}
        }
        let (fid, kind) = match self.own_name(dir, name) {
            Found::Is(fid, kind) => (fid, kind),
            Found::Absent => return Fails(Errno::ENOENT),
            Found::Unknown => return Ask,
        };
        let is_dir = kind == FileKind::Dir;
        match (rmdir, is_dir) {
            (true, false) => return Fails(Errno::ENOTDIR),
            (false, true) => return Fails(Errno::EISDIR),
            _ => {}
        }
        if is_dir && !known!(self.own_empty(fid)) {
            return Fails(Errno::ENOTEMPTY);
        }
        if !self.may_drop_link(fid) || !self.keeps_up(dir) {
            return Ask;
        }
        self.names.set(dir, name, None, true);
        self.touch_dir(dir, -i64::from(is_dir), now);
        let attr = known!(self.drop_link(fid, now));
        Changed(Res::Attr { attr })
    }

    /// Whether a link of an inode may go here: a file that goes with it must not be open, or the MDT is to know of that.
    fn may_drop_link(&mut self, fid: Fid) -> bool {
        let Some(known) = self.own(fid) else { return false };
        let stays = !known.attr.is_dir() && known.attr.nlink > 1;
        stays || !self.opens.is_open(fid)
    }

    /// A link less; what is left of the inode.
    fn drop_link(&mut self, fid: Fid, now: TimeSpec) -> Option<Attr> {
        let a = &mut self.attrs.edit(fid)?.attr;
        a.nlink = if a.is_dir() { 0 } else { a.nlink.saturating_sub(1) };
        touch(a, now);
        let attr = a.clone();
        if attr.nlink == 0 {
            self.attrs.removed(fid);
            self.names.forget(fid);
        }
        Some(attr)
    }

    fn rename(
        &mut self,
        from: (Fid, &Vec<u8>),
        to: (Fid, &Vec<u8>),
        flags: u32,
        now: TimeSpec,
    ) -> Local {
        if let Some(e) = name_error(from.1).or(name_error(to.1)) {
            return Fails(e);
        }
        if flags & !RN_NOREPLACE != 0 || odd(from.1) || odd(to.1) {
            return Ask;
        }
        let (fid, kind) = match self.own_name(from.0, from.1) {
            Found::Is(fid, kind) => (fid, kind),
            // What else may be wrong with it is for the MDT to say.
            _ => return Ask,
        };
        let over = match self.own_name(to.0, to.1) {
            Found::Is(..) if flags & RN_NOREPLACE != 0 => return Fails(Errno::EEXIST),
            Found::Is(fid, kind) => Some((fid, kind)),
            Found::Absent => None,
            Found::Unknown => return Ask,
        };
        let is_dir = kind == FileKind::Dir;
        // Whether a directory is above another is the MDT's to say.
        if is_dir && from.0 != to.0 {
            return Ask;
        }
        let moved = known!(self.own(fid)).attr.clone();
        known!(self.own(to.0));
        let mut lost_dir = false;
        if let Some((other, other_kind)) = over {
            if other == fid {
                return Known(Res::Renamed { moved, replaced: None });
            }
            lost_dir = other_kind == FileKind::Dir;
            match (is_dir, lost_dir) {
                (true, false) => return Fails(Errno::ENOTDIR),
                (false, true) => return Fails(Errno::EISDIR),
                _ => {}
            }
            if lost_dir && !known!(self.own_empty(other)) {
                return Fails(Errno::ENOTEMPTY);
            }
            if !self.may_drop_link(other) {
                return Ask;
            }
        }
        self.names.set(from.0, from.1, None, true);
        self.names.set(to.0, to.1, Some((fid, kind)), true);
        self.touch_dir(from.0, -i64::from(is_dir), now);
        self.touch_dir(to.0, i64::from(is_dir) - i64::from(lost_dir), now);
        let replaced = over.and_then(|(other, _)| self.drop_link(other, now));
        let known = known!(self.attrs.edit(fid));
        touch(&mut known.attr, now);
        Changed(Res::Renamed { moved: known.attr.clone(), replaced })
    }

    fn link(&mut self, fid: Fid, dir: Fid, name: &[u8], now: TimeSpec) -> Local {
        if let Some(e) = name_error(name) {
            return Fails(e);
        }
        if odd(name) || !known!(self.own(dir)).attr.is_dir() {
            return Ask;
        }
        match self.own_name(dir, name) {
            Found::Is(..) => return Fails(Errno::EEXIST),
            Found::Absent => {}
            Found::Unknown => return Ask,
        }
        let old = &known!(self.own(fid)).attr;
        // What has no name, or very many, is for the MDT to judge.
        if old.is_dir() || !(1..MANY_LINKS).contains(&old.nlink) {
            return Ask;
        }
        let kind = old.kind();
        known!(self.take_room(name.len()));
        self.names.set(dir, name, Some((fid, kind)), true);
        self.touch_dir(dir, 0, now);
        let a = &mut known!(self.attrs.edit(fid)).attr;
        a.nlink += 1;
        touch(a, now);
        Changed(Res::Attr { attr: a.clone() })
    }

    fn set_attr(&mut self, fid: Fid, set: &SetAttr, now: TimeSpec) -> Local {
        let known = known!(self.own(fid));
        let old = &known.attr;
        let has = |bits| set.valid & bits != 0;
        if has(S_KILL_SUID) || (has(S_MODE) && old.flags & A_HAS_ACL != 0) {
            return Ask;
        }
        if set.valid != 0 && !has(!S_OPENED) {
            return Known(Res::Attr { attr: old.clone() });
        }
        let mut new = old.clone();
        let mut inline = known.inline;
        if has(S_SIZE) {
            if !plain_inline(old) || set.size > MAX_FILE_SIZE {
                return Ask;
            }
            let data = match (old.blocks, set.size) {
                (0, _) => 0,
                // All of it goes, however much it is.
                (_, 0) => 1,
                _ => known!(inline),
            };
            if set.size < data {
                inline = Some(set.size);
                new.blocks = set.size.div_ceil(512);
            }
            new.size = set.size;
        }
        if has(S_MODE) {
            new.mode = (new.mode & !0o7777) | (set.mode & 0o7777);
        }
        if has(S_UID) {
            new.uid = set.uid;
        }
        if has(S_GID) {
            new.gid = set.gid;
        }
        if has(S_ATIME) {
            new.atime = set.atime;
        }
        if has(S_ATIME_NOW) {
            new.atime = now;
        }
        if has(S_MTIME) {
            new.mtime = set.mtime;
        }
        if has(S_MTIME_NOW) || (has(S_SIZE) && !has(S_MTIME)) {
            new.mtime = now;
        }
        touch(&mut new, now);
        if has(S_CTIME) {
            new.ctime = set.ctime;
        }
        (known.attr, known.inline) = (new.clone(), inline);
        Changed(Res::Attr { attr: new })
    }

    /// An access ACL that says no more than a mode (`cp -a` sets one on each file) where there is none is a chmod.
    fn set_minimal_acl(&mut self, fid: Fid, value: &[u8], now: TimeSpec) -> Local {
        let a = &known!(self.own(fid)).attr;
        let plain = a.flags & (A_HAS_XATTR | A_HAS_ACL) == 0 && a.kind() != FileKind::Symlink;
        let acl = known!(Acl::decode(value).ok().flatten());
        if !plain || !acl.is_minimal() {
            return Ask;
        }
        // The MDT refuses attributes when it is full, whatever they say.
        known!(self.take_room(value.len()));
        let a = &mut known!(self.attrs.edit(fid)).attr;
        a.mode = (a.mode & !0o777) | acl.mode();
        touch(a, now);
        Changed(Res::Attr { attr: a.clone() })
    }

    fn write_inline(
        &mut self,
        fid: Fid,
        offset: u64,
        data: &Bytes,
        mtime: Option<TimeSpec>,
        now: TimeSpec,
    ) -> Local {
        let limit = self.dom_limit;
        let known = known!(self.own(fid));
        let end = offset.saturating_add(data.len() as u64);
        if !plain_inline(&known.attr) || end > limit {
            return Ask;
        }
        let held = if known.attr.blocks == 0 { 0 } else { known!(known.inline) };
        known!(self.take_room(data.len()));
        let known = known!(self.attrs.edit(fid));
        let a = &mut known.attr;
        if !data.is_empty() {
            a.size = a.size.max(end);
            a.blocks = held.max(end).div_ceil(512);
            known.inline = Some(held.max(end));
        }
        // A time that is known already was set by hand.
        let told = mtime == Some(a.mtime);
        a.mtime = mtime.unwrap_or(now);
        let ctime = match mtime {
            Some(_) if told => a.ctime,
            Some(t) => a.ctime.max(t.min(now)),
            None => now,
        };
        touch(a, ctime);
        Changed(Res::Attr { attr: a.clone() })
    }

    fn report(&mut self, fid: Fid, report: &SizeReport, now: TimeSpec) -> Local {
        let known = known!(self.own(fid));
        let old = &known.attr;
        let file = old.kind() == FileKind::File;
        if old.flags & A_SIZE_LAGS != 0 || (!file && report.mtime.is_some()) {
            return Ask;
        }
        let mut new = old.clone();
        if file && new.flags & A_INLINE == 0 {
            new.size = if report.exact { report.size } else { new.size.max(report.size) };
            new.blocks = report.blocks.unwrap_or(new.blocks);
        }
        new.mtime = report.mtime.unwrap_or(new.mtime);
        new.atime = report.atime.map_or(new.atime, |t| new.atime.max(t));
        if new == *old {
            return Known(Res::Attr { attr: new });
        }
        let told = report.mtime == Some(old.mtime);
        let changed = !told && (new.size != old.size || new.mtime != old.mtime);
        new.version += 1;
        if changed {
            new.ctime = new.ctime.max(report.mtime.map_or(now, |t| t.min(now)));
        }
        known.attr = new.clone();
        Changed(Res::Attr { attr: new })
    }

    /// The end of an open the MDT was not told of.
    fn close(
        &mut self,
        fid: Fid,
        handle: u64,
        report: Option<&SizeReport>,
        now: TimeSpec,
    ) -> Local {
        if !self.opens.is_own(fid, handle) {
            return Ask;
        }
        let done = match report {
            None => Known(Res::Done {}),
            Some(report) => self.report(fid, report, now),
        };
        if done != Ask {
            self.opens.end(fid, handle);
        }
        done
    }
}

/// A new inode, as `create` of the MDT makes it where no ACL is inherited.
fn new_attr(
    cred: &Cred,
    parent: &Attr,
    fid: Fid,
    kind: FileKind,
    (mode, umask): (u32, u32),
    rdev: u64,
    target: &[u8],
    now: TimeSpec,
) -> Attr {
    let is_dir = kind == FileKind::Dir;
    let setgid = parent.mode & 0o2000 != 0;
    let mode = match kind {
        FileKind::Symlink => mode | 0o777,
        _ => mode & !(umask & 0o777),
    };
    let flags = match kind {
        FileKind::File => A_INLINE,
        FileKind::Dir => parent.flags & A_HAS_LAYOUT,
        _ => 0,
    };
    Attr {
        fid,
        mode: mode | if setgid && is_dir { 0o2000 } else { 0 },
        nlink: if is_dir { 2 } else { 1 },
        uid: cred.uid,
        gid: if setgid { parent.gid } else { cred.gid },
        rdev: if matches!(kind, FileKind::Char | FileKind::Block) { rdev } else { 0 },
        size: if is_dir { 4096 } else { target.len() as u64 },
        blocks: if is_dir { 8 } else { 0 },
        atime: now,
        mtime: now,
        ctime: now,
        btime: now,
        flags,
        version: 1,
    }
}
