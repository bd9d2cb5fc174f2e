//! Values of the file system as the kernel's, and back.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use fuse::{Attr, AttrOut, Entry, Errno, SetTime, Time, decode_dev, encode_dev};
use proto::attr::*;
use proto::mds::Cred;
use proto::wire::List;

use crate::belief::Asked;
use crate::caches::{Caches, Mark};

/// Preferred I/O size shown by stat, bytes.
const BLKSIZE: u32 = 4096;

/// An error.
pub fn errno(e: proto::Errno) -> Errno {
    Errno::new(e.0)
}

/// An error of an operation on a name: a directory that is gone has no names.
pub fn name_errno(e: proto::Errno) -> Errno {
    if e == proto::Errno::ESTALE { Errno::ENOENT } else { errno(e) }
}

/// A time.
pub fn time(t: TimeSpec) -> Time {
    Time { sec: t.sec, nsec: t.nsec }
}

/// A time from the kernel; nanoseconds beyond the range are cut.
pub fn timespec(t: Time) -> TimeSpec {
    TimeSpec { sec: t.sec, nsec: t.nsec.min(999_999_999) }
}

/// Attributes that the kernel is told, and when they were asked for.
pub fn attr(caches: &Caches, a: &proto::Attr, mark: Mark) -> Attr {
    caches.nodes.tells(caches.node(a.fid), mark.drops);
    let (major, minor) = (libc::major(a.rdev), libc::minor(a.rdev));
    Attr {
        ino: caches.node(a.fid),
        size: a.size,
        blocks: a.blocks,
        atime: time(a.atime),
        mtime: time(a.mtime),
        ctime: time(a.ctime),
        mode: a.mode,
        nlink: a.nlink,
        uid: a.uid,
        gid: a.gid,
        rdev: encode_dev(major, minor),
        blksize: BLKSIZE,
        flags: 0,
    }
}

/// A device number from the kernel.
pub fn rdev(dev: u32) -> u64 {
    let (major, minor) = decode_dev(dev);
    libc::makedev(major, minor)
}

/// Attributes after a change, and how long they are valid.
pub fn attr_out(caches: &Caches, a: &proto::Attr, mark: Mark) -> AttrOut {
    caches.learn(a, mark);
    caches.nodes.seen(caches.node(a.fid), a);
    AttrOut { attr: attr(caches, a, mark), ttl: caches.ttl(mark) }
}

/// Attributes that were asked for, and how long they are valid.
pub fn asked_attr(caches: &Caches, a: &proto::Attr, mark: Mark) -> AttrOut {
    caches.learn(a, mark);
    AttrOut { attr: attr(caches, a, mark), ttl: caches.attr_ttl(a, Asked::ByNode, mark) }
}

/// A name: of which directory's node, and how it is called.
pub type Name<'a> = (u64, &'a OsStr);

/// How the kernel hears of a name.
#[derive(Clone, Copy, PartialEq, Eq)]
enum How {
    /// It looks it up, for this thread: nobody holds the directory's lock if it knows the name already.
    Asked(u32),
    /// It lists the directory, or changed something there.
    Locked,
}

impl How {
    /// The thread for which a name that the kernel knows goes there without the lock; `known`: the node.
    fn again(self, known: bool) -> Option<u32> {
        match self {
            How::Asked(thread) if known => Some(thread),
            _ => None,
        }
    }
}

/// A node whose name was looked up, by this thread; the kernel now knows it once more.
pub fn found(caches: &Caches, a: &proto::Attr, mark: Mark, name: Name, thread: u32) -> Entry {
    named(caches, a, mark, name, How::Asked(thread))
}

/// A node whose directory was listed; the kernel now knows it once more.
pub fn listed(caches: &Caches, a: &proto::Attr, mark: Mark, name: Name) -> Entry {
    named(caches, a, mark, name, How::Locked)
}

