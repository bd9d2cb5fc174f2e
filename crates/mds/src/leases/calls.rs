//! What is being called back, and who waits for it.
//!
//! Role: gathers call-backs per session into few messages; an inode is *busy* while a task waits
//! for it or a call-back of it is under way, and grants nothing then. A glimpse tells what was so when
//! it was answered: one that was sent before somebody asks does not answer him. Never does: send.

use std::collections::{BTreeMap, BTreeSet};

use proto::Fid;
use proto::mds::{LS_READ, Lease, LeaseRecall};
use proto::wire::List;
use rustc_hash::{FxHashMap as HashMap, FxHashSet as HashSet};

use super::{EXCLUSIVE, MAX_CALL_LEASES, MAX_CALLS, MAX_PUT_OFF};

/// What stands in the way of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Conflict {
    /// Of which inode.
    pub fid: Fid,
    /// Whose lease.
    pub session: u64,
    /// Bits to be given back; 0: only its size and times are asked for.
    pub bits: u8,
    /// With 0: the session is told that another wrote what it watches, and keeps that.
    pub written: bool,
}

#[derive(Debug, Default)]
struct Busy {
    /// Tasks that wait, by ticket.
    waiting: Vec<u64>,
    /// Call-backs that are not answered.
    asked: Vec<Asked>,
}

/// What a session was asked for.
#[derive(Clone, Copy, Debug)]
struct Asked {
    session: u64,
    bits: u8,
    written: bool,
    turn: Turn,
    put_off: bool,
}

/// A point in the order of what is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Turn(u64);

/// A message, and all it answers for: what was asked up to its turn.
#[derive(Debug)]
struct Sent {
    /// What is not given back yet.
    body: LeaseRecall,
    turn: Turn,
    /// Some of it takes long: others need not wait for it.
    put_off: bool,
}

/// Call-backs of one session.
#[derive(Debug, Default)]
struct Session {
    back: Vec<Lease>,
    glimpse: Vec<Fid>,
    written: Vec<Fid>,
    /// Messages that are not answered, by number.
    sent: BTreeMap<u64, Sent>,
}

impl Session {
    fn gathered(&self) -> bool {
        !self.back.is_empty() || !self.glimpse.is_empty() || !self.written.is_empty()
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
    turn: Turn,
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
        let s = self.sessions.entry(c.session).or_default();
        let asked = busy.asked.iter().filter(|a| a.session == c.session);
        let written = c.bits == 0 && c.written;
        let bits = match c.bits {
            0 if written && s.written.contains(&c.fid) => return false,
            // Who gives that back drops what it read, too.
            0 if written && asked.clone().any(|a| a.bits & LS_READ != 0) => return false,
            0 if written => 0,
            // Who gives back what excludes others tells all it did until then.
            0 if s.glimpse.contains(&c.fid) => return false,
            0 if asked.clone().any(|a| a.bits & EXCLUSIVE != 0) => return false,
            0 => 0,
            bits => match asked.fold(bits, |b, a| b & !a.bits) {
                0 => return false,
                bits => bits,
            },
        };
        self.turn.0 += 1;
        let (session, turn) = (c.session, self.turn);
        busy.asked.push(Asked { session, bits, written, turn, put_off: false });
        match bits {
            0 if written => s.written.push(c.fid),
            0 => s.glimpse.push(c.fid),
            bits => s.back.push(Lease { fid: c.fid, bits }),
        }
        self.ready.insert(c.session);
        true
    }

    /// All that was asked so far.
    pub fn turn(&self) -> Turn {
        self.turn
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

    /// Whether everything asked of others than a session, up to a turn, was answered: what others ask
    /// for later keeps nobody. What is asked of itself is in the way of others only; it may be unable
    /// to answer before what it waits for is done.
    pub fn answered(&self, fid: Fid, turn: Turn, session: u64) -> bool {
        let own = |a: &Asked| a.session == session || a.turn > turn;
        self.busy.get(&fid).is_none_or(|b| b.asked.iter().all(own))
    }

    /// Whether others than a session have put off what was asked of them: that may take minutes.
    pub fn is_put_off(&self, fid: Fid, session: u64) -> bool {
        let late = |a: &Asked| a.put_off && a.session != session;
        !self.busy.is_empty() && self.busy.get(&fid).is_some_and(|b| b.asked.iter().any(late))
    }

    /// The tasks that wait for some of these.
    pub fn waiting<'a>(&self, fids: impl IntoIterator<Item = &'a Fid>) -> BTreeSet<u64> {
        fids.into_iter()
            .filter_map(|f| self.busy.get(f))
            .flat_map(|b| &b.waiting)
            .copied()
            .collect()
    }

