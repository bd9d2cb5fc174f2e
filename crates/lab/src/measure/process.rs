//! What the kernel says of processes: CPU time, memory; and its caches, dropped on request.

use serde::Serialize;
use std::io;

/// CPU seconds, user and system, of this process and its waited-for children.
pub(super) fn own_cpu() -> f64 {
    [libc::RUSAGE_SELF, libc::RUSAGE_CHILDREN].into_iter().map(usage).sum()
}

fn usage(who: i32) -> f64 {
    // SAFETY: rusage is plain data, for which zero is valid; the pointer lives for the call.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(who, &mut usage);
        usage
    };
    let seconds = |t: libc::timeval| t.tv_sec as f64 + t.tv_usec as f64 / 1e6;
    seconds(usage.ru_utime) + seconds(usage.ru_stime)
}

/// CPU seconds, user and system, of a running process; None if it is gone.
pub fn cpu_of(pid: u32) -> Option<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let ticks = ticks(&stat)?;
    Some(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
}

/// Fields 14 and 15 of a stat line; the name in field 2 may hold anything.
pub(super) fn ticks(stat: &str) -> Option<u64> {
    let mut fields = stat.get(stat.rfind(')')? + 2..)?.split(' ').skip(11);
    Some(fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?)
}

/// Memory of a process in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Memory {
    pub rss: u64,
    /// Shared pages counted by share.
    pub pss: u64,
}

/// Memory of a process from its `smaps_rollup`.
pub fn memory(pid: u32) -> io::Result<Memory> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
    Ok(parse_memory(&text))
}

pub(super) fn parse_memory(text: &str) -> Memory {
    let of = |name: &str| {
        let line = text.lines().find_map(|l| l.strip_prefix(name));
        let kilobytes = line.and_then(|l| l.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok());
        kilobytes.unwrap_or(0) * 1024
    };
    Memory { rss: of("Rss:"), pss: of("Pss:") }
}

/// Drops the kernel's clean page, dentry and inode caches, so that reads are cold. Needs root.
/// Dirty pages stay: fsync what matters first.
pub fn drop_caches() -> io::Result<()> {
    std::fs::write("/proc/sys/vm/drop_caches", "3")
}
