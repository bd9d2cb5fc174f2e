//! Promises of writers of one file to keep to bytes of their own, at work.
//!
//! Role: between the executor and [`crate::leases::lockahead`], which notes them: who may promise, what a grant needs, who
//! waits for whom, and what a close ends. Never does: I/O.

use proto::mds::{LS_LATE, Res};
use proto::{Fid, Stride};

use super::recall::{Halt, settle};
use super::state::State;
use crate::leases::calls::Conflict;

impl State {
    /// A session has closed a handle, and told what it did: with the last one to write with this ends.
    pub fn end_late(&mut self, session: u64, res: &Res) {
        let Res::Attr { attr } = res else { return };
        if !self.ns.opens.writes(attr.fid, session, 0) {
            self.leases.take(attr.fid, session, LS_LATE);
        }
        if !self.ns.opens.users(attr.fid).any(|user| user == session) {
            self.leases.ahead.end(attr.fid, session);
        }
    }

    /// Who goes back on a promise waits for all who were granted what rests on it; `ends`: it does.
    pub(super) fn rests_on(&self, session: u64, fid: Fid, ends: bool) -> Result<(), Halt> {
        let mut found = Vec::new();
        if ends {
            let has = |holder| self.leases.table.of(fid, holder) & LS_LATE != 0;
            let granted = self.leases.ahead.granted_elsewhere(fid, session).filter(|h| has(*h));
            let conflict = |session| Conflict { fid, session, bits: LS_LATE, written: false };
            found.extend(granted.map(conflict));
        }
        settle(found)
    }

    /// A session keeps to some bytes of a file, or to none any more.
    pub fn lock_ahead(&mut self, session: u64, fid: Fid, strides: Vec<Stride>) -> Res {
        let l = &mut self.leases;
        if strides.is_empty() {
            l.ahead.end(fid, session);
            return Res::LockAhead { kept: false, granted: false };
        }
        let may = self.sole.holder.is_none() && self.ns.opens.writes(fid, session, 0);
        if !may {
            return Res::LockAhead { kept: false, granted: false };
        }
        let others = l.table.others(fid, session).all(|(_, has)| has & !LS_LATE == 0);
        let all = self.ns.opens.users(fid).all(|u| u == session || l.ahead.keeps(fid, u));
        let has = l.table.of(fid, session) & LS_LATE != 0 && !l.calls.busy(fid);
        let (kept, granted) = l.ahead.promise(fid, session, strides, has && others && all);
        Res::LockAhead { kept, granted }
    }
}
