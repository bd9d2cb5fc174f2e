//! Threads that run tasks in the order of [`Waiting`], and parts of large files before new tasks.
//!
//! A task may wait for one that was submitted before it, therefore that is started, or nothing keeps
//! it from being next, and a thread that has started a large file is free for its parts at once: the
//! oldest unfinished file always has a thread that works on it. Threads start when there is work
//! for a second one. Never knows what a task does.

use super::Engine;
use super::waiting::{Home, Waiting};
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;

/// Tasks that may wait; who submits one more waits, too.
pub const TASKS_WAITING: usize = 512;

pub type Task = Box<dyn FnOnce(&Engine) + Send>;

/// A large file whose parts are worked on by all.
pub trait Shared: Send + Sync {
    /// Takes a part and works on it; `false` when there is none left to take. Called without locks held.
    fn help(&self, engine: &Engine) -> bool;

    /// A part that was taken before can be taken again.
    fn more(&self) -> bool;
}

#[derive(Default)]
pub struct Pool {
    state: Mutex<State>,
    /// There is work, or the end.
    work: Condvar,
    /// There is room for a task.
    room: Condvar,
    /// Nothing is left to do.
    quiet: Condvar,
}

#[derive(Default)]
struct State {
    tasks: Waiting,
    /// Files with parts left to take, oldest first.
    shared: VecDeque<Arc<dyn Shared>>,
    /// Tasks and parts being worked on, and shared files that are not finished.
    busy: usize,
    idle: usize,
    workers: Vec<JoinHandle<()>>,
    panics: usize,
    stop: bool,
}

enum Work {
    Task(Option<Home>, Task),
    Part(Arc<dyn Shared>),
}

impl State {
    /// Parts first, so that a file that was begun ends.
    fn next(&mut self) -> Option<Work> {
        let work = match self.shared.front() {
            Some(file) => Work::Part(file.clone()),
            None => {
                let (home, task) = self.tasks.take()?;
                Work::Task(home, task)
            }
        };
        self.busy += 1;
        Some(work)
    }

    fn is_quiet(&self) -> bool {
        self.busy == 0 && self.tasks.is_empty() && self.shared.is_empty()
    }
}

impl Pool {
    /// Waits for room; never starts a thread for a first task alone.
    pub fn submit(&self, engine: &Engine, home: Option<Home>, task: Task) {
        let mut state = self.state.lock();
        while state.tasks.len() >= TASKS_WAITING {
            self.start(&mut state, engine);
            if !state.workers.is_empty() {
                self.room.wait(&mut state);
            } else if let Some(work) = state.next() {
                // No thread can be had: nobody else would ever make room.
                drop(state);
                self.run(engine, work);
                state = self.state.lock();
            }
        }
        state.tasks.push(home, task);
        if state.tasks.len() > 1 || state.busy > 0 {
            self.start(&mut state, engine);
        }
        self.work.notify_one();
    }

    /// Runs a task in this thread.
    pub fn here(&self, engine: &Engine, task: Task) {
        self.state.lock().busy += 1;
        self.run(engine, Work::Task(None, task));
    }

    /// Adds a file whose parts all may take. It stays unfinished until [`Self::finished`].
    pub fn share(&self, engine: &Engine, file: Arc<dyn Shared>) {
        let mut state = self.state.lock();
        state.shared.push_back(file);
        state.busy += 1;
        // This thread will take parts, too, if it is not one of the workers.
        let wanted = engine.settings().threads - usize::from(engine.owner);
        for _ in state.workers.len()..wanted {
            self.start(&mut state, engine);
        }
        self.work.notify_all();
        // Who drains may help.
        self.quiet.notify_all();
    }

    /// A part of a file that is not finished was given back: the file is listed (again).
    pub fn again(&self, engine: &Engine, file: Arc<dyn Shared>) {
        let mut state = self.state.lock();
        if !state.shared.iter().any(|other| Arc::ptr_eq(other, &file)) {
            state.shared.push_back(file);
        }
        self.start(&mut state, engine);
        self.work.notify_all();
        self.quiet.notify_all();
    }

    /// Something is awaited from elsewhere, until [`Self::finished`].
    pub fn hold(&self) {
        self.state.lock().busy += 1;
    }

    /// A file added by [`Self::share`] has ended.
    pub fn finished(&self) {
        self.ended(self.state.lock());
    }

    fn ended(&self, mut state: MutexGuard<'_, State>) {
        state.busy -= 1;
        if state.is_quiet() {
            self.quiet.notify_all();
        }
    }

    /// Starts a thread when there is more work than idle threads; without one, others do it.
    fn start(&self, state: &mut State, engine: &Engine) {
        if state.idle > 0 && state.shared.is_empty()
            || state.workers.len() >= engine.settings().threads
        {
            return;
        }
        let handle = engine.handle();
        let name = format!("copy{}", state.workers.len());
        let spawned =
            std::thread::Builder::new().name(name).spawn(move || handle.pool().serve(&handle));
        if let Ok(worker) = spawned {
            state.workers.push(worker);
        }
    }

    fn serve(&self, engine: &Engine) {
        let mut state = self.state.lock();
        loop {
            if let Some(work) = state.next() {
                drop(state);
                self.run(engine, work);
                state = self.state.lock();
            } else if state.stop {
                return;
            } else {
                state.idle += 1;
                self.work.wait(&mut state);
                state.idle -= 1;
            }
        }
    }

    fn run(&self, engine: &Engine, work: Work) {
        let home = match &work {
            Work::Task(home, _) => *home,
            Work::Part(_) => None,
        };
        let result = catch_unwind(AssertUnwindSafe(|| match work {
            Work::Task(_, task) => {
                self.room.notify_one();
                task(engine);
            }
            Work::Part(file) => {
                if !file.help(engine) {
                    let mut state = self.state.lock();
                    // Looked at under the lock: who gives back looks under it whether it is listed.
                    if !file.more() {
                        state.shared.retain(|other| !Arc::ptr_eq(other, &file));
                    }
                }
            }
        }));
        let mut state = self.state.lock();
        state.panics += usize::from(result.is_err());
        if let Some(home) = home {
            state.tasks.left(home);
        }
        self.ended(state);
    }

    /// Works along until nothing is left; without the threads it has, this thread is one of them.
    pub fn drain(&self, engine: &Engine) {
        let mut state = self.state.lock();
        while !state.is_quiet() {
            let spare = state.workers.len() < engine.settings().threads;
            match if spare { state.next() } else { None } {
                Some(work) => {
                    drop(state);
                    self.run(engine, work);
                    state = self.state.lock();
                }
                None => self.quiet.wait(&mut state),
            }
        }
    }

    pub fn panics(&self) -> usize {
        self.state.lock().panics
    }

    /// Ends the threads, after all work.
    pub fn stop(&self) {
        let mut state = self.state.lock();
        state.stop = true;
        self.work.notify_all();
        let workers = std::mem::take(&mut state.workers);
        drop(state);
        for worker in workers {
            // Panics were counted where they happened.
            let _ = worker.join();
        }
    }
}
