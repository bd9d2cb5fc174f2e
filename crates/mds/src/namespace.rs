//! The namespace: state that only the executor touches, and the operations on it.
//!
//! Role: one operation at a time, in the order of transaction numbers (invariant 2). Assumptions:
//! `server` gives it one thread at a time. Never does: I/O, waiting; what is not in memory is named
//! as a miss.

use std::collections::HashMap;
use std::sync::Arc;

use proto::mds::{Cred, Op, Res};
use proto::{Errno, Fid, TimeSpec};

use crate::cache::{Cache, Changes};
use crate::keys;
use crate::locks::Locks;
use crate::opens::Opens;
use crate::ops;
use crate::osts::OstTable;
use crate::record::{self, Garbage, Inode};
use crate::txn::{Step, Txn};

/// Identifiers granted in one range.
pub const FID_RANGE: u32 = 8192;

/// Identifiers of one granted range that were used.
#[derive(Debug)]
pub struct Granted {
    session: u64,
    used: Vec<u64>,
}

/// See the module.
pub struct Namespace {
    /// What is in memory of the store.
    pub cache: Cache,
    /// Open files.
    pub opens: Opens,
    /// Locks.
    pub locks: Locks,
    /// Where objects can go.
    pub osts: Arc<OstTable>,
    /// Files up to this size live inline, bytes.
    pub dom_limit: u32,
    /// Ranges granted since the start.
    pub granted: HashMap<u64, Granted>,
    /// Next sequence to grant, and the end of those reserved durably.
    pub sequences: (u64, u64),
    /// Who moves inline data of a file into objects.
    pub movers: HashMap<Fid, u64>,
    /// Objects to destroy that were added since last taken.
    pub garbage: Vec<(Fid, Garbage)>,
    /// Figures for `statfs` of the store: used, total, free (bytes).
    pub store_space: (u64, u64, u64),
    /// The store is near full: only what frees space passes.
    pub full: bool,
}

/// One operation being run.
pub struct Run<'a> {
    /// Its view of inodes, entries and blobs.
    pub txn: Txn<'a>,
    /// On whose behalf.
    pub cred: &'a Cred,
    /// By which session.
    pub session: u64,
    /// Open files.
    pub opens: &'a mut Opens,
    /// Where objects can go.
    pub osts: &'a OstTable,
    /// Ranges granted.
    pub granted: &'a mut HashMap<u64, Granted>,
    /// Who moves inline data.
    pub movers: &'a mut HashMap<Fid, u64>,
    /// Objects to destroy.
    pub garbage: &'a mut Vec<(Fid, Garbage)>,
    /// Bytes.
    pub dom_limit: u32,
    /// Used, total, free bytes of the store.
    pub store_space: (u64, u64, u64),
    /// Set by an operation that names a file for the next one.
    pub current: Fid,
}

/// What an operation did.
pub struct Outcome {
    /// Its result.
    pub res: Res,
    /// Its changes, to be applied.
    pub changes: Changes,
    /// For [`Fid::CURRENT`] of the next operation.
    pub current: Fid,
}

impl Namespace {
    /// Runs one operation; nothing is changed in the cache yet.
    pub fn run(
        &mut self,
        session: u64,
        cred: &Cred,
        op: &Op,
        current: Fid,
        now: TimeSpec,
    ) -> Step<Outcome> {
        if self.full && ops::needs_space(op) {
            return Err(Errno::ENOSPC.into());
        }
        let mut run = Run {
            txn: Txn::new(&self.cache, now),
            cred,
            session,
            opens: &mut self.opens,
            osts: &self.osts,
            granted: &mut self.granted,
            movers: &mut self.movers,
            garbage: &mut self.garbage,
            dom_limit: self.dom_limit,
            store_space: self.store_space,
            current,
        };
        let res = ops::run(&mut run, op)?;
        let current = run.current;
        Ok(Outcome { res, changes: run.txn.finish(), current })
    }

    /// Grants identifiers to a session; `None` when the reserve is used up (it is renewed ahead).
    pub fn grant(&mut self, session: u64) -> Option<proto::FidRange> {
        let (next, end) = self.sequences;
        if next >= end {
            return None;
        }
        self.sequences.0 = next + 1;
        let words = (FID_RANGE as usize).div_ceil(64);
        self.granted.insert(next, Granted { session, used: vec![0; words] });
        Some(proto::FidRange { seq: next, first: 1, count: FID_RANGE - 1 })
    }

