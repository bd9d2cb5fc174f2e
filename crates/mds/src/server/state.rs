//! What only the executor touches: the namespace, its sessions, and what waits.
//!
//! Role: run tasks in the order they came, set aside what misses, cut groups, wake what waited for
//! a commit or a lock. Assumptions: one thread at a time (`exec`). Never does: I/O, waiting;
//! answers are collected and sent by the executor once it has let go of the lock.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};

use net::{Responder, Response, SessionRef};
use proto::mds::{Op, Res};
use proto::{Errno, Fid};
use store::Write;

use super::loader::{LoadError, Loaded};
use super::sole::Sole;
use super::task::{Parked, Task};
use crate::keys;
use crate::locks::Verdict;
use crate::namespace::Namespace;
use crate::options::MdtOptions;
use crate::record::{self, Garbage, Kept, Replies};
use crate::txn::{Need, Stop};

/// Sequences reserved durably at a time.
pub const SEQUENCES: u64 = 65_536;
/// Answers kept per client at most; the client's own credits keep it far below (invariant 8).
pub const MAX_KEPT: usize = 4096;

/// A client.
pub struct Client {
    /// Its session.
    pub session: SessionRef,
    /// It only looks.
    pub observer: bool,
    /// Answers it may ask for again, by xid (invariant 4).
    pub kept: VecDeque<Kept>,
    /// `kept` differs from what is stored.
    pub changed: bool,
}

/// A group to hand to the store.
pub struct Group {
    /// Its number.
    pub number: u64,
    /// Transaction numbers: those before, and its last.
    pub transnos: (u64, u64),
    /// Its writes.
    pub writes: Vec<Write>,
}

/// What the executor does for the state once the lock is free.
#[derive(Default)]
pub struct Outbox {
    /// Answers.
    pub answers: Vec<(Responder, Response)>,
    /// What readers should fetch.
    pub needs: Vec<Need>,
    /// Groups for the store.
    pub groups: Vec<Group>,
    /// Objects whose removal is durable: to be destroyed.
    pub garbage: Vec<(Fid, Garbage)>,
    /// Leases to call back or grant.
    pub recalls: Vec<(SessionRef, u8)>,
    /// Sessions to evict.
    pub evict: Vec<SessionRef>,
    /// The first change since the last group was made: set the timer.
    pub arm: bool,
}

/// See the module.
pub struct State {
    /// The namespace.
    pub ns: Namespace,
    /// Clients by session.
    pub clients: HashMap<u64, Client>,
    /// The lease of the only client.
    pub sole: Sole,
    /// Last transaction number given.
    pub transno: u64,
    /// Last durable one.
    pub committed: u64,
    /// Groups handed to the store and not durable yet.
    pub in_flight: usize,
    /// The target has failed: nothing is answered but errors.
    pub failed: bool,
    /// For the executor.
    pub out: Outbox,
    options: MdtOptions,
    cut_upto: u64,
    parked: HashMap<Need, (u64, Vec<Parked>)>,
    waiting_commit: BTreeMap<u64, Vec<Task>>,
    waiting_lock: HashMap<u64, Task>,
    garbage: VecDeque<(u64, Vec<(Fid, Garbage)>)>,
    reserve: Option<(u64, u64)>,
    reaping: HashSet<Fid>,
    armed: bool,
    overdue: bool,
}

impl State {
    /// A state over a namespace whose store stands at `last`.
    pub fn new(ns: Namespace, options: MdtOptions, last: u64) -> State {
        State {
            ns,
            clients: HashMap::new(),
            sole: Sole::default(),
            transno: last,
            committed: last,
            in_flight: 0,
            failed: false,
            out: Outbox::default(),
            options,
            cut_upto: last,
            parked: HashMap::new(),
            waiting_commit: BTreeMap::new(),
            waiting_lock: HashMap::new(),
            garbage: VecDeque::new(),
            reserve: None,
            reaping: HashSet::new(),
            armed: false,
            overdue: false,
        }
    }

    /// Runs a request as far as it goes.
    pub fn request(&mut self, task: Task) {
        let id = task.session.id();
        if !self.clients.contains_key(&id) {
            return self.fail(task, Errno::ESTALE);
        }
        if self.failed {
            return self.fail(task, Errno::EIO);
        }
        let task = match task.resent {
            true => match self.answer_kept(task) {
                Some(task) => task,
                None => return,
            },
            false => task,
        };
        if self.sole.holds_back(id, &task.compound) {
            return self.sole.held.push(task);
        }
        self.step(task);
    }

