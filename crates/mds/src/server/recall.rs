//! Leases at work: what is in the way of an operation is called back while it is set aside.
//!
//! Role: between the executor and the rules of [`crate::leases`], whose head says why nothing waits
//! for ever. Assumptions: only while no client has the SOLE lease is anything granted or in the
//! way. Never does: I/O.

use std::collections::{BTreeMap, BTreeSet};

use proto::mds::*;
use proto::{Errno, Fid};
use rustc_hash::FxHashMap as HashMap;

use super::accessed::Reads;
use super::state::State;
use super::task::Task;
use crate::cache::Changes;
use crate::leases::calls::{Calls, Conflict};
use crate::leases::hot::Hot;
use crate::leases::lockahead::LockAhead;
use crate::leases::policy;
use crate::leases::table::Table;
use crate::leases::*;
use crate::namespace::Outcome;
use crate::txn::Stop;

/// Directories followed upwards at most.
const MAX_DEPTH: usize = 4096;

/// Why an operation did not run to its end.
pub enum Halt {
    /// Itself.
    Stop(Stop),
    /// Leases of others.
    Leases(Vec<Conflict>),
}

impl From<Stop> for Halt {
    fn from(s: Stop) -> Halt {
        Halt::Stop(s)
    }
}

/// What was counted since the start.
#[derive(Debug, Default)]
pub struct Figures {
    /// Leases granted.
    pub grants: u64,
    /// Leases called back, glimpses included.
    pub recalls: u64,
    /// Call-backs sent.
    pub calls: u64,
    /// Sessions evicted because they did not answer one.
    pub evictions: u64,
    /// Operations set aside.
    pub waits: u64,
    /// Call-backs of which some was put off.
    pub put_off: u64,
    /// Files of which somebody was told that another has read them.
    pub accessed: u64,
}

/// Everything about leases per inode.
#[derive(Default)]
pub struct Leases {
    /// Who has what.
    pub table: Table,
    /// What is being called back.
    pub calls: Calls,
    /// Directories without leases.
    pub hot: Hot,
    /// Who keeps to which bytes of files that several write.
    pub ahead: LockAhead,
    /// What others have read.
    pub reads: Reads,
    /// Counters.
    pub figures: Figures,
    /// Tasks set aside, by ticket; and tickets by session.
    aside: BTreeMap<u64, Task>,
    of_session: HashMap<u64, BTreeSet<u64>>,
    next: u64,
    /// Sessions that may have too many leases.
    pub full: BTreeSet<u64>,
}

impl Leases {
    /// Tasks that wait for leases.
    pub fn waiting(&self) -> usize {
        self.aside.len()
    }

    /// A session has bits no more, nor what rests on them.
    pub fn take(&mut self, fid: Fid, session: u64, bits: u8) {
        self.table.take(fid, session, bits);
        if bits & LS_LATE != 0 {
            self.ahead.revoke(fid, session);
        }
    }

    /// The target has failed: nobody waits any more.
    pub fn take_aside(&mut self) -> Vec<Task> {
        self.of_session.clear();
        std::mem::take(&mut self.aside).into_values().collect()
    }

    fn remove(&mut self, ticket: u64) -> Option<Task> {
        let mut task = self.aside.remove(&ticket)?;
        let session = task.session.id();
        if let Some(t) = self.of_session.get_mut(&session) {
            t.remove(&ticket);
            if t.is_empty() {
                self.of_session.remove(&session);
            }
        }
        for (fid, _) in task.aside.waits.drain(..) {
            self.calls.unwait(fid, ticket);
        }
        Some(task)
    }
}

impl State {
    /// Whether anybody's lease could be in the way.
    fn shares(&self) -> bool {
        self.sole.holder.is_none() && !self.leases.table.is_empty()
    }

    pub(super) fn others(&self, session: u64, fid: Fid, bits: u8, found: &mut Vec<Conflict>) {
        for (s, has) in self.leases.table.others(fid, session) {
            if has & bits != 0 {
                found.push(Conflict { fid, session: s, bits: has & bits, written: false });
            }
        }
    }

