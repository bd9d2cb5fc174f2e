//! A target that the tests steer, and a place to reach it at.

use bytes::Bytes;
use parking_lot::Mutex;
use pinstripe_net::*;
use proto::mgs::{Hello, Welcome};
use proto::{Errno, frame};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// Answers with body and bulk of the request.
pub const ECHO: u16 = 0x0901;
/// Answers when the test says so, see [`Target::release`].
pub const HOLD: u16 = 0x0902;
/// Calls the client with the body, answers with what it said.
pub const CALL: u16 = 0x0903;
/// Forgets to answer.
pub const DROP: u16 = 0x0904;
/// Not longer than this for anything to happen.
pub const PATIENCE: Duration = Duration::from_secs(20);

pub fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < end, "in vain waited for: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[derive(Default)]
pub struct Target {
    pub epoch: u32,
    pub held: Mutex<Vec<(Vec<u8>, Responder)>>,
    /// How often each body of a `HOLD` ran, and whether it was marked as sent again.
    pub runs: Mutex<HashMap<Vec<u8>, Vec<bool>>>,
    /// Bodies in the order of arrival.
    pub order: Mutex<Vec<Vec<u8>>>,
    pub most_held: AtomicUsize,
    pub opened: Mutex<Vec<bool>>,
    pub closed: Mutex<Vec<Closed>>,
    pub sessions: Mutex<Vec<SessionRef>>,
    pub lowest: AtomicU64,
}

impl Target {
    pub fn new(epoch: u32) -> Arc<Target> {
        Arc::new(Target { epoch, ..Target::default() })
    }

    pub fn held(&self) -> usize {
        self.held.lock().len()
    }

    /// Answers what is held, last first.
    pub fn release(&self) {
        let held = std::mem::take(&mut *self.held.lock());
        for (body, reply) in held.into_iter().rev() {
            reply.send(Response { transno: 5, last_committed: 4, ..Response::ok(body) });
        }
    }

    pub fn session(&self) -> SessionRef {
        self.sessions.lock().last().unwrap().clone()
    }
}

impl Service for Target {
    fn target(&self) -> String {
        "MDT0000".into()
    }
    fn fs(&self) -> [u8; 16] {
        [7; 16]
    }
    fn epoch(&self) -> u32 {
        self.epoch
    }
    fn open(&self, session: &SessionRef, hello: &Hello, resumed: bool) -> Result<Vec<u8>, String> {
        if hello.description == "unwanted" {
            return Err("you are not wanted".into());
        }
        self.opened.lock().push(resumed);
        self.sessions.lock().push(session.clone());
        Ok(b"welcome".to_vec())
    }
    fn request(&self, session: &SessionRef, request: Request, reply: Responder) {
        self.lowest.store(request.header.last_committed.get(), SeqCst);
        let resent = request.header.flags.get() & frame::F_RESENT != 0;
        match request.header.opcode.get() {
            ECHO => {
                self.order.lock().push(request.body.to_vec());
                reply.send(Response::with_bulk(request.body.to_vec(), vec![request.bulk]));
            }
            HOLD => {
                let body = request.body.to_vec();
                self.order.lock().push(body.clone());
                self.runs.lock().entry(body.clone()).or_default().push(resent);
                let mut held = self.held.lock();
                held.push((body, reply));
                self.most_held.fetch_max(held.len(), SeqCst);
            }
            CALL => session.call_back(
                0x0401,
                request.body.to_vec(),
                Duration::from_secs(30),
                Box::new(move |result| match result {
                    Ok(r) => reply.send(Response {
                        status: r.header.status.get(),
                        ..Response::ok(r.body.to_vec())
                    }),
                    Err(e) => reply.send(Response::error(e.errno())),
                }),
            ),
            DROP => {}
            _ => reply.send(Response::error(Errno::EOPNOTSUPP)),
        }
    }
    fn closed(&self, _: &SessionRef, why: Closed) {
        self.closed.lock().push(why);
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    Local,
    Unix,
    Tcp,
    /// A Unix socket that sessions share.
    Shared,
    /// The same over TCP, with a key.
    SharedTcp,
}

impl Kind {
    /// The same key in all tests of the process.
    pub fn key(self) -> Option<ClusterKey> {
        static KEY: OnceLock<ClusterKey> = OnceLock::new();
        (self == Kind::SharedTcp).then(|| KEY.get_or_init(ClusterKey::generate).clone())
    }

