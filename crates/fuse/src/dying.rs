//! Callers that die while their request waits.
//!
//! Once a request was read the kernel lets its caller go only when it is answered, whatever signal comes; and what a dying
//! process still sends (the FLUSH of its open files) cannot be interrupted at all. So requests that take long are looked
//! at: where the caller was killed, it is answered in the handler's place. The handler goes on; the kernel refuses its
//! answer later, and it hears so. Other signals end nothing: on a local file system they do not either.

use crate::abi;
use crate::channel::Link;
use crate::ring::Entry;
use crate::types::Errno;
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often is looked.
const PERIOD: Duration = Duration::from_millis(500);

/// The bit of SIGKILL in a set of signals; every signal that ends a process makes it pending in all its threads.
const KILL: u64 = 1 << (libc::SIGKILL - 1);

/// PF_EXITING of the kernel's task flags.
const EXITING: u64 = 4;

/// What one thread works on.
struct Call {
    link: Link,
    unique: u64,
    pid: u32,
    since: Instant,
    answered: bool,
}

/// One thread's place.
#[derive(Default)]
pub(crate) struct Desk {
    call: Mutex<Option<Call>>,
}

impl Desk {
    /// A request was read.
    pub(crate) fn begin(&self, link: &Link, header: Option<&abi::InHeader>, since: Instant) {
        let Some(header) = header.filter(|h| h.pid != 0 && h.opcode != abi::op::DESTROY) else {
            return;
        };
        let (unique, pid) = (header.unique, header.pid);
        let link = link.clone();
        *self.call.lock() = Some(Call { link, unique, pid, since, answered: false });
    }

    /// Its handler returned.
    pub(crate) fn end(&self) {
        *self.call.lock() = None;
    }

    /// Who has waited for long, by his request.
    fn waits(&self) -> Option<(u64, u32)> {
        let call = self.call.lock();
        let call = call.as_ref().filter(|c| !c.answered && c.since.elapsed() >= PERIOD)?;
        Some((call.unique, call.pid))
    }

    /// `dying` may take long, and is asked with nothing locked: who is at work here must be able to end.
    fn look(&self, dying: impl Fn(u32) -> bool) {
        let Some((unique, pid)) = self.waits().filter(|(_, pid)| dying(*pid)) else { return };
        let mut call = self.call.lock();
        let Some(call) = call.as_mut().filter(|c| c.unique == unique && !c.answered) else {
            return;
        };
        tracing::debug!(unique, pid, "a caller was killed while it waits");
        // Refused where the handler was faster, or the mount is gone.
        let error = -Errno::EINTR.get();
        call.answered = match &call.link {
            Link::Device(channel) => {
                let _ = channel.send(call.unique, error, &[]);
                true
            }
            Link::Ring(entry) => Entry::take_over(entry, call.unique, error),
        };
    }
}

/// Looks at all desks of a session.
#[derive(Default)]
pub(crate) struct Watch {
    desks: Mutex<Vec<Arc<Desk>>>,
    ended: Mutex<bool>,
    end: Condvar,
}

impl Watch {
    /// A thread's place, until it leaves.
    pub(crate) fn desk(&self) -> Arc<Desk> {
        let desk = Arc::new(Desk::default());
        self.desks.lock().push(desk.clone());
        desk
    }

    pub(crate) fn leave(&self, desk: &Arc<Desk>) {
        self.desks.lock().retain(|d| !Arc::ptr_eq(d, desk));
    }

    /// Until [`Watch::stop`].
    pub(crate) fn run(&self) {
        let mut ended = self.ended.lock();
        while !*ended {
            if !self.end.wait_for(&mut ended, PERIOD).timed_out() {
                continue;
            }
            let desks = self.desks.lock().clone();
            desks.iter().for_each(|desk| desk.look(is_dying));
        }
    }

    pub(crate) fn stop(&self) {
        *self.ended.lock() = true;
        self.end.notify_all();
    }
}

