//! What only the executor touches: the namespace, its sessions, and what waits.
//!
//! Role: run tasks in the order they came, set aside what misses, cut groups, wake what waited for
//! a commit or a lock. Assumptions: one thread at a time (`exec`). Never does: I/O, waiting;
//! answers are collected and sent by the executor once it has let go of the lock.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use net::{Responder, Response, SessionRef};
use proto::mds::{Accessed, CompoundReply, LeaseRecall, Op, Res};
use proto::{Errno, Fid, Wire};
use rustc_hash::FxHashMap as HashMap;

use super::commit::{Flight, Group};
use super::counts::Counts;
use super::fence::Fencing;
use super::pace::Pace;
use super::recall::{Halt, Leases};
use super::sole::Sole;
use super::task::{Parked, Task};
use super::tidy::Tidy;
use super::wait::Place;
use crate::leases::policy;
use crate::locks::Verdict;
use crate::namespace::Namespace;
use crate::options::MdtOptions;
use crate::record::{Garbage, Kept};
use crate::txn::{Need, Stop};

/// Answers kept per client at most; the client's own credits keep it far below (invariant 8).
pub const MAX_KEPT: usize = 4096;
/// Bytes of answers kept per client at most.
pub const MAX_KEPT_BYTES: usize = 1 << 20;

/// A client.
pub struct Client {
    /// Its session.
    pub session: SessionRef,
    /// Which it is ([`SessionRef::client`]), where it is looked at with each of its changes.
    pub id: [u8; 16],
    /// It only looks.
    pub observer: bool,
    /// Answers it may ask for again, by xid (invariant 4).
    pub kept: VecDeque<Kept>,
    /// Bytes of `kept`.
    pub kept_bytes: usize,
    /// `kept` differs from what is stored.
    pub changed: bool,
}

impl Client {
    /// A client with the answers an earlier boot gave it.
    pub fn new(session: SessionRef, observer: bool, kept: VecDeque<Kept>) -> Client {
        let kept_bytes = kept.iter().map(Kept::bytes).sum();
        let id = session.client();
        Client { session, id, observer, kept, kept_bytes, changed: false }
    }

    /// Keeps an answer in place of an earlier part of it; its bytes.
    pub fn keep(&mut self, kept: Kept) -> usize {
        let bytes = kept.bytes();
        self.kept_bytes += bytes;
        match self.kept.iter_mut().rev().find(|k| k.xid == kept.xid) {
            Some(part) => {
                self.kept_bytes -= part.bytes();
                *part = kept;
            }
            None => self.kept.push_back(kept),
        }
        while self.kept.len() > MAX_KEPT || self.kept_bytes > MAX_KEPT_BYTES {
            let Some(old) = self.kept.pop_front() else { break };
            self.kept_bytes -= old.bytes();
        }
        bytes
    }

    /// Forgets answers below an xid.
    pub fn trim(&mut self, lowest: u64) {
        while self.kept.front().is_some_and(|k| k.xid < lowest) {
            self.kept_bytes -= self.kept.pop_front().map_or(0, |k| k.bytes());
        }
    }
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
    /// Leases of inodes to call back: of whom, number of the call.
    pub calls: Vec<(SessionRef, u64, LeaseRecall)>,
    /// What others have read: whom to tell.
    pub accessed: Vec<(SessionRef, Accessed)>,
    /// Clients to shut out of the OSTs: their session, who they are.
    pub fences: Vec<(u64, [u8; 16])>,
    /// Sessions to evict.
    pub evict: Vec<SessionRef>,
    /// The first change since the last group was made: set the timer.
    pub arm: bool,
    /// Room may be scarce: measure it.
    pub look: bool,
}

/// See the module.
pub struct State {
    /// The namespace.
    pub ns: Namespace,
    /// Clients by session.
    pub clients: HashMap<u64, Client>,
    /// The lease of the only client.
    pub sole: Sole,
    /// Leases per inode, while several clients share the files.
    pub leases: Leases,
    /// Clients that are shut out.
    pub fencing: Fencing,
    /// What was done.
    pub counts: Counts,
    /// Last transaction number given.
    pub transno: u64,
    /// Last durable one.
    pub committed: u64,
    /// The target has failed: nothing is answered but errors.
    pub failed: bool,
    /// The target is being closed: requests are refused.
    pub closing: bool,
    /// Whether it keeps its clients waiting.
    pub pace: Arc<Pace>,
    /// For the executor.
    pub out: Outbox,
    pub(super) options: MdtOptions,
    pub(super) flights: VecDeque<Flight>,
    pub(super) no_room: bool,
    pub(super) refusals: u32,
    pub(super) room: Option<u64>,
    pub(super) cut_upto: u64,
    pub(super) changed: Vec<u64>,
    pub(super) reply_bytes: usize,
    pub(super) parked: HashMap<Need, (u64, Vec<Parked>)>,
    /// Those among them for which too much was fetched in vain ([`Task::is_starved`]).
    pub(super) starved: usize,
    pub(super) waiting_commit: BTreeMap<u64, Vec<Task>>,
    pub(super) waiting_lock: HashMap<u64, Task>,
    pub(super) stalled: VecDeque<Task>,
    pub(super) garbage: VecDeque<(u64, Vec<(Fid, Garbage)>)>,
    pub(super) reserve: Option<(u64, u64)>,
    pub(super) tidy: Tidy,
    pub(super) armed: bool,
    pub(super) overdue: bool,
}

