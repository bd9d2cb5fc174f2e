//! Metadata write-back among others: what this client alone has a lease on is changed here first.
//!
//! Role: under `LS_DIRX` (of a directory) and `LS_WRITE` (of anything else), together with the
//! attributes, nobody else has anything of an inode. An operation all of whose inodes are such is done
//! here as under the SOLE lease, and logged; one that makes an inode makes such a one. The log goes out
//! before any of these leases is given back, and before a glimpse is answered (invariant 3).
//! Assumptions: what is logged waits for nobody at the MDT, which lists this client as the only one; so
//! a call-back that sends the log ends. What may wait for others is therefore never sent in one message
//! with a part of the log, nor keeps it back. Never does: take a lease that is not for what it makes.

use std::sync::Arc;

use proto::attr::A_SIZE_LAGS;
use proto::mds::*;
use proto::{Errno, Fid};

use super::apply::Local;
use super::log::Entry;
use super::message::Message;
use super::send::{Telling, failed, logged, looks, own_time};
use super::{Lost, Tree};
use crate::attrs::Known;
use crate::leases::Got;
use crate::mdt::Mdt;
use crate::names::Found;

/// Opens told in one message.
const TELL_OPENS: usize = 128;

/// What an operation that goes past the log concerns.
enum Concerns {
    /// No file.
    Nothing,
    /// This one.
    One(Fid),
    /// More than can be told from it.
    More,
}

/// Of an operation that is not logged.
fn concerns(op: &Op) -> Concerns {
    match op {
        Op::GetAttr { fid }
        | Op::ReadInline { fid }
        | Op::GetXattr { fid, .. }
        | Op::ListXattr { fid }
        | Op::ReadLink { fid }
        | Op::GetLayout { fid }
        | Op::Close { fid, .. }
        | Op::Report { fid, .. }
        | Op::WriteInline { fid, .. }
        | Op::SetAttr { fid, .. }
        | Op::Open { fid, .. }
        | Op::Lock { fid, .. }
        | Op::TestLock { fid, .. } => Concerns::One(*fid),
        Op::Statfs {} | Op::AllocFids {} | Op::Status {} => Concerns::Nothing,
        _ => Concerns::More,
    }
}

impl Mdt {
    /// Does an operation here under leases on all it touches, or gives it back. What was made is
    /// held from then on.
    pub(super) fn here_among(&self, cred: &Cred, op: Op) -> Result<(Res, Option<Arc<Got>>), Op> {
        if !self.wb.trust.any() {
            return Err(op);
        }
        let now = own_time();
        loop {
            let mut tree = self.wb.tree.lock();
            if !looks(&op) {
                if tree.is_touched_now(&op) {
                    return Err(op);
                }
                if tree.log.is_full() {
                    drop(tree);
                    match self.flush() {
                        Ok(()) => continue,
                        Err(late) => return Ok((failed(late.into()), None)),
                    }
                }
            }
            // What it touches is found from names it may change.
            let fids = if looks(&op) { Vec::new() } else { tree.touched(&op) };
            match tree.apply(cred, &op, now) {
                Local::Known(res) => return Ok((res, None)),
                Local::Fails(e) => return Ok((failed(e), None)),
                Local::Ask => return Err(op),
                Local::Changed(res) => {
                    let made = match &op {
                        Op::Create { fid, .. } => Some(*fid),
                        _ => None,
                    };
                    let got = made.map(|fid| Arc::new(self.wb.trust.leases.held(fid)));
                    let fids = fids.into_iter().chain(made).collect();
                    let entry = Entry { cred: cred.clone(), op: logged(op), at: now, fids };
                    self.keep(&mut tree, entry);
                    return Ok((res, got));
                }
            }
        }
    }

    /// The MDT knows all that was done here, and of these files all opens: somebody wants them.
    pub(crate) fn come_clean(&self, fids: &[Fid]) {
        self.flush_all();
        let mut tree = self.wb.tree.lock();
        let mut left: Vec<Telling> = fids.iter().flat_map(|fid| tree.opens_of(*fid)).collect();
        while !left.is_empty() {
            let part: Vec<Telling> = left.drain(..left.len().min(TELL_OPENS)).collect();
            drop(tree);
            let ops = part.iter().map(|(op, ..)| op.clone()).collect();
            let answer = self.insist(Message::plain(ops)).map(|(results, _)| results);
            let answer = answer.unwrap_or_default();
            tree = self.wb.tree.lock();
            let closed = tree.opens_answered(part, answer);
            drop(tree);
            closed.into_iter().for_each(|op| self.send_aside(op, |_| {}));
            tree = self.wb.tree.lock();
        }
    }
}

