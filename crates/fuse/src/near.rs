//! Keeps a reader on the CPU of the thread that asks, while one thread asks nearly everything.
//!
//! A program that waits for each answer before it asks again (tar, git, rm) needs no second CPU, and waking a reader on one
//! that sleeps takes longer than most requests do: six requests for a small file took 320 us so, 85 us on the same CPU
//! (a virtual machine). Left alone, the scheduler wakes both where they were, and they stay apart for long.
//!
//! Large data is different: while one CPU copies it, another can ask for more. So is O_DIRECT: of it one thread may have many
//! requests under way (io_submit, io_uring), which several readers are to take. Both count as coming from somebody else.
//!
//! Assumptions: threads of other processes move at any time, so where the asker is, is looked up again and again. Best effort:
//! a thread in the wrong place is only slower.

use crate::abi::{self, op};
use crate::cpus::Cpus;
use crate::parse;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering::Relaxed};

/// Requests by which one thread must be ahead of all others before a reader goes where it is.
const ENOUGH: u32 = 32;

/// What a long streak is worth at most.
const MOST: u32 = 64;

/// What a request of another thread takes off.
const LOSS: u32 = 4;

/// Requests after which is looked again where the asker runs.
const LOOK: u32 = 8;

/// Data of a request, either way, from which on it is large.
const LARGE: u32 = 32 << 10;

/// Where threads run.
pub(crate) trait Places {
    /// The CPU a thread ran on last.
    fn of(&self, thread: u32) -> Option<usize>;
    /// Binds the calling thread to a CPU.
    fn pin(&self, cpu: usize);
    /// Lets the calling thread run wherever the process may.
    fn unpin(&self);
}

impl Places for Cpus {
    fn of(&self, thread: u32) -> Option<usize> {
        let stat = std::fs::read_to_string(format!("/proc/{thread}/stat")).ok()?;
        last_cpu(&stat)
    }

    fn pin(&self, cpu: usize) {
        Cpus::pin(self, cpu);
    }

    fn unpin(&self) {
        Cpus::unpin(self);
    }
}

/// The field `processor` of `/proc/TID/stat`, the 39th; the second may hold anything.
fn last_cpu(stat: &str) -> Option<usize> {
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_ascii_whitespace().nth(36)?.parse().ok()
}

/// Whether one thread asks nearly everything. Updates that are lost among several readers cost nothing but time.
#[derive(Default)]
pub(crate) struct Streak {
    thread: AtomicU32,
    score: AtomicU32,
}

impl Streak {
    /// Takes a request into account (`other`: as one of somebody else); whether one thread asks nearly everything.
    pub(crate) fn request(&self, thread: u32, other: bool) -> bool {
        let mut score = self.score.load(Relaxed);
        if !other && thread == self.thread.load(Relaxed) {
            score = (score + 1).min(MOST);
        } else {
            score = score.saturating_sub(LOSS);
            if score == 0 {
                self.thread.store(thread, Relaxed);
            }
        }
        self.score.store(score, Relaxed);
        score >= ENOUGH
    }
}

/// Who asks, as all readers of a session see it.
#[derive(Default)]
pub(crate) struct Asker {
    streak: Streak,
    /// Requests since it was looked where it runs.
    unseen: AtomicU32,
    /// Where it ran when that was looked up, plus 1; 0: not known.
    place: AtomicUsize,
}

impl Asker {
    /// Takes a request into account; where the one who asks nearly everything runs, if there is one. `looks`: it may
    /// be looked for.
    fn request(&self, thread: u32, other: bool, looks: bool, places: &dyn Places) -> Option<usize> {
        if !self.streak.request(thread, other) {
            self.place.store(0, Relaxed);
            return None;
        }
        let known = self.place.load(Relaxed);
        if known > 0 && self.unseen.fetch_add(1, Relaxed) < LOOK || !looks {
            return known.checked_sub(1);
        }
        self.unseen.store(0, Relaxed);
        let found = places.of(self.streak.thread.load(Relaxed));
        self.place.store(found.map_or(0, |cpu| cpu + 1), Relaxed);
        if found.is_none() {
            // Hidden from us, or gone: not to be looked for with every request.
            self.streak.score.store(0, Relaxed);
        }
        found
    }
}

/// Whether a request may come from within execve(2), where it closes files and asks whether the program may be read. Linux
/// lets nobody read `/proc/PID/stat` of that process meanwhile (seen with 6.18): who is to answer would wait for himself.
fn comes_from_exec(opcode: u32) -> bool {
    matches!(
        opcode,
        op::FLUSH
            | op::GETATTR
            | op::STATX
            | op::ACCESS
            | op::GETXATTR
            | op::LISTXATTR
            | op::SETLK
            | op::SETLKW
    )
}

/// One reader's place.
pub(crate) struct Near<'a> {
    asker: &'a Asker,
    places: Option<&'a dyn Places>,
    pinned: Option<usize>,
}

impl<'a> Near<'a> {
    /// Without `places` it does nothing.
    pub(crate) fn new(asker: &'a Asker, places: Option<&'a dyn Places>) -> Near<'a> {
        Near { asker, places, pinned: None }
    }

    /// A request has come to the calling thread.
    pub(crate) fn request(&mut self, bytes: &[u8]) {
        let Some(places) = self.places else { return };
        let Ok((header, mut args, _)) = parse::message(bytes) else { return };
        // The kernel's own: what is left to do after a close, write-back.
        if header.pid == 0 {
            return;
        }
        let large = match header.opcode {
            // Writes begin as reads do.
            op::READ | op::WRITE => args
                .fixed::<abi::ReadIn>()
                .is_ok_and(|io| io.size >= LARGE || io.flags & libc::O_DIRECT as u32 != 0),
            _ => header.len >= LARGE,
        };
        let looks = !comes_from_exec(header.opcode);
        let place = self.asker.request(header.pid, large, looks, places);
        if place == self.pinned {
            return;
        }
        match place {
            Some(cpu) => places.pin(cpu),
            None => places.unpin(),
        }
        self.pinned = place;
    }

    /// Whether one thread asks nearly everything.
    pub(crate) fn stays(&self) -> bool {
        self.pinned.is_some()
    }
}

impl Drop for Near<'_> {
    fn drop(&mut self) {
        if let (Some(places), Some(_)) = (self.places, self.pinned) {
            places.unpin();
        }
    }
}

#[cfg(test)]
mod tests;
