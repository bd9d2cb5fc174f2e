//! Who sends what is written.
//!
//! Role: hands files to the threads that send, each lane to its own: an OST that is slow keeps the thread waiting
//! that sends to it alone. Files over several OSTs, and small ones, share a few threads; commits, which wait for
//! nothing, have one. Limits: a thread for each OST that was written to. Never does: I/O.

use std::collections::HashMap;
use std::sync::Arc;
use std::thread::JoinHandle;

use crossbeam_channel::{Receiver, Sender, unbounded};
use parking_lot::Mutex;

use crate::core::Core;
use crate::inode::Inode;
use crate::lane::Lane;
use crate::worker::{self, Task};

/// Threads that send what has no thread of its own.
const SHARED: usize = 4;

type Queue = (Sender<Task>, Receiver<Task>);

/// The thread of an OST.
struct Own {
    tasks: Sender<Task>,
    thread: JoinHandle<()>,
}

/// See the module. Each file is in a queue once at most for sending, and once for committing.
pub(crate) struct Senders {
    shared: Queue,
    commits: Queue,
    /// None: all ends.
    own: Mutex<Option<HashMap<u32, Own>>>,
}

impl Senders {
    pub(crate) fn new() -> Senders {
        Senders { shared: unbounded(), commits: unbounded(), own: Mutex::new(Some(HashMap::new())) }
    }

    /// What the threads run that are there from the beginning, and their names.
    pub(crate) fn threads(&self) -> Vec<(String, Receiver<Task>)> {
        let shared = (0..SHARED).map(|i| (format!("client-send-{i}"), self.shared.1.clone()));
        shared.chain([("client-commit".to_string(), self.commits.1.clone())]).collect()
    }

    /// A file has something to send.
    pub(crate) fn push(&self, core: &Arc<Core>, lane: Lane, inode: Arc<Inode>) {
        let task = Task::Push(inode);
        // Sending fails only after the threads ended, when nothing is left to do.
        let _ = match lane {
            Lane::Ost(index) => self.of(core, index).send(task),
            Lane::Mdt | Lane::Many => self.shared.0.send(task),
        };
    }

    /// The queue of an OST; the shared one if it can have no thread.
    fn of(&self, core: &Arc<Core>, index: u32) -> Sender<Task> {
        let mut own = self.own.lock();
        let Some(own) = own.as_mut() else { return self.shared.0.clone() };
        if let Some(own) = own.get(&index) {
            return own.tasks.clone();
        }
        let (tasks, queue) = unbounded();
        let core = core.clone();
        let run = move || worker::work(&core, &queue);
        match std::thread::Builder::new().name(format!("client-ost{index}")).spawn(run) {
            Ok(thread) => {
                own.insert(index, Own { tasks: tasks.clone(), thread });
                tasks
            }
            Err(_) => self.shared.0.clone(),
        }
    }

    /// A commit, or its answer: nothing of that waits.
    pub(crate) fn commit(&self, task: Task) {
        let _ = self.commits.0.send(task);
    }

    /// What may wait for something.
    pub(crate) fn other(&self, task: Task) {
        let _ = self.shared.0.send(task);
    }

    /// All threads are to end; those of OSTs, to be waited for.
    pub(crate) fn stop(&self) -> Vec<JoinHandle<()>> {
        for _ in 0..SHARED {
            let _ = self.shared.0.send(Task::Stop);
        }
        let _ = self.commits.0.send(Task::Stop);
        let own = self.own.lock().take();
        own.into_iter()
            .flatten()
            .map(|(_, own)| {
                let _ = own.tasks.send(Task::Stop);
                own.thread
            })
            .collect()
    }
}