    /// Invariant 4: an answer that was given before is given again.
    fn answer_kept(&mut self, task: Task) -> Option<Task> {
        let kept = self.clients.get(&task.session.id()).map(|c| &c.kept);
        let Some(kept) = kept.and_then(|k| k.iter().find(|k| k.xid == task.xid)) else {
            return Some(task);
        };
        let response = Response {
            transno: kept.transno,
            last_committed: self.committed,
            ..Response::ok(kept.body.to_vec())
        };
        self.out.answers.push((task.reply, response));
        None
    }

    /// Runs the operations that are left.
    fn step(&mut self, mut task: Task) {
        let session = task.session.id();
        // Nothing may be opened or locked for a session whose end was dealt with.
        if self.failed || !self.clients.contains_key(&session) {
            let errno = if self.failed { Errno::EIO } else { Errno::ESTALE };
            return self.fail(task, errno);
        }
        while let Some(op) = task.op() {
            if let Some(done) = self.special(session, op) {
                match done {
                    Special::Result(res) => task.results.push(res),
                    Special::Waits(place) => return self.wait(task, place),
                }
                task.next += 1;
                continue;
            }
            let now = self.options.clock.now();
            match self.ns.run(session, &task.compound.cred, op, task.current, now) {
                Ok(outcome) => {
                    if self.ns.apply(outcome.changes, outcome.effects) {
                        self.transno += 1;
                        task.transno = self.transno;
                        self.arm();
                    }
                    task.current = outcome.current;
                    let failed = matches!(outcome.res, Res::Failed { .. });
                    task.results.push(outcome.res);
                    task.next += 1;
                    if failed {
                        break;
                    }
                }
                Err(Stop::Errno(e)) => {
                    task.results.push(Res::Failed { errno: e.0 as u16 });
                    break;
                }
                Err(Stop::Miss(need)) => return self.park(need, Parked::Client(Box::new(task))),
            }
        }
        self.finish(task);
    }

    fn finish(&mut self, mut task: Task) {
        let body = task.body();
        if task.transno > 0
            && let Some(c) = self.clients.get_mut(&task.session.id())
        {
            let (xid, transno) = (task.xid, task.transno);
            c.kept.push_back(Kept { xid, transno, body: body.clone().into() });
            c.changed = true;
            if c.kept.len() > MAX_KEPT {
                c.kept.pop_front();
            }
        }
        let response = Response {
            transno: task.transno,
            last_committed: self.committed,
            ..Response::ok(body)
        };
        self.out.answers.push((task.reply, response));
        self.maybe_cut();
    }

    /// Ends a task with an error of the whole message.
    pub fn fail(&mut self, task: Task, errno: Errno) {
        self.out.answers.push((task.reply, Response::error(errno)));
    }

    /// Operations that wait or concern the session.
    fn special(&mut self, session: u64, op: &Op) -> Option<Special> {
        let result = |r: Result<Res, Errno>| {
            Some(Special::Result(r.unwrap_or_else(|e| Res::Failed { errno: e.0 as u16 })))
        };
        match op {
            Op::Sync {} if self.transno <= self.committed => result(Ok(Res::Done {})),
            Op::Sync {} => Some(Special::Waits(Place::Commit(self.transno))),
            Op::AllocFids {} => {
                let range = self.ns.grant(session).ok_or(Errno::EAGAIN);
                self.renew_sequences();
                result(range.map(|range| Res::Fids { range }))
            }
            Op::Status {} => {
                let data = super::status::json(self).into();
                result(Ok(Res::Data { data }))
            }
            Op::TestLock { fid, lock } => {
                let found = self.ns.locks.test(*fid, session, lock);
                result(found.map(|lock| Res::Conflict { lock }))
            }
            Op::CancelLock { fid, owner, class } => {
                let (fid, owner, class) = (*fid, *owner, *class);
                if let Some(ticket) = self.ns.locks.cancel(fid, session, owner, class) {
                    self.end_wait(ticket, Err(Errno::EINTR));
                }
                result(Ok(Res::Done {}))
            }
            Op::Lock { fid, lock, wait } => {
                let (fid, unlock) = (*fid, lock.kind == crate::locks::UNLOCK);
                let flock = lock.class == proto::mds::L_FLOCK;
                let verdict = self.ns.locks.request(fid, session, lock, *wait);
                // A conversion may give something up, too.
                if unlock || flock || lock.kind == crate::locks::READ {
                    self.wake_locks(fid);
                }
                match verdict {
                    Ok(Verdict::Parked(t)) => Some(Special::Waits(Place::Lock(t))),
                    Ok(Verdict::Done) => result(Ok(Res::Done {})),
                    Err(e) => result(Err(e)),
                }
            }
            _ => None,
        }
    }

