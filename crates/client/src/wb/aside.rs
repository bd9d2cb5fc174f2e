//! What goes to the MDT past everything else.
//!
//! Role: tells that nobody waits for, or that must not wait for others: only what the log holds of the same
//! files goes before them. Never does: look for what could be done here.

use crossbeam_channel::bounded;
use net::Patience;
use proto::mds::{Op, Res};
use proto::{Errno, Fid, ops};

use super::log::Entry;
use super::send::own_time;
use super::{Note, Tree};
use crate::mdt::{Mdt, changed, own_cred};

impl Mdt {
    /// Tells the MDT something without waiting and without an interest in the answer.
    pub(crate) fn mention(&self, op: Op) {
        let mut tree = self.wb.tree.lock();
        if !self.wb.may() && !tree.is_pending([&op]) {
            drop(tree);
            return self.send_aside(op, |_| {});
        }
        let fids = tree.touched(&op);
        fids.iter().for_each(|fid| tree.attrs.forget(*fid));
        let op = tree.closing(op);
        tree.log(Entry { cred: own_cred(), op, at: own_time(), fids });
    }

    /// Tells the MDT something among others, and waits for the answer without keeping operations on the
    /// same file back meanwhile.
    pub(crate) fn aside(&self, op: Op) -> Result<Vec<Res>, Errno> {
        if self.wb.tree.lock().is_pending([&op]) {
            self.flush()?;
        }
        let (done, wait) = bounded(1);
        self.send_aside(op, move |answer| {
            // Fails only if nobody waits any more.
            let _ = done.send(answer);
        });
        wait.recv().unwrap_or(Err(Errno::EIO))
    }

    /// Runs what tells of files without waiting for other operations on them: somebody else waits for
    /// these files, and whoever works on them may be waiting for him.
    pub(crate) fn past(&self, ops: Vec<Op>) -> Result<Vec<Res>, Errno> {
        // The log waits for nobody either.
        if self.wb.tree.lock().is_pending(&ops) {
            self.flush()?;
        }
        let fids = changed(&ops);
        let forget = |tree: &mut Tree| fids.iter().for_each(|fid| tree.attrs.forget(*fid));
        let ops: Vec<(Op, Note)> = {
            let mut tree = self.wb.tree.lock();
            forget(&mut tree);
            let asked = |op: Op| {
                let op = tree.closing(op);
                let note = tree.note(&op);
                (op, note)
            };
            ops.into_iter().map(asked).collect()
        };
        let (done, wait) = bounded(1);
        let said = ops.iter().map(|(op, _)| op.clone()).collect();
        self.submit(&own_cred(), said, move |answer| {
            // Fails only if nobody waits any more.
            let _ = done.send(answer);
        });
        let answer = wait.recv().unwrap_or(Err(Errno::EIO));
        let mut tree = self.wb.tree.lock();
        // Once more, for what was asked meanwhile.
        forget(&mut tree);
        if let Ok(results) = &answer {
            ops.iter().zip(results).for_each(|((op, note), res)| tree.learn(op, res, note));
        }
        drop(tree);
        answer
    }

    /// A close was not answered: it is said again, for as long as it takes. As many as there are open files.
    pub(crate) fn close_at_last(&self, fid: Fid, handle: u64) {
        let body = self.body(&own_cred(), vec![Op::Close { fid, handle, report: None }]);
        drop(self.session.start(ops::mds::COMPOUND, body, Vec::new(), Patience::Session));
    }

    pub(super) fn send_aside(
        &self,
        op: Op,
        done: impl FnOnce(Result<Vec<Res>, Errno>) + Send + 'static,
    ) {
        let doubtful = self.wb.tree.lock().makes_doubtful(&[&op]);
        let leases = self.wb.trust.leases.clone();
        doubtful.iter().for_each(|fid| leases.changing(*fid));
        self.submit(&own_cred(), vec![op], move |answer| {
            doubtful.iter().for_each(|fid| leases.change_ended(*fid, false));
            done(answer);
        });
    }
}
