//! Changes that will follow: before the first of many the client asks for all it takes to do the
//! others here.
//!
//! Role: what others have read they have leases on, so each removal of such a file would be a message
//! and a call-back. Who removes the first name of a listing it knows is taken to remove the others in
//! that order, as `rm -r` does. The message that removes it then begins with wishes for the directory
//! and the next names' inodes alone ([`LS_DIRX`], [`LS_WRITE`]); the MDT calls all of them back
//! together, and what is granted is removed here ([`super::among`]).
//! So it is where one client builds again what another has built: files that were made together are removed or
//! opened for writing one after the other. After the second of one suffix in a directory within [`MOMENT`]
//! the others that were written within [`TOGETHER`] of it are asked for. Assumptions: a wish that is not
//! granted costs nothing but its bytes. A guess that was wrong costs others one call-back of what is
//! asked for at a time, which is bounded ([`AT_FIRST`], [`GOING_ON`], [`AT_ONCE`]); whole directories that others have just
//! used are left to both ([`CALM`]). Never does: change anything.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use proto::mds::{LS_DIRX, MAX_OPS, Op};
use proto::{Attr, Fid, FileKind};

use super::apply::plain_inline;
use super::message::Message;
use super::{Note, Tree};
use crate::leases::of_maker;
use crate::mdt::Mdt;
use crate::names::Found;

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
/// Names of a directory among which such a file is sought.
const SOUGHT: usize = 1024;
/// Files asked for because they were made together.
const AT_ONCE: usize = 32;
/// How far apart such were written.
const TOGETHER: Duration = Duration::from_secs(30);
/// How long after one of a kind was changed the next one counts as its follower.
const MOMENT: Duration = Duration::from_secs(2);
/// Kinds of which that is remembered (invariant 8).
const MAX_KINDS: usize = 16;

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

/// Kinds of files, a directory and a suffix each, of which one was changed by a message lately, and when.
#[derive(Debug, Default)]
pub(crate) struct Kinds(VecDeque<(Fid, Vec<u8>, Instant)>);

impl Kinds {
    /// One more is; whether another was a moment ago.
    fn goes_on(&mut self, dir: Fid, suffix: Vec<u8>) -> bool {
        self.0.retain(|(_, _, at)| at.elapsed() < MOMENT);
        let found = self.0.iter().position(|(d, s, _)| *d == dir && *s == suffix);
        if let Some(at) = found {
            self.0.remove(at);
        }
        self.0.truncate(MAX_KINDS - 1);
        self.0.push_front((dir, suffix, Instant::now()));
        found.is_some()
    }
}

impl Mdt {
    /// A file is to be opened for writing that others have something of: it is asked for alone, with those that
    /// were made together with it, if another such was opened just before. Whether this client alone has it now.
    pub(crate) fn ask_together(&self, fid: Fid) -> bool {
        let Some((dir, mut wishes)) = self.wb.tree.lock().rewrites(fid) else { return false };
        let ops = wishes.iter().map(|(op, _)| op.clone()).collect();
        let message = Message::plain(ops);
        let Ok((results, got)) = self.send(message) else { return false };
        let got = Arc::new(got);
        let mut tree = self.wb.tree.lock();
        if !self.wb.trust.any() {
            return false;
        }
        for ((op, note), res) in wishes.iter_mut().zip(&results) {
            note.got = got.clone();
            tree.learn(op, res, note);
        }
        let granted = self.wb.trust.leases.excludes(fid);
        if !granted {
            tree.names.asked_in_vain(dir);
        }
        granted
    }
}