    /// A session is gone, and with it its ranges and opens: the files it had open.
    pub fn drop_session(&mut self, session: u64) -> Vec<Fid> {
        self.granted.retain(|_, g| g.session != session);
        self.movers.retain(|_, s| *s != session);
        self.opens.drop_session(session)
    }
}

impl Run<'_> {
    /// The file meant: [`Fid::CURRENT`] is what the operation before named.
    pub fn fid(&self, fid: Fid) -> Result<Fid, Errno> {
        match fid {
            Fid::CURRENT if self.current.is_none() => Err(Errno::EINVAL),
            Fid::CURRENT => Ok(self.current),
            f => Ok(f),
        }
    }

    /// Checks that a session may use an identifier for a new inode.
    pub fn fresh(&self, fid: Fid) -> Result<(), Errno> {
        let g = self.granted.get(&fid.seq).ok_or(Errno::ESTALE)?;
        let bit = fid.oid as usize;
        if g.session != self.session || fid.oid == 0 || fid.oid >= FID_RANGE || fid.ver != 0 {
            return Err(Errno::EINVAL);
        }
        if g.used[bit / 64] >> (bit % 64) & 1 == 1 { Err(Errno::EEXIST) } else { Ok(()) }
    }

    /// Marks an identifier as used; called when nothing can fail any more.
    pub fn use_up(&mut self, fid: Fid) {
        if let Some(g) = self.granted.get_mut(&fid.seq) {
            g.used[fid.oid as usize / 64] |= 1 << (fid.oid % 64);
        }
    }

    /// Removes an inode and all that belongs to it.
    pub fn destroy(&mut self, fid: Fid, inode: &Inode) {
        self.txn.remove(fid);
        if inode.flags & proto::attr::A_INLINE != 0 && inode.blocks > 0 {
            self.txn.set_blob(keys::of(keys::INLINE, fid), None);
        }
        if inode.flags & proto::attr::A_HAS_XATTR != 0 {
            self.txn.set_blob(keys::of(keys::XATTR, fid), None);
        }
        if let Some(layout) = inode.layout.clone() {
            self.discard(fid, layout);
        }
    }

    /// Objects are no longer of any file: they are destroyed in the background.
    pub fn discard(&mut self, fid: Fid, layout: proto::Layout) {
        let key = keys::garbage(fid, layout.generation);
        let garbage = Garbage { layout };
        self.txn.set_raw(key, Some(record::encode(&garbage)));
        self.garbage.push((fid, garbage));
    }

    /// A link less: destroys the inode with the last one, unless it is open.
    pub fn drop_link(&mut self, fid: Fid, dir: Fid, name: &[u8]) -> Step<proto::Attr> {
        let now = self.txn.now;
        let open = self.opens.is_open(fid);
        let inode = self.txn.edit(fid)?;
        let is_home = inode.home.as_ref().is_some_and(|h| h.dir == dir && h.name == name);
        let is_dir = inode.is_dir();
        inode.nlink = if is_dir { 0 } else { inode.nlink.saturating_sub(1) };
        inode.touch(now);
        if is_home {
            inode.home = None;
        }
        let (left, copy) = (inode.nlink, inode.clone());
        if !is_home {
            self.txn.set_raw(keys::link(fid, dir, name), None);
        }
        let attr = copy.attr(fid);
        if left == 0 && open {
            self.txn.set_raw(keys::of(keys::ORPHAN, fid), Some(vec![record::VERSION]));
        } else if left == 0 {
            self.destroy(fid, &copy);
        }
        Ok(attr)
    }

    /// A link more, under a name.
    pub fn add_link(&mut self, fid: Fid, dir: Fid, name: &[u8]) -> Step<()> {
        let inode = self.txn.edit(fid)?;
        if inode.home.is_none() {
            inode.home = Some(record::Home { dir, name: name.to_vec() });
        } else {
            let key = keys::link(fid, dir, name);
            self.txn.set_raw(key, Some(vec![record::VERSION]));
        }
        Ok(())
    }

    /// A directory gained or lost a name (and `subdirs` directories).
    pub fn touch_dir(&mut self, dir: Fid, entries: i64, subdirs: i64) -> Step<()> {
        let now = self.txn.now;
        let d = self.txn.edit(dir)?;
        d.size = d.size.saturating_add_signed(entries);
        d.nlink = (i64::from(d.nlink) + subdirs).max(0) as u32;
        d.mtime = now;
        d.touch(now);
        Ok(())
    }
}
