//! A thread of a ring: handles what comes in its entry, hands in the answer and waits for the next request at once.

use super::{Entry, Port, Ring, Serve};
use crate::abi::{InHeader, op};
use std::sync::Arc;
use std::time::Duration;

/// An entry gives the memory of large payloads back when it had nothing to do for this long.
const TRIM_AFTER: Duration = Duration::from_secs(1);

/// Submissions and completions of a thread that has one entry.
const SLOTS: u32 = 2;

/// How it went on with an entry.
enum Then {
    /// The entry carries another request.
    Next,
    /// The entry is not the thread's any more.
    Park,
    /// The connection is over.
    End,
}

/// The life of a thread, beginning with a request in `entry`.
pub(super) fn live(ring: &Arc<Ring>, server: &dyn Serve, entry: Arc<Entry>) {
    let port = Port::new(ring.channel.raw_fd(), SLOTS, 2 * SLOTS);
    // Without an io_uring (too many open files) it handles one request after the other and lets the steward answer.
    let mut port = port.inspect_err(|e| tracing::warn!("a thread without an io_uring: {e}")).ok();
    let mut seat = server.seat();
    let mut own = Some(entry);
    let mut place = Place::Unknown;
    let tid = rustix::thread::gettid().as_raw_nonzero().get();
    let member = ring.modesty.as_ref().map(|all| all.join(tid));
    while let Some(entry) = own.take() {
        loop {
            place = place.moved(ring, &entry);
            let header = entry.header();
            let unique = header.unique;
            let asker = place.asker(ring, &entry, &header);
            ring.busy(entry.queue, || server.serve(&entry, &mut seat));
            match (&ring.modesty, asker) {
                (Some(modesty), Asker::Alone) => modesty.give_way(header.pid),
                (Some(modesty), Asker::Others) => modesty.stand(),
                _ => {}
            }
            match go_on(ring, port.as_mut(), &entry, unique) {
                Then::Next => {}
                Then::Park => break,
                Then::End => {
                    ring.end();
                    break;
                }
            }
        }
        own = ring.park();
    }
    drop(member);
    server.leave(&seat);
    // What was offered is memory of the ring's, which outlives this thread.
    drop(port);
    ring.left();
}

/// Where a thread may run.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Unknown,
    Anywhere,
    Cpu(usize),
}

impl Place {
    /// On the caller's CPU a small request costs no wake-up elsewhere; large ones take their time for copying, and gain
    /// more from a CPU that is idle.
    fn moved(self, ring: &Ring, entry: &Entry) -> Place {
        let wanted = if entry.moves_much() { Place::Anywhere } else { Place::Cpu(entry.queue) };
        match wanted {
            _ if wanted == self => {}
            Place::Cpu(cpu) => ring.cpus.pin(cpu),
            _ => ring.cpus.unpin(),
        }
        wanted
    }
}

/// Who waits for an answer.
enum Asker {
    /// Nobody: the kernel's own request.
    Nobody,
    /// One who asks nearly everything, here.
    Alone,
    Others,
}

impl Place {
    fn asker(self, ring: &Ring, entry: &Entry, header: &InHeader) -> Asker {
        if ring.modesty.is_none()
            || header.pid == 0
            || matches!(header.opcode, op::RELEASE | op::RELEASEDIR)
        {
            return Asker::Nobody;
        }
        let hops = ring.hops.request(header.pid, entry.queue);
        // What is changed is worked on in the background, too, by threads that would not give way: only for one who
        // would else be woken elsewhere each time.
        let only_looks = matches!(
            header.opcode,
            op::LOOKUP
                | op::GETATTR
                | op::OPEN
                | op::READ
                | op::FLUSH
                | op::OPENDIR
                | op::READDIR
                | op::READDIRPLUS
                | op::GETXATTR
                | op::LISTXATTR
                | op::READLINK
                | op::STATX
        );
        let other = !(only_looks || hops) || !matches!(self, Place::Cpu(_));
        match ring.queues[entry.queue].streak.request(header.pid, other) {
            true => Asker::Alone,
            false => Asker::Others,
        }
    }
}

fn go_on(ring: &Ring, port: Option<&mut Port>, entry: &Arc<Entry>, unique: u64) -> Then {
    if !entry.returned(unique) {
        ring.deferred(entry);
        return Then::Park;
    }
    let Some(port) = port else {
        ring.queues[entry.queue].deferred.fetch_add(1, std::sync::atomic::Ordering::AcqRel);
        ring.hub.late(entry.clone());
        return Then::Park;
    };
    match exchange(port, entry) {
        Ok(0) => Then::Next,
        Ok(error) if is_end(error) => Then::End,
        Ok(error) => {
            tracing::error!("the kernel refused an answer: errno {}", -error);
            // Its entry is lost; another takes its place.
            ring.deferred(entry);
            Then::Park
        }
        Err(e) => {
            tracing::error!("io_uring failed: {e}");
            Then::End
        }
    }
}

/// Hands in the answer and waits for the next request, or an error of the kernel's.
fn exchange(port: &mut Port, entry: &Entry) -> std::io::Result<i32> {
    port.commit(entry)?;
    loop {
        let large = entry.is_large();
        port.wait(large.then_some(TRIM_AFTER))?;
        match port.next() {
            Some((_, result)) => return Ok(result),
            None if large => entry.trim(TRIM_AFTER),
            None => {}
        }
    }
}

/// Is this the end of the connection?
pub(crate) fn is_end(error: i32) -> bool {
    matches!(-error, libc::ENOTCONN | libc::ECONNABORTED | libc::ECANCELED | libc::ENODEV)
}