    /// Attributes told to a session are those of whoever may change them first.
    fn hidden(&self, task: &Task, fid: Fid, glimpse: bool, found: &mut Vec<Conflict>) {
        let session = task.session.id();
        let Some(holder) = self.leases.table.excluded_by(fid, session) else { return };
        if glimpse && task.aside.glimpsed.contains(&fid) {
            return;
        }
        let bits = match glimpse && self.ns.opens.is_writer(fid, holder) {
            true => 0,
            false => EXCLUSIVE & self.leases.table.of(fid, holder),
        };
        found.push(Conflict { fid, session: holder, bits, written: false });
    }

    /// Attributes told or set are those after all writes that were answered.
    fn untold(&self, task: &Task, fid: Fid, found: &mut Vec<Conflict>) {
        self.others(task.session.id(), fid, LS_LATE, found);
    }

    /// Before an operation runs: exclusive leases of others on what it names.
    pub fn in_the_way(&self, task: &Task, op: &Op) -> Result<(), Halt> {
        if !self.shares() {
            return Ok(());
        }
        if let Op::LockAhead { fid, strides } = op {
            let fid = if *fid == Fid::CURRENT { task.current } else { *fid };
            return self.rests_on(task.session.id(), fid, strides.0.is_empty());
        }
        if task.asks_in_a_row() {
            return self.in_the_way_of_a_row(task);
        }
        let session = task.session.id();
        let glimpse = matches!(op, Op::GetAttr { .. });
        let mut found = Vec::new();
        policy::named(op, |fid, bits| {
            let fid = if fid == Fid::CURRENT { task.current } else { fid };
            if self.leases.table.excluded_by(fid, session).is_none() {
                return;
            }
            match bits == EXCLUSIVE {
                true => self.hidden(task, fid, glimpse, &mut found),
                false => self.others(session, fid, bits, &mut found),
            }
        });
        settle(found)
    }

    /// It stopped: a failure may rest on what another's lease hides.
    pub fn stopped(&mut self, task: &mut Task, stop: Stop) -> Halt {
        let Stop::Errno(errno) = stop else { return stop.into() };
        if self.shares()
            && let Some(op) = task.op()
        {
            let mut found = Vec::new();
            policy::targets(op, |dir, name| {
                let dir = if dir == Fid::CURRENT { task.current } else { dir };
                if let Some(Some(dent)) = self.ns.cache.entry(dir, name) {
                    self.hidden(task, dent.fid, false, &mut found);
                }
            });
            if let Err(halt) = settle(found) {
                return halt;
            }
        }
        self.earn(task, Err(errno));
        stop.into()
    }

    /// It ran, nothing is applied yet: leases of others on what it changes or tells.
    pub fn in_the_way_after(&self, task: &Task, outcome: &Outcome) -> Result<(), Halt> {
        if !self.shares() {
            return Ok(());
        }
        let Some(op) = task.op() else { return Ok(()) };
        let session = task.session.id();
        let mut found = Vec::new();
        policy::touched(op, outcome, &self.ns.cache, |fid, bits| {
            self.others(session, fid, bits, &mut found);
        });
        if policy::tells_of_writes(op) {
            self.tell_watchers(task, &mut found);
        }
        let glimpse = policy::glimpses(op);
        policy::told(&outcome.res, |a| {
            self.hidden(task, a.fid, glimpse, &mut found);
            if !policy::tells_late(op) {
                self.untold(task, a.fid, &mut found);
            }
        });
        match op {
            // Where a directory is depends on the names above it.
            Op::Rename { from_dir, to_dir, .. } | Op::Whiteout { from_dir, to_dir, .. }
                if from_dir != to_dir =>
            {
                let to = if *to_dir == Fid::CURRENT { task.current } else { *to_dir };
                self.upwards(task, to, &mut found);
            }
            Op::FidToPath { fid } => {
                let fid = if *fid == Fid::CURRENT { task.current } else { *fid };
                self.upwards(task, fid, &mut found);
            }
            _ => {}
        }
        settle(found)
    }

    /// A listing goes without the attributes of files whose holders cannot tell them before an OST has answered: who looks
    /// at such a file itself waits.
    pub fn leave_out(&self, task: &Task, res: &mut Res) {
        if !self.shares() {
            return;
        }
        let Res::Entries { entries, .. } = res else { return };
        for entry in &mut entries.0 {
            if self.leases.calls.is_put_off(entry.fid, task.session.id()) {
                entry.attr = None;
            }
        }
    }

