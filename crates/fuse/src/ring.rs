//! Requests and answers through io_uring instead of reads and writes of the device (FUSE-over-io_uring, Linux 6.14).
//!
//! The kernel keeps a queue of requests per CPU and a list of free entries per queue. A request goes to the entry that was
//! offered last, and the completion comes to the thread that offered it; one that finds no free entry waits for the next
//! answer of its queue. From this follows how we work:
//! - A thread has an io_uring of its own and offers one entry at a time, so a thread whose handler blocks offers nothing and
//!   keeps no request from the others; and the thread that answered last, whose caches are warm, gets the next request.
//! - Threads are pinned to the CPU of their queue: the caller sleeps while they work, and nobody has to be woken elsewhere.
//! - While one thread asks nearly everything and changes nothing, or is woken on another CPU with each answer (`hops`), they
//!   give way to it (`modest`), so that it stays where it is.
//! - Nothing that was offered can be withdrawn, so a thread with an entry lives as long as the session.
//! - The `steward` offers all entries first. A request in one of its entries means that every thread of the queue is busy:
//!   the entry goes, with the request, to a parked thread or a new one, which keeps it. So threads multiply exactly when
//!   handlers overlap, at most to the number of entries.
//! - Where all handlers of a queue wait, and go on doing so, the steward offers more of them (`growth`).
//! - An answer that comes after its handler has returned (a lock that was waited for) is handed in by the steward; the
//!   thread has parked. While such requests wait, the steward offers further entries in place of theirs. The same way goes
//!   the answer to a caller that was killed, while the handler's thread goes on without the entry.
//!
//! INTERRUPT, notifications and nearly every FORGET still go through the device, which the `worker` threads read.

mod entry;
mod growth;
mod hops;
mod hub;
mod modest;
mod port;
mod steward;
mod thread;

use crate::channel::Channel;
use crate::cpus::Cpus;
use crate::dying::Desk;
use crate::near::Streak;
pub use entry::Landing;
pub(crate) use entry::{Entry, Message};
use hops::Hops;
use hub::Hub;
use modest::Modesty;
use parking_lot::{Condvar, Mutex};
use port::Port;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicIsize, AtomicU64, AtomicUsize, Ordering};
pub(crate) use thread::is_end;

/// Entries, and so threads, of a CPU's queue.
pub const RING_QUEUE_ENTRIES: usize = 16;

/// Entries of all queues together where that is less, but at least two per queue.
pub const RING_ENTRIES: usize = 512;

/// Entries, and so threads, of a CPU's queue whose handlers all wait for something; further callers wait for these.
pub const RING_QUEUE_WAITING: usize = 512;

/// Most entries of a session, those of waiting requests included.
pub const RING_ENTRIES_MAX: usize = 16_384;

/// Handlers, and so threads, that go on after their killed callers were let go; further callers wait for theirs.
pub const RING_ABANDONED_MAX: usize = 256;

/// What runs the handlers.
pub(crate) trait Serve: Send + Sync {
    /// The place of a thread that calls `serve`, until it leaves.
    fn seat(&self) -> Seat;

    fn leave(&self, seat: &Seat);

    /// Handles the request in `entry`.
    fn serve(&self, entry: &Arc<Entry>, seat: &mut Seat);
}

/// What a thread that runs handlers has at hand.
pub(crate) struct Seat {
    pub(crate) scratch: Vec<u8>,
    pub(crate) desk: Arc<Desk>,
}

/// The ring of one session.
pub(crate) struct Ring {
    hub: Arc<Hub>,
    channel: Arc<Channel>,
    cpus: Cpus,
    queues: Box<[Queue]>,
    per_queue: usize,
    most: usize,
    payload_len: usize,
    /// Every entry there is, by its id. They go when the kernel has let go of all.
    entries: Mutex<Vec<Arc<Entry>>>,
    threads: Mutex<Threads>,
    parking: Condvar,
    /// A thread has left, or finished a request while `ending`.
    settled: Condvar,
    ending: AtomicBool,
    /// The steward looks at the queues, as one was full.
    watched: AtomicBool,
    nudges: AtomicU64,
    /// None where threads may not give way.
    modesty: Option<Arc<Modesty>>,
    hops: Hops,
}

/// Counters of one CPU, on cache lines of their own.
#[derive(Default)]
#[repr(align(128))]
struct Queue {
    /// Threads in a handler.
    busy: AtomicUsize,
    /// Requests handled.
    done: AtomicU64,
    offered: AtomicUsize,
    /// Entries whose request waits without a thread.
    deferred: AtomicIsize,
    /// The node that the last of these requests is about.
    node: AtomicU64,
    /// Who asks.
    streak: Streak,
}

impl Queue {
    /// Whether each of its entries carries a request.
    fn is_full(&self) -> bool {
        let deferred = self.deferred.load(Ordering::Acquire).max(0) as usize;
        self.busy.load(Ordering::Acquire) + deferred >= self.offered.load(Ordering::Acquire)
    }
}

#[derive(Default)]
struct Threads {
    live: usize,
    parked: usize,
    /// Entries with a request for parked threads; never more than these.
    given: VecDeque<Arc<Entry>>,
    ended: bool,
}

impl Ring {
    /// Can this process have rings at all?
    pub(crate) fn probe() -> io::Result<()> {
        Port::new(-1, 1, 2).map(drop)
    }

