//! Limits and times of a server.

use crate::ClusterKey;
use std::time::Duration;

/// Limits and times of a [`crate::Server`].
#[derive(Clone)]
pub struct ServerOptions {
    /// Secret that TCP clients must prove to hold; needed to listen wider than loopback.
    pub key: Option<ClusterKey>,
    /// How long a session outlives its transport.
    pub session_grace: Duration,
    /// Sessions of all targets together; more are refused.
    pub max_sessions: usize,
    /// Most requests one session may have outstanding (at least 1).
    pub credits: u16,
    /// Requests all sessions together may have outstanding: with many sessions each gets less than
    /// `credits`, but never less than [`ServerOptions::MIN_CREDITS`].
    pub total_credits: usize,
    /// Sessions that one connection may carry; more are refused. 1: clients cannot share one.
    pub connection_sessions: usize,
    /// Threads that serve sockets.
    pub shards: usize,
    /// Call-backs that may wait for one client; more fail with [`crate::NetError::Busy`].
    pub max_callbacks: usize,
    /// Connections that may be in set-up at once; more are closed.
    pub max_handshakes: usize,
    /// Time a new connection has until it is a session.
    pub handshake_timeout: Duration,
    /// A connection silent for this long is cut (clients ping more often).
    pub idle_timeout: Duration,
    /// Feature bits this server has.
    pub features: u64,
}

impl ServerOptions {
    /// What a session always gets.
    pub const MIN_CREDITS: u16 = 4;
}

impl Default for ServerOptions {
    fn default() -> ServerOptions {
        ServerOptions {
            key: None,
            session_grace: Duration::from_secs(30),
            max_sessions: 65_536,
            credits: 64,
            total_credits: 65_536,
            connection_sessions: 16_384,
            shards: std::thread::available_parallelism().map_or(1, |n| n.get().min(4)),
            max_callbacks: 1024,
            max_handshakes: 8192,
            handshake_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(40),
            features: 0,
        }
    }
}
