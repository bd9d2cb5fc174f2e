//! The reader threads: each reads one request, hands it to the file system, and reads the next.
//!
//! A thread that takes the last free place at the device starts another (up to the maximum) before it calls a handler, so
//! that blocking handlers do not stop the others. Surplus idle threads end.

use crate::channel::Channel;
use crate::dispatch::{self, Outcome, Target};
use crate::fs::Filesystem;
use crate::session::{Config, InitInfo};
use parking_lot::{Condvar, Mutex};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// The threads of a session and what they share.
pub(crate) struct Crew {
    state: Arc<State>,
}

struct State {
    fs: Arc<dyn Filesystem>,
    channel: Arc<Channel>,
    config: Config,
    info: InitInfo,
    /// Threads waiting for a request.
    idle: AtomicUsize,
    /// Set once a DESTROY arrived; handlers then report their end.
    ending: AtomicBool,
    threads: Mutex<Threads>,
    changed: Condvar,
}

#[derive(Default)]
struct Threads {
    live: usize,
    failure: Option<io::Error>,
    destroyed: bool,
}

impl Crew {
    pub(crate) fn new(
        fs: Arc<dyn Filesystem>,
        channel: Arc<Channel>,
        config: Config,
        info: InitInfo,
    ) -> Crew {
        let state = State {
            fs,
            channel,
            config,
            info,
            idle: AtomicUsize::new(0),
            ending: AtomicBool::new(false),
            threads: Mutex::default(),
            changed: Condvar::new(),
        };
        Crew { state: Arc::new(state) }
    }

    pub(crate) fn info(&self) -> &InitInfo {
        &self.state.info
    }

    pub(crate) fn channel(&self) -> &Arc<Channel> {
        &self.state.channel
    }

    /// Serves until every thread has seen the end of the device.
    pub(crate) fn run(&self) -> io::Result<()> {
        let state = &self.state;
        state.start(state.channel.clone())?;
        for _ in 1..state.config.min_threads.max(1) {
            state.grow();
        }
        let mut threads = state.threads.lock();
        while threads.live > 0 {
            state.changed.wait(&mut threads);
        }
        let failure = threads.failure.take();
        drop(threads);
        state.destroy();
        failure.map_or(Ok(()), Err)
    }
}

impl State {
    /// Starts one more thread on a channel of its own, unless there are enough.
    fn grow(self: &Arc<State>) {
        if self.threads.lock().live >= self.config.max_threads.max(1) {
            return;
        }
        let started = self.channel.cloned().and_then(|channel| self.start(Arc::new(channel)));
        if let Err(e) = started {
            tracing::warn!("cannot start another fuse thread: {e}");
        }
    }

    fn start(self: &Arc<State>, channel: Arc<Channel>) -> io::Result<()> {
        let mut threads = self.threads.lock();
        if threads.live >= self.config.max_threads.max(1) {
            return Ok(());
        }
        let state = self.clone();
        // Counted as idle from now on, so that a burst does not start more than it needs.
        self.idle.fetch_add(1, Ordering::AcqRel);
        let name = format!("fuse-{}", threads.live);
        let body = move || state.serve(&channel);
        match std::thread::Builder::new().name(name).spawn(body) {
            Ok(_) => threads.live += 1,
            Err(e) => {
                self.idle.fetch_sub(1, Ordering::AcqRel);
                return Err(e);
            }
        }
        Ok(())
    }

    /// The life of one thread. It counts as idle on entry and while it waits.
    fn serve(self: &Arc<State>, channel: &Arc<Channel>) {
        let mut buf = channel.shared.pool.get();
        let target = Target { fs: &*self.fs, channel, granted: self.info.granted };
        let failure = loop {
            let received = channel.receive(&mut buf);
            let len = match received.map_err(|e| (e.raw_os_error(), e)) {
                Ok(len) => len,
                // ENOENT: the request was given up before it was read.
                Err((Some(libc::EINTR | libc::EAGAIN | libc::ENOENT), _)) => continue,
                Err((Some(libc::ENODEV), _)) => break None,
                Err((_, e)) => break Some(e),
            };
            if self.idle.fetch_sub(1, Ordering::AcqRel) == 1 {
                self.grow();
            }
            let call = || dispatch::request(&target, &mut buf, len);
            let outcome = catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|panic| {
                tracing::error!("panic in a fuse handler: {}", panic_text(&*panic));
                Outcome::Done
            });
            if let Outcome::Destroy(unique) = outcome {
                self.answer_destroy(channel, unique);
            }
            if self.leave_or_wait() {
                self.left(None);
                return;
            }
        };
        self.idle.fetch_sub(1, Ordering::AcqRel);
        self.left(failure);
    }

    /// After a request: counts the thread as idle again, or returns true when there are enough of those.
    fn leave_or_wait(&self) -> bool {
        let idle = self.idle.fetch_add(1, Ordering::AcqRel);
        if self.ending.load(Ordering::Acquire) {
            let _threads = self.threads.lock();
            self.changed.notify_all();
        }
        if idle < self.config.max_idle_threads.max(1) {
            return false;
        }
        self.idle.fetch_sub(1, Ordering::AcqRel);
        true
    }

    fn left(&self, failure: Option<io::Error>) {
        let mut threads = self.threads.lock();
        threads.live -= 1;
        threads.failure = threads.failure.take().or(failure);
        self.changed.notify_all();
    }

    /// Waits for the handlers of other threads, ends the file system, and lets umount(2) return.
    fn answer_destroy(&self, channel: &Channel, unique: u64) {
        self.ending.store(true, Ordering::Release);
        let mut threads = self.threads.lock();
        while threads.live > self.idle.load(Ordering::Acquire) + 1 {
            self.changed.wait(&mut threads);
        }
        drop(threads);
        self.destroy();
        if let Err(e) = channel.send(unique, 0, &[]) {
            tracing::debug!("DESTROY not answered: {e}");
        }
    }

    fn destroy(&self) {
        if !std::mem::replace(&mut self.threads.lock().destroyed, true) {
            let call = || self.fs.destroy();
            if let Err(panic) = catch_unwind(AssertUnwindSafe(call)) {
                tracing::error!("panic in destroy: {}", panic_text(&*panic));
            }
        }
    }
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("?")
}