    fn wait(&mut self, task: Task, place: Place) {
        match place {
            Place::Commit(transno) => {
                self.waiting_commit.entry(transno).or_default().push(task);
                self.maybe_cut();
            }
            Place::Lock(ticket) => {
                self.waiting_lock.insert(ticket, task);
            }
        }
    }

    /// Locks were given back: whoever waited for them goes on.
    pub fn wake_locks(&mut self, fid: Fid) {
        for ticket in self.ns.locks.wake(fid) {
            self.end_wait(ticket, Ok(Res::Done {}));
        }
    }

    /// A wait for a lock ends.
    pub fn end_wait(&mut self, ticket: u64, how: Result<Res, Errno>) {
        let Some(mut task) = self.waiting_lock.remove(&ticket) else { return };
        match how {
            Ok(res) => {
                task.results.push(res);
                task.next += 1;
                self.step(task);
            }
            Err(e) => {
                task.results.push(Res::Failed { errno: e.0 as u16 });
                self.finish(task);
            }
        }
    }

    /// Drops the waits of a session that is gone.
    pub fn drop_waits(&mut self, tickets: Vec<u64>) {
        for t in tickets {
            if let Some(task) = self.waiting_lock.remove(&t) {
                self.fail(task, Errno::ESTALE);
            }
        }
    }

    fn park(&mut self, need: Need, parked: Parked) {
        if let Some((_, waiting)) = self.parked.get_mut(&need) {
            return waiting.push(parked);
        }
        let load = self.ns.cache.begin_load();
        self.out.needs.push(need.clone());
        self.parked.insert(need, (load, vec![parked]));
    }

    /// A reader is back: what waited runs again.
    pub fn loaded(&mut self, need: Need, result: Result<Loaded, LoadError>) {
        let Some((load, waiting)) = self.parked.remove(&need) else { return };
        let failed = result.is_err();
        match result {
            Ok(Loaded::Inodes(found)) => {
                for (fid, inode) in found {
                    self.ns.cache.loaded_inode(fid, inode);
                }
            }
            Ok(Loaded::Entries { dir, found, whole, absent }) => {
                self.ns.cache.loaded_entries(dir, found, whole, absent.as_deref());
            }
            Ok(Loaded::Blob(key, value)) => self.ns.cache.loaded_blob(key, value),
            Err(e) => tracing::error!(?need, error = %e, "cannot read the store"),
        }
        self.ns.cache.end_load(load);
        for parked in waiting {
            match parked {
                Parked::Client(mut task) if failed => {
                    task.results.push(Res::Failed { errno: Errno::EIO.0 as u16 });
                    self.finish(*task);
                }
                Parked::Client(task) => self.step(*task),
                Parked::Reap(fid) if failed => drop(self.reaping.remove(&fid)),
                Parked::Reap(fid) => self.reap(fid),
            }
        }
        self.ns.cache.shrink();
    }

    /// Destroys a file that is unlinked and no longer open.
    pub fn reap(&mut self, fid: Fid) {
        let now = self.options.clock.now();
        match self.ns.reap(fid, now) {
            Ok(outcome) => {
                self.reaping.remove(&fid);
                if self.ns.apply(outcome.changes, outcome.effects) {
                    self.transno += 1;
                    self.arm();
                    self.maybe_cut();
                }
            }
            Err(Stop::Miss(need)) => {
                self.reaping.insert(fid);
                self.park(need, Parked::Reap(fid));
            }
            Err(Stop::Errno(e)) => tracing::warn!(%fid, error = %e, "cannot remove an orphan"),
        }
    }

    /// Removes a record nobody reads, for instance of destroyed objects.
    pub fn forget(&mut self, keys: Vec<Vec<u8>>) {
        for key in keys {
            self.ns.cache.put_raw(key, None);
        }
        self.arm();
    }

