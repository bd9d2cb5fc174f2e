//! The server: its targets, its sessions, its listeners.
//!
//! Role: decides who becomes a session and which; sessions do the rest. Assumptions: set-up is
//! rare, so one lock for all sessions is enough (invariant 9 is about requests, which do not take
//! it).

pub(crate) mod handshake;
pub(crate) mod listen;
pub(crate) mod options;
pub(crate) mod responder;
mod second_look;
pub(crate) mod service;
pub(crate) mod session;
pub(crate) mod shard;
pub(crate) mod stats;
pub(crate) mod trunk;

use crate::keeper::{Kept, keeper};
use crate::quiet_log::QuietLog;
use crate::{Endpoint, LocalServer, NetError, ServerOptions, ServerStats, Service, SessionRef};
use parking_lot::Mutex;
use proto::mgs::{Hello, Welcome};
use proto::{Errno, WIRE_VERSION};
use service::Closed;
use session::SessionInner;
use shard::Shard;
use stats::{Counters, up};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Instant;
use tokio::runtime::Handle;
use tokio::task::AbortHandle;

/// A server of one or more targets. Clones are the same server; it ends with
/// [`Server::shutdown`] or when the last clone is dropped.
#[derive(Clone)]
pub struct Server {
    inner: Arc<ServerInner>,
    _guard: Arc<Guard>,
}

/// Shuts down with the last [`Server`]; sessions hold the inner part only weakly.
struct Guard(Arc<ServerInner>);

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.shutdown();
    }
}

#[derive(Default)]
struct Registry {
    services: HashMap<String, Arc<dyn Service>>,
    sessions: HashMap<u64, Arc<SessionInner>>,
    /// Sessions being opened: they count for `max_sessions` but are not yet known.
    opening: usize,
    down: bool,
}

pub(crate) struct ServerInner {
    pub(crate) options: ServerOptions,
    pub(crate) counters: Counters,
    registry: Mutex<Registry>,
    session_count: AtomicUsize,
    pub(crate) handshaking: AtomicUsize,
    pub(crate) shards: Mutex<Vec<Shard>>,
    listeners: Mutex<Vec<AbortHandle>>,
    pub(crate) log: QuietLog,
}

/// Why a client is not let in.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) errno: Errno,
    pub(crate) text: String,
}

fn refusal(errno: Errno, text: impl Into<String>) -> Refusal {
    Refusal { errno, text: text.into() }
}

impl Server {
    /// A server without targets and listeners.
    pub fn new(options: ServerOptions) -> Server {
        let inner = Arc::new(ServerInner {
            options,
            counters: Counters::default(),
            registry: Mutex::default(),
            session_count: AtomicUsize::new(0),
            handshaking: AtomicUsize::new(0),
            shards: Mutex::default(),
            listeners: Mutex::default(),
            log: QuietLog::new(),
        });
        let kept: Arc<dyn Kept> = inner.clone();
        keeper().add(&kept);
        Server { _guard: Arc::new(Guard(inner.clone())), inner }
    }

    /// Adds a target; clients may ask for it from now on.
    pub fn add(&self, service: Arc<dyn Service>) {
        self.inner.registry.lock().services.insert(service.target(), service);
    }

    /// Takes connections at `endpoint`; returns the address with the port that was given.
    ///
    /// # Errors
    /// The address cannot be had, or is wider than loopback and there is no key.
    pub fn listen(&self, endpoint: &Endpoint) -> Result<Endpoint, NetError> {
        if let Endpoint::Local(_) = endpoint {
            return Ok(Endpoint::Local(self.local()));
        }
        let handle = self.inner.start_shards()?;
        let _in_runtime = handle.enter();
        let (listener, real) = listen::bind(endpoint, self.inner.options.key.is_some())?;
        let task = handle.spawn(listen::accept(self.inner.clone(), listener));
        self.inner.listeners.lock().push(task.abort_handle());
        Ok(real)
    }

    /// The way to this server from within the process.
    pub fn local(&self) -> LocalServer {
        LocalServer::new(&self.inner)
    }

    /// The sessions there are, also those whose client is away.
    pub fn sessions(&self) -> Vec<SessionRef> {
        self.inner.registry.lock().sessions.values().cloned().map(SessionRef).collect()
    }

    /// Ends all sessions and listeners. Clients try to come back elsewhere.
    pub fn shutdown(&self) {
        self.inner.shutdown();
    }

    /// Counters.
    pub fn stats(&self) -> ServerStats {
        let mut stats = self.inner.counters.read();
        stats.sessions = self.inner.session_count.load(Relaxed) as u64;
        stats
    }
}

impl ServerInner {
    /// Requests a session may have outstanding now.
    pub(crate) fn grant(&self) -> u16 {
        let most = self.options.credits.max(1);
        let least = ServerOptions::MIN_CREDITS.min(most);
        let share = self.options.total_credits / self.session_count.load(Relaxed).max(1);
        u16::try_from(share).unwrap_or(u16::MAX).clamp(least, most)
    }

    /// Opens a session for `hello`, or takes its old one up again. The caller attaches a link.
    pub(crate) fn admit(
        self: &Arc<Self>,
        hello: &Hello,
    ) -> Result<(Arc<SessionInner>, Welcome), Refusal> {
        let admitted = self.admit_checked(hello);
        if admitted.is_err() {
            up(&self.counters.refused);
        }
        admitted
    }

