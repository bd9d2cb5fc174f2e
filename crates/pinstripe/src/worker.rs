//! A thread that does what a transport's thread may not wait for: disk writes, other servers.

use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};

use crate::failure::{Doing, Outcome};

/// Tasks that may wait; more are refused.
pub const QUEUE_MAX: usize = 1024;

type Task = Box<dyn FnOnce() + Send>;

/// Runs tasks in the order given. The thread ends with the last handle.
#[derive(Clone, Debug)]
pub struct Worker {
    queue: SyncSender<Task>,
}

impl Worker {
    /// Starts the thread.
    pub fn start(name: &str) -> Outcome<Worker> {
        let (queue, tasks) = sync_channel::<Task>(QUEUE_MAX);
        let run = move || tasks.into_iter().for_each(|task| task());
        let thread = std::thread::Builder::new().name(name.into()).spawn(run);
        thread.doing(|| format!("cannot start the thread {name}"))?;
        Ok(Worker { queue })
    }

    /// Hands a task over; `false`: too many wait, it was dropped.
    pub fn give(&self, task: impl FnOnce() + Send + 'static) -> bool {
        match self.queue.try_send(Box::new(task)) {
            Ok(()) => true,
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => false,
        }
    }
}
