//! What a client session is told at the start.

use super::CallReply;
use crate::{Backoff, ClusterKey, NetError};
use bytes::Bytes;
use proto::Errno;
use proto::mgs::Welcome;
use std::sync::Arc;
use std::time::Duration;

/// What happens to a session without being asked for. Called on threads of this crate or that
/// wait for an answer (in process: of the server); must not block on calls of the same session.
pub trait Events: Send + Sync {
    /// A call of the server. Answer with [`CallReply::send`], here or later from any thread.
    fn call(&self, opcode: u16, body: Bytes, reply: CallReply);
    /// The transport is lost, or another attempt to come back failed for a new reason.
    fn lost(&self, _why: &NetError) {}
    /// There is a transport again. Nothing was sent on it yet: what this submits (a replay) goes
    /// first, in the order submitted, then what was waiting, in the order of xids. If the session is
    /// lost before a replay is answered and cannot be resumed, it fails and `back` starts anew; a
    /// resumed session goes on with the replay it has.
    fn back(&self, _welcome: &Welcome) {}
}

/// How long a request is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patience {
    /// As long as [`ConnectOptions::request_timeout`] says.
    Request,
    /// Until it is answered, or the session ends: it goes when the target is back, however late. Of these there is
    /// room always: who sends them bounds their number.
    Session,
}

/// For clients that nobody calls: call-backs are answered `EOPNOTSUPP`.
#[derive(Debug, Default)]
pub struct NoEvents;

impl Events for NoEvents {
    fn call(&self, _opcode: u16, _body: Bytes, reply: CallReply) {
        reply.send(Errno::EOPNOTSUPP.status(), Vec::new());
    }
}

/// What a session is told at the start.
#[derive(Clone)]
pub struct ConnectOptions {
    /// Target wanted.
    pub target: String,
    /// File system meant; all zero: any.
    pub fs: [u8; 16],
    /// This client instance.
    pub client: [u8; 16],
    /// Host and process, for people.
    pub description: String,
    /// Feature bits wanted.
    pub features: u64,
    /// Cluster key, to prove and to see proven over TCP.
    pub key: Option<ClusterKey>,
    /// Time one attempt to connect may take.
    pub connect_timeout: Duration,
    /// Time a request may wait for its reply, reconnects included; `None`: for ever.
    pub request_timeout: Option<Duration>,
    /// Whether to come back after a loss; if not, a loss ends the session.
    pub reconnect: bool,
    /// Waits between attempts to come back.
    pub backoff: Backoff,
    /// Requests that may wait in the session; more block their callers.
    pub max_waiting: usize,
    /// Time between two signs of life (pings), and the least one may wait for theirs.
    pub ping_interval: Duration,
    /// A connection without a sign of life for this long is given up (above `ping_interval`).
    pub ping_timeout: Duration,
    /// Whether the session shares a socket with others of this process that go to the same place
    /// with the same key and ping times and live on the same thread, if the server can. What is lost
    /// with the socket is lost for all of them; for the rest each is as if it were alone.
    pub share: bool,
    /// Who hears of call-backs, loss and return.
    pub events: Arc<dyn Events>,
}

impl Default for ConnectOptions {
    fn default() -> ConnectOptions {
        ConnectOptions {
            target: String::new(),
            fs: [0; 16],
            client: rand::random(),
            description: format!("process {}", std::process::id()),
            features: 0,
            key: None,
            connect_timeout: Duration::from_secs(10),
            request_timeout: None,
            reconnect: true,
            backoff: Backoff::default(),
            max_waiting: 4096,
            ping_interval: Duration::from_secs(5),
            ping_timeout: Duration::from_secs(20),
            share: false,
            events: Arc::new(NoEvents),
        }
    }
}
