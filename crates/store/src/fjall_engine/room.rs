//! The thread that makes the engine give room back where room is scarce.
//!
//! Role: fjall gives room back as a by-product of writing. It keeps the input of a compaction until a later
//! batch and a later change of memtables, flushes a memtable when it is full, and compacts a level when it is
//! large. On a full disk nothing is written, so deletes would make no room, and the next compaction, finding
//! the last one's input beside it, would run out of space and end the database. Assumptions: woken by
//! whoever sees that room is scarce, again and again. Never: works while there is plenty, changes
//! a record, writes when less is free than that takes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::database::Handle;
use super::space;
use crate::StoreError;

/// Shortest time between two steps.
const PACE: Duration = Duration::from_millis(100);
/// No commit for this long: what is in memory may be flushed.
const QUIET: Duration = Duration::from_secs(1);
/// Commits or not, after this long it is.
const LATEST: Duration = Duration::from_secs(10);
/// Bytes of replaced tables that are worth a step.
const REPLACED_BYTES: u64 = 1 << 20;
/// Steps in a row that give nothing back before the next waits for [`LATEST`]: somebody reads what was replaced.
const FRUITLESS: u32 = 16;
/// Free bytes without which not even a memtable of next to nothing is changed.
const LEAST_FREE: u64 = 1 << 20;
/// Bytes of tables that are read to find out how much of them is left.
const READ_BYTES: u64 = 2 << 30;
/// Tombstones above the last level, in parts of all entries, from which on they are brought down.
const TOMBSTONES: u64 = 100;
/// The same, from which on everything is merged, if there is room for it.
const MANY_TOMBSTONES: u64 = 10;

/// Wakes the thread.
#[derive(Clone)]
pub(super) struct Waker(SyncSender<()>);

impl Waker {
    /// Room is scarce.
    pub(super) fn wake(&self) {
        // Full: it is woken already.
        let _ = self.0.try_send(());
    }
}

/// The thread; it ends before the database is closed.
pub(super) struct Room {
    waker: Waker,
    ends: Arc<AtomicBool>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Room {
    pub(super) fn start(handle: Arc<Handle>, reserve: u64) -> Result<Room, StoreError> {
        let (sender, receiver) = sync_channel(1);
        let ends = Arc::new(AtomicBool::new(false));
        let keeper = Keeper::new(handle, reserve, ends.clone());
        let thread = thread::Builder::new()
            .name("store-room".into())
            .spawn(move || keeper.run(&receiver))
            .map_err(|e| StoreError::io("start the thread that makes room", e))?;
        Ok(Room { waker: Waker(sender), ends, thread: Mutex::new(Some(thread)) })
    }

    pub(super) fn waker(&self) -> Waker {
        self.waker.clone()
    }

    /// Ends the thread, after what it is doing.
    pub(super) fn stop(&self) {
        let Some(thread) = self.thread.lock().take() else { return };
        self.ends.store(true, SeqCst);
        self.waker.wake();
        thread.thread().unpark();
        if thread.join().is_err() {
            tracing::error!("the thread that makes room panicked");
        }
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.stop();
    }
}

struct Keeper {
    handle: Arc<Handle>,
    reserve: u64,
    ends: Arc<AtomicBool>,
    /// How many compactions had ended when replaced tables were last given back, and when that was.
    given_back: Option<(usize, Instant)>,
    /// How often that was tried in vain since.
    tried: u32,
    /// How many commits there were, and when that last changed.
    written: (u64, Instant),
    flushed: Instant,
    /// The version of the tables that cannot be brought down further.
    settled: Option<u64>,
}

impl Keeper {
    fn new(handle: Arc<Handle>, reserve: u64, ends: Arc<AtomicBool>) -> Keeper {
        let (now, written) = (Instant::now(), handle.commits());
        Keeper {
            handle,
            reserve,
            ends,
            given_back: None,
            tried: 0,
            written: (written, now),
            flushed: now,
            settled: None,
        }
    }

    fn run(mut self, wakes: &Receiver<()>) {
        while wakes.recv().is_ok() && !self.ends.load(SeqCst) {
            if let Err(error) = self.step(Instant::now()) {
                // Commits meet the same and tell their callers.
                tracing::warn!(%error, "no room could be made");
            }
            thread::park_timeout(PACE);
        }
    }

    fn step(&mut self, now: Instant) -> Result<(), StoreError> {
        let free = space::measure(self.handle.dir())?.free;
        if free < LEAST_FREE || !space::is_scarce(&self.handle, self.reserve, free) {
            return Ok(());
        }
        let commits = self.handle.commits();
        if commits != self.written.0 {
            self.written = (commits, now);
        }
        if self.give_back(now)? {
            return Ok(());
        }
        let quiet = now.duration_since(self.written.1) >= QUIET
            || now.duration_since(self.flushed) >= LATEST;
        if !quiet || self.handle.busy() {
            return Ok(());
        }
        if self.handle.unflushed() > 0 {
            self.flushed = now;
            tracing::debug!(free, "room is scarce: what is in memory is flushed");
            return self.handle.change_memtable().map(|_| ());
        }
        self.bring_down(free)
    }

    /// Has replaced tables deleted; whether there were any.
    fn give_back(&mut self, now: Instant) -> Result<bool, StoreError> {
        let replaced = self.handle.replaced()?;
        if replaced < REPLACED_BYTES {
            return Ok(false);
        }
        // The output of one that runs looks like replaced tables: once for each that has ended.
        let ended = self.handle.compactions();
        let waits = self.given_back.is_some_and(|(then, when)| {
            then == ended || (self.tried >= FRUITLESS && now.duration_since(when) < LATEST)
        });
        if waits {
            return Ok(false);
        }
        tracing::debug!(replaced, "room is scarce: replaced tables are deleted");
        if !self.handle.change_memtable()? {
            return Ok(false);
        }
        self.given_back = Some((ended, now));
        let gave = self.handle.replaced()? < replaced / 2;
        self.tried = if gave { 0 } else { self.tried + 1 };
        Ok(true)
    }

    /// Merges one piece of what lies above the last level into what it hides there.
    fn bring_down(&mut self, free: u64) -> Result<(), StoreError> {
        let version = self.handle.version();
        if self.settled == Some(version) {
            return Ok(());
        }
        let above = self.handle.above_last();
        if above.tombstones * TOMBSTONES < above.entries.max(1) {
            return Ok(());
        }
        tracing::debug!(
            free,
            tombstones = above.tombstones,
            "room is scarce: deletes are brought down"
        );
        // Much is gone: all at once. What is left above in the end is little, and spread over all of the last level.
        let mut done = Ok(());
        if above.tombstones * MANY_TOMBSTONES >= above.entries {
            done = self.merge_all(free);
        }
        let merged = |keeper: &Keeper| keeper.handle.version() != version;
        // The most that one merge makes before its input goes.
        let piece = above.bytes + self.handle.piece_bytes() + space::COMPACTION_BYTES;
        if done.is_ok() && !merged(self) && free >= piece {
            done = self.handle.bring_down();
        }
        match done.is_ok() && merged(self) {
            true => self.given_back = None,
            false => self.settled = Some(version),
        }
        done
    }

    /// Merges everything, if what is left of it finds room beside what there is.
    fn merge_all(&self, free: u64) -> Result<(), StoreError> {
        let room = free.saturating_sub(space::COMPACTION_BYTES) / 4 * 3;
        match self.handle.tables() <= READ_BYTES && self.handle.holds_less_than(room)? {
            true => self.handle.merge_all(),
            false => Ok(()),
        }
    }
}
