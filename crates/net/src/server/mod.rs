//! The server: its targets, its sessions, its listeners.
//!
//! Role: decides who becomes a session and which; sessions do the rest. Assumptions: set-up is
//! rare, so one lock for all sessions is enough (invariant 9 is about requests, which do not take
//! it).

pub(crate) mod options;
pub(crate) mod responder;
pub(crate) mod service;
pub(crate) mod session;
pub(crate) mod stats;

use crate::keeper::{Kept, keeper};
use crate::{Endpoint, LocalServer, NetError, ServerOptions, ServerStats, Service, SessionRef};
use parking_lot::Mutex;
use proto::mgs::{Hello, Welcome};
use proto::{Errno, WIRE_VERSION};
use service::Closed;
use session::SessionInner;
use stats::{Counters, up};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Instant;

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
        match endpoint {
            Endpoint::Local(_) => Ok(Endpoint::Local(self.local())),
            _ => Err(NetError::Protocol("sockets are not served yet".into())),
        }
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
        if let Err(r) = &admitted {
            up(&self.counters.refused);
            tracing::warn!(client = %hello.description, target = %hello.target, "refused: {}", r.text);
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
        if registry.down {
            drop(registry);
            session.service.closed(&SessionRef(session.clone()), Closed::Shutdown);
            return Err(refusal(Errno::ESHUTDOWN, "the server is shutting down"));
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

    fn shutdown(&self) {
        let sessions: Vec<_> = {
            let mut registry = self.registry.lock();
            registry.down = true;
            registry.sessions.values().cloned().collect()
        };
        for session in sessions {
            session.end(Closed::Shutdown, "the server shut down");
        }
    }
}

impl Kept for ServerInner {
    fn tick(&self, now: Instant) -> Option<Instant> {
        let sessions: Vec<_> = self.registry.lock().sessions.values().cloned().collect();
        sessions.iter().filter_map(|s| s.tick(now, self.options.session_grace)).min()
    }
}