    /// Who only watches a file that was written hears of it, once for each write, and goes on watching.
    fn tell_watchers(&self, task: &Task, found: &mut Vec<Conflict>) {
        let watches = |c: &Conflict| {
            c.bits & LS_READ != 0 && self.leases.table.of(c.fid, c.session) & READER == LS_READ
        };
        found.retain_mut(|c| {
            if watches(c) {
                c.bits &= !LS_READ;
                c.written = c.bits == 0;
            }
            !(c.written && task.aside.told.contains(&c.fid))
        });
    }

    fn upwards(&self, task: &Task, mut at: Fid, found: &mut Vec<Conflict>) {
        for _ in 0..MAX_DEPTH {
            self.hidden(task, at, false, found);
            let home = self.ns.cache.inode(at).flatten().and_then(|i| i.home.clone());
            let Some(home) = home else { return };
            at = home.dir;
        }
    }

    /// Inodes that are removed have no leases any more.
    pub fn forget_leases(&mut self, changes: &Changes) {
        if self.leases.table.is_empty() {
            return;
        }
        for (fid, _) in changes.inodes.iter().filter(|(_, new)| new.is_none()) {
            self.leases.ahead.forget(*fid);
            self.leases.table.forget(*fid);
        }
    }

    /// Sets a task aside until others have given up what is in its way.
    pub fn set_aside(&mut self, mut task: Task, conflicts: Vec<Conflict>) {
        let current = task.op().is_some_and(policy::names_current);
        if task.transno > 0 && task.wants_leases() && !current {
            return self.fail_op(task, Errno::ERESTART);
        }
        self.leases.figures.waits += 1;
        self.leases.next += 1;
        let (ticket, session) = (self.leases.next, task.session.id());
        let now = self.options.clock.now();
        let mut last = Fid::NONE;
        for c in conflicts {
            if self.leases.calls.ask(c) {
                self.leases.figures.recalls += 1;
                // Once, however many had it.
                if c.bits & (LS_LOOKUP | LS_DIRX) != 0 && c.fid != last {
                    self.leases.hot.called(c.fid, now);
                    last = c.fid;
                }
            }
            self.leases.calls.wait(c.fid, ticket);
            task.aside.waits.push((c.fid, self.leases.calls.turn()));
            match c.bits {
                0 if c.written => task.aside.told.push(c.fid),
                0 => task.aside.glimpsed.push(c.fid),
                _ => task.aside.asked.push(c.fid),
            }
        }
        self.suspend(&mut task);
        self.leases.aside.insert(ticket, task);
        self.leases.of_session.entry(session).or_default().insert(ticket);
        self.relieve(session);
    }

    /// A session that is called back needs credits to answer: of what it has set aside only a little
    /// stays.
    fn relieve(&mut self, session: u64) {
        if !self.leases.calls.calls(session) {
            return;
        }
        let Some(tickets) = self.leases.of_session.get(&session) else { return };
        let late: Vec<u64> = tickets.iter().skip(ASIDE_WHILE_CALLED).copied().collect();
        for ticket in late {
            let task = self.leases.aside.get(&ticket);
            let may = task.is_some_and(|t| {
                t.wants_leases() && (t.transno == 0 || !t.op().is_some_and(policy::names_current))
            });
            let Some(mut task) = may.then(|| self.leases.remove(ticket)).flatten() else {
                continue;
            };
            if task.transno == 0 {
                // All of it runs again: what it looked at first may be another by then.
                task.results.clear();
                task.granted.clear();
            }
            self.fail_op(task, Errno::ERESTART);
        }
    }

    /// Call-backs that are due go out.
    pub fn call_leases(&mut self) {
        self.trim_leases();
        while let Some((session, number, body)) = self.leases.calls.message() {
            self.leases.figures.calls += 1;
            // One that is gone and not dealt with yet gives everything back when it is.
            if let Some(c) = self.clients.get(&session) {
                self.out.calls.push((c.session.clone(), number, body));
            }
            self.relieve(session);
        }
    }

