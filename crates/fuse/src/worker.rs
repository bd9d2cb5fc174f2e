//! The threads of a session: each reads a request, hands it to the file system, and reads the next or parks.

use crate::channel::{Channel, Link};
use crate::cpus::Cpus;
use crate::dispatch::{self, Outcome, Target};
use crate::dying::{Desk, Watch};
use crate::fs::Filesystem;
use crate::near::{Asker, Near, Places};
use crate::parse::{Args, Malformed};
use crate::readers::{Next, Readers};
use crate::ring::{self, Entry, Message, Ring, Seat, Serve};
use crate::session::{Config, InitInfo};
use crate::transport::IoUring;
use crate::types::Errno;
use parking_lot::Mutex;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A request that took this long may have kept others waiting.
const SLOW: Duration = Duration::from_micros(50);

/// So may one that took this long, where one thread asks nearly everything.
const BLOCKED: Duration = Duration::from_millis(1);

/// So may one that carries this much data, whose copying no clock of ours sees.
const LARGE: usize = 128 << 10;

/// The threads of a session and what they share.
pub(crate) struct Crew {
    state: Arc<State>,
}

struct State {
    fs: Arc<dyn Filesystem>,
    channel: Arc<Channel>,
    min_threads: usize,
    info: InitInfo,
    readers: Readers,
    watch: Arc<Watch>,
    failure: Mutex<Option<io::Error>>,
    destroyed: Mutex<bool>,
    ring: Option<Arc<Ring>>,
    wish: IoUring,
    /// None where all threads run on one CPU anyway.
    cpus: Option<Cpus>,
    asker: Asker,
}

impl Crew {
    pub(crate) fn new(
        fs: Arc<dyn Filesystem>,
        channel: Arc<Channel>,
        config: Config,
        info: InitInfo,
        ring: Option<Arc<Ring>>,
        wish: IoUring,
    ) -> Crew {
        let readers = Readers::new(config.max_threads, config.max_idle_threads);
        let state = State {
            fs,
            channel,
            min_threads: config.min_threads,
            info,
            readers,
            watch: Arc::default(),
            failure: Mutex::default(),
            destroyed: Mutex::default(),
            ring,
            wish,
            cpus: Cpus::read().ok().filter(Cpus::several),
            asker: Asker::default(),
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
        state.start_ring()?;
        state.start(state.channel.clone(), true).inspect_err(|_| state.end_ring())?;
        for _ in 1..state.min_threads.max(1) {
            state.grow(false);
        }
        state.start_watch();
        state.readers.wait_all_left();
        if let Some(ring) = &state.ring {
            ring.wait_all_left();
        }
        state.watch.stop();
        state.destroy();
        let failure = state.failure.lock().take();
        failure.map_or(Ok(()), Err)
    }
}

impl State {
    /// Has requests come through the ring, if that was agreed upon.
    fn start_ring(self: &Arc<State>) -> io::Result<()> {
        let Some(ring) = &self.ring else { return Ok(()) };
        let server: Arc<dyn Serve> = self.clone();
        match ring.start(&server) {
            // Unmounted already; the device says so too.
            Err(e) if e.raw_os_error().is_some_and(|errno| ring::is_end(-errno)) => Ok(()),
            Err(e) if self.wish == IoUring::On || e.kind() == io::ErrorKind::OutOfMemory => Err(e),
            Err(e) => {
                tracing::warn!("requests come through /dev/fuse, not io_uring: {e}");
                Ok(())
            }
            Ok(()) => {
                self.readers.aside();
                Ok(())
            }
        }
    }

    /// Without it killed callers wait for their answers.
    fn start_watch(&self) {
        let watch = self.watch.clone();
        let body = move || watch.run();
        if let Err(e) = std::thread::Builder::new().name("fuse-watch".into()).spawn(body) {
            tracing::warn!("nobody looks after callers that are killed: {e}");
        }
    }

    fn end_ring(&self) {
        if let Some(ring) = &self.ring {
            ring.end();
        }
    }

    /// Starts one more thread on a channel of its own, unless there are enough.
    fn grow(self: &Arc<State>, reading: bool) {
        let started =
            self.channel.cloned().and_then(|channel| self.start(Arc::new(channel), reading));
        if let Err(e) = started {
            tracing::warn!("cannot start another fuse thread: {e}");
        }
    }

    fn start(self: &Arc<State>, channel: Arc<Channel>, reading: bool) -> io::Result<()> {
        if !self.readers.reserve(reading) {
            return Ok(());
        }
        let state = self.clone();
        let body = move || state.live(&channel, reading);
        let spawned = std::thread::Builder::new().name("fuse".into()).spawn(body);
        spawned.map(|_| ()).inspect_err(|_| self.readers.left(reading))
    }

    /// The life of one thread.
    fn live(self: &Arc<State>, channel: &Arc<Channel>, reading: bool) {
        // A thread begins where the one that started it is bound.
        self.cpus.iter().for_each(Cpus::unpin);
        let desk = self.watch.desk();
        self.turns(channel, &desk, reading);
        self.watch.leave(&desk);
    }

