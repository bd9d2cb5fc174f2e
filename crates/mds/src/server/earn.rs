//! Leases earned: what an operation's answer grants.
//!
//! Role: between the executor and the policy of [`crate::leases::policy`]: what of a wish the rules allow while others hold,
//! write or watch the same. Assumptions: as in [`super::recall`], which calls back what is in the way. Never does: I/O; grant
//! what somebody else holds in a way that excludes it.

use proto::mds::*;
use proto::{Errno, Fid, FileKind};

use super::state::State;
use super::task::Task;
use crate::leases::policy::{self, Want};
use crate::leases::*;

impl State {
    /// After an operation ran (or failed in a way that tells something): what it earns. `task`
    /// still names what the operation before it named.
    pub fn earn(&mut self, task: &mut Task, res: Result<&Res, Errno>) {
        let session = task.session.id();
        let grants = self.sole.holder.is_none()
            && task.wants_leases()
            && self.clients.get(&session).is_some_and(|c| !c.observer);
        if grants {
            let mut wants = Vec::new();
            if let Some(op) = task.op() {
                policy::wants(op, res, |fid, want| wants.push((fid, want)));
            }
            for (fid, want) in wants {
                let fid = if fid == Fid::CURRENT { task.current } else { fid };
                if !task.earns_more() {
                    break;
                }
                let bits = self.room(task, fid, want);
                if bits != 0 {
                    let bits = self.leases.table.grant(fid, session, bits);
                    if bits != 0 {
                        self.leases.figures.grants += 1;
                        task.earned(fid, bits);
                    }
                }
            }
            if self.leases.table.count(session) > self.options.leases_per_client
                || self.leases.table.len() > self.options.leases_total
            {
                self.leases.full.insert(session);
            }
        }
        task.aside = Default::default();
    }

    /// What the rules allow of a wish; the table still says what others leave.
    fn room(&self, task: &Task, fid: Fid, want: Want) -> u8 {
        if self.leases.calls.busy(fid) {
            return 0;
        }
        let bits = self.room_for_any(task, fid, want);
        // Under it alone nothing is believed.
        if !task.wants_shared() || want == Want::Watch {
            return bits;
        }
        let asks = matches!(want, Want::Asked(_, wished) if wished & EXCLUSIVE != 0);
        // What another has open it may look at, whoever else removes it.
        let makes = match asks {
            true => !self.ns.opens.open_elsewhere(fid, task.session.id()),
            false => matches!(want, Want::New(_) | Want::DirOwner),
        };
        match self.ns.opens.is_writer(fid, task.session.id()) {
            true if task.wants_file_writes() => bits,
            // What it writes it does not believe in; what it has from before it drops itself.
            true => 0,
            false if makes && task.wants_name_writes() => bits,
            false => bits & !EXCLUSIVE,
        }
    }

    fn room_for_any(&self, task: &Task, fid: Fid, want: Want) -> u8 {
        let session = task.session.id();
        let dir = |bits: u8| if self.is_hot(fid) { 0 } else { bits };
        let late = || {
            let writes = task.wants_late() && self.ns.opens.writes(fid, session, 0);
            match writes && !self.is_watched(fid, session) {
                true => LS_LATE,
                false => 0,
            }
        };
        let file = |bits: u8| match self.ns.opens.is_direct(fid, session) {
            true if bits == OWNER => late(),
            true => 0,
            false if self.ns.opens.is_writer(fid, session) => OWNER,
            false => bits,
        };
        match want {
            Want::Names => dir(LS_LOOKUP),
            Want::Attr(FileKind::Dir) => dir(LS_ATTR),
            Want::Attr(FileKind::File) => file(LS_ATTR | LS_LAYOUT),
            Want::Attr(_) => LS_ATTR,
            Want::Xattrs => match self.ns.opens.is_direct(fid, session) {
                true => 0,
                false => dir(LS_ATTR),
            },
            Want::Read => file(READER),
            Want::Write => file(OWNER),
            Want::New(FileKind::Dir) => DIR_OWNER,
            Want::New(_) => OWNER,
            // Who took names from others has them watched: the next change earns the directory.
            Want::DirOwner if task.aside.asked.contains(&fid) => dir(LS_LOOKUP),
            Want::DirOwner => match self.leases.table.others(fid, session).next() {
                Some(_) => dir(LS_LOOKUP),
                None => dir(DIR_OWNER),
            },
            Want::Asked(FileKind::Dir, bits) => dir(bits & DIR_OWNER),
            Want::Asked(FileKind::File, bits) if bits & LS_WRITE != 0 => file(OWNER),
            Want::Asked(FileKind::File, bits) => file(bits & READER),
            Want::Asked(_, bits) => bits & OWNER,
            Want::Watch => LS_READ,
        }
    }

    /// Whether another keeps bytes of a file where it cannot look before it shows them.
    fn is_watched(&self, fid: Fid, session: u64) -> bool {
        self.leases.table.others(fid, session).any(|(_, has)| has & LS_READ != 0)
    }

    pub(super) fn is_hot(&self, dir: Fid) -> bool {
        self.leases.hot.is(dir, self.options.clock.now())
    }

    /// The leases an answer tells of: what was earned and not taken away since.
    pub fn still_granted(&self, task: &mut Task) -> Vec<Lease> {
        let session = task.session.id();
        let mut all = std::mem::take(&mut task.granted);
        all.sort_by_key(|l| l.fid);
        let mut list: Vec<Lease> = Vec::with_capacity(all.len());
        for l in all {
            match list.last_mut() {
                Some(last) if last.fid == l.fid => last.bits |= l.bits,
                _ => list.push(l),
            }
        }
        for l in &mut list {
            l.bits &= self.leases.table.of(l.fid, session);
        }
        list.retain(|l| l.bits != 0);
        list
    }
}
