//! Threads that serve sockets: one single-threaded runtime each.
//!
//! Role: a connection lives on one shard from accept to close, so its work never moves between
//! cores. Assumptions: services do not block these threads.

use crate::NetError;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::runtime::{Builder, Handle};
use tokio::sync::Notify;

/// Time the connections of a stopping shard have to write their last replies.
const DRAIN: Duration = Duration::from_millis(500);

pub(crate) struct Shard {
    pub(crate) handle: Handle,
    /// Connections that live here.
    pub(crate) load: Arc<AtomicU64>,
    stop: Arc<Notify>,
    thread: Option<JoinHandle<()>>,
}

impl Shard {
    pub(crate) fn start(number: usize) -> Result<Shard, NetError> {
        let fail = |e: std::io::Error| NetError::Lost(format!("no thread for connections: {e}"));
        let runtime = Builder::new_current_thread().enable_all().build().map_err(fail)?;
        let handle = runtime.handle().clone();
        let stop = Arc::new(Notify::new());
        let load = Arc::new(AtomicU64::new(0));
        let (stopped, alive) = (stop.clone(), load.clone());
        let thread = std::thread::Builder::new()
            .name(format!("net-shard{number}"))
            .spawn(move || {
                runtime.block_on(async {
                    stopped.notified().await;
                    drain(&alive).await;
                });
            })
            .map_err(fail)?;
        Ok(Shard { handle, load, stop, thread: Some(thread) })
    }
}

async fn drain(alive: &AtomicU64) {
    let step = Duration::from_millis(2);
    for _ in 0..DRAIN.as_millis() / step.as_millis() {
        if alive.load(Relaxed) == 0 {
            return;
        }
        tokio::time::sleep(step).await;
    }
}

impl Drop for Shard {
    fn drop(&mut self) {
        self.stop.notify_one();
        let Some(thread) = self.thread.take() else { return };
        // A service may drop its server on one of the server's own threads.
        if thread.thread().id() != std::thread::current().id() && thread.join().is_err() {
            tracing::error!("a thread that served connections panicked");
        }
    }
}