    fn server(self, options: ServerOptions) -> Server {
        let key = self.key().or(options.key);
        Server::new(ServerOptions { key, ..options })
    }
}

/// A server with one target at a place that survives the server.
pub struct World {
    pub kind: Kind,
    pub server: Server,
    pub target: Arc<Target>,
    pub endpoint: Endpoint,
    _dir: tempfile::TempDir,
}

pub fn quick() -> ServerOptions {
    ServerOptions { shards: 2, ..ServerOptions::default() }
}

impl World {
    pub fn new(kind: Kind, options: ServerOptions) -> World {
        let dir = tempfile::tempdir().unwrap();
        let target = Target::new(1);
        let server = kind.server(options);
        server.add(target.clone());
        let endpoint = match kind {
            Kind::Local => Endpoint::Local(server.local()),
            Kind::Unix | Kind::Shared => Endpoint::Unix(dir.path().join("run/socket")),
            Kind::Tcp | Kind::SharedTcp => Endpoint::Tcp("127.0.0.1:0".into()),
        };
        let endpoint = server.listen(&endpoint).unwrap();
        World { kind, server, target, endpoint, _dir: dir }
    }

    pub fn connect(&self, options: ConnectOptions) -> Arc<Session> {
        self.try_connect(options).unwrap()
    }

    pub fn try_connect(&self, options: ConnectOptions) -> Result<Arc<Session>, NetError> {
        let share = options.share || matches!(self.kind, Kind::Shared | Kind::SharedTcp);
        let key = self.kind.key().or(options.key);
        Session::connect(&self.endpoint, ConnectOptions { share, key, ..options })
    }

    pub fn stop(&self) {
        self.server.shutdown();
    }

    /// Another boot of the target at the same place.
    pub fn restart(&mut self, epoch: u32, options: ServerOptions, client: &Session) {
        self.server = self.kind.server(options);
        self.target = Target::new(epoch);
        self.server.add(self.target.clone());
        match self.kind {
            Kind::Local => client.set_endpoint(Endpoint::Local(self.server.local())),
            _ => {
                self.server.listen(&self.endpoint).unwrap();
            }
        }
    }
}

pub fn options() -> ConnectOptions {
    ConnectOptions { target: "MDT0000".into(), fs: [7; 16], ..ConnectOptions::default() }
}

/// Collects results of submitted requests.
#[derive(Clone, Default)]
pub struct Results(pub Arc<Mutex<Vec<Result<Reply, NetError>>>>);

impl Results {
    pub fn sink(&self) -> Box<dyn FnOnce(Result<Reply, NetError>) + Send> {
        let results = self.0.clone();
        Box::new(move |r| results.lock().push(r))
    }
    pub fn len(&self) -> usize {
        self.0.lock().len()
    }
    pub fn bodies(&self) -> Vec<Vec<u8>> {
        self.0.lock().iter().map(|r| r.as_ref().unwrap().body.to_vec()).collect()
    }
}

/// Records what happens to a session; answers calls by reversing their body.
#[derive(Default)]
pub struct Log {
    pub lost: Mutex<Vec<NetError>>,
    pub back: Mutex<Vec<Welcome>>,
    pub kept: Mutex<Vec<CallReply>>,
    pub on_back: Mutex<Option<Box<dyn FnMut() + Send>>>,
}

impl Events for Log {
    fn call(&self, _: u16, body: Bytes, reply: CallReply) {
        match &body[..] {
            b"keep" => self.kept.lock().push(reply),
            b"drop" => drop(reply),
            _ => reply.send(0, body.iter().rev().copied().collect()),
        }
    }
    fn lost(&self, why: &NetError) {
        self.lost.lock().push(why.clone());
    }
    fn back(&self, welcome: &Welcome) {
        self.back.lock().push(welcome.clone());
        if let Some(f) = self.on_back.lock().as_mut() {
            f();
        }
    }
}

#[macro_export]
macro_rules! on_each_transport {
    ($($name:ident),* $(,)?) => {
        mod local { $(#[test] fn $name() { super::$name($crate::common::Kind::Local) })* }
        mod unix { $(#[test] fn $name() { super::$name($crate::common::Kind::Unix) })* }
        $crate::on_shared_transports!($($name),*);
        mod tcp { $(#[test] fn $name() { super::$name($crate::common::Kind::Tcp) })* }
    };
}

#[macro_export]
macro_rules! on_shared_transports {
    ($($name:ident),* $(,)?) => {
        mod shared { $(#[test] fn $name() { super::$name($crate::common::Kind::Shared) })* }
        mod shared_tcp { $(#[test] fn $name() { super::$name($crate::common::Kind::SharedTcp) })* }
    };
}
