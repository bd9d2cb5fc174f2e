//! Who this machine and process are, for people and for telling processes apart.

/// The machine's name.
pub fn name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// How this process presents itself to servers: `HOST:PID ROLE`.
pub fn describe(role: &str) -> String {
    described(&name(), std::process::id().into(), role)
}

/// How a process on the machine `name` presents itself.
pub fn described(name: &str, pid: u64, role: &str) -> String {
    format!("{name}:{pid} {role}")
}

/// Memory this process holds, in KiB.
pub fn memory_kb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:"));
    line.and_then(|l| l.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}
