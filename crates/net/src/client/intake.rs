//! A session's own connection: who waits for an answer reads it.
//!
//! Role: a thread that waits takes what comes off the socket itself and hands it on, whosever it is,
//! until its own answer was there; only while nobody does so the thread of [`Watch`] reads. An answer
//! costs one wake-up then, not one of a reading thread and another of who waits. Assumptions: what is
//! handed on never blocks, and who waits holds nothing it may want (as in process, where answers are
//! handed on by whichever thread makes them). Limits: [`ATTENDS`]; [`ROUNDS`]. Never does: read with two
//! threads at once; change the order in which frames came.

use super::core::Core;
use super::watch::Watch;
use crate::NetError;
use crate::link::Link;
use crate::message::Frame;
use crate::reader::{self, FrameReader};
use crate::socket::drive::{eof, lost};
use crate::socket::outbox::Outbox;
use bytes::BufMut;
use parking_lot::{Mutex, MutexGuard};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// How long a thread that waits reads at a time: of what ends its waiting otherwise (its request timed
/// out, the session was closed) it hears no sooner.
pub(crate) const ATTENDS: Duration = Duration::from_millis(20);
/// Reads of one connection in a row before the reading thread turns to others.
const ROUNDS: u32 = 16;
/// Bytes of one read, but for the rest of a large frame, which is read to its place.
const PIECE: usize = 16 << 10;

/// See the module.
pub(crate) struct Intake {
    socket: Arc<OwnedFd>,
    outbox: Arc<Outbox>,
    core: Weak<Core>,
    generation: u64,
    watch: Arc<Watch>,
    /// What the watch knows it by.
    number: u64,
    /// Locked by who reads.
    frames: Mutex<FrameReader>,
    begun: Instant,
    /// When bytes came last, milliseconds since it was begun.
    seen: AtomicU64,
}

/// What a read found.
#[derive(PartialEq, Eq)]
enum Found {
    Nothing,
    /// All there was.
    All,
    /// There may be more.
    Part,
}

impl Intake {
    /// Of a connection of `core`'s attempt `generation`. Nothing is read before it is watched.
    pub(crate) fn new(
        socket: Arc<OwnedFd>,
        outbox: Arc<Outbox>,
        core: &Arc<Core>,
        generation: u64,
    ) -> Arc<Intake> {
        let watch = core.watch.clone();
        Arc::new(Intake {
            socket,
            outbox,
            core: Arc::downgrade(core),
            generation,
            number: watch.number(),
            watch,
            frames: Mutex::default(),
            begun: Instant::now(),
            seen: AtomicU64::new(0),
        })
    }

    /// From here on it is read, by whoever does.
    pub(crate) fn begin(self: &Arc<Intake>) -> Result<(), NetError> {
        self.watch.add(self.number, &self.socket, self)
    }

    /// For how long nothing came.
    pub(crate) fn silence(&self) -> Duration {
        self.begun.elapsed().saturating_sub(Duration::from_millis(self.seen.load(Relaxed)))
    }

    /// The reading thread: something came, the `last` of it if so. If somebody reads, that is theirs: once they end,
    /// what is left is told of again.
    pub(crate) fn ready(&self, last: bool) {
        let Some(mut frames) = self.frames.try_lock() else { return };
        for _ in 0..ROUNDS {
            match self.read(&mut frames) {
                Ok(Found::Part) => {}
                // The end that was told of with it is not told of again.
                Ok(Found::All) if last => {}
                Ok(_) => return,
                Err(why) => return self.outbox.end(why),
            }
        }
        drop(frames);
        self.watch.wake_for(self.number, &self.socket, true);
    }

    /// Reads until `done`, for a while at most, unless somebody else does.
    fn attend(&self, done: &dyn Fn() -> bool, until: Option<Instant>) {
        let Some(frames) = self.frames.try_lock() else { return };
        let end = Instant::now() + ATTENDS;
        let end = until.map_or(end, |until| until.min(end));
        let mut turn = Turn { intake: self, frames: Some(frames) };
        self.watch.wake_for(self.number, &self.socket, false);
        while !done() && self.comes_by(end) {
            let Some(frames) = &mut turn.frames else { return };
            if let Err(why) = self.read(frames) {
                return self.outbox.end(why);
            }
        }
    }

