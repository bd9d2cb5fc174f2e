//! The namespace: state that only the executor touches, and the operations on it.
//!
//! Role: one operation at a time, in the order of transaction numbers (invariant 2). Assumptions:
//! `server` gives it one thread at a time. Never does: I/O, waiting; what is not in memory is named
//! as a miss.

use std::collections::HashMap;
use std::sync::Arc;

use proto::mds::{Cred, Op, Res};
use proto::wire::List;
use proto::{Errno, Fid, TimeSpec};

use crate::cache::{Cache, Changes};
use crate::keys;
use crate::locks::Locks;
use crate::opens::{Holder, Opens};
use crate::ops;
use crate::osts::OstTable;
use crate::record::{self, Garbage, Home, Inode};
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
    /// The first sequence of this target, and of this boot.
    pub boot_sequences: (u64, u64),
    /// Further links that were fetched for the operation that runs next.
    pub links: Option<(Fid, Vec<Home>)>,
    /// Who moves inline data of a file into objects; 0: one that vanished.
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
    pub opens: &'a Opens,
    /// Where objects can go.
    pub osts: &'a OstTable,
    /// Ranges granted.
    pub granted: &'a HashMap<u64, Granted>,
    /// The first sequence of this target, and of this boot.
    pub boot_sequences: (u64, u64),
    /// Further links that were fetched for this operation.
    pub links: Option<&'a (Fid, Vec<Home>)>,
    /// Who moves inline data.
    pub movers: &'a HashMap<Fid, u64>,
    /// What else happens once nothing can miss or fail any more.
    pub effects: Vec<Effect>,
    /// The store is near full.
    pub full: bool,
    /// Bytes.
    pub dom_limit: u32,
    /// Used, total, free bytes of the store.
    pub store_space: (u64, u64, u64),
    /// Inodes that exist.
    pub inodes: u64,
    /// Set by an operation that names a file for the next one.
    pub current: Fid,
}

/// What an operation changes beside the records; applied with them, or not at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// A file is open.
    Open(Fid, Holder),
    /// A handle of a session is closed.
    Close(u64, u64),
    /// A session may write the objects of a file.
    BeginWrite(Fid, u64),
    /// A session has reported what it wrote.
    EndWrite(Fid, u64),
    /// The file was marked as written by who will report.
    Mark(Fid),
    /// That is so no longer.
    Unmark(Fid),
    /// A session moves inline data into objects.
    Move(Fid, u64),
    /// Nobody does any more.
    Moved(Fid),
    /// An identifier is in use.
    Used(Fid),
    /// Objects to destroy.
    Garbage(Fid, Garbage),
}

/// What an operation did.
pub struct Outcome {
    /// Its result.
    pub res: Res,
    /// Its changes, to be applied.
    pub changes: Changes,
    /// And what goes with them.
    pub effects: Vec<Effect>,
    /// For [`Fid::CURRENT`] of the next operation.
    pub current: Fid,
}

impl Namespace {
    /// Runs one operation; nothing is changed until [`Namespace::apply`].
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
        self.attempt(session, cred, current, now, |r| ops::run(r, op))
    }

    /// Removes a file nobody needs any more.
    pub fn reap(&mut self, fid: Fid, now: TimeSpec) -> Step<Outcome> {
        let cred = Cred { uid: 0, gid: 0, groups: List(Vec::new()) };
        self.attempt(0, &cred, fid, now, |r| ops::closed(r, fid, None).map(|()| Res::Done {}))
    }

    fn attempt(
        &self,
        session: u64,
        cred: &Cred,
        current: Fid,
        now: TimeSpec,
        f: impl FnOnce(&mut Run<'_>) -> Step<Res>,
    ) -> Step<Outcome> {
        let mut run = Run {
            txn: Txn::new(&self.cache, now),
            cred,
            session,
            opens: &self.opens,
            osts: &self.osts,
            granted: &self.granted,
            boot_sequences: self.boot_sequences,
            links: self.links.as_ref(),
            movers: &self.movers,
            effects: Vec::new(),
            full: self.full,
            dom_limit: self.dom_limit,
            store_space: self.store_space,
            inodes: self.cache.count(),
            current,
        };
        let res = f(&mut run)?;
        let Run { txn, effects, current, .. } = run;
        Ok(Outcome { res, changes: txn.finish(), effects, current })
    }

    /// Makes what an operation did so; whether a record changed.
    pub fn apply(&mut self, changes: Changes, effects: Vec<Effect>) -> bool {
        for e in effects {
            self.effect(e);
        }
        let changed = !changes.is_empty();
        self.cache.apply(changes);
        changed
    }

    fn effect(&mut self, e: Effect) {
        match e {
            Effect::Open(fid, holder) => self.opens.open(fid, holder),
            Effect::Close(session, handle) => drop(self.opens.close(session, handle)),
            Effect::BeginWrite(fid, session) => self.opens.begin_write(fid, session),
            Effect::EndWrite(fid, session) => self.opens.end_write(fid, session),
            Effect::Mark(fid) => self.opens.mark(fid),
            Effect::Unmark(fid) => self.opens.unmark(fid),
            Effect::Move(fid, session) => drop(self.movers.insert(fid, session)),
            Effect::Moved(fid) => drop(self.movers.remove(&fid)),
            Effect::Garbage(fid, g) => self.garbage.push((fid, g)),
            Effect::Used(fid) => {
                if let Some(g) = self.granted.get_mut(&fid.seq) {
                    g.used[fid.oid as usize / 64] |= 1 << (fid.oid % 64);
                }
            }
        }
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
        self.movers.values_mut().filter(|s| **s == session).for_each(|s| *s = 0);
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

    /// Checks that a session may use an identifier for a new inode. One that an earlier boot granted
    /// is good while no inode has it: its client is finishing what the restart interrupted.
    pub fn fresh(&self, fid: Fid) -> Step<()> {
        if fid.oid == 0 || fid.oid >= FID_RANGE || fid.ver != 0 {
            return Err(Errno::EINVAL.into());
        }
        if (self.boot_sequences.0..self.boot_sequences.1).contains(&fid.seq) {
            let taken = self.txn.find(fid)?.is_some();
            return if taken { Err(Errno::EEXIST.into()) } else { Ok(()) };
        }
        let g = self.granted.get(&fid.seq).ok_or(Errno::ESTALE)?;
        if g.session != self.session {
            return Err(Errno::EINVAL.into());
        }
        let bit = fid.oid as usize;
        let used = g.used[bit / 64] >> (bit % 64) & 1 == 1;
        if used { Err(Errno::EEXIST.into()) } else { Ok(()) }
    }

    /// Whether another session moves the inline data of a file: a change would be lost.
    pub fn moved_elsewhere(&self, fid: Fid) -> bool {
        self.movers.get(&fid).is_some_and(|s| *s != self.session && *s != 0)
    }

    /// Something that is to happen with the changes.
    pub fn then(&mut self, effect: Effect) {
        self.effects.push(effect);
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
        self.then(Effect::Garbage(fid, garbage));
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
        if left == 0 && self.movers.contains_key(&fid) && !open {
            self.then(Effect::Moved(fid));
        }
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
