//! Removals that will follow: before the first of many the client asks for all it takes to do the
//! others here.
//!
//! Role: what others have read they have leases on, so each removal of such a file would be a message
//! and a call-back. Who removes the first name of a listing it knows is taken to remove the others in
//! that order, as `rm -r` does. The message that removes it then begins with wishes for the directory
//! and the next names' inodes alone ([`LS_DIRX`], [`LS_WRITE`]); the MDT calls all of them back
//! together, and what is granted is removed here ([`super::among`]). Assumptions: a wish that is not
//! granted costs nothing but its bytes. A guess that was wrong costs others one call-back of what is
//! asked for at a time, which is bounded ([`AT_FIRST`], [`GOING_ON`]); directories that others have just
//! used are left to both ([`CALM`]). Never does: remove anything.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use proto::mds::{LS_DIRX, MAX_OPS, Op};

use super::{Note, Tree};
use crate::leases::of_maker;
use proto::{Fid, FileKind};

/// Inodes asked for before the first removal, and once others followed.
const AT_FIRST: usize = 64;
const GOING_ON: usize = 224;
const _: () = assert!(GOING_ON + 16 < MAX_OPS);
/// A directory that was not granted so often is not asked for again, until it is listed anew.
const IN_VAIN: u32 = 3;
/// Nor is one whose names were called back so short a time ago: others are at work in it.
const CALM: Duration = Duration::from_secs(2);
/// Directories of which that is remembered (invariant 8).
const MAX_SHARED: usize = 4096;

/// When names of directories were called back last.
#[derive(Debug, Default)]
pub(crate) struct Shared(HashMap<Fid, Instant>);

impl Shared {
    /// Somebody else changes names of it, or looks at them.
    pub(super) fn called_back(&mut self, dir: Fid) {
        if self.0.len() >= MAX_SHARED {
            self.0.retain(|_, at| at.elapsed() < CALM);
        }
        // Of more at a time the rest counts as calm.
        if self.0.len() < MAX_SHARED {
            self.0.insert(dir, Instant::now());
        }
    }

    fn is_calm(&self, dir: Fid) -> bool {
        self.0.get(&dir).is_none_or(|at| at.elapsed() >= CALM)
    }
}

impl Tree {
    /// Wishes to be sent in front of these operations.
    pub(super) fn foresee(&mut self, ops: &[Op]) -> Vec<(Op, Note)> {
        let [Op::Unlink { dir, name, .. }] = ops else { return Vec::new() };
        let dir = *dir;
        let wary = self.names.vain(dir) >= IN_VAIN || !self.shared.is_calm(dir);
        if self.trust.alone() || wary || !self.trusts(dir) {
            return Vec::new();
        }
        let held = self.own(dir).is_some();
        let next = self.names.listed_first(dir, name, if held { GOING_ON } else { AT_FIRST });
        if next.len() < 2 {
            return Vec::new();
        }
        let mut wishes = Vec::new();
        for (fid, kind) in std::iter::once((dir, FileKind::Dir)).chain(next) {
            if self.own(fid).is_none() {
                let op = Op::Lease { fid, bits: of_maker(kind) };
                let note = self.note(&op);
                wishes.push((op, note));
            }
        }
        wishes
    }

    /// What such wishes came to is known.
    pub(super) fn foreseen(&mut self, wishes: &[(Op, Note)]) {
        if let Some((Op::Lease { fid, bits }, _)) = wishes.first()
            && bits & LS_DIRX != 0
            && !self.trust.leases.excludes(*fid)
        {
            self.names.asked_in_vain(*fid);
        }
    }
}
