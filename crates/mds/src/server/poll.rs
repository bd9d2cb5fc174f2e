//! The thread that talks to the OSTs: it asks for their space and destroys objects.
//!
//! Role: keep [`OstTable`] true, work off the backlog of destroyed files. Destruction is idempotent
//! and its record goes only when every OST said it is done, so a crash at any moment repeats it.
//! Assumptions: it alone uses these sessions.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, unbounded};
use net::{ClusterKey, ConnectOptions, Endpoint, Session};
use parking_lot::Mutex;
use proto::layout::ObjectId;
use proto::oss::{Destroy, Statfs};
use proto::wire::List;
use proto::{Fid, Wire, ops};

use super::exec::{Exec, Work};
use crate::keys;
use crate::osts::OstTable;
use crate::record::Garbage;

/// Files whose objects are destroyed with one message to each OST.
const BATCH: usize = 256;
/// How long an OST may take to connect or to answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// How soon OSTs that have not answered yet are asked again.
const FIRST_POLL: Duration = Duration::from_millis(50);

/// Where the OSTs are.
#[derive(Default)]
pub struct Addresses {
    osts: BTreeMap<u32, Endpoint>,
    key: Option<ClusterKey>,
    changed: bool,
}

/// See the module.
pub struct Poller {
    exec: Arc<Exec>,
    table: Arc<OstTable>,
    /// Set by whoever knows the targets.
    pub addresses: Arc<Mutex<Addresses>>,
    /// Ends the thread.
    pub stop: Arc<AtomicBool>,
    /// Files whose objects wait to be destroyed.
    pub backlog: Arc<AtomicUsize>,
    fs: [u8; 16],
    name: String,
    interval: Duration,
    sessions: HashMap<u32, Arc<Session>>,
    retry: VecDeque<(Fid, Garbage)>,
    /// Of the last that were tried, some went.
    goes: bool,
}

impl Addresses {
    /// Indexes of all OSTs.
    pub fn indexes(&self) -> Vec<u32> {
        self.osts.keys().copied().collect()
    }

    /// Sets all OSTs.
    pub fn set(&mut self, osts: Vec<(u32, Endpoint)>, key: Option<ClusterKey>) {
        self.osts = osts.into_iter().collect();
        self.key = key;
        self.changed = true;
    }
}

/// Opens a session to an OST; `None`: there is none of this index.
pub(super) fn connect(
    addresses: &Mutex<Addresses>,
    index: u32,
    fs: [u8; 16],
    name: &str,
) -> Option<Result<Arc<Session>, net::NetError>> {
    let (endpoint, key) = {
        let a = addresses.lock();
        (a.osts.get(&index)?.clone(), a.key.clone())
    };
    let options = ConnectOptions {
        target: proto::mgs::target_name(proto::mgs::KIND_OST, index),
        fs,
        client: rand::random(),
        description: name.to_string(),
        features: 0,
        key,
        connect_timeout: PATIENCE,
        request_timeout: Some(PATIENCE),
        ..ConnectOptions::default()
    };
    Some(Session::connect(&endpoint, options))
}

impl Poller {
    /// A poller for a target; `run` it on a thread of its own.
    pub fn new(
        exec: Arc<Exec>,
        table: Arc<OstTable>,
        fs: [u8; 16],
        name: String,
        interval: Duration,
    ) -> Poller {
        Poller {
            exec,
            table,
            addresses: Arc::default(),
            stop: Arc::default(),
            backlog: Arc::default(),
            fs,
            name,
            interval,
            sessions: HashMap::new(),
            retry: VecDeque::new(),
            goes: false,
        }
    }

    /// Works until stopped.
    pub fn run(mut self) {
        let garbage = self.exec.garbage.1.clone();
        let mut next = Instant::now();
        while !self.stop.load(Ordering::Relaxed) {
            let asked = self.table.wants_look() || self.addresses.lock().changed;
            if asked || Instant::now() >= next {
                self.adopt();
                let all = self.poll();
                next = Instant::now() + if all { self.interval } else { FIRST_POLL };
            }
            // An OST that is back goes through what waited for it without a pause.
            let most =
                if self.goes && !self.retry.is_empty() { Duration::ZERO } else { FIRST_POLL };
            let wait = next.saturating_duration_since(Instant::now()).min(most);
            self.collect(&garbage, wait);
        }
        for s in self.sessions.into_values() {
            s.close();
        }
    }

    fn adopt(&mut self) {
        let mut a = self.addresses.lock();
        if std::mem::take(&mut a.changed) {
            self.table.set(a.osts.keys().copied());
            let keep = |i: &u32| a.osts.contains_key(i);
            self.sessions.retain(|i, _| keep(i));
            for (i, s) in &self.sessions {
                if let Some(e) = a.osts.get(i) {
                    s.set_endpoint(e.clone());
                }
            }
        }
    }

