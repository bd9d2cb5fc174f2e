//! One message as it was sent: a part of the log, what was asked for, and what rides on it.
//!
//! Role: takes the answer, also one that comes when nobody waits for it any more. Until then what it
//! concerns is busy. Never does: send, or decide what goes along.

use std::sync::Arc;
use std::time::Instant;

use net::Patience;
use parking_lot::Mutex;
use proto::mds::*;
use proto::{Errno, Fid};

use super::log::Entry;
use super::message::{Answer, Message, Sending};
use super::send::{Busy, Telling, own_time};
use super::trust::opened_to_write;
use super::turn::Late;
use super::{Note, Tree};
use crate::leases::Got;
use crate::mdt::Mdt;

/// See the module. In the order in which it is sent: `front`, `first`, `opens`, `ops`, `asks`.
#[derive(Default)]
pub(super) struct Sent {
    /// A part of the log.
    pub(super) front: Vec<Entry>,
    /// What should be known before, with what it is learnt by; as `asks`.
    pub(super) first: Vec<(Op, Note)>,
    /// Opens told first.
    pub(super) opens: Vec<Telling>,
    /// What was asked for, and what each is learnt by.
    pub(super) ops: Vec<Op>,
    pub(super) notes: Vec<Note>,
    /// What should be known behind.
    pub(super) asks: Vec<(Op, Note)>,
    /// Whether what is asked for goes by itself.
    pub(super) alone: bool,
    pub(super) busy: Busy,
    /// Renames among them.
    pub(super) moves: u32,
    /// Inodes that are changed of which others may have something.
    pub(super) doubtful: Vec<Fid>,
    /// Opens that were told, and closed here meanwhile.
    pub(super) closed: Vec<(Fid, u64)>,
}

/// What came of what was asked for.
pub(super) type Outcome = Result<(Vec<Res>, Arc<Got>), Errno>;

impl Sent {
    /// As it goes over the wire.
    pub(super) fn message(&self, cred: Cred) -> Message {
        let at = self.front.iter().map(|e| e.at).collect();
        let (ops, goes_on) = (Vec::new(), !self.alone);
        let mut message = Message { cred, at, ops, goes_on, changes: self.doubtful.clone() };
        message.ops.extend(self.front.iter().map(|e| e.op.clone()));
        message.ops.extend(self.first.iter().map(|(op, _)| op.clone()));
        message.ops.extend(self.opens.iter().map(|(op, ..)| op.clone()));
        message.ops.extend(self.ops.iter().cloned());
        message.ops.extend(self.asks.iter().map(|(op, _)| op.clone()));
        if !message.at.is_empty() {
            message.at.resize(message.ops.len(), own_time());
        }
        message
    }

    /// Takes the answer.
    pub(super) fn settle(&mut self, mdt: &Mdt, answer: Answer) -> Outcome {
        let mut tree = mdt.wb.tree.lock();
        let mut told = Vec::new();
        let outcome =
            answer.map(|(results, got)| self.answered(&mut tree, results, got, &mut told));
        if let Err(e) = &outcome {
            // Whether it was done is not known.
            tree.unlog(&self.front);
            self.front.iter().for_each(|entry| tree.failed_later(&entry.op, *e));
            self.ops.iter().for_each(|op| tree.doubt(op));
        }
        tree.changes_ended(&self.doubtful, &told);
        if !self.front.is_empty() {
            tree.in_flight = None;
        }
        tree.end_busy(&self.busy);
        tree.moving -= self.moves;
        drop(tree);
        mdt.wb.changed.notify_all();
        for (fid, handle) in std::mem::take(&mut self.closed) {
            mdt.send_aside(Op::Close { fid, handle, report: None }, |_| {});
        }
        outcome
    }

