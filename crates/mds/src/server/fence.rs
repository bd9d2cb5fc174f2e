//! Fencing: an evicted client is shut out of every OST before anybody gets what it had.
//!
//! Role (invariant 5): a session that ended without a goodbye, and could still write, keeps its
//! leases and opens until every OST has said that it refuses that client. An OST that cannot be
//! reached for [`crate::MdtOptions::fence_patience`] counts as gone; it is told when it is back. The
//! client itself is refused until it comes as its next incarnation. Never does: hold the executor up.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crossbeam_channel::Receiver;
use net::{Closed, Session};
use parking_lot::Mutex;
use proto::mgs::incarnation;
use proto::oss::Fence;
use proto::{Wire, ops};

use super::exec::{Exec, Work};
use super::poll::{Addresses, connect};
use super::state::{Client, State};
use crate::leases::EXCLUSIVE;

/// How often OSTs that have not answered are asked again.
const RETRY: Duration = Duration::from_millis(100);
/// Evicted clients remembered; above it those of long ago are let in under their old name (the OSTs
/// still refuse them).
pub const MAX_EVICTED: usize = 65_536;

/// Sessions on their way out, and clients that are not let in.
#[derive(Default)]
pub struct Fencing {
    leaving: HashMap<u64, Client>,
    out: HashMap<[u8; 12], u32>,
    order: VecDeque<[u8; 12]>,
    /// Clients fenced since the start.
    pub fenced: u64,
}

impl Fencing {
    /// Whether a session is being shut out.
    pub fn leaves(&self, session: u64) -> bool {
        self.leaving.contains_key(&session)
    }

    /// Sessions that are being shut out.
    pub fn len(&self) -> usize {
        self.leaving.len()
    }

    /// Whether a client was evicted and has not come back as another.
    pub fn refuses(&self, client: &[u8; 16]) -> bool {
        let (who, times) = incarnation(client);
        self.out.get(&who).is_some_and(|last| times <= *last)
    }

    fn refuse(&mut self, client: &[u8; 16]) {
        let (who, times) = incarnation(client);
        if self.out.insert(who, times).is_none() {
            self.order.push_back(who);
        }
        if self.order.len() > MAX_EVICTED
            && let Some(old) = self.order.pop_front()
        {
            self.out.remove(&old);
        }
    }
}

impl State {
    /// A session is over.
    pub fn closed(&mut self, session: u64, why: Closed) {
        let Some(client) = self.clients.remove(&session) else { return };
        // A server that shuts down keeps what its clients may ask for when it is back.
        if why != Closed::Shutdown {
            let key = crate::keys::replies(&client.id);
            self.ns.cache.put_raw(key, None);
            self.arm();
        }
        self.sole.held.retain(|t| t.session.id() != session);
        self.drop_aside(session);
        let could_write = self.sole.holder == Some(session)
            || self.ns.opens.writes_any(session)
            || self.leases.table.has_any(session, EXCLUSIVE);
        let forced = matches!(why, Closed::Evicted | Closed::Lost) && !client.observer;
        if !(forced && could_write) {
            return self.leave(session);
        }
        let id = client.session.client();
        self.fencing.refuse(&id);
        self.fencing.leaving.insert(session, client);
        self.out.fences.push((session, id));
    }

    /// Every OST refuses the client: what it had is free.
    pub fn fenced(&mut self, session: u64) {
        if let Some(client) = self.fencing.leaving.remove(&session) {
            tracing::warn!(client = %client.session.description(), "shut out; what it had is free");
            self.fencing.fenced += 1;
            self.leave(session);
        }
    }

    /// The opens, locks, ranges and leases of a session go.
    fn leave(&mut self, session: u64) {
        let (fids, tickets) = self.ns.locks.drop_session(session);
        self.drop_waits(tickets);
        fids.into_iter().for_each(|f| self.wake_locks(f));
        let opened = self.ns.drop_session(session);
        self.reap(opened);
        self.drop_leases(session);
        self.sole_on_close(session);
    }
}