impl State {
    /// A state over a namespace whose store stands at `last`.
    pub fn new(ns: Namespace, options: MdtOptions, last: u64) -> State {
        State {
            ns,
            clients: HashMap::default(),
            sole: Sole::default(),
            leases: Leases::default(),
            fencing: Fencing::default(),
            counts: Counts::default(),
            transno: last,
            committed: last,
            failed: false,
            closing: false,
            pace: Arc::new(Pace::new()),
            out: Outbox::default(),
            options,
            flights: VecDeque::new(),
            no_room: false,
            refusals: 0,
            room: None,
            cut_upto: last,
            changed: Vec::new(),
            reply_bytes: 0,
            parked: HashMap::default(),
            starved: 0,
            waiting_commit: BTreeMap::new(),
            waiting_lock: HashMap::default(),
            stalled: VecDeque::new(),
            garbage: VecDeque::new(),
            reserve: None,
            tidy: Tidy::default(),
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
        if self.failed || self.closing {
            let errno = if self.failed { Errno::EIO } else { Errno::ESHUTDOWN };
            return self.fail(task, errno);
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

    /// Invariant 4: an answer that was given before is given again; what was done in part goes on.
    fn answer_kept(&mut self, mut task: Task) -> Option<Task> {
        let kept = self.clients.get(&task.session.id()).map(|c| &c.kept);
        let Some(kept) = kept.and_then(|k| k.iter().find(|k| k.xid == task.xid)) else {
            return Some(task);
        };
        if let Some(current) = kept.current
            && let Ok(done) = CompoundReply::from_bytes(&kept.body)
        {
            task.next = done.results.0.len();
            task.results = done.results.0;
            (task.current, task.transno) = (current, kept.transno);
            task.kept = kept.transno;
            return Some(task);
        }
        let response = Response {
            transno: kept.transno,
            last_committed: self.committed,
            ..Response::ok(kept.body.to_vec())
        };
        self.out.answers.push((task.reply, response));
        None
    }

    /// Runs the operations that are left.
    pub fn step(&mut self, mut task: Task) {
        let session = task.session.id();
        // Nothing may be opened or locked for a session whose end was dealt with.
        if self.failed || !self.clients.contains_key(&session) {
            let errno = if self.failed { Errno::EIO } else { Errno::ESTALE };
            return self.fail(task, errno);
        }
        while let Some(op) = task.op() {
            let verb = op.verb();
            let special = match self.holds_back(op) {
                Ok(false) => self.special(session, task.current, op),
                Ok(true) => {
                    self.suspend(&mut task);
                    return self.stalled.push_back(task);
                }
                Err(e) => Some(Special::Result(failed(e))),
            };
            let res = match special {
                Some(Special::Waits(place)) => return self.wait(task, place),
                Some(Special::Result(res)) => res,
                None => match self.one(session, &mut task) {
                    Ok(res) => res,
                    Err(Halt::Leases(conflicts)) => return self.set_aside(task, conflicts),
                    Err(Halt::Stop(Stop::Errno(e))) => failed(e),
                    // Links are read from the store: first everything must be there.
                    Err(Halt::Stop(Stop::Miss(Need::Links(_)))) if !task.flushed => {
                        task.flushed = true;
                        if self.transno > self.committed {
                            return self.wait(task, Place::Commit(self.transno));
                        }
                        continue;
                    }
                    Err(Halt::Stop(Stop::Miss(need))) => {
                        return self.park(need, Parked::Client(Box::new(task)));
                    }
                },
            };
            self.counts.ended(verb, matches!(res, Res::Failed { .. }));
            task.next += 1;
            task.settles = self.must_settle(&res);
            if task.add(res) {
                break;
            }
            if task.settles {
                return self.wait(task, Place::Commit(self.transno));
            }
        }
        self.finish(task);
    }

    /// Whether the client may change objects on the strength of this answer, and what that rests
    /// on (the owner of the objects, the mark of a writer) is not durable yet: an object never
    /// outlives a crash without its owner, nor grows without the mark.
    fn must_settle(&self, res: &Res) -> bool {
        let attr = match res {
            Res::Layout { attr, .. } => attr,
            Res::Opened { attr, open } | Res::Entry { attr, open: Some(open), .. }
                if open.layout.is_some() =>
            {
                attr
            }
            _ => return false,
        };
        attr.flags & proto::attr::A_SIZE_LAGS != 0 && self.ns.cache.is_dirty(attr.fid)
    }

    /// One operation on the namespace.
    fn one(&mut self, session: u64, task: &mut Task) -> Result<Res, Halt> {
        self.ns.links = task.links.take();
        let Some(op) = task.op() else { return Err(Stop::from(Errno::EINVAL).into()) };
        self.in_the_way(task, op)?;
        if let Op::LockAhead { fid, strides } = op {
            let fid = if *fid == Fid::CURRENT { task.current } else { *fid };
            let strides = strides.0.clone();
            task.aside = Default::default();
            return Ok(self.lock_ahead(session, fid, strides));
        }
        let now = task.compound.at.0.get(task.next).copied();
        let now = now.unwrap_or_else(|| self.options.clock.now());
        let outcome = self.ns.run(session, &task.compound.cred, op, task.current, now);
        // A further miss may still need them.
        task.links = self.ns.links.take();
        let mut outcome = match outcome {
            Ok(outcome) => outcome,
            Err(stop) => return Err(self.stopped(task, stop)),
        };
        self.leave_out(task, &mut outcome.res);
        self.in_the_way_after(task, &outcome)?;
        self.forget_leases(&outcome.changes);
        if task.op().is_some_and(policy::tells_access) {
            self.note_accessed(session, &outcome.changes);
        }
        if self.ns.apply(outcome.changes, outcome.effects) {
            self.transno += 1;
            task.transno = self.transno;
            self.arm();
        }
        self.earn(task, Ok(&outcome.res));
        if matches!(task.op(), Some(Op::Close { .. })) {
            self.end_late(session, &outcome.res);
        }
        task.current = outcome.current;
        Ok(outcome.res)
    }

    /// Answers a task: its operations ran, or one failed.
    pub fn finish(&mut self, mut task: Task) {
        let leases = self.still_granted(&mut task);
        let body = task.body(&leases);
        if task.transno > 0 {
            // Leases end with the session, what is kept does not.
            let kept = if leases.is_empty() { body.clone() } else { task.body(&[]) };
            self.keep(&mut task, None, kept);
        }
        let response = Response {
            transno: task.transno,
            last_committed: self.committed,
            ..Response::ok(body)
        };
        self.out.answers.push((task.reply, response));
        self.maybe_cut();
    }

    /// Ends a task with a failure of the operation it stands at.
    pub fn fail_op(&mut self, mut task: Task, errno: Errno) {
        task.add(failed(errno));
        self.finish(task);
    }

    /// Ends a task with an error of the whole message.
    pub fn fail(&mut self, task: Task, errno: Errno) {
        self.out.answers.push((task.reply, Response::error(errno)));
    }

    /// Operations that wait or concern the session.
    fn special(&mut self, session: u64, current: Fid, op: &Op) -> Option<Special> {
        let name = |fid: Fid| if fid == Fid::CURRENT { current } else { fid };
        let result = |r: Result<Res, Errno>| Some(Special::Result(r.unwrap_or_else(failed)));
        match op {
            Op::Sync {} if self.transno <= self.committed => result(Ok(Res::Done {})),
            Op::Sync {} if self.gives_up() => result(Err(Errno::ENOSPC)),
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
                let found = self.ns.locks.test(name(*fid), session, lock);
                result(found.map(|lock| Res::Conflict { lock }))
            }
            Op::CancelLock { fid, owner, class } => {
                let (fid, owner, class) = (name(*fid), *owner, *class);
                if let Some(ticket) = self.ns.locks.cancel(fid, session, owner, class) {
                    self.end_wait(ticket, Err(Errno::EINTR));
                }
                result(Ok(Res::Done {}))
            }
            Op::Lock { fid, lock, wait } => {
                let (fid, unlock) = (name(*fid), lock.kind == crate::locks::UNLOCK);
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
            Op::PutOff { call, left, unwatched } => {
                self.leases_put_off(session, *call, &left.0, &unwatched.0);
                result(Ok(Res::Done {}))
            }
            Op::Release { leases } => {
                leases.0.iter().for_each(|l| self.leases.take(l.fid, session, l.bits));
                result(Ok(Res::Done {}))
            }
            _ => None,
        }
    }

    /// The target has failed: whatever waits ends with an error.
    pub fn stop(&mut self) {
        self.failed = true;
        for (_, tasks) in std::mem::take(&mut self.waiting_commit) {
            tasks.into_iter().for_each(|t| self.fail(t, Errno::EIO));
        }
        let locks = std::mem::take(&mut self.waiting_lock).into_values();
        let held = std::mem::take(&mut self.sole.held);
        let stalled = std::mem::take(&mut self.stalled);
        let stalled = stalled.into_iter().chain(self.leases.take_aside());
        locks.chain(held).chain(stalled).for_each(|t| self.fail(t, Errno::EIO));
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

pub(super) fn failed(errno: Errno) -> Res {
    Res::Failed { errno: errno.0 as u16 }
}

#[allow(clippy::large_enum_variant, reason = "lives for one step")]
enum Special {
    Result(Res),
    Waits(Place),
}