impl Tree {
    /// The MDT was told of opens; those that were closed here meanwhile are to be closed there, too. One that is told
    /// by now was told by another message that needed it.
    pub(super) fn opens_answered(&mut self, opens: Vec<Telling>, answer: Vec<Res>) -> Vec<Op> {
        let mut answer = answer.into_iter();
        let mut closed = Vec::new();
        for (_, fid, handle) in opens {
            if matches!(answer.next(), Some(Res::Opened { .. })) {
                if !self.opens.was_told(fid, handle) {
                    closed.push(Op::Close { fid, handle, report: None });
                }
            } else if self.opens.is_own(fid, handle) {
                tracing::warn!(%fid, "an open file is lost");
                self.opens.end(fid, handle);
                self.lost.push(Lost { fids: vec![fid], errno: Errno::ESTALE });
            }
        }
        closed
    }

    /// What is known of an inode that nobody but this client may change, and is the truth.
    pub(super) fn own(&mut self, fid: Fid) -> Option<&mut Known> {
        let Tree { attrs, trust, .. } = self;
        let known = attrs.edit(fid)?;
        let leases = &trust.leases;
        // A mark for a size that lags ends with a close, which tells no attributes.
        let whole = known.attr.flags & A_SIZE_LAGS == 0;
        let own = || whole && leases.excludes(fid) && leases.fresh(fid, LS_ATTR, known.mark);
        (trust.alone() || own()).then_some(known)
    }

    /// What a name stands for, in a directory whose names nobody but this client may change.
    pub(super) fn own_name(&mut self, dir: Fid, name: &[u8]) -> Found {
        match self.owns_names(dir) {
            true => self.names.find(dir, name),
            false => Found::Unknown,
        }
    }

    /// Whether such a directory holds nothing; None: not known.
    pub(super) fn own_empty(&self, dir: Fid) -> Option<bool> {
        if self.owns_names(dir) { self.names.is_empty(dir) } else { None }
    }

    fn owns_names(&self, dir: Fid) -> bool {
        self.trust.alone() || (self.trust.leases.excludes(dir) && self.trusts(dir))
    }

    /// Whether the attributes of a directory can follow a change of its names. Alone they need not be
    /// known; among others what is believed of them would be wrong.
    pub(super) fn keeps_up(&mut self, dir: Fid) -> bool {
        self.trust.alone() || self.own(dir).is_some()
    }

    /// Whether an operation on its way changes what this one does.
    fn is_touched_now(&mut self, op: &Op) -> bool {
        !self.busy.is_empty() && self.touched(op).iter().any(|fid| self.busy.contains_key(fid))
    }

    /// An operation was done here.
    pub(super) fn log(&mut self, entry: Entry) {
        self.vague += usize::from(entry.fids.is_empty());
        for fid in &entry.fids {
            *self.pending.entry(*fid).or_default() += 1;
        }
        self.log.push(entry);
    }

    /// A part of the log was answered, or is lost.
    pub(super) fn unlog(&mut self, front: &[Entry]) {
        for entry in front {
            self.vague -= usize::from(entry.fids.is_empty()).min(self.vague);
            for fid in &entry.fids {
                if let Some(n) = self.pending.get_mut(fid) {
                    *n -= 1;
                    if *n == 0 {
                        self.pending.remove(fid);
                    }
                }
            }
        }
    }

    /// Whether the MDT may still have to hear of something done here to what these operations concern.
    pub(super) fn is_pending<'a>(&self, ops: impl IntoIterator<Item = &'a Op>) -> bool {
        let nothing = self.vague == 0 && self.pending.is_empty();
        !nothing
            && ops.into_iter().any(|op| match concerns(op) {
                Concerns::Nothing => false,
                Concerns::One(fid) => self.vague > 0 || self.pending.contains_key(&fid),
                Concerns::More => true,
            })
    }

    /// The MDT made these: what it granted of them is held.
    pub(super) fn confirm(&self, front: &[Entry], got: &Got) {
        if self.trust.alone() {
            return;
        }
        for entry in front {
            if let Op::Create { fid, .. } = &entry.op {
                self.trust.leases.confirm(*fid, got);
            }
        }
    }
}