/// One client to shut out.
struct Job {
    session: u64,
    client: [u8; 16],
    left: BTreeSet<u32>,
    since: Instant,
    told: bool,
}

/// The thread that asks the OSTs.
pub struct Fencer {
    /// Whom it tells.
    pub exec: Arc<Exec>,
    /// Where the OSTs are.
    pub addresses: Arc<Mutex<Addresses>>,
    /// Ends the thread.
    pub stop: Arc<AtomicBool>,
    /// File system.
    pub fs: [u8; 16],
    /// This target.
    pub name: String,
    /// See the module.
    pub patience: Duration,
}

impl Fencer {
    /// Works until stopped.
    pub fn run(self, work: Receiver<Option<(u64, [u8; 16])>>) {
        let mut jobs: Vec<Job> = Vec::new();
        loop {
            let wait = if jobs.is_empty() { Duration::from_secs(3600) } else { RETRY };
            match work.recv_timeout(wait) {
                Ok(Some((session, client))) => jobs.push(Job {
                    session,
                    client,
                    left: self.addresses.lock().indexes().into_iter().collect(),
                    since: Instant::now(),
                    told: false,
                }),
                Ok(None) => return,
                Err(e) if e.is_disconnected() => return,
                Err(_) => {}
            }
            if self.stop.load(Ordering::Relaxed) {
                return;
            }
            self.round(&mut jobs);
            for job in &mut jobs {
                let late = job.since.elapsed() >= self.patience;
                if late && !job.told && !job.left.is_empty() {
                    tracing::error!(osts = ?job.left, "cannot be told of an evicted client: they count as gone");
                }
                if !job.told && (late || job.left.is_empty()) {
                    job.told = true;
                    self.exec.submit(Work::Fenced(job.session));
                }
            }
            jobs.retain(|j| !j.left.is_empty());
        }
    }

    /// Asks every OST that has not answered, all at once.
    fn round(&self, jobs: &mut [Job]) {
        let known: BTreeSet<u32> = self.addresses.lock().indexes().into_iter().collect();
        jobs.iter_mut().for_each(|j| j.left.retain(|i| known.contains(i)));
        let asked: BTreeSet<u32> = jobs.iter().flat_map(|j| j.left.iter().copied()).collect();
        let done: Vec<(u32, Vec<[u8; 16]>)> = std::thread::scope(|scope| {
            let threads: Vec<_> = asked
                .into_iter()
                .map(|ost| {
                    let clients: Vec<[u8; 16]> =
                        jobs.iter().filter(|j| j.left.contains(&ost)).map(|j| j.client).collect();
                    scope.spawn(move || (ost, self.ask(ost, clients)))
                })
                .collect();
            threads.into_iter().filter_map(|t| t.join().ok()).collect()
        });
        for (ost, clients) in done {
            for job in jobs.iter_mut().filter(|j| clients.contains(&j.client)) {
                job.left.remove(&ost);
            }
        }
    }

    /// The clients an OST refuses from now on.
    fn ask(&self, ost: u32, clients: Vec<[u8; 16]>) -> Vec<[u8; 16]> {
        let session: Arc<Session> = match connect(&self.addresses, ost, self.fs, &self.name) {
            Some(Ok(session)) => session,
            Some(Err(e)) => {
                tracing::info!(ost, error = %e, "cannot be told yet of an evicted client");
                return Vec::new();
            }
            None => return Vec::new(),
        };
        let fence = |client: &[u8; 16]| {
            let body = Fence { client: *client }.to_bytes();
            let reply = session.call(ops::oss::FENCE, body, Vec::new());
            reply.is_ok_and(|r| r.status().is_ok())
        };
        let done = clients.into_iter().filter(fence).collect();
        session.close();
        done
    }
}
