//! What is being called back, and who waits for it.
//!
//! Role: gathers call-backs per session into few messages; an inode is *busy* while a task waits
//! for it or a call-back of it is under way, and grants nothing then. Never does: send.

use std::collections::{BTreeMap, BTreeSet};

use proto::Fid;
use proto::mds::{Lease, LeaseRecall};
use proto::wire::List;
use rustc_hash::FxHashMap as HashMap;

use super::{MAX_CALL_LEASES, MAX_CALLS};

/// What stands in the way of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Conflict {
    /// Of which inode.
    pub fid: Fid,
    /// Whose lease.
    pub session: u64,
    /// Bits to be given back; 0: only its size and times are asked for.
    pub bits: u8,
}

#[derive(Debug, Default)]
struct Busy {
    /// Tasks that wait, by ticket.
    waiting: Vec<u64>,
    /// Call-backs that are not answered: session, bits.
    asked: Vec<(u64, u8)>,
}

/// Call-backs of one session.
#[derive(Debug, Default)]
struct Session {
    back: Vec<Lease>,
    glimpse: Vec<Fid>,
    /// Messages that are not answered, by number.
    sent: BTreeMap<u64, LeaseRecall>,
}

impl Session {
    fn gathered(&self) -> bool {
        !self.back.is_empty() || !self.glimpse.is_empty()
    }
}

/// See the module.
#[derive(Debug, Default)]
pub struct Calls {
    busy: HashMap<Fid, Busy>,
    sessions: HashMap<u64, Session>,
    /// Sessions with something gathered.
    ready: BTreeSet<u64>,
    next: u64,
}

impl Calls {
    /// Whether an inode grants nothing now.
    pub fn busy(&self, fid: Fid) -> bool {
        !self.busy.is_empty() && self.busy.contains_key(&fid)
    }

    /// Whether a session is being called back.
    pub fn calls(&self, session: u64) -> bool {
        self.sessions.contains_key(&session)
    }

    /// Messages under way.
    pub fn under_way(&self) -> usize {
        self.sessions.values().map(|s| s.sent.len()).sum()
    }

    /// Asks for something back, unless it is asked for already; whether it was not.
    pub fn ask(&mut self, c: Conflict) -> bool {
        let busy = self.busy.entry(c.fid).or_default();
        let asked = busy.asked.iter().filter(|a| a.0 == c.session);
        let bits = match c.bits {
            0 if asked.clone().next().is_some() => return false,
            0 => 0,
            bits => match asked.fold(bits, |b, a| b & !a.1) {
                0 => return false,
                bits => bits,
            },
        };
        busy.asked.push((c.session, bits));
        let s = self.sessions.entry(c.session).or_default();
        match bits {
            0 => s.glimpse.push(c.fid),
            bits => s.back.push(Lease { fid: c.fid, bits }),
        }
        self.ready.insert(c.session);
        true
    }

    /// A task waits for an inode.
    pub fn wait(&mut self, fid: Fid, ticket: u64) {
        let busy = self.busy.entry(fid).or_default();
        if !busy.waiting.contains(&ticket) {
            busy.waiting.push(ticket);
        }
    }

    /// It no longer does.
    pub fn unwait(&mut self, fid: Fid, ticket: u64) {
        if let Some(busy) = self.busy.get_mut(&fid) {
            busy.waiting.retain(|t| *t != ticket);
            self.settle(fid);
        }
    }

    fn settle(&mut self, fid: Fid) {
        if self.busy.get(&fid).is_some_and(|b| b.waiting.is_empty() && b.asked.is_empty()) {
            self.busy.remove(&fid);
        }
    }

    /// Whether everything asked for of an inode was answered.
    pub fn answered(&self, fid: Fid) -> bool {
        self.busy.get(&fid).is_none_or(|b| b.asked.is_empty())
    }

    /// The next message to send: session, number, body.
    pub fn message(&mut self) -> Option<(u64, u64, LeaseRecall)> {
        let free = |s: &u64| self.sessions.get(s).is_some_and(|s| s.sent.len() < MAX_CALLS);
        let session = self.ready.iter().copied().find(free)?;
        let s = self.sessions.get_mut(&session)?;
        let back = s.back.drain(..s.back.len().min(MAX_CALL_LEASES)).collect();
        let glimpse = s.glimpse.drain(..s.glimpse.len().min(MAX_CALL_LEASES)).collect();
        let body = LeaseRecall { back: List(back), glimpse: List(glimpse) };
        if !s.gathered() {
            self.ready.remove(&session);
        }
        self.next += 1;
        s.sent.insert(self.next, body.clone());
        Some((session, self.next, body))
    }

    /// A message was answered: what it asked for, and the tasks that may go on.
    pub fn answer(&mut self, session: u64, number: u64) -> Option<(LeaseRecall, BTreeSet<u64>)> {
        let s = self.sessions.get_mut(&session)?;
        let body = s.sent.remove(&number)?;
        if s.sent.is_empty() && !s.gathered() {
            self.sessions.remove(&session);
        }
        let mut tickets = BTreeSet::new();
        let glimpsed = body.glimpse.0.iter().map(|f| (*f, 0));
        for (fid, bits) in body.back.0.iter().map(|l| (l.fid, l.bits)).chain(glimpsed) {
            self.came(fid, (session, bits), &mut tickets);
        }
        Some((body, tickets))
    }

    fn came(&mut self, fid: Fid, asked: (u64, u8), tickets: &mut BTreeSet<u64>) {
        let Some(busy) = self.busy.get_mut(&fid) else { return };
        if let Some(at) = busy.asked.iter().position(|a| *a == asked) {
            busy.asked.swap_remove(at);
        }
        if busy.asked.is_empty() {
            tickets.extend(&busy.waiting);
        }
        self.settle(fid);
    }

    /// A session is gone: the tasks that may go on.
    pub fn drop_session(&mut self, session: u64) -> BTreeSet<u64> {
        self.ready.remove(&session);
        let mut tickets = BTreeSet::new();
        if self.sessions.remove(&session).is_none() {
            return tickets;
        }
        self.busy.retain(|_, b| {
            let before = b.asked.len();
            b.asked.retain(|a| a.0 != session);
            if b.asked.is_empty() && before > 0 {
                tickets.extend(&b.waiting);
            }
            !b.asked.is_empty() || !b.waiting.is_empty()
        });
        tickets
    }

    /// Whether nothing is under way and nobody waits.
    pub fn is_empty(&self) -> bool {
        self.busy.is_empty() && self.sessions.is_empty()
    }
}
