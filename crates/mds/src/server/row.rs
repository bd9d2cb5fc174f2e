//! Exclusive leases asked for by number, several in a row: all of them wait once, together.
//!
//! Role: a client that is about to remove many names asks for the directory and for what is in it
//! in front of the first removal (`Op::Lease`, one after the other in one compound). What any of
//! them meets is called back before the first runs, one message for each holder; so removing files
//! that others have read costs a call-back each hundred of files and not each file. A row is a wish,
//! not a need: what still cannot be had then fails with EAGAIN and keeps nobody waiting. Assumptions:
//! as `recall`; a compound has at most `MAX_OPS` operations, which bounds what is called back at a
//! time (invariant 8). Never does: grant.

use proto::Errno;

use super::recall::{Halt, settle};
use super::state::State;
use super::task::Task;
use crate::leases::{ALL, policy};
use crate::txn::Stop;

impl Task {
    /// Whether it stands at an exclusive lease it wishes, among others.
    pub fn asks_in_a_row(&self) -> bool {
        self.wants_shared() && self.op().is_some_and(|op| policy::asks_alone(op).is_some())
    }

    /// Whether what it stands at goes on with a row.
    fn is_in_a_row(&self) -> bool {
        let last = self.next.checked_sub(1).and_then(|at| self.compound.ops.0.get(at));
        last.is_some_and(|op| policy::asks_alone(op).is_some())
    }
}

impl State {
    /// Leases of others on what a row asks for. Who waited for them once does not again: others may get
    /// some of them while a part of the row is fetched.
    pub(super) fn in_the_way_of_a_row(&self, task: &Task) -> Result<(), Halt> {
        let session = task.session.id();
        let mut row = task.compound.ops.0[task.next..].iter().map_while(policy::asks_alone);
        let Some(first) = row.next() else { return Ok(()) };
        let mut found = Vec::new();
        self.others(session, first, ALL, &mut found);
        if task.is_in_a_row() || !task.aside.asked.is_empty() || self.is_hot(first) {
            return match found.is_empty() {
                true => Ok(()),
                false => Err(Stop::Errno(Errno::EAGAIN).into()),
            };
        }
        row.for_each(|fid| self.others(session, fid, ALL, &mut found));
        settle(found)
    }
}
