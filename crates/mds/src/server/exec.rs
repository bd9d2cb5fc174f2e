//! The executor: whoever brings work and finds the namespace free runs all that waits.
//!
//! Role: one order for everything (invariant 2) without a hand-over between threads when nobody
//! contends: a call in process costs no context switch. Never does: keep the lock while it sends,
//! reads or writes.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, unbounded};
use net::SessionRef;
use parking_lot::Mutex;
use proto::Fid;
use proto::mds::{Recall, Unwatched};
use proto::wire::List;
use proto::{Wire, ops};
use store::{Commit, Store, StoreError};

use super::loader::{LoadError, Loaded};
use super::state::{Outbox, State};
use super::task::Task;
use crate::record::Garbage;
use crate::txn::Need;

/// Work done before answers are sent.
const BATCH: usize = 64;
/// Batches one thread does in a row before it leaves the rest to the timer's thread.
const BATCHES: usize = 64;
/// How deep answers that bring new work (in process) may nest on one thread's stack.
const NESTED: u32 = 16;

thread_local! {
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// What the executor is asked to do.
pub enum Work {
    /// Run a request; the lowest xid its client waits for.
    Request(Box<Task>, u64),
    /// A reader is back.
    Loaded(Need, Result<Loaded, LoadError>),
    /// A group was (or was not) made durable.
    Committed(u64, Result<(), StoreError>),
    /// A session is over.
    Closed(u64, net::Closed),
    /// Every OST refuses the client of a session.
    Fenced(u64),
    /// The holder of the SOLE lease answered, or did not.
    Recalled(u64, bool),
    /// A session answered a call-back of leases (by number), or did not in time.
    LeasesBack(u64, u64, Option<Unwatched>),
    /// A session has heard what others have read, or did not answer.
    HeardAccessed(u64, bool),
    /// What was read has gathered for long enough.
    TellAccessed,
    /// The client that got the SOLE lease by a call has heard of it, or is gone.
    Granted(u64),
    /// The delay of a group is over.
    Flush,
    /// Objects were destroyed.
    Destroyed(Vec<Vec<u8>>),
    /// Files that may have lost their last user.
    Reap(Vec<Fid>),
    /// Space of the store: used, total, free; and below how much only what frees space passes.
    Space((u64, u64, u64), u64),
}

/// What the threads around the executor do for it.
pub enum Chore {
    /// Set the timer of a group.
    Arm,
    /// There is work.
    Kick,
    /// Measure the space of the store.
    Look,
    /// Stop.
    Stop,
}

/// See the module.
pub struct Exec {
    state: Mutex<State>,
    work: (Sender<Work>, Receiver<Work>),
    /// To the readers; `None` ends one.
    pub needs: (Sender<Option<Need>>, Receiver<Option<Need>>),
    /// To the timer thread.
    pub chores: (Sender<Chore>, Receiver<Chore>),
    /// To the fencer; `None` ends it.
    pub fences: (Sender<Option<(u64, [u8; 16])>>, Receiver<Option<(u64, [u8; 16])>>),
    /// To the destroyer.
    pub garbage: (Sender<(Fid, Garbage)>, Receiver<(Fid, Garbage)>),
    store: Arc<dyn Store>,
    /// How long a client may take to give back a lease, milliseconds.
    recall_timeout: AtomicU64,
}

impl Exec {
    /// An executor over a state and its store. The queues are bounded by what fills them: requests
    /// by the credits of their sessions, the others by requests (invariant 8).
    pub fn new(state: State, store: Arc<dyn Store>) -> Arc<Exec> {
        let recall_timeout = state.options().recall_timeout.as_millis() as u64;
        Arc::new(Exec {
            recall_timeout: recall_timeout.into(),
            state: Mutex::new(state),
            work: unbounded(),
            needs: unbounded(),
            chores: unbounded(),
            garbage: unbounded(),
            fences: unbounded(),
            store,
        })
    }

    /// How long a client may take to give back a lease before it is evicted.
    pub fn recall_timeout(&self) -> Duration {
        Duration::from_millis(self.recall_timeout.load(Relaxed))
    }

    /// Counts for call-backs from now on.
    pub fn set_recall_timeout(&self, timeout: Duration) {
        self.recall_timeout.store(timeout.as_millis() as u64, Relaxed);
    }

    /// Brings work and does it, unless somebody is at it.
    pub fn submit(self: &Arc<Exec>, work: Work) {
        // Sending fails only when the receiver is gone, which `self` holds.
        let _ = self.work.0.send(work);
        self.drain();
    }

    /// Brings work that another thread will do.
    pub fn leave(&self, work: Work) {
        let _ = self.work.0.send(work);
        let _ = self.chores.0.send(Chore::Kick);
    }

    /// The state, for what must be answered at once (a session that opens).
    pub fn with<T>(self: &Arc<Exec>, f: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.state.lock();
        let out = f(&mut state);
        let outbox = self.hand_over(&mut state);
        drop(state);
        self.deliver(outbox);
        self.drain();
        out
    }

    /// Does what waits, unless somebody is at it.
    pub fn drain(self: &Arc<Exec>) {
        let depth = DEPTH.get();
        if depth >= NESTED {
            let _ = self.chores.0.send(Chore::Kick);
            return;
        }
        DEPTH.set(depth + 1);
        self.work_off();
        DEPTH.set(depth);
    }

    fn work_off(self: &Arc<Exec>) {
        let mut batches = 0;
        while !self.work.1.is_empty() {
            batches += 1;
            if batches > BATCHES {
                let _ = self.chores.0.send(Chore::Kick);
                return;
            }
            let Some(mut state) = self.state.try_lock() else { return };
            for _ in 0..BATCH {
                match self.work.1.try_recv() {
                    Ok(work) => handle(&mut state, work),
                    Err(_) => break,
                }
            }
            let outbox = self.hand_over(&mut state);
            drop(state);
            self.deliver(outbox);
            // Whoever brought work meanwhile found the lock taken: look again.
        }
    }

    /// Takes what is to be delivered. Groups go to the store under the lock (submitting never
    /// blocks): they must reach it in the order they were cut.
    fn hand_over(self: &Arc<Exec>, state: &mut State) -> Outbox {
        state.tell_accessed();
        state.call_leases();
        for group in state.out.groups.drain(..) {
            let exec = Arc::clone(self);
            let (prev_last, last) = group.transnos;
            let number = group.number;
            let commit = Commit { prev_last, last, writes: group.writes };
            let done = move |r| exec.leave(Work::Committed(number, r));
            self.store.submit(commit, Box::new(done));
        }
        std::mem::take(&mut state.out)
    }

    fn deliver(self: &Arc<Exec>, out: Outbox) {
        for need in out.needs {
            let _ = self.needs.0.send(Some(need));
        }
        if out.look {
            let _ = self.chores.0.send(Chore::Look);
        }
        if out.arm {
            let _ = self.chores.0.send(Chore::Arm);
        }
        for (reply, response) in out.answers {
            reply.send(response);
        }
        for g in out.garbage {
            let _ = self.garbage.0.send(g);
        }
        for (session, what) in out.recalls {
            self.recall(session, what);
        }
        for (session, number, body) in out.calls {
            self.call_leases(session, number, body.to_bytes());
        }
        for (session, files) in out.accessed {
            self.tell_accessed(session, files.to_bytes());
        }
        for fence in out.fences {
            let _ = self.fences.0.send(Some(fence));
        }
        for session in out.evict {
            session.evict();
        }
    }

    fn call_leases(self: &Arc<Exec>, session: SessionRef, number: u64, body: Vec<u8>) {
        let (exec, id) = (Arc::clone(self), session.id());
        let done = move |r: Result<net::Reply, net::NetError>| {
            if is_over(&r) {
                return;
            }
            exec.leave(Work::LeasesBack(id, number, r.ok().and_then(|r| unwatched(&r))));
        };
        session.call_back(ops::callback::LEASES, body, self.recall_timeout(), Box::new(done));
    }

    fn tell_accessed(self: &Arc<Exec>, session: SessionRef, body: Vec<u8>) {
        let (exec, id) = (Arc::clone(self), session.id());
        let done = move |r: Result<net::Reply, net::NetError>| {
            if is_over(&r) {
                return;
            }
            exec.leave(Work::HeardAccessed(id, r.is_ok_and(|r| r.status().is_ok())));
        };
        session.call_back(ops::callback::ACCESSED, body, self.recall_timeout(), Box::new(done));
    }

    fn recall(self: &Arc<Exec>, session: SessionRef, what: u8) {
        let body = Recall { what, fid: Fid::NONE }.to_bytes();
        let (exec, id) = (Arc::clone(self), session.id());
        let timeout = self.recall_timeout();
        let ends = what == proto::mds::R_SOLE_END;
        session.call_back(
            ops::callback::RECALL,
            body,
            timeout,
            Box::new(move |r| {
                if ends && is_over(&r) {
                    return;
                }
                let ok = r.is_ok_and(|r| r.status().is_ok());
                exec.leave(if ends { Work::Recalled(id, ok) } else { Work::Granted(id) });
            }),
        );
    }
}

/// Whether the session has ended meanwhile: it was not silent, and what it had goes with it ([`Work::Closed`]).
fn is_over<T>(answer: &Result<T, net::NetError>) -> bool {
    matches!(answer, Err(net::NetError::Shutdown))
}

/// What an answer to a call-back of leases gives back besides; None: it is a refusal.
fn unwatched(reply: &net::Reply) -> Option<Unwatched> {
    reply.status().ok()?;
    match reply.body.is_empty() {
        true => Some(Unwatched { fids: List(Vec::new()) }),
        false => Unwatched::from_bytes(&reply.body).ok(),
    }
}

fn handle(s: &mut State, work: Work) {
    match work {
        Work::Request(task, lowest) => {
            s.trim_kept(task.session.id(), lowest);
            s.request(*task);
        }
        Work::Loaded(need, result) => s.loaded(need, result),
        Work::Committed(number, result) => s.committed(number, result),
        Work::Closed(session, why) => s.closed(session, why),
        Work::Fenced(session) => s.fenced(session),
        Work::Recalled(session, true) => s.sole_is_back(session),
        Work::Recalled(session, false) => s.sole_timeout(session),
        Work::LeasesBack(session, number, answer) => s.leases_back(session, number, answer),
        Work::HeardAccessed(session, heard) => s.heard_accessed(session, heard),
        Work::TellAccessed => s.gather_accessed(),
        Work::Granted(session) => s.sole_granted(session),
        Work::Flush => s.cut_now(),
        Work::Destroyed(keys) => s.forget(keys),
        Work::Reap(fids) => s.reap(fids),
        Work::Space(space, reserve) => s.space(space, reserve),
    }
}
