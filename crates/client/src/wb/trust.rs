//! What of the tree may be believed.
//!
//! Role: alone, all of it; among others, what a lease stands for, from the moment it was asked for
//! until it is called back or changed here ([`crate::leases`]). What may be changed here first needs
//! the SOLE lease. Never does: I/O.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use proto::mds::{LS_ATTR, LS_DIRX, LS_LOOKUP, O_WRITE, Op, Res};
use proto::{Attr, Fid};

use super::{Note, Tree};
use crate::attrs::Known;
use crate::leases::Leases;

/// See the module.
#[derive(Clone)]
pub(crate) struct Trust {
    sole: Arc<AtomicBool>,
    pub(crate) leases: Arc<Leases>,
    never: bool,
}

impl Trust {
    /// `sole` is the SOLE lease; `never`: as if it were never held.
    pub(crate) fn new(sole: Arc<AtomicBool>, leases: Arc<Leases>, never: bool) -> Trust {
        Trust { sole, leases, never }
    }

    /// Whether names and attributes may be changed here first.
    pub(super) fn alone(&self) -> bool {
        !self.never && self.sole.load(SeqCst)
    }

    /// Whether anything may be kept.
    pub(super) fn any(&self) -> bool {
        self.alone() || self.leases.on()
    }
}

impl Tree {
    /// Whether the names kept of a directory are the truth.
    pub(super) fn trusts(&self, dir: Fid) -> bool {
        self.trust.alone() || self.trust.leases.fresh(dir, LS_LOOKUP, self.names.mark(dir))
    }

    /// Whether others may see a name changed already by an operation on its way.
    pub(super) fn is_moving(&self, dir: Fid, name: &[u8]) -> bool {
        let among = !self.busy_names.is_empty() && !self.trust.alone();
        among && self.busy_names.iter().any(|busy| busy.0 == dir && busy.1 == name)
    }

    /// The same of any name of a directory.
    pub(super) fn are_moving(&self, dir: Fid) -> bool {
        let among = !self.busy_names.is_empty() && !self.trust.alone();
        among && self.busy_names.iter().any(|busy| busy.0 == dir)
    }

    /// Whether what was asked of a directory's names then is the truth now, and may be added to what
    /// is known of them.
    pub(super) fn trusts_since(&mut self, dir: Fid, note: &Note) -> bool {
        if self.trust.alone() {
            return true;
        }
        let mark = note.got.mark(dir, LS_LOOKUP, note.mark);
        let fresh = self.trust.leases.fresh(dir, LS_LOOKUP, mark);
        if fresh && !self.trusts(dir) {
            self.names.begin(dir, mark);
        }
        fresh
    }

    /// A directory was made: it is empty, unless it is used already.
    pub(super) fn born(&mut self, dir: Fid, parent: Fid, note: &Note) {
        let mark = note.got.mark(dir, LS_LOOKUP, note.mark);
        let begins = match self.trust.alone() {
            true => !self.names.has(dir),
            false => self.trust.leases.fresh(dir, LS_LOOKUP, mark) && !self.trusts(dir),
        };
        if begins {
            self.names.born(dir, parent, mark);
        }
    }

    /// What is known of an inode and is the truth.
    pub(super) fn believed(&mut self, fid: Fid) -> Option<&mut Known> {
        let Tree { attrs, trust, .. } = self;
        let known = attrs.edit(fid)?;
        (trust.alone() || trust.leases.fresh(fid, LS_ATTR, known.mark)).then_some(known)
    }

    /// Whether these are the attributes that are the truth, and nothing of the inode waits here or is on its way.
    pub(super) fn is_newest(&mut self, attr: &Attr) -> bool {
        !self.is_under_way(attr.fid)
            && self.believed(attr.fid).is_some_and(|known| known.attr.version == attr.version)
    }

    /// Whether these attributes are known, or newer ones.
    pub(super) fn knows_version(&mut self, attr: &Attr) -> bool {
        self.attrs.get(attr.fid).is_some_and(|known| known.version >= attr.version)
    }

    /// The parent of a directory, if it is the truth. Among others its attributes' lease stands for it, too.
    pub(super) fn parent(&mut self, dir: Fid) -> Option<Fid> {
        if self.trust.alone() {
            return self.names.parent(dir);
        }
        if self.moving > 0 {
            return None;
        }
        let (parent, mark) = self.attrs.edit(dir)?.parent()?;
        self.trust.leases.fresh(dir, LS_ATTR, mark).then_some(parent)
    }

    /// Something is called back: what rests on it is dropped.
    pub(crate) fn recalled(&mut self, fid: Fid, bits: u8) {
        if bits & LS_LOOKUP != 0 {
            self.names.forget(fid);
        }
        if bits & (LS_LOOKUP | LS_DIRX) != 0 {
            self.shared.called_back(fid);
        }
        if bits & LS_ATTR != 0 {
            self.attrs.forget(fid);
        }
    }

    /// Inodes of which these operations change what a lease lets one believe.
    pub(super) fn makes_doubtful(&mut self, ops: &[&Op]) -> Vec<Fid> {
        if self.trust.alone() || !self.trust.leases.on() {
            return Vec::new();
        }
        for op in ops {
            // What its data will be is decided anew.
            if let Op::SetLayout { fid, .. } = op {
                self.trust.leases.let_go(*fid);
            }
        }
        let doubtful = ops.iter().filter(|op| !only_accessed(op));
        let mut fids: Vec<Fid> = doubtful.flat_map(|op| self.touched(op)).collect();
        fids.sort_unstable();
        fids.dedup();
        fids
    }

    /// Their answer is here; it `told` the attributes of some behind the change.
    pub(super) fn changes_ended(&self, fids: &[Fid], told: &[Fid]) {
        fids.iter().for_each(|fid| self.trust.leases.change_ended(*fid, told.contains(fid)));
    }
}

/// Whether an operation tells at most an access time, which nobody's lease stands for.
fn only_accessed(op: &Op) -> bool {
    let report = match op {
        Op::Close { report: None, .. } => return true,
        Op::Close { report: Some(report), .. } | Op::Report { report, .. } => report,
        _ => return false,
    };
    report.size == 0 && !report.exact && report.blocks.is_none() && report.mtime.is_none()
}

/// The file an answer opened for writing here.
pub(super) fn opened_to_write(op: &Op, res: &Res) -> Option<Fid> {
    match (op, res) {
        (Op::Create { open, .. }, Res::Entry { attr, open: Some(_), .. })
        | (Op::Open { flags: open, .. }, Res::Opened { attr, .. })
            if open & O_WRITE != 0 =>
        {
            Some(attr.fid)
        }
        _ => None,
    }
}