    /// Reads and parks by turns.
    fn turns(self: &Arc<State>, channel: &Arc<Channel>, desk: &Desk, mut reading: bool) {
        let mut near = Near::new(&self.asker, self.cpus.as_ref().map(|c| c as &dyn Places));
        loop {
            if reading {
                let ended = self.serve(channel, desk, &mut near);
                if let Err(failure) = ended {
                    if let Some(e) = failure {
                        self.failure.lock().get_or_insert(e);
                    }
                    self.readers.end();
                    self.end_ring();
                    return self.readers.left(true);
                }
            }
            // The buffer went back to the pool: a parked thread costs little.
            match self.readers.park(|| channel.pending(), || channel.shared.pool.trim()) {
                Next::Read => reading = true,
                Next::Leave => return self.readers.left(false),
            }
        }
    }

    /// Handles requests until the thread is not wanted as a reader (Ok) or the device ends (Err, with the reason
    /// unless it was unmounted; the thread then still counts as a reader).
    fn serve(
        self: &Arc<State>,
        channel: &Arc<Channel>,
        desk: &Desk,
        near: &mut Near<'_>,
    ) -> Result<(), Option<io::Error>> {
        let mut buf = channel.shared.pool.get();
        let link = Link::Device(channel.clone());
        let target = Target { fs: &*self.fs, link: &link, granted: self.info.granted };
        loop {
            let len = match channel.receive(&mut buf).map_err(|e| (e.raw_os_error(), e)) {
                Ok(len) => len,
                // ENOENT: the request was given up before it was read.
                Err((Some(libc::EINTR | libc::EAGAIN | libc::ENOENT), _)) => continue,
                Err((Some(libc::ENODEV), _)) => return Err(None),
                Err((_, e)) => return Err(Some(e)),
            };
            if self.readers.taken() {
                self.grow(true);
            }
            near.request(buf.request(len));
            let start = Instant::now();
            desk.begin(&link, dispatch::header(buf.request(len)).as_ref(), start);
            let outcome = guarded(|| dispatch::request(&target, &mut buf, len));
            desk.end();
            if let Outcome::Destroy(unique) = outcome {
                self.answer_destroy(&link, unique, (1, 0));
            }
            // Who waits beside the only asker's request is the kernel, with what it has to say of it.
            let patience = if near.stays() { BLOCKED } else { SLOW };
            let slow = len >= LARGE || start.elapsed() >= patience;
            buf.suit(len);
            self.readers.completed(slow, || channel.pending());
            if !self.readers.read_on() {
                return Ok(());
            }
        }
    }

    /// Waits for the handlers of other threads, ends the file system, and lets umount(2) return. `own`: does the calling
    /// thread count as busy at the device, or in the ring?
    fn answer_destroy(&self, link: &Link, unique: u64, own: (usize, usize)) {
        self.readers.wait_others_done(own.0);
        if let Some(ring) = &self.ring {
            ring.wait_others_done(own.1);
        }
        self.destroy();
        dispatch::responder(link, unique, 0).parts(&[]);
    }

    fn destroy(&self) {
        if std::mem::replace(&mut *self.destroyed.lock(), true) {
            return;
        }
        let call = || self.fs.destroy();
        if let Err(panic) = catch_unwind(AssertUnwindSafe(call)) {
            tracing::error!("panic in destroy: {}", panic_text(&*panic));
        }
    }
}

impl Serve for State {
    fn seat(&self) -> Seat {
        Seat { scratch: Vec::with_capacity(4096), desk: self.watch.desk() }
    }

    fn leave(&self, seat: &Seat) {
        self.watch.leave(&seat.desk);
    }

    fn serve(&self, entry: &Arc<Entry>, seat: &mut Seat) {
        let link = Link::Ring(entry.clone());
        let target = Target { fs: &*self.fs, link: &link, granted: self.info.granted };
        let header = entry.header();
        let outcome = guarded(|| {
            let received = entry.receive(&mut seat.scratch);
            seat.desk.begin(&link, Some(&header), Instant::now());
            match received {
                Ok(Message::Write(header, fixed, mut data)) => {
                    dispatch::write(&target, &header, Args(&fixed), &mut data)
                }
                Ok(Message::Plain) => dispatch::message(&target, &seat.scratch),
                Err(Malformed) => {
                    tracing::error!("an entry with impossible lengths from the kernel");
                    dispatch::responder(&link, header.unique, 0).error(Errno::EIO);
                    Outcome::Done
                }
            }
        });
        seat.desk.end();
        if let Outcome::Destroy(unique) = outcome {
            self.answer_destroy(&link, unique, (0, 1));
        }
    }
}

/// A panic ends only the handler; the reply it drops answers EIO.
fn guarded(handler: impl FnOnce() -> Outcome) -> Outcome {
    catch_unwind(AssertUnwindSafe(handler)).unwrap_or_else(|panic| {
        tracing::error!("panic in a fuse handler: {}", panic_text(&*panic));
        Outcome::Done
    })
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("?")
}