fn named(caches: &Caches, a: &proto::Attr, mark: Mark, name: Name, how: How) -> Entry {
    let (entry, known) = tell(caches, a, mark, Some(name), how);
    let attr_ttl = caches.attr_ttl(a, Asked::ByName, mark);
    let again = how.again(known);
    let at = (name.0, name.1.as_bytes());
    let name_ttl = match caches.valid(mark) {
        true => entry.entry_ttl,
        // Who opens a file by a name that is kept is not told how long it is: no longer than what is known of that.
        false if !a.is_dir() && attr_ttl.is_zero() => Duration::ZERO,
        false => {
            let ttl = caches.entry_ttl(at, Some(a.fid), again);
            // Where names around it change a directory's still rests on what is known of itself.
            let alone = ttl.is_zero() && a.is_dir();
            if alone { caches.name_ttl(a, at, again, attr_ttl) } else { ttl }
        }
    };
    Entry { entry_ttl: entry.entry_ttl.max(name_ttl), attr_ttl, ..entry }
}

/// A node after a change, which may have given it a name; the kernel now knows it once more.
pub fn entry(caches: &Caches, a: &proto::Attr, mark: Mark, name: Option<Name>) -> Entry {
    tell(caches, a, mark, name, How::Locked).0
}

/// Also whether the kernel knew the node.
fn tell(
    caches: &Caches,
    a: &proto::Attr,
    mark: Mark,
    name: Option<Name>,
    how: How,
) -> (Entry, bool) {
    let node = caches.node(a.fid);
    let known = caches.nodes.told(node, a.kind());
    caches.nodes.seen(node, a);
    caches.learn(a, mark);
    if let Some((parent, name)) = name.filter(|_| caches.valid(mark)) {
        caches.nodes.named(node, (parent, name.as_bytes()), how.again(known));
    }
    // After the note: whoever takes the lease away now finds it.
    let ttl = caches.ttl(mark);
    let attr = attr(caches, a, mark);
    (Entry { nodeid: node, generation: 0, entry_ttl: ttl, attr_ttl: ttl, attr }, known)
}

/// An absent name; without a lease on its directory it is not worth remembering.
pub fn absent(caches: &Caches, mark: Mark, (parent, name): Name) -> Result<Entry, Errno> {
    let at = (parent, name.as_bytes());
    let leased = match caches.valid(mark) {
        true => {
            caches.nodes.absent(at);
            Duration::ZERO
        }
        // The kernel takes it with the lock held: it asks for no absent name again.
        false => caches.entry_ttl(at, None, None),
    };
    let ttl = caches.ttl(mark).max(leased);
    if ttl.is_zero() { Err(Errno::ENOENT) } else { Ok(Entry::negative(ttl)) }
}

/// On whose behalf.
pub fn cred(req: &fuse::Request) -> Cred {
    Cred { uid: req.uid(), gid: req.gid(), groups: List(req.supp_groups().to_vec()) }
}

/// The process that asks, if it can be seen.
pub fn caller(req: &fuse::Request) -> Option<client::Caller> {
    /// USER_HZ, the same in all of Linux's ABIs that we build for.
    const TICKS: u64 = 100;
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", req.pid())).ok()?;
    // Field 22; the name before may hold anything.
    let began: u64 = stat.rsplit_once(')')?.1.split_whitespace().nth(22 - 3)?.parse().ok()?;
    let born = Duration::from_millis(began * (1000 / TICKS));
    Some(client::Caller { id: req.pid(), born })
}

/// A change of attributes.
pub fn set_attr(s: &fuse::SetAttr) -> SetAttr {
    let mut out = SetAttr::none();
    let mut set = |bit| out.valid |= bit;
    if s.mode.is_some() {
        set(S_MODE);
    }
    if s.uid.is_some() {
        set(S_UID);
    }
    if s.gid.is_some() {
        set(S_GID);
    }
    if s.size.is_some() {
        set(S_SIZE);
    }
    match s.atime {
        Some(SetTime::Now) => set(S_ATIME_NOW),
        Some(SetTime::At(_)) => set(S_ATIME),
        None => {}
    }
    match s.mtime {
        Some(SetTime::Now) => set(S_MTIME_NOW),
        Some(SetTime::At(_)) => set(S_MTIME),
        None => {}
    }
    out.mode = s.mode.unwrap_or(0);
    out.uid = s.uid.unwrap_or(0);
    out.gid = s.gid.unwrap_or(0);
    out.size = s.size.unwrap_or(0);
    if let Some(SetTime::At(t)) = s.atime {
        out.atime = timespec(t);
    }
    if let Some(SetTime::At(t)) = s.mtime {
        out.mtime = timespec(t);
    }
    out
}