    /// Takes in what was answered; `told` gets those whose attributes came behind the change, and are known now.
    pub(super) fn answered(
        &mut self,
        tree: &mut Tree,
        results: Vec<Res>,
        got: Got,
        told: &mut Vec<Fid>,
    ) -> (Vec<Res>, Arc<Got>) {
        let got = Arc::new(got);
        let beside = self.first.iter_mut().chain(&mut self.asks).map(|(_, note)| note);
        self.notes.iter_mut().chain(beside).for_each(|note| note.got = got.clone());
        let mut results = results.into_iter();
        tree.settle(&self.front, &mut results, &got);
        for ((op, note), res) in self.first.iter().zip(&mut results) {
            if tree.trust.any() {
                tree.learn(op, &res, note);
            }
        }
        tree.foreseen(&self.first, &self.ops);
        let mut refused = None;
        for ((_, fid, handle), res) in self.opens.iter().zip(&mut results) {
            match res {
                Res::Opened { .. } if tree.opens.was_told(*fid, *handle) => {}
                Res::Opened { .. } => self.closed.push((*fid, *handle)),
                res => refused = Some(res),
            }
        }
        if let Some(res) = refused.filter(|_| self.alone) {
            return (vec![res], got);
        }
        let mut own = Vec::new();
        for ((op, note), res) in self.ops.iter().zip(&self.notes).zip(&mut results) {
            tree.note_open(op, &res);
            if let Some(fid) = opened_to_write(op, &res) {
                tree.trust.leases.changed(fid);
            }
            if tree.trust.any() {
                tree.learn(op, &res, note);
            }
            own.push(res);
        }
        for ((op, note), res) in self.asks.iter().zip(&mut results) {
            if let (Op::GetLayout { .. }, Res::LayoutInfo { layout, .. }) = (op, &res) {
                tree.learn_layout(own.last(), layout.as_ref(), note);
                continue;
            }
            if tree.trust.any() {
                tree.learn(op, &res, note);
                // Unless they are known now nothing would show that an answer of before the change is older.
                if let (Op::GetAttr { fid }, Res::Attr { attr }) = (op, &res)
                    && tree.knows_version(attr)
                {
                    told.push(*fid);
                }
            }
        }
        (own, got)
    }

    /// The answer came when who had asked had been told that there is none.
    fn settle_late(mut self, mdt: &Mdt, answer: Answer) {
        let Ok((results, _)) = self.settle(mdt, answer) else { return };
        tracing::info!(
            changes = self.front.len(),
            "the MDT has taken what it had not answered in time"
        );
        for (op, res) in self.ops.iter().zip(&results) {
            // Nobody has it.
            if let Some((fid, handle, _)) = opened(op, res) {
                mdt.wb.tree.lock().opens.end(fid, handle);
                mdt.close_at_last(fid, handle);
            }
        }
    }
}

/// What the MDT opened: file, handle and `O_*`.
pub(super) fn opened(op: &Op, res: &Res) -> Option<(Fid, u64, u32)> {
    match (op, res) {
        (Op::Open { flags, .. }, Res::Opened { attr, open }) => {
            Some((attr.fid, open.handle, *flags))
        }
        (Op::Create { open: flags, .. }, Res::Entry { attr, open: Some(open), .. }) => {
            Some((attr.fid, open.handle, *flags))
        }
        _ => None,
    }
}

impl Mdt {
    /// Sends, and waits as long as a request may. A part of the log that is not answered by then stays on
    /// its way, and all that goes after it waits ([`super::turn`]).
    pub(super) fn see_to(&self, mut sent: Sent, cred: Cred) -> Result<Outcome, Late> {
        let kept = !sent.front.is_empty();
        let patience = if kept { Patience::Session } else { Patience::Request };
        let mut sending = Sending::new(sent.message(cred), patience);
        let until = kept.then(|| Instant::now() + self.wb.patience);
        if let Some(answer) = sending.run(self, until) {
            return Ok(sent.settle(self, answer));
        }
        tracing::warn!(
            changes = sent.front.len(),
            "the MDT does not answer: what was done here is kept until it does"
        );
        let kept = Arc::new(Mutex::new(Some((sending, sent))));
        let (mdt, left) = (self.this.clone(), kept.clone());
        let thread = std::thread::Builder::new().name("client-late".into());
        let wait = move || {
            if let Some(mdt) = mdt.upgrade() {
                wait_late(&mdt, &left);
            }
        };
        if let Err(e) = thread.spawn(wait) {
            tracing::warn!(error = %e, "no thread to wait for the MDT: who asked waits");
            wait_late(self, &kept);
        }
        Err(Late)
    }
}

/// Waits for an answer however late it is.
fn wait_late(mdt: &Mdt, kept: &Mutex<Option<(Sending, Sent)>>) {
    let taken = kept.lock().take();
    let Some((mut sending, sent)) = taken else { return };
    let answer = sending.run(mdt, None).unwrap_or(Err(Errno::EIO));
    sent.settle_late(mdt, answer);
}
