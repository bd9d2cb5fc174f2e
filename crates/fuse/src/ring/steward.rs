//! The thread that offers entries, gives away those in which requests come, and hands in late answers.

use super::growth::{Growth, TICK};
use super::thread::is_end;
use super::{Entry, Port, Queue, Ring, Serve, port};
use crate::abi;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Instant;
use zerocopy::IntoBytes;

/// Submissions handed in at a time.
const SLOTS: u32 = 64;

/// Completions that wait for the steward without extra work for the kernel.
const COMPLETIONS: u32 = 2048;

/// Numbers of requests we ask for; the kernel's own count from 2 and do not get here.
const NUDGE: u64 = 1 << 62;

pub(super) fn start(ring: &Arc<Ring>, server: &Arc<dyn Serve>) -> io::Result<()> {
    let (ring, server) = (ring.clone(), server.clone());
    ring.threads.lock().live += 1;
    let (tell, told) = sync_channel(1);
    let left = ring.clone();
    let body = move || {
        live(&ring, &server, &tell);
        ring.left();
    };
    let spawned = std::thread::Builder::new().name("fuse-steward".into()).spawn(body);
    spawned.inspect_err(|_| left.left())?;
    told.recv().unwrap_or_else(|_| Err(io::Error::other("the steward ended")))
}

fn live(ring: &Arc<Ring>, server: &Arc<dyn Serve>, tell: &SyncSender<io::Result<()>>) {
    let mut port = match offer_all(ring) {
        Ok(port) => port,
        Err(e) => {
            ring.end();
            // The other side waits for exactly this.
            let _ = tell.send(Err(e));
            return;
        }
    };
    let _ = tell.send(Ok(()));
    if let Err(e) = work(ring, server, &mut port) {
        tracing::error!("io_uring failed: {e}");
    }
    ring.end();
}

/// The first entry of each queue makes the ring live; errors of later ones cost only themselves.
fn offer_all(ring: &Arc<Ring>) -> io::Result<Port> {
    let mut port = Port::new(ring.channel.raw_fd(), SLOTS, COMPLETIONS).map_err(|e| own(&e))?;
    // Taken in turn, so that the steward's entries are the last to be used.
    for round in 0..ring.per_queue {
        for queue in 0..ring.queues.len() {
            match ring.new_entry(queue) {
                Ok(entry) => port.register(&entry)?,
                Err(e) if round == 0 => return Err(own(&e)),
                Err(e) => tracing::warn!("fewer entries than wanted: {e}"),
            }
        }
        port.submit()?;
        if round == 0
            && let Some(error) = port.refusal()
        {
            return Err(io::Error::from_raw_os_error(-error));
        }
    }
    port.listen(ring.hub.bell())?;
    Ok(port)
}

/// No refusal of the kernel's, after which that would go on with the device; it waits for the ring.
fn own(e: &io::Error) -> io::Error {
    let text = format!("no memory for io_uring ({e}); mount with -o io_uring=off to do without");
    io::Error::new(io::ErrorKind::OutOfMemory, text)
}

fn work(ring: &Arc<Ring>, server: &Arc<dyn Serve>, port: &mut Port) -> io::Result<()> {
    let mut growth = Growth::new(ring.queues.len(), Instant::now());
    loop {
        let watched = ring.watched.load(Ordering::Acquire);
        port.wait(watched.then_some(TICK))?;
        let mut bell = false;
        while let Some((id, result)) = port.next() {
            match (id, result) {
                (port::BELL, _) => bell = true,
                (id, 0) => {
                    if let Some(entry) = ring.entry(id) {
                        give(ring, server, port, entry)?;
                    }
                }
                (_, error) if is_end(error) => return Ok(()),
                (id, error) => {
                    tracing::warn!("the kernel refused an entry: errno {}", -error);
                    if let Some(entry) = ring.entry(id) {
                        ring.queues[entry.queue].deferred.fetch_add(1, Ordering::AcqRel);
                    }
                }
            }
        }
        if bell {
            port.listen(ring.hub.bell())?;
        }
        for entry in ring.hub.take_late() {
            ring.queues[entry.queue].deferred.fetch_sub(1, Ordering::AcqRel);
            port.commit(&entry)?;
        }
        top_up(ring, port)?;
        if watched {
            grow(ring, port, &mut growth)?;
        }
        if ring.hub.ended() {
            return Ok(());
        }
    }
}