    /// The next message to send: session, number, body.
    pub fn message(&mut self) -> Option<(u64, u64, LeaseRecall)> {
        let waits = |s: &Session| s.sent.values().filter(|sent| !sent.put_off).count();
        let free = |s: &u64| self.sessions.get(s).is_some_and(|s| waits(s) < MAX_CALLS);
        let session = self.ready.iter().copied().find(free)?;
        let s = self.sessions.get_mut(&session)?;
        let back = s.back.drain(..s.back.len().min(MAX_CALL_LEASES)).collect();
        let glimpse = s.glimpse.drain(..s.glimpse.len().min(MAX_CALL_LEASES)).collect();
        let written = s.written.drain(..s.written.len().min(MAX_CALL_LEASES)).collect();
        if !s.gathered() {
            self.ready.remove(&session);
        }
        self.next += 1;
        let body = LeaseRecall {
            call: self.next,
            back: List(back),
            glimpse: List(glimpse),
            written: List(written),
        };
        s.sent.insert(self.next, Sent { body: body.clone(), turn: self.turn, put_off: false });
        Some((session, self.next, body))
    }

    /// A message is answered but for what is left of it, as [`Calls::answer`].
    pub fn put_off(
        &mut self,
        session: u64,
        number: u64,
        left: &HashSet<Fid>,
    ) -> Option<(LeaseRecall, BTreeSet<u64>)> {
        let s = self.sessions.get_mut(&session)?;
        let room = s.sent.values().filter(|sent| sent.put_off).count() < MAX_PUT_OFF;
        let sent = s.sent.get_mut(&number)?;
        sent.put_off |= room;
        let body = &mut sent.body;
        let given = LeaseRecall {
            call: number,
            back: List(body.back.0.extract_if(.., |l| !left.contains(&l.fid)).collect()),
            glimpse: List(body.glimpse.0.extract_if(.., |fid| !left.contains(fid)).collect()),
            written: List(body.written.0.extract_if(.., |fid| !left.contains(fid)).collect()),
        };
        let turn = sent.turn;
        let backs = body.back.0.iter().map(|l| l.fid);
        let kept = backs.chain(body.glimpse.0.iter().copied());
        for fid in kept {
            let Some(busy) = self.busy.get_mut(&fid) else { continue };
            let asked = busy.asked.iter_mut().filter(|a| a.session == session && a.turn <= turn);
            asked.for_each(|a| a.put_off = true);
        }
        let tickets = self.given(session, &given, turn);
        Some((given, tickets))
    }

    /// A message was answered: what it asked for, and the tasks that waited for some of it.
    pub fn answer(&mut self, session: u64, number: u64) -> Option<(LeaseRecall, BTreeSet<u64>)> {
        let s = self.sessions.get_mut(&session)?;
        let Sent { body, turn, .. } = s.sent.remove(&number)?;
        if s.sent.is_empty() && !s.gathered() {
            self.sessions.remove(&session);
        }
        let tickets = self.given(session, &body, turn);
        Some((body, tickets))
    }

    fn given(&mut self, session: u64, body: &LeaseRecall, turn: Turn) -> BTreeSet<u64> {
        let mut tickets = BTreeSet::new();
        for l in &body.back.0 {
            let given = |a: &Asked| (a.session, a.bits) == (session, l.bits);
            self.came(l.fid, given, &mut tickets);
        }
        for fid in &body.glimpse.0 {
            let told = |a: &Asked| (a.session, a.bits, a.written) == (session, 0, false);
            self.came(*fid, |a| told(a) && a.turn <= turn, &mut tickets);
        }
        for fid in &body.written.0 {
            let told = |a: &Asked| (a.session, a.bits, a.written) == (session, 0, true);
            self.came(*fid, |a| told(a) && a.turn <= turn, &mut tickets);
        }
        tickets
    }