    fn admit_checked(
        self: &Arc<Self>,
        hello: &Hello,
    ) -> Result<(Arc<SessionInner>, Welcome), Refusal> {
        if hello.min_version > WIRE_VERSION || hello.max_version < WIRE_VERSION {
            return Err(refusal(
                Errno::EPROTO,
                format!(
                    "wire versions {} to {} are not spoken here (this server speaks {WIRE_VERSION})",
                    hello.min_version, hello.max_version
                ),
            ));
        }
        let service = self.service(hello)?;
        let (session, resumed) = match self.known(hello) {
            Some(session) => (session, true),
            None => (self.reserve(hello, &service)?, false),
        };
        let this = SessionRef(session.clone());
        let opened = service.open(&this, hello, resumed);
        if !resumed {
            self.settle(&session, opened.is_ok())?;
        }
        let data = opened.map_err(|text| refusal(Errno::EACCES, text))?;
        up(if resumed { &self.counters.resumed } else { &self.counters.opened });
        let welcome = Welcome {
            session: session.id,
            epoch: service.epoch(),
            version: WIRE_VERSION,
            features: hello.features & self.options.features,
            credits: self.grant(),
            resumed,
            data,
        };
        Ok((session, welcome))
    }

    fn service(&self, hello: &Hello) -> Result<Arc<dyn Service>, Refusal> {
        let registry = self.registry.lock();
        if registry.down {
            return Err(refusal(Errno::ESHUTDOWN, "the server is shutting down"));
        }
        let service = registry.services.get(&hello.target).cloned();
        drop(registry);
        let service = service.ok_or_else(|| {
            refusal(Errno::ENODEV, format!("there is no target {:?} here", hello.target))
        })?;
        let (mine, theirs) = (service.fs(), hello.fs);
        if theirs != [0; 16] && mine != [0; 16] && mine != theirs {
            let text = format!("{} is a target of another file system", hello.target);
            return Err(refusal(Errno::ENODEV, text));
        }
        Ok(service)
    }

    /// The session `hello` wants to take up again, if it is this client's and still lives.
    fn known(&self, hello: &Hello) -> Option<Arc<SessionInner>> {
        let session = self.registry.lock().sessions.get(&hello.resume).cloned()?;
        let same = session.client() == hello.client && session.service.target() == hello.target;
        (same && session.take_up()).then_some(session)
    }

    fn reserve(
        self: &Arc<Self>,
        hello: &Hello,
        service: &Arc<dyn Service>,
    ) -> Result<Arc<SessionInner>, Refusal> {
        let mut registry = self.registry.lock();
        if registry.sessions.len() + registry.opening >= self.options.max_sessions {
            let text = format!("the server has all {} sessions", self.options.max_sessions);
            return Err(refusal(Errno::EBUSY, text));
        }
        registry.opening += 1;
        let mut id = 0;
        while id == 0 || registry.sessions.contains_key(&id) {
            id = rand::random();
        }
        Ok(Arc::new(SessionInner::new(id, hello, service.clone(), Arc::downgrade(self))))
    }

    /// Makes an opened session known, unless the server went down meanwhile.
    fn settle(&self, session: &Arc<SessionInner>, opened: bool) -> Result<(), Refusal> {
        let mut registry = self.registry.lock();
        registry.opening -= 1;
        if !opened {
            return Ok(());
        }
        if registry.down || session.is_over() {
            let why = if registry.down { Closed::Shutdown } else { Closed::Evicted };
            drop(registry);
            session.service.closed(&SessionRef(session.clone()), why);
            return Err(refusal(Errno::ESHUTDOWN, "the session ended while it was opened"));
        }
        registry.sessions.insert(session.id, session.clone());
        self.session_count.store(registry.sessions.len(), Relaxed);
        drop(registry);
        // Without a link the grace runs from the start.
        keeper().at(Instant::now() + self.options.session_grace);
        Ok(())
    }

    pub(crate) fn forget(&self, id: u64, why: Closed) -> Option<Arc<SessionInner>> {
        match why {
            Closed::Lost => up(&self.counters.lost),
            Closed::Evicted => up(&self.counters.evicted),
            Closed::Goodbye | Closed::Shutdown => {}
        }
        let mut registry = self.registry.lock();
        let session = registry.sessions.remove(&id);
        self.session_count.store(registry.sessions.len(), Relaxed);
        session
    }

    /// Starts the threads that serve sockets, once; the first takes the connections.
    fn start_shards(&self) -> Result<Handle, NetError> {
        if self.registry.lock().down {
            return Err(NetError::Shutdown);
        }
        let mut shards = self.shards.lock();
        while shards.len() < self.options.shards.max(1) {
            let number = shards.len();
            shards.push(Shard::start(number)?);
        }
        shards.first().map(|s| s.handle.clone()).ok_or(NetError::Shutdown)
    }

    fn shutdown(&self) {
        self.listeners.lock().drain(..).for_each(|l| l.abort());
        let sessions: Vec<_> = {
            let mut registry = self.registry.lock();
            registry.down = true;
            registry.sessions.values().cloned().collect()
        };
        for session in sessions {
            session.end(Closed::Shutdown, "the server shut down");
        }
        let shards = std::mem::take(&mut *self.shards.lock());
        drop(shards);
    }
}

impl Kept for ServerInner {
    fn tick(&self, now: Instant) -> Option<Instant> {
        let sessions: Vec<_> = self.registry.lock().sessions.values().cloned().collect();
        sessions.iter().filter_map(|s| s.tick(now, self.options.session_grace)).min()
    }
}