    /// Too many leases: the oldest go.
    fn trim_leases(&mut self) {
        if self.leases.full.is_empty() {
            return;
        }
        let full = std::mem::take(&mut self.leases.full);
        for session in full {
            let over = self.leases.table.count(session) > self.options.leases_per_client;
            let total = self.leases.table.len() > self.options.leases_total;
            let session = if over { Some(session) } else { self.leases.table.richest() };
            let Some(session) = session.filter(|_| over || total) else { continue };
            // What was asked for already counts: the next grant looks again.
            if self.leases.calls.calls(session) {
                continue;
            }
            for (fid, bits) in self.leases.table.oldest(session, TRIM_BATCH) {
                let asked = self.leases.calls.ask(Conflict { fid, session, bits, written: false });
                self.leases.figures.recalls += u64::from(asked);
            }
        }
    }

    /// A session answered a call-back, or did not in time.
    pub fn leases_back(&mut self, session: u64, number: u64, answer: Option<Unwatched>) {
        let Some(unwatched) = answer else {
            let Some(c) = self.clients.get(&session) else { return };
            tracing::warn!(client = %c.session.description(), "evicted: it did not give back leases in time");
            self.leases.figures.evictions += 1;
            return self.out.evict.push(c.session.clone());
        };
        if let Some(given) = self.leases.calls.answer(session, number) {
            self.given_back(session, given, &unwatched.fids.0);
        }
    }

    /// A session answered a call-back but for what is left.
    pub fn leases_put_off(&mut self, session: u64, number: u64, left: &[Fid], unwatched: &[Fid]) {
        let left = left.iter().copied().collect();
        if let Some(given) = self.leases.calls.put_off(session, number, &left) {
            self.leases.figures.put_off += 1;
            self.given_back(session, given, unwatched);
            // Who lists does not wait for what is left.
            let waiting = self.leases.calls.waiting(&left);
            self.wake_aside(waiting);
        }
    }

    fn given_back(
        &mut self,
        session: u64,
        (body, tickets): (LeaseRecall, BTreeSet<u64>),
        unwatched: &[Fid],
    ) {
        for l in &body.back.0 {
            self.leases.take(l.fid, session, l.bits);
        }
        for fid in unwatched.iter().filter(|fid| body.written.0.contains(fid)) {
            self.leases.table.take(*fid, session, LS_READ);
        }
        self.wake_aside(tickets);
    }

    fn wake_aside(&mut self, tickets: BTreeSet<u64>) {
        for ticket in tickets {
            let task = self.leases.aside.get(&ticket);
            let calls = &self.leases.calls;
            let free = |t: &Task| {
                let session = t.session.id();
                let lists = matches!(t.op(), Some(Op::ReadDir { .. }));
                t.aside.waits.iter().all(|(f, turn)| {
                    calls.answered(*f, *turn, session) || lists && calls.is_put_off(*f, session)
                })
            };
            if task.is_some_and(free)
                && let Some(task) = self.leases.remove(ticket)
            {
                self.step(task);
            }
        }
    }

    /// A session is gone: what it waited for.
    pub fn drop_aside(&mut self, session: u64) {
        let own = self.leases.of_session.get(&session).cloned().unwrap_or_default();
        for ticket in own {
            if let Some(task) = self.leases.remove(ticket) {
                self.fail(task, Errno::ESTALE);
            }
        }
    }

    /// A session is gone, and cannot do anything any more: what it had.
    pub fn drop_leases(&mut self, session: u64) {
        self.leases.table.drop_session(session);
        self.leases.ahead.drop_session(session);
        self.leases.reads.drop_session(session);
        self.leases.full.remove(&session);
        let tickets = self.leases.calls.drop_session(session);
        self.wake_aside(tickets);
    }
}

pub(super) fn settle(mut found: Vec<Conflict>) -> Result<(), Halt> {
    if found.is_empty() {
        return Ok(());
    }
    found.sort_unstable();
    // Several bits of one lease are asked for together.
    let mut list: Vec<Conflict> = Vec::with_capacity(found.len());
    for c in found {
        match list.last_mut() {
            Some(l) if (l.fid, l.session) == (c.fid, c.session) => l.bits |= c.bits,
            _ => list.push(c),
        }
    }
    Err(Halt::Leases(list))
}