    fn came(&mut self, fid: Fid, done: impl Fn(&Asked) -> bool, tickets: &mut BTreeSet<u64>) {
        let Some(busy) = self.busy.get_mut(&fid) else { return };
        busy.asked.retain(|a| !done(a));
        tickets.extend(&busy.waiting);
        self.settle(fid);
    }

    /// A session is gone: the tasks that waited for it.
    pub fn drop_session(&mut self, session: u64) -> BTreeSet<u64> {
        self.ready.remove(&session);
        let mut tickets = BTreeSet::new();
        if self.sessions.remove(&session).is_none() {
            return tickets;
        }
        self.busy.retain(|_, b| {
            let before = b.asked.len();
            b.asked.retain(|a| a.session != session);
            if b.asked.len() < before {
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

#[cfg(test)]
mod tests {
    use super::*;
    use proto::mds::{LS_ATTR, LS_WRITE};

    const F: Fid = Fid { seq: 9, oid: 1, ver: 0 };
    const WRITER: u64 = 1;
    const READER: u64 = 2;

    fn conflict(bits: u8) -> Conflict {
        Conflict { fid: F, session: WRITER, bits, written: false }
    }

    /// Asks; up to where it waits.
    fn ask(calls: &mut Calls, bits: u8, asks: bool) -> Turn {
        assert_eq!(calls.ask(conflict(bits)), asks);
        calls.turn()
    }

    #[test]
    fn a_glimpse_that_was_sent_before_does_not_answer_who_asks_later() {
        let mut calls = Calls::default();
        let first = ask(&mut calls, 0, true);
        let beside = ask(&mut calls, 0, false);
        let (session, sent, _) = calls.message().unwrap();
        let later = ask(&mut calls, 0, true);
        calls.answer(session, sent).unwrap();
        assert!(calls.answered(F, first, READER) && calls.answered(F, beside, READER));
        assert!(!calls.answered(F, later, READER));
        let (session, sent, _) = calls.message().unwrap();
        calls.answer(session, sent).unwrap();
        assert!(calls.answered(F, later, READER) && calls.is_empty());
    }

    #[test]
    fn each_write_is_told_to_who_watches_and_apart_from_what_else_is_asked() {
        let written = Conflict { written: true, ..conflict(0) };
        let mut calls = Calls::default();
        assert!(calls.ask(written) && !calls.ask(written), "one message for both");
        let first = calls.turn();
        ask(&mut calls, 0, true);
        let (session, sent, body) = calls.message().unwrap();
        assert_eq!((&body.written.0[..], &body.glimpse.0[..]), (&[F][..], &[F][..]));
        assert!(calls.ask(written), "written after that was sent");
        let second = calls.turn();
        calls.answer(session, sent).unwrap();
        assert!(calls.answered(F, first, READER) && !calls.answered(F, second, READER));
        let (session, sent, body) = calls.message().unwrap();
        assert_eq!((&body.written.0[..], body.glimpse.0.len()), (&[F][..], 0));
        calls.answer(session, sent).unwrap();
        assert!(calls.is_empty());
        ask(&mut calls, LS_READ, true);
        assert!(!calls.ask(written), "what it read goes with its lease");
    }

    #[test]
    fn an_answer_that_is_overtaken_does_not_answer_for_a_later_one() {
        let mut calls = Calls::default();
        let first = ask(&mut calls, 0, true);
        let one = calls.message().unwrap();
        let second = ask(&mut calls, 0, true);
        let two = calls.message().unwrap();
        let third = ask(&mut calls, 0, true);
        calls.answer(two.0, two.1).unwrap();
        assert!(calls.answered(F, first, READER) && calls.answered(F, second, READER));
        calls.answer(one.0, one.1).unwrap();
        assert!(!calls.answered(F, third, READER));
    }

    #[test]
    fn only_what_gives_an_exclusive_lease_back_tells_as_a_glimpse_does() {
        let mut calls = Calls::default();
        ask(&mut calls, LS_READ | LS_ATTR, true);
        ask(&mut calls, 0, true);
        let mut calls = Calls::default();
        ask(&mut calls, LS_READ | LS_WRITE, true);
        calls.message().unwrap();
        ask(&mut calls, 0, false);
        ask(&mut calls, LS_WRITE, false);
        ask(&mut calls, LS_ATTR | LS_WRITE, true);
        assert_eq!(calls.message().unwrap().2.back.0, [Lease { fid: F, bits: LS_ATTR }]);
    }
}