/// Whether a thread was killed; false where that cannot be seen.
fn is_dying(pid: u32) -> bool {
    let read = |what: &str| std::fs::read(format!("/proc/{pid}/{what}"));
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    let Ok(status) = read("status").map(text) else { return false };
    kill_pending(&status)
        || (!has_memory(&status) && read("stat").is_ok_and(|s| ends_by_signal(&text(s))))
}

/// What is on its way out has given its memory back before it closes its files. Of a process that executes another program
/// Linux lets nobody read `stat` (seen with 6.18), and it may be what waits for us, closing files; it always has memory.
fn has_memory(status: &str) -> bool {
    status.lines().any(|line| line.starts_with("VmSize:"))
}

/// SIGKILL waits for the thread itself.
fn kill_pending(status: &str) -> bool {
    let pending = status.lines().find_map(|l| l.strip_prefix("SigPnd:"));
    pending.is_some_and(|p| u64::from_str_radix(p.trim(), 16).is_ok_and(|set| set & KILL != 0))
}

/// It is on its way out, and a signal sent it there.
fn ends_by_signal(stat: &str) -> bool {
    // The name before may hold anything.
    let Some((_, rest)) = stat.rsplit_once(')') else { return false };
    let field = |n: usize| rest.split_whitespace().nth(n - 3).and_then(|f| f.parse::<u64>().ok());
    let (flags, exit_code) = (field(9).unwrap_or(0), field(52).unwrap_or(0));
    flags & EXITING != 0 && exit_code & 0x7f != 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buf::Pool;
    use crate::channel::{Channel, Shared};

    /// To see whether a caller is dying may have to wait for the answer to that caller.
    #[test]
    fn a_handler_ends_while_its_caller_is_looked_at() {
        let desk = Arc::new(Desk::default());
        let null = std::fs::File::options().write(true).open("/dev/null").unwrap();
        let shared = Shared { pool: Pool::new(4096), interrupts: Arc::default() };
        let link = Link::Device(Arc::new(Channel::new(null.into(), Arc::new(shared))));
        let words = [40, abi::op::FLUSH, 5, 0, 0, 0, 0, 0, 9, 0];
        let bytes: Vec<u8> = words.into_iter().flat_map(u32::to_ne_bytes).collect();
        let header = crate::dispatch::header(&bytes);
        assert!(header.as_ref().is_some_and(|h| h.pid == 9 && h.unique == 5));
        desk.begin(&link, header.as_ref(), Instant::now() - PERIOD);
        let (looked, handler) = (std::cell::Cell::new(false), desk.clone());
        desk.look(|pid| {
            looked.set(pid == 9);
            let handler = handler.clone();
            std::thread::spawn(move || handler.end()).join().unwrap();
            true
        });
        assert!(looked.get() && desk.call.lock().is_none());
    }

    #[test]
    fn only_what_is_killed_is_dying() {
        assert!(kill_pending("Name:\tcat\nSigPnd:\t0000000000000100\nShdPnd:\t0000000000000000\n"));
        assert!(!kill_pending("SigPnd:\t0000000000000002\nShdPnd:\t0000000000000100\n"));
        assert!(!kill_pending("SigPnd:\tx\n") && !kill_pending(""));
        let stat = |flags: u64, code: u64| {
            let before = "S 1 2 3 4 5";
            let between = vec!["0"; 52 - 10].join(" ");
            format!("77 (a) b (c)) {before} {flags} {between} {code}\n")
        };
        assert!(ends_by_signal(&stat(0x40_0004, 9)) && ends_by_signal(&stat(4, 2)));
        assert!(!ends_by_signal(&stat(4, 0)), "it just ends");
        assert!(!ends_by_signal(&stat(4, 0x100)), "with exit code 1");
        assert!(!ends_by_signal(&stat(0x40_0000, 9)) && !ends_by_signal("7 (x"));
        let own = std::process::id();
        assert!(has_memory(&std::fs::read_to_string("/proc/self/status").unwrap()));
        assert!(!is_dying(own) && !is_dying(u32::MAX));
    }
}
