//! How much memory this process may use, and what of it caches get.
//!
//! Role: reads what the machine has and what its control groups (v1 and v2) leave to this process. Caches have their usual
//! limits from [`ENOUGH`] on and a proportional part of them below, so that a small machine or container does not end in
//! the kernel's killing the process. Assumptions: read once, at the start. Never does: count what is used.

use std::path::Path;

/// From so many bytes on nothing is less than usual.
const ENOUGH: u64 = 4 << 30;
/// What there must be for each thread of a mount, which takes half a MiB of it.
const FOR_THREAD: u64 = 8 << 20;
/// So many there are with whatever memory.
const FEWEST: usize = 32;
/// The least part of anything, as a divisor.
const LEAST: u64 = 16;

/// What there is for this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    bytes: u64,
}

impl Memory {
    /// Of this process. Where nothing can be read there is enough.
    pub fn here() -> Memory {
        Memory::below(Path::new("/"))
    }

    fn below(root: &Path) -> Memory {
        let machine = std::fs::read_to_string(root.join("proc/meminfo")).ok();
        let machine = machine.and_then(|text| total(&text));
        let groups = std::fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
        let limits = groups.lines().flat_map(|line| limits(root, line));
        Memory { bytes: limits.chain(machine).min().unwrap_or(u64::MAX) }
    }

    /// How many threads there may be that wait for servers; None: as many as usual.
    pub fn threads(self) -> Option<usize> {
        let fit = usize::try_from(self.bytes / FOR_THREAD).unwrap_or(usize::MAX);
        (self.bytes < ENOUGH).then_some(fit.max(FEWEST))
    }

    /// Buffers that are kept to be used again are as many as there is memory for.
    pub fn bound_idle(self) {
        net::idle::keep_percent(self.part_of(100) as usize);
    }

    /// What of a cache's usual size is its size here.
    pub fn part_of(self, usual: u64) -> u64 {
        if self.bytes >= ENOUGH {
            return usual;
        }
        let part = u128::from(usual) * u128::from(self.bytes) / u128::from(ENOUGH);
        u64::try_from(part).unwrap_or(usual).max(usual / LEAST)
    }
}

/// `MemTotal` of proc_meminfo(5), bytes.
fn total(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|l| l.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// The limits of a line of cgroups(7): of the group and of all above it, each of which counts. A container may see the
/// names of groups that are not below its root: what is not there is passed over.
fn limits(root: &Path, line: &str) -> Vec<u64> {
    let mut fields = line.splitn(3, ':').skip(1);
    let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else { return Vec::new() };
    let (top, files): (_, &[&str]) = match controllers {
        "" => ("sys/fs/cgroup", &["memory.max", "memory.high"]),
        names if names.split(',').any(|n| n == "memory") => {
            ("sys/fs/cgroup/memory", &["memory.limit_in_bytes"])
        }
        _ => return Vec::new(),
    };
    let group = Path::new(path.trim_start_matches('/'));
    let groups = group.ancestors().map(|g| root.join(top).join(g));
    let files = groups.flat_map(|g| files.iter().map(move |f| g.join(f)));
    // "max" is no number, and no limit.
    files.filter_map(|f| std::fs::read_to_string(f).ok()?.trim().parse().ok()).collect()
}

#[cfg(test)]
mod tests;