    /// Asks every OST at once; whether all have answered.
    fn poll(&mut self) -> bool {
        let indexes = self.addresses.lock().indexes();
        // What is destroyed by now is free in what they say.
        self.table.begin_look(self.table.wants_look() && self.is_destroying());
        let (tx, rx) = unbounded();
        let mut asked = 0;
        for i in &indexes {
            let Some(session) = self.session(*i) else {
                self.table.report(*i, None);
                continue;
            };
            asked += 1;
            let (tx, i) = (tx.clone(), *i);
            let done = move |r: Result<net::Reply, net::NetError>| {
                let space = r.ok().filter(|r| r.status().is_ok());
                let space = space.and_then(|r| Statfs::from_bytes(&r.body).ok());
                let _ = tx.send((i, space));
            };
            session.submit(ops::oss::STATFS, Vec::new(), Vec::new(), Box::new(done));
        }
        drop(tx);
        let mut up = 0;
        for _ in 0..asked {
            let Ok((i, space)) = rx.recv_timeout(PATIENCE) else { break };
            up += usize::from(space.is_some());
            if space.is_none() {
                self.sessions.remove(&i);
            }
            self.table.report(i, space);
        }
        self.table.looked();
        up == indexes.len() && up > 0
    }

    /// Whether objects wait to be destroyed, here or for their group to be durable.
    fn is_destroying(&self) -> bool {
        let here = !self.exec.garbage.1.is_empty() || !self.retry.is_empty();
        here || self.exec.with(|s| s.garbage_waiting()) > 0
    }

    fn session(&mut self, index: u32) -> Option<Arc<Session>> {
        if let Some(s) = self.sessions.get(&index) {
            return Some(Arc::clone(s));
        }
        match connect(&self.addresses, index, self.fs, &self.name)? {
            Ok(s) => {
                self.sessions.insert(index, Arc::clone(&s));
                Some(s)
            }
            Err(e) => {
                tracing::debug!(ost = index, error = %e, "an OST is not there");
                None
            }
        }
    }

    /// Takes what waits to be destroyed and destroys it.
    fn collect(&mut self, garbage: &Receiver<(Fid, Garbage)>, wait: Duration) {
        let mut batch = Vec::new();
        match garbage.recv_timeout(wait) {
            Ok(g) => batch.push(g),
            Err(RecvTimeoutError::Timeout) if self.retry.is_empty() => return,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        // New work first: what failed may have to wait for an OST that is down.
        while batch.len() < BATCH
            && let Ok(g) = garbage.try_recv()
        {
            batch.push(g);
        }
        let again = (BATCH - batch.len()).min(self.retry.len());
        batch.extend(self.retry.drain(..again));
        self.backlog.store(batch.len() + garbage.len() + self.retry.len(), Ordering::Relaxed);
        let failed = self.destroy(&batch);
        let (left, done): (Vec<_>, Vec<_>) =
            batch.into_iter().partition(|(_, g)| g.layout.osts.iter().any(|o| failed.contains(o)));
        self.retry.extend(left);
        self.goes = !done.is_empty();
        let keys: Vec<_> =
            done.iter().map(|(f, g)| keys::garbage(*f, g.layout.generation)).collect();
        if !keys.is_empty() {
            self.exec.submit(Work::Destroyed(keys));
        }
        self.backlog.store(garbage.len() + self.retry.len(), Ordering::Relaxed);
    }

    /// Destroys the objects; the OSTs that did not say that they are gone.
    fn destroy(&mut self, batch: &[(Fid, Garbage)]) -> HashSet<u32> {
        let mut per_ost: BTreeMap<u32, Vec<ObjectId>> = BTreeMap::new();
        for (fid, g) in batch {
            for (ost, object) in g.layout.objects(*fid) {
                per_ost.entry(ost).or_default().push(object);
            }
        }
        let mut failed: HashSet<u32> = per_ost.keys().copied().collect();
        let (tx, rx) = unbounded();
        let mut asked = 0;
        let up = self.table.all();
        for (ost, objects) in per_ost {
            // One that is down is found again by the next poll.
            let up = up.get(&ost).is_some_and(|o| o.up);
            let Some(session) = up.then(|| self.session(ost)).flatten() else { continue };
            let body = Destroy { objects: List(objects) }.to_bytes();
            let tx = tx.clone();
            let done = move |r: Result<net::Reply, net::NetError>| {
                let _ = tx.send((ost, r.is_ok_and(|r| r.status().is_ok())));
            };
            asked += 1;
            session.submit(ops::oss::DESTROY, body, Vec::new(), Box::new(done));
        }
        for _ in 0..asked {
            match rx.recv_timeout(PATIENCE * 2) {
                Ok((ost, true)) => drop(failed.remove(&ost)),
                Ok((ost, false)) => self.table.report(ost, None),
                Err(_) => break,
            }
        }
        failed
    }
}