    /// A ring of so many entries at most, for messages of so many bytes.
    pub(crate) fn new(
        channel: &Arc<Channel>,
        payload_len: usize,
        most: usize,
    ) -> io::Result<Arc<Ring>> {
        let cpus = Cpus::read()?;
        let queues: Box<[Queue]> = (0..cpus.possible()).map(|_| Queue::default()).collect();
        // On one CPU the caller can be nowhere else.
        let modesty = if cpus.several() { Modesty::start()? } else { None };
        let per_queue = (RING_ENTRIES / queues.len()).clamp(2, RING_QUEUE_ENTRIES);
        Ok(Arc::new(Ring {
            hub: Arc::new(Hub::new(channel.shared.clone())?),
            channel: channel.clone(),
            cpus,
            per_queue,
            most: most.clamp(per_queue * queues.len(), RING_ENTRIES_MAX),
            queues,
            payload_len,
            entries: Mutex::default(),
            threads: Mutex::default(),
            parking: Condvar::new(),
            settled: Condvar::new(),
            ending: AtomicBool::new(false),
            watched: AtomicBool::new(false),
            nudges: AtomicU64::new(0),
            modesty,
            hops: Hops::new(),
        }))
    }

    /// Offers entries for every CPU; then requests come through the ring.
    ///
    /// # Errors
    /// The kernel refused, and goes on with the device.
    pub(crate) fn start(self: &Arc<Ring>, server: &Arc<dyn Serve>) -> io::Result<()> {
        steward::start(self, server)
    }

    fn new_entry(&self, queue: usize) -> io::Result<Arc<Entry>> {
        let mut entries = self.entries.lock();
        if entries.len() >= self.most {
            return Err(io::ErrorKind::QuotaExceeded.into());
        }
        let entry = Arc::new(Entry::new(entries.len(), queue, self.payload_len, &self.hub)?);
        entries.push(entry.clone());
        self.queues[queue].offered.fetch_add(1, Ordering::AcqRel);
        Ok(entry)
    }

    fn entry(&self, id: u64) -> Option<Arc<Entry>> {
        self.entries.lock().get(usize::try_from(id).ok()?).cloned()
    }

    /// The number of entries `queue` lacks because requests wait in them.
    fn lacking(&self, queue: &Queue) -> usize {
        // A late answer may be counted before the request that it ends.
        let deferred = queue.deferred.load(Ordering::Acquire);
        let free = queue.offered.load(Ordering::Acquire) as isize - deferred;
        (self.per_queue as isize - free).max(0) as usize
    }

    /// Nodes that requests of a queue are about.
    fn nodes(&self, queue: usize) -> Vec<u64> {
        let entries = self.entries.lock();
        let nodes = entries.iter().filter(|entry| entry.queue == queue).map(|entry| entry.node());
        nodes.filter(|node| *node != 0).collect()
    }

    /// The thread's request waits without it.
    fn deferred(&self, entry: &Entry) {
        let queue = &self.queues[entry.queue];
        queue.node.store(entry.node(), Ordering::Release);
        queue.deferred.fetch_add(1, Ordering::AcqRel);
        if self.lacking(queue) > 0 {
            self.hub.ring();
        }
    }

    /// Gives an entry with a request to a parked thread or a new one.
    fn give(self: &Arc<Ring>, entry: Arc<Entry>, server: &Arc<dyn Serve>) -> io::Result<()> {
        let mut threads = self.threads.lock();
        if threads.ended {
            return Ok(());
        }
        if threads.parked > threads.given.len() {
            threads.given.push_back(entry);
            self.parking.notify_one();
            return Ok(());
        }
        threads.live += 1;
        drop(threads);
        let (ring, server) = (self.clone(), server.clone());
        let body = move || thread::live(&ring, &*server, entry);
        let spawned = std::thread::Builder::new().name("fuse-ring".into()).spawn(body);
        spawned.map(drop).inspect_err(|_| self.left())
    }

    /// Waits for an entry with a request; None when all is over.
    fn park(&self) -> Option<Arc<Entry>> {
        let mut threads = self.threads.lock();
        threads.parked += 1;
        while !threads.ended && threads.given.is_empty() {
            self.parking.wait(&mut threads);
        }
        threads.parked -= 1;
        if threads.ended { None } else { threads.given.pop_front() }
    }

    fn left(&self) {
        self.threads.lock().live -= 1;
        self.settled.notify_all();
    }

    /// The kernel has ended the connection.
    pub(crate) fn end(&self) {
        self.hub.end();
        if let Some(modesty) = &self.modesty {
            modesty.end();
        }
        self.threads.lock().ended = true;
        self.parking.notify_all();
    }

    /// Waits until no thread uses the ring, and lets go of its memory.
    pub(crate) fn wait_all_left(&self) {
        let mut threads = self.threads.lock();
        while threads.live > 0 {
            self.settled.wait(&mut threads);
        }
        threads.given.clear();
        drop(threads);
        self.entries.lock().clear();
    }

    /// Runs a handler, and counts that it runs.
    fn busy(&self, queue: usize, handler: impl FnOnce()) {
        let queue = &self.queues[queue];
        queue.busy.fetch_add(1, Ordering::SeqCst);
        if queue.is_full() && !self.watched.swap(true, Ordering::AcqRel) {
            self.hub.ring();
        }
        handler();
        queue.done.fetch_add(1, Ordering::Relaxed);
        queue.busy.fetch_sub(1, Ordering::SeqCst);
        if self.ending.load(Ordering::SeqCst) {
            let _threads = self.threads.lock();
            self.settled.notify_all();
        }
    }

    /// Waits until at most `own` threads are in a handler.
    pub(crate) fn wait_others_done(&self, own: usize) {
        self.ending.store(true, Ordering::SeqCst);
        let busy = || self.queues.iter().map(|q| q.busy.load(Ordering::SeqCst)).sum::<usize>();
        let mut threads = self.threads.lock();
        while busy() > own {
            self.settled.wait(&mut threads);
        }
    }
}