    /// There is something to commit: a timer must run.
    pub fn arm(&mut self) {
        self.out.arm |= !std::mem::replace(&mut self.armed, true);
    }

    fn maybe_cut(&mut self) {
        let urgent = !self.waiting_commit.is_empty() && self.in_flight == 0;
        if urgent || self.ns.cache.dirty() >= self.options.group_records {
            self.cut();
        }
    }

    /// The delay is over: cuts a group, or waits for the store to catch up and cuts then.
    pub fn cut_now(&mut self) {
        self.overdue = self.in_flight >= self.options.max_commits;
        self.cut();
    }

    /// Cuts a group, if there is anything in it and the store is not behind.
    pub fn cut(&mut self) {
        let dirty = self.ns.cache.dirty() > 0;
        if !dirty || self.in_flight >= self.options.max_commits || self.failed {
            return;
        }
        self.armed = false;
        for c in self.clients.values_mut().filter(|c| c.changed) {
            c.changed = false;
            let list = proto::wire::List(c.kept.iter().cloned().collect());
            let value = record::encode(&Replies { list });
            self.ns.cache.put_raw(keys::replies(&c.session.client()), Some(value));
        }
        let (number, writes) = self.ns.cache.cut();
        let garbage = std::mem::take(&mut self.ns.garbage);
        if !garbage.is_empty() {
            self.garbage.push_back((number, garbage));
        }
        let transnos = (self.cut_upto, self.transno);
        self.cut_upto = self.transno;
        self.in_flight += 1;
        self.out.groups.push(Group { number, transnos, writes });
    }

    /// A group is durable.
    pub fn committed(&mut self, number: u64, last: u64) {
        self.in_flight -= 1;
        self.committed = last;
        self.ns.cache.committed(number);
        while self.garbage.front().is_some_and(|(n, _)| *n <= number) {
            self.out.garbage.extend(self.garbage.pop_front().map(|g| g.1).unwrap_or_default());
        }
        if self.reserve.is_some_and(|(n, _)| n <= number)
            && let Some((_, end)) = self.reserve.take()
        {
            self.ns.sequences.1 = end;
        }
        while let Some(first) = self.waiting_commit.first_entry() {
            if *first.key() > last {
                break;
            }
            for mut task in first.remove() {
                task.results.push(Res::Done {});
                task.next += 1;
                self.step(task);
            }
        }
        let full = self.ns.cache.dirty() >= self.options.group_records;
        if !self.waiting_commit.is_empty() || full || std::mem::take(&mut self.overdue) {
            self.cut();
        }
        self.ns.cache.shrink();
    }

    /// Sequences are reserved ahead of their use, durably.
    fn renew_sequences(&mut self) {
        let (next, end) = self.ns.sequences;
        if end - next < SEQUENCES / 2 && self.reserve.is_none() {
            let more = end + SEQUENCES;
            let value = more.to_le_bytes().to_vec();
            self.ns.cache.put_raw(keys::single("sequence"), Some(value));
            // It counts with the group that is being filled now, or a later one.
            self.reserve = Some((self.ns.cache.group(), more));
            self.arm();
        }
    }

    /// A client no longer waits for answers below `lowest`.
    pub fn trim_kept(&mut self, session: u64, lowest: u64) {
        if let Some(c) = self.clients.get_mut(&session) {
            while c.kept.front().is_some_and(|k| k.xid < lowest) {
                c.kept.pop_front();
            }
        }
    }

    /// The target has failed: whatever waits ends with an error.
    pub fn stop(&mut self) {
        self.failed = true;
        for (_, tasks) in std::mem::take(&mut self.waiting_commit) {
            tasks.into_iter().for_each(|t| self.fail(t, Errno::EIO));
        }
        for (_, task) in std::mem::take(&mut self.waiting_lock) {
            self.fail(task, Errno::EIO);
        }
    }

    /// The settings.
    pub fn options(&self) -> &MdtOptions {
        &self.options
    }

    /// Objects whose destruction waits for a commit.
    pub fn garbage_waiting(&self) -> usize {
        self.garbage.iter().map(|g| g.1.len()).sum::<usize>() + self.ns.garbage.len()
    }
}

#[allow(clippy::large_enum_variant, reason = "lives for one step")]
enum Special {
    Result(Res),
    Waits(Place),
}

enum Place {
    Commit(u64),
    Lock(u64),
}