    /// Waits until there is something to read; `false`: the time is over.
    fn comes_by(&self, end: Instant) -> bool {
        let left = end.saturating_duration_since(Instant::now());
        let Ok(left) = Timespec::try_from(left) else { return false };
        let mut what = [PollFd::new(&*self.socket, PollFlags::IN)];
        match poll(&mut what, Some(&left)) {
            Ok(0) => false,
            // An interrupted wait begins anew.
            Ok(_) | Err(Errno::INTR) => true,
            Err(_) => false,
        }
    }

    /// Takes what is there, and hands on what became whole. Whoever reads for others must survive what they do with
    /// it: that ends the connection whose answer it was.
    fn read(&self, frames: &mut FrameReader) -> Result<Found, NetError> {
        let panicked = |_| Err(NetError::Lost("what took an answer panicked".into()));
        catch_unwind(AssertUnwindSafe(|| self.take_in(frames))).unwrap_or_else(panicked)
    }

    fn take_in(&self, frames: &mut FrameReader) -> Result<Found, NetError> {
        let on = |header, body, bulk| self.hand_on(reader::frame(header, body, bulk));
        if let Some(mut rest) = frames.rest() {
            let room = rest.chunk_mut();
            let wanted = room.len();
            // SAFETY: nothing is made uninitialised: `recv` only writes to it.
            let into = unsafe { room.as_uninit_slice_mut() };
            let n = match recv(&self.socket, into, RecvFlags::DONTWAIT) {
                Ok(((came, _), _)) => came.len(),
                Err(e) => return nothing(e),
            };
            // SAFETY: `recv` wrote so many at its beginning.
            unsafe { rest.advance_mut(n) };
            self.came(n, false)?;
            frames.filled(on)?;
            return Ok(if n < wanted { Found::All } else { Found::Part });
        }
        let mut piece = [MaybeUninit::<u8>::uninit(); PIECE];
        let came = match recv(&self.socket, &mut piece, RecvFlags::DONTWAIT) {
            Ok(((came, _), _)) => came,
            Err(e) => return nothing(e),
        };
        self.came(came.len(), frames.is_between())?;
        let all = came.len() < PIECE;
        self.outbox.cork();
        let fed = frames.feed(came, on);
        self.outbox.uncork();
        fed?;
        Ok(if all { Found::All } else { Found::Part })
    }

    fn came(&self, bytes: usize, between: bool) -> Result<(), NetError> {
        if bytes == 0 {
            return Err(eof(between));
        }
        self.seen.store(self.begun.elapsed().as_millis() as u64, Relaxed);
        Ok(())
    }

    fn hand_on(&self, frame: Frame) -> Result<(), NetError> {
        match self.core.upgrade() {
            Some(core) => core.receive(self.generation, frame),
            None => Err(NetError::Shutdown),
        }
    }
}

fn nothing(e: Errno) -> Result<Found, NetError> {
    match e {
        Errno::AGAIN | Errno::INTR => Ok(Found::Nothing),
        e => Err(lost(e.into())),
    }
}

impl Drop for Intake {
    fn drop(&mut self) {
        self.watch.remove(self.number, &self.socket);
    }
}

/// The turn of a thread that waits; then the reading thread hears of what comes again, also of what is
/// there by then.
struct Turn<'a> {
    intake: &'a Intake,
    frames: Option<MutexGuard<'a, FrameReader>>,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        // Before the reading thread is told: it does not wait for the lock.
        self.frames = None;
        self.intake.watch.wake_for(self.intake.number, &self.intake.socket, true);
    }
}

/// Both directions.
pub(crate) struct Line {
    pub(crate) outbox: Arc<Outbox>,
    pub(crate) intake: Arc<Intake>,
}

impl Link for Line {
    fn send(&self, frame: Frame) -> bool {
        self.outbox.send(frame)
    }

    fn attend(&self, done: &dyn Fn() -> bool, until: Option<Instant>) {
        self.intake.attend(done, until);
    }

    fn close(&self, why: &str) {
        self.outbox.close(why);
    }
}
