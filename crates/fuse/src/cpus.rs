//! Which CPUs there may be, and on which of them this process may run.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::io;

const POSSIBLE: &str = "/sys/devices/system/cpu/possible";

pub(crate) struct Cpus {
    possible: usize,
    /// Where the process may run at all.
    allowed: CpuSet,
}

impl Cpus {
    pub(crate) fn read() -> io::Result<Cpus> {
        let text = std::fs::read_to_string(POSSIBLE)?;
        let possible = count(&text).ok_or(io::ErrorKind::InvalidData)?;
        Ok(Cpus { possible, allowed: sched_getaffinity(None)? })
    }

    /// Number of CPUs that may ever be there; the kernel has as many queues.
    pub(crate) fn possible(&self) -> usize {
        self.possible
    }

    /// Whether there is a choice.
    pub(crate) fn several(&self) -> bool {
        self.allowed.count() > 1
    }

    /// Binds the calling thread to a CPU, or to all allowed ones where that is not possible.
    pub(crate) fn pin(&self, cpu: usize) {
        let mut one = CpuSet::new();
        if cpu < CpuSet::MAX_CPU && self.allowed.is_set(cpu) {
            one.set(cpu);
            if sched_setaffinity(None, &one).is_ok() {
                return;
            }
        }
        self.unpin();
    }

    /// Lets the calling thread run on all allowed CPUs.
    pub(crate) fn unpin(&self) {
        // Best effort: a thread in the wrong place is only slower.
        let _ = sched_setaffinity(None, &self.allowed);
    }
}

/// The number of CPUs in a list such as `0-3,8`.
fn count(list: &str) -> Option<usize> {
    let mut sum = 0usize;
    for range in list.trim().split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        sum = last.checked_sub(first)?.checked_add(1)?.checked_add(sum)?;
    }
    // Bounds what a nonsensical list can ask for.
    (sum <= 1 << 16).then_some(sum)
}

#[cfg(test)]
mod tests;
