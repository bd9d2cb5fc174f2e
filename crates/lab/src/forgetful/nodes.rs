//! The mirror's inodes: numbers that never name two files, and an O_PATH descriptor for each that
//! the kernel knows, which also keeps the backing inode number from being used again.

use rustix::fs::{self as rfs, AtFlags, CWD, Mode, OFlags, Stat};
use rustix::io::Errno;
use std::collections::HashMap;
use std::ffi::{CString, OsStr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

pub(crate) const ROOT: u64 = 1;

struct Node {
    fd: OwnedFd,
    lookups: u64,
    backing: u64,
}

pub(crate) struct Nodes {
    nodes: HashMap<u64, Node>,
    /// Backing inode number to ours, for every inode that has a name or is known to the kernel.
    ids: HashMap<u64, u64>,
    next: u64,
}

pub(crate) type Res<T> = Result<T, Errno>;

impl Nodes {
    pub(crate) fn new(root: OwnedFd) -> Res<Nodes> {
        let backing = rfs::fstat(&root)?.st_ino;
        let node = Node { fd: root, lookups: 1, backing };
        let nodes = HashMap::from([(ROOT, node)]);
        Ok(Nodes { nodes, ids: HashMap::from([(backing, ROOT)]), next: ROOT + 1 })
    }

    pub(crate) fn fd(&self, id: u64) -> Res<BorrowedFd<'_>> {
        self.nodes.get(&id).map(|n| n.fd.as_fd()).ok_or(Errno::STALE)
    }

    /// A path through which calls without an O_PATH form reach the inode.
    pub(crate) fn path(&self, id: u64) -> Res<CString> {
        let fd = self.fd(id)?.as_raw_fd();
        CString::new(format!("/proc/self/fd/{fd}")).map_err(|_| Errno::INVAL)
    }

    /// Our number for a backing inode, a new one if it has none.
    pub(crate) fn id(&mut self, backing: u64) -> (u64, bool) {
        if let Some(id) = self.ids.get(&backing) {
            return (*id, false);
        }
        let id = self.next;
        self.next += 1;
        self.ids.insert(backing, id);
        (id, true)
    }

    /// Finds a name and counts the lookup.
    pub(crate) fn lookup(&mut self, parent: u64, name: &OsStr) -> Res<(u64, Stat)> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = rfs::openat(self.fd(parent)?, c_name(name)?, flags, Mode::empty())?;
        let stat = rfs::fstat(&fd)?;
        let (id, _) = self.id(stat.st_ino);
        let backing = stat.st_ino;
        self.nodes.entry(id).or_insert(Node { fd, lookups: 0, backing }).lookups += 1;
        Ok((id, stat))
    }

    pub(crate) fn forget(&mut self, id: u64, count: u64) {
        let Some(node) = self.nodes.get_mut(&id) else { return };
        node.lookups = node.lookups.saturating_sub(count);
        if node.lookups > 0 || id == ROOT {
            return;
        }
        if let Some(node) = self.nodes.remove(&id)
            && rfs::fstat(&node.fd).map_or(true, |s| s.st_nlink == 0)
        {
            self.ids.remove(&node.backing);
        }
    }

    pub(crate) fn stat(&self, id: u64) -> Res<Stat> {
        rfs::statat(self.fd(id)?, c"", AtFlags::EMPTY_PATH)
    }

    /// A descriptor to read or write through.
    pub(crate) fn open(&self, id: u64, flags: OFlags) -> Res<OwnedFd> {
        rfs::openat(CWD, self.path(id)?, flags | OFlags::CLOEXEC, Mode::empty())
    }
}

pub(crate) fn c_name(name: &OsStr) -> Res<CString> {
    CString::new(name.as_bytes()).map_err(|_| Errno::INVAL)
}
