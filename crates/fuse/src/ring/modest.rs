//! Threads that give way to the caller they wake.
//!
//! A program that waits for each answer runs best where the thread runs that answers: both are never awake together, and
//! to wake a CPU that sleeps takes longer than most requests do. But the scheduler wakes the caller elsewhere if a CPU
//! idles there, because this one is busy: with us (opening, reading and closing a small file took 55 us so, 12 us on one
//! CPU, in a virtual machine). A CPU where nothing but threads of SCHED_IDLE run counts as idle, too. So while one
//! thread asks nearly everything that comes to a queue, and changes nothing, all who answer are such threads. (What changes
//! is worked on in the background, too, by threads that would not give way to them: then they are for one who is moved
//! with each answer only, see `hops`.)
//!
//! Assumptions: such a thread gets next to nothing of a CPU that others want, so it must never be one for long. Where nobody
//! has answered for a [`TICK`] a thread that watches makes ordinary ones of them again; if one of them was kept from running
//! while the caller waited, or others asked meanwhile, nobody gives way for a while, which doubles while this goes on. So a request waits at most two
//! ticks more, and that seldom.
//! Never does: anything where this process may not undo it (CAP_SYS_NICE).

use parking_lot::{Condvar, Mutex};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::time::Duration;

/// Time between two looks, while anybody gives way.
const TICK: Duration = Duration::from_millis(2);
/// Ticks for which nobody gives way after others asked, or somebody was kept from running: at first, and at most.
const BAR: u32 = 10;
const BAR_MOST: u32 = 200;
/// Ticks without such a case after which it begins small again.
const CALM: u32 = 100;

/// What the system's scheduler does with threads.
pub(super) trait Ranks: Send + Sync {
    /// Makes a thread give way to all others, or an ordinary one; whether that worked.
    fn set(&self, thread: i32, modest: bool) -> bool;
    /// Whether a thread runs, or would if it were let.
    fn wants_to_run(&self, thread: i32) -> bool;
}

/// The kernel's.
pub(super) struct Kernel;

impl Ranks for Kernel {
    fn set(&self, thread: i32, modest: bool) -> bool {
        let policy = if modest { libc::SCHED_IDLE } else { libc::SCHED_OTHER };
        let none = libc::sched_param { sched_priority: 0 };
        // SAFETY: reads its argument.
        unsafe { libc::sched_setscheduler(thread, policy, &none) == 0 }
    }

    fn wants_to_run(&self, thread: i32) -> bool {
        // Not `stat`: while a process executes another program, which may be what waits for us, Linux keeps who reads
        // that waiting (seen with 6.18).
        let status = std::fs::read_to_string(format!("/proc/{thread}/status"));
        status.is_ok_and(|status| status.lines().any(|line| line.starts_with("State:\tR")))
    }
}

impl Kernel {
    /// Whether this thread is an ordinary one, and would come to be one again.
    fn may() -> bool {
        // SAFETY: no memory is involved.
        let ordinary = unsafe { libc::sched_getscheduler(0) } == libc::SCHED_OTHER;
        ordinary && Kernel.set(0, true) && Kernel.set(0, false)
    }
}

#[derive(Default)]
struct State {
    /// The threads that answer.
    threads: Vec<i32>,
    /// Ticks for which nobody gives way still.
    bar: u32,
    /// How long the last such time was.
    last_bar: u32,
    calm: u32,
    ended: bool,
}

/// See the module.
pub(super) struct Modesty {
    kernel: Box<dyn Ranks>,
    state: Mutex<State>,
    /// They give way, or all is over.
    changed: Condvar,
    /// They give way; set under the lock.
    modest: AtomicBool,
    /// One of them has answered since it was looked last.
    fresh: AtomicBool,
    /// Whom.
    caller: AtomicU32,
    /// Somebody else has asked since it was looked last, or what was asked takes long.
    others: AtomicBool,
    barred: AtomicBool,
}