impl Tree {
    /// Wishes to be sent in front of these operations.
    pub(super) fn foresee(&mut self, ops: &[Op]) -> Vec<(Op, Note)> {
        let [Op::Unlink { dir, name, .. }] = ops else { return Vec::new() };
        let dir = *dir;
        if self.trust.alone() || self.names.vain(dir) >= IN_VAIN || !self.trusts(dir) {
            return Vec::new();
        }
        let held = self.own(dir).is_some();
        let mut next = match self.shared.is_calm(dir) {
            true => self.names.listed_first(dir, name, if held { GOING_ON } else { AT_FIRST }),
            false => Vec::new(),
        };
        if next.len() < 2 {
            let Found::Is(fid, FileKind::File) = self.names.find(dir, name) else {
                return Vec::new();
            };
            next = self.made_together(dir, fid);
        }
        if next.len() < 2 {
            return Vec::new();
        }
        self.wish(std::iter::once((dir, FileKind::Dir)).chain(next))
    }

    /// A file that is about to be opened for writing: its directory, and wishes for it and those made together
    /// with it.
    fn rewrites(&mut self, fid: Fid) -> Option<(Fid, Vec<(Op, Note)>)> {
        let apart = !self.trust.alone() && self.trust.any() && self.own(fid).is_none();
        if !apart || self.is_under_way(fid) {
            return None;
        }
        let mut dirs = self.likely_in(fid).into_iter();
        let dir = dirs.find(|dir| self.names.alike(*dir, fid, SOUGHT).is_some())?;
        if self.names.vain(dir) >= IN_VAIN || !self.trusts(dir) {
            return None;
        }
        let files = self.made_together(dir, fid);
        (files.len() > 1).then(|| (dir, self.wish(files)))
    }

    /// A file that is changed by a message, and others of its suffix that were written about when it was; none
    /// unless another of these was changed just before.
    fn made_together(&mut self, dir: Fid, fid: Fid) -> Vec<(Fid, FileKind)> {
        let Some((suffix, others)) = self.names.alike(dir, fid, SOUGHT) else { return Vec::new() };
        let goes_on = self.kinds.goes_on(dir, suffix);
        // What is about to change is not believed any more, but was so just now.
        let when = self.attrs.get(fid).filter(|a| goes_on && plain_inline(a) && a.nlink == 1);
        let Some(when) = when.map(|a| a.mtime.sec) else { return Vec::new() };
        let mut files = vec![(fid, FileKind::File)];
        for (fid, kind) in others {
            let near = |a: &Attr| a.mtime.sec.abs_diff(when) <= TOGETHER.as_secs();
            let known = self.believed(fid).map(|k| &k.attr);
            let alike = known.is_some_and(|a| plain_inline(a) && a.nlink == 1 && near(a));
            if alike && !self.is_under_way(fid) && self.own(fid).is_none() {
                files.push((fid, kind));
            }
            if files.len() == AT_ONCE {
                break;
            }
        }
        files
    }

    /// Whether somebody here changes an inode by a message, or has one for it in the log: what the MDT says of it
    /// meanwhile may be older.
    pub(super) fn is_under_way(&self, fid: Fid) -> bool {
        self.busy.contains_key(&fid) || self.pending.contains_key(&fid)
    }

    /// Wishes for exclusive leases on what is not held yet.
    fn wish(&mut self, inodes: impl IntoIterator<Item = (Fid, FileKind)>) -> Vec<(Op, Note)> {
        let mut wishes = Vec::new();
        for (fid, kind) in inodes {
            if self.own(fid).is_none() {
                let op = Op::Lease { fid, bits: of_maker(kind) };
                let note = self.note(&op);
                wishes.push((op, note));
            }
        }
        wishes
    }

    /// What such wishes in front of these operations came to is known.
    pub(super) fn foreseen(&mut self, wishes: &[(Op, Note)], ops: &[Op]) {
        let [Op::Unlink { dir, .. }] = ops else { return };
        let held =
            |op: &Op| matches!(op, Op::Lease { fid, .. } if self.trust.leases.excludes(*fid));
        let vain = match wishes.first() {
            Some((Op::Lease { fid, bits }, _)) if bits & LS_DIRX != 0 => {
                !self.trust.leases.excludes(*fid)
            }
            Some(_) => !wishes.iter().any(|(op, _)| held(op)),
            None => false,
        };
        if vain {
            self.names.asked_in_vain(*dir);
        }
    }
}
