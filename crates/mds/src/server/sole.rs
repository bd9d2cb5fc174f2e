//! The SOLE lease: the only client may cache everything.
//!
//! Role: grant it to a client that is alone; when another comes, hold that one's requests back
//! until the first has given the lease up or was evicted (invariants 3 and 5). Never does: I/O.

use net::SessionRef;
use proto::mds::{Compound, Op, R_SOLE_BEGIN, R_SOLE_END};

use super::state::State;
use super::task::Task;

/// State of the lease.
#[derive(Default)]
pub struct Sole {
    /// Who has it.
    pub holder: Option<u64>,
    /// It is being called back.
    pub recalling: bool,
    /// The holder got it by a call it has not answered: another call must not overtake that.
    pub granting: bool,
    /// Requests of others, until it is back.
    pub held: Vec<Task>,
}

impl Sole {
    /// Whether a request must wait until the lease is back.
    pub fn holds_back(&self, session: u64, compound: &Compound) -> bool {
        // Nothing a client may cache under the lease can be seen through these.
        let looks = |op: &Op| {
            matches!(op, Op::Status {} | Op::AllocFids {} | Op::Statfs {} | Op::FidToPath { .. })
        };
        let looks = compound.ops.0.iter().all(looks);
        self.holder.is_some_and(|h| h != session) && !looks
    }
}

impl State {
    /// How many clients share the files.
    fn sharers(&self) -> impl Iterator<Item = &SessionRef> {
        self.clients.values().filter(|c| !c.observer).map(|c| &c.session)
    }

    /// A client has come (it is among `clients` already): whether it is the only one.
    pub fn sole_on_open(&mut self, session: u64) -> bool {
        if self.sole.holder == Some(session) {
            return !self.sole.recalling;
        }
        // One that is being shut out may still write what it had.
        if self.sole.holder.is_none() && self.fencing.len() == 0 && self.sharers().count() == 1 {
            self.sole.holder = Some(session);
            return true;
        }
        self.recall_sole();
        false
    }

    fn recall_sole(&mut self) {
        let Some(holder) = self.sole.holder.filter(|_| !self.sole.recalling) else { return };
        self.sole.recalling = true;
        if self.fencing.leaves(holder) {
            return;
        }
        let Some(c) = self.clients.get(&holder) else { return self.sole_is_back(holder) };
        if !self.sole.granting {
            self.out.recalls.push((c.session.clone(), R_SOLE_END));
        }
    }

    /// The holder knows that it has the lease (or cannot be told, and is evicted by the recall).
    pub fn sole_granted(&mut self, session: u64) {
        if self.sole.holder != Some(session) || !std::mem::take(&mut self.sole.granting) {
            return;
        }
        if std::mem::take(&mut self.sole.recalling) {
            self.recall_sole();
        }
    }

    /// The holder gave the lease up, or is gone.
    pub fn sole_is_back(&mut self, session: u64) {
        if self.sole.holder != Some(session) {
            return;
        }
        self.sole.holder = None;
        self.sole.recalling = false;
        self.sole.granting = false;
        self.sole_grant();
        for task in std::mem::take(&mut self.sole.held) {
            self.request(task);
        }
    }

    /// The holder did not answer: it is evicted, which gives the lease back.
    pub fn sole_timeout(&mut self, session: u64) {
        if self.sole.holder == Some(session)
            && let Some(c) = self.clients.get(&session)
        {
            tracing::warn!(client = %c.session.description(), "evicted: it did not give up its lease in time");
            self.out.evict.push(c.session.clone());
        }
    }

    /// A client has gone: the one that is left may have the lease.
    pub fn sole_on_close(&mut self, session: u64) {
        self.sole_is_back(session);
        self.sole_grant();
    }

    /// Gives the lease to a client that is alone.
    fn sole_grant(&mut self) {
        let left: Vec<SessionRef> = self.sharers().take(2).cloned().collect();
        if let [one] = &left[..]
            && self.sole.holder.is_none()
            && self.fencing.len() == 0
        {
            let one = one.clone();
            self.sole.holder = Some(one.id());
            self.sole.granting = true;
            self.out.recalls.push((one, R_SOLE_BEGIN));
        }
    }
}