impl Modesty {
    /// None where this process may not.
    pub(super) fn start() -> io::Result<Option<Arc<Modesty>>> {
        // By a thread that ends, whatever becomes of it.
        let named = || std::thread::Builder::new().name("fuse-ranks".into());
        if !named().spawn(Kernel::may)?.join().unwrap_or(false) {
            return Ok(None);
        }
        let modesty = Arc::new(Modesty::new(Box::new(Kernel)));
        let watched = modesty.clone();
        named().spawn(move || watched.watch())?;
        Ok(Some(modesty))
    }

    fn new(kernel: Box<dyn Ranks>) -> Modesty {
        let (state, changed, caller) = Default::default();
        let (modest, fresh, others, barred) = Default::default();
        Modesty { kernel, state, changed, modest, fresh, caller, others, barred }
    }

    /// The calling thread, which is `thread` to the kernel, is one that answers.
    pub(super) fn join(self: &Arc<Modesty>, thread: i32) -> Member {
        let mut state = self.state.lock();
        state.threads.push(thread);
        if self.modest.load(SeqCst) {
            self.kernel.set(thread, true);
        }
        Member { all: self.clone(), thread }
    }

    /// All is over.
    pub(super) fn end(&self) {
        self.state.lock().ended = true;
        self.changed.notify_all();
    }

    /// A thread is about to wake this caller, which asks nearly everything.
    pub(super) fn give_way(&self, caller: u32) {
        if self.barred.load(SeqCst) {
            return;
        }
        self.fresh.store(true, SeqCst);
        if !self.modest.load(SeqCst) {
            self.caller.store(caller, SeqCst);
            self.set(&self.state.lock(), true);
        }
    }

    /// Others ask, too, or what is asked takes long. The next look ends it: asked in turn with one who is
    /// given way to, each of them would else change all threads.
    pub(super) fn stand(&self) {
        if self.modest.load(SeqCst) && !self.others.load(SeqCst) {
            self.others.store(true, SeqCst);
        }
    }

    fn set(&self, state: &State, modest: bool) {
        if self.modest.swap(modest, SeqCst) != modest {
            for thread in &state.threads {
                self.kernel.set(*thread, modest);
            }
            self.changed.notify_all();
        }
    }

    fn watch(&self) {
        let mut state = self.state.lock();
        while !state.ended {
            if self.modest.load(SeqCst) || state.bar > 0 {
                self.changed.wait_for(&mut state, TICK);
                self.tick(&mut state);
            } else {
                self.changed.wait(&mut state);
            }
        }
        self.set(&state, false);
    }

    /// Looks once.
    fn tick(&self, state: &mut State) {
        let mut kept = false;
        if self.modest.load(SeqCst) {
            let (others, fresh) = (self.others.swap(false, SeqCst), self.fresh.swap(false, SeqCst));
            // While the caller runs nobody waits.
            let starved = || {
                !self.kernel.wants_to_run(self.caller.load(SeqCst).cast_signed())
                    && state.threads.iter().any(|thread| self.kernel.wants_to_run(*thread))
            };
            kept = others || (!fresh && starved());
            if others || !fresh {
                self.set(state, false);
            }
        }
        state.bar = state.bar.saturating_sub(1);
        if kept {
            state.last_bar = (state.last_bar * 2).clamp(BAR, BAR_MOST);
            (state.bar, state.calm) = (state.last_bar, 0);
        } else if state.bar == 0 {
            state.calm += 1;
            if state.calm >= CALM {
                (state.last_bar, state.calm) = (0, 0);
            }
        }
        self.barred.store(state.bar > 0, SeqCst);
    }
}

/// A thread that answers, until this is dropped.
pub(super) struct Member {
    all: Arc<Modesty>,
    thread: i32,
}

impl Drop for Member {
    fn drop(&mut self) {
        self.all.state.lock().threads.retain(|thread| *thread != self.thread);
    }
}

#[cfg(test)]
mod tests;
