//! The threads that serve all client sessions of this process.

use super::watch::Watch;
use crate::NetError;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use tokio::runtime::{Builder, Handle};

/// Most threads of client sessions.
pub const MAX_CLIENT_THREADS: usize = 64;

static WANTED: AtomicUsize = AtomicUsize::new(1);
static NEXT: AtomicUsize = AtomicUsize::new(0);

/// How many threads serve the sockets of the client sessions of this process, each session on one
/// of them: 1 unless this is called, at most [`MAX_CLIENT_THREADS`]. Counts for processes with very
/// many sessions, and only before the first session is made.
pub fn set_client_threads(threads: usize) {
    WANTED.store(threads.clamp(1, MAX_CLIENT_THREADS), Relaxed);
}

/// Where a session's sockets are served.
#[derive(Clone)]
pub(crate) struct Home {
    pub(crate) number: usize,
    /// Connects, reconnects, writes what others could not, pings.
    pub(crate) runtime: Handle,
    /// Reads, where no waiting thread does.
    pub(crate) watch: Arc<Watch>,
}

/// The home of a new session; made at first use.
pub(crate) fn home() -> Result<Home, NetError> {
    static HOMES: OnceLock<Result<Vec<Home>, String>> = OnceLock::new();
    let started = HOMES.get_or_init(|| (0..WANTED.load(Relaxed)).map(start).collect());
    let homes =
        started.as_ref().map_err(|e| NetError::Lost(format!("no thread for connections: {e}")))?;
    let turn = NEXT.fetch_add(1, Relaxed) % homes.len().max(1);
    homes.get(turn).cloned().ok_or(NetError::Shutdown)
}

fn start(number: usize) -> Result<Home, String> {
    let runtime = Builder::new_current_thread().enable_all().build().map_err(|e| e.to_string())?;
    let handle = runtime.handle().clone();
    std::thread::Builder::new()
        .name(format!("net-client{number}"))
        .spawn(move || runtime.block_on(std::future::pending::<()>()))
        .map_err(|e| e.to_string())?;
    let watch = Watch::start(number).map_err(|e| e.to_string())?;
    Ok(Home { number, runtime: handle, watch })
}