fn give(
    ring: &Arc<Ring>,
    server: &Arc<dyn Serve>,
    port: &mut Port,
    entry: Arc<Entry>,
) -> io::Result<()> {
    if let Err(e) = ring.give(entry.clone(), server) {
        tracing::error!("no thread for a request: {e}");
        refuse(&entry);
        port.commit(&entry)?;
    }
    Ok(())
}

/// Answers what no thread has received.
fn refuse(entry: &Arc<Entry>) {
    let unique = entry.header().unique;
    // What it is does not matter any more.
    let _ = entry.receive(&mut Vec::new());
    Entry::answer(entry, unique, -libc::ENOMEM, &[]);
}

/// Offers entries in place of those whose requests wait.
fn top_up(ring: &Ring, port: &mut Port) -> io::Result<()> {
    for (number, queue) in ring.queues.iter().enumerate() {
        let lacking = ring.lacking(queue);
        for _ in 0..lacking {
            match ring.new_entry(number) {
                Ok(entry) => port.register(&entry)?,
                // So many requests wait that the others of this CPU may have to.
                Err(e) => {
                    tracing::warn!("no further entries: {e}");
                    return Ok(());
                }
            }
        }
        if lacking > 0 {
            port.submit()?;
            nudge(ring, number, queue.node.load(Ordering::Acquire));
        }
    }
    Ok(())
}

/// Offers more entries where all handlers wait.
fn grow(ring: &Ring, port: &mut Port, growth: &mut Growth) -> io::Result<()> {
    for (number, more) in growth.due(&ring.queues, Instant::now()) {
        let mut nodes = ring.nodes(number);
        tracing::debug!(queue = number, more, "all handlers wait");
        for _ in 0..more {
            match ring.new_entry(number) {
                Ok(entry) => port.register(&entry)?,
                Err(e) => {
                    tracing::warn!("no further entries, callers wait for each other: {e}");
                    growth.exhaust();
                    break;
                }
            }
            port.submit()?;
            // One for each, as one that waits again looks at no others.
            while let Some(node) = nodes.last()
                && !nudge(ring, number, *node)
            {
                nodes.pop();
            }
        }
    }
    if growth.is_calm() {
        ring.watched.store(false, Ordering::Release);
        // A thread that found it set just before that says nothing.
        let full = ring.queues.iter().any(Queue::is_full);
        ring.watched.fetch_or(full, Ordering::AcqRel);
    }
    Ok(())
}

/// Has the kernel look at the requests of a queue. An entry offered for the first time only gets requests that come later,
/// and those that wait are looked at when an answer is handed in; but if every entry before it carries a request that
/// waits, no answer may ever come. So the kernel is asked for cached bytes, none of them, of a file that such a request is
/// about: it sends them as a request, to the queue of this CPU and without waiting, and the answer to that brings the
/// others. (Linux refuses it for what is no regular file.) Whether it did so.
fn nudge(ring: &Ring, queue: usize, nodeid: u64) -> bool {
    ring.cpus.pin(queue);
    let notify_unique = NUDGE + 2 * ring.nudges.fetch_add(1, Ordering::Relaxed);
    let body = abi::NotifyRetrieveOut { notify_unique, nodeid, ..Default::default() };
    let sent = ring.channel.send(0, abi::notify::RETRIEVE, &[body.as_bytes()]);
    ring.cpus.unpin();
    // Usually because it is unmounted.
    sent.inspect_err(|e| tracing::debug!("the kernel will not look at a queue: {e}")).is_ok()
}
