//! A bounded pool of threads for requests that would make a transport thread wait.

use crossbeam_channel::{Sender, TrySendError, bounded};

/// Most requests waiting for a thread; above it the transport thread does the work itself, which
/// holds up its peers: back-pressure (invariant 8).
pub const POOL_QUEUE: usize = 1024;

type Job = Box<dyn FnOnce() + Send>;

/// Threads end when this is dropped and the queue is empty.
pub(crate) struct Pool(Sender<Job>);

impl Pool {
    pub(crate) fn start(name: &str, threads: usize) -> std::io::Result<Pool> {
        let (send, receive) = bounded::<Job>(POOL_QUEUE);
        for i in 0..threads.max(1) {
            let jobs = receive.clone();
            let thread = std::thread::Builder::new().name(format!("{name}-io{i}"));
            thread.spawn(move || jobs.iter().for_each(|job| job()))?;
        }
        Ok(Pool(send))
    }

    /// Runs `job` on a thread of the pool, or here when the queue is full.
    pub(crate) fn run(&self, job: impl FnOnce() + Send + 'static) {
        match self.0.try_send(Box::new(job)) {
            Ok(()) => {}
            Err(TrySendError::Full(job) | TrySendError::Disconnected(job)) => job(),
        }
    }
}
