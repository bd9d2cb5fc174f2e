//! Other processes: whether the one a record names still runs, ending it, waiting for its end.
//!
//! Assumption: pid and start time together name a process for as long as the machine runs. Never
//! does: signal a process it has not identified by both.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// A process, told from a later one with the same number by when it started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ProcessId {
    /// Its number.
    pub pid: u32,
    /// When it started, in clock ticks after boot.
    pub started: u64,
}

impl ProcessId {
    /// This process.
    pub fn own() -> ProcessId {
        let pid = std::process::id();
        ProcessId { pid, started: start_time(pid).unwrap_or(0) }
    }

    /// A handle on it, if it still runs.
    pub fn find(self) -> Option<Process> {
        let pid = Pid::from_raw(i32::try_from(self.pid).ok()?)?;
        let fd = pidfd_open(pid, PidfdFlags::empty()).ok()?;
        // Checked after the handle is there: from now on the number cannot be given away.
        (start_time(self.pid) == Some(self.started)).then_some(Process { fd })
    }

    /// Whether it was killed or has ended, and is still there: threads of it may be.
    pub fn is_dying(self) -> bool {
        look(self.pid).is_some_and(|(gone, started)| gone && started == self.started)
    }
}

/// A process that ran when it was found.
#[derive(Debug)]
pub struct Process {
    fd: OwnedFd,
}

impl Process {
    /// Asks it to end.
    pub fn terminate(&self) {
        let _ = pidfd_send_signal(&self.fd, Signal::TERM);
    }

    /// Ends it.
    pub fn kill(&self) {
        let _ = pidfd_send_signal(&self.fd, Signal::KILL);
    }

    /// Whether it ended within `time`.
    pub fn wait(&self, time: Duration) -> bool {
        let end = Instant::now() + time;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let timeout = rustix::time::Timespec {
                tv_sec: left.as_secs() as i64,
                tv_nsec: i64::from(left.subsec_nanos()),
            };
            let mut fds = [PollFd::new(&self.fd, PollFlags::IN)];
            match poll(&mut fds, Some(&timeout)) {
                Ok(0) => return false,
                Err(rustix::io::Errno::INTR) => {}
                _ => return true,
            }
        }
    }
}

/// Waits for the last thread of a process: as long as `killed` where it was killed or has ended, as long as `runs` where it
/// runs. Whether that has ended now; one that is no more has.
pub fn ends_within(pid: u32, killed: Duration, runs: Duration) -> bool {
    let Some(id) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return false };
    match pidfd_open(id, PidfdFlags::empty()) {
        Err(e) => e == rustix::io::Errno::SRCH,
        Ok(fd) => {
            let ends = look(pid).is_none_or(|(gone, _)| gone);
            Process { fd }.wait(if ends { killed } else { runs })
        }
    }
}

/// When a process started, in clock ticks after boot; one that only ends counts as gone.
fn start_time(pid: u32) -> Option<u64> {
    look(pid).and_then(|(gone, started)| (!gone).then_some(started))
}

/// Whether a process only ends (it was killed, or is a zombie), and when it started.
fn look(pid: u32) -> Option<(bool, u64)> {
    ends(&std::fs::read(format!("/proc/{pid}/stat")).ok()?)
}

/// As `look`, of what proc_pid_stat(5) describes.
fn ends(stat: &[u8]) -> Option<(bool, u64)> {
    /// Of a task's flags, in Linux's `include/linux/sched.h`: it is on its way out.
    const PF_EXITING: u64 = 4;
    const KILLED: u64 = 1 << (libc::SIGKILL - 1);
    // The command's name stands in parentheses and may hold anything.
    let end = stat.iter().rposition(|b| *b == b')')?;
    let rest = String::from_utf8_lossy(&stat[end + 1..]).into_owned();
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let number = |n: usize| fields.get(n)?.parse::<u64>().ok();
    let (flags, pending) = (number(6)?, number(28)?);
    let zombie = matches!(fields.first(), Some(&"Z" | &"X"));
    // A signal that kills is pending until the first thread gets to run.
    Some((zombie || flags & PF_EXITING != 0 || pending & KILLED != 0, number(19)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_known_by_number_and_start() {
        let me = ProcessId::own();
        assert!(me.started > 0 && me.find().is_some());
        assert!(ProcessId { started: me.started + 1, ..me }.find().is_none());
        assert!(ProcessId { pid: 0, started: 0 }.find().is_none());
    }

    #[test]
    fn who_was_killed_counts_as_gone_before_it_is() {
        let stat = |state: &str, flags: u64, pending: u64| {
            let text = format!(
                "7 (a) b) {state} 1 7 7 0 -1 {flags} 0 0 0 0 1 1 0 0 20 0 9 0 4711 1 1 1 0 0 0 0 0 {pending} 0 0"
            );
            ends(text.as_bytes())
        };
        assert_eq!(stat("S", 4_194_304, 0), Some((false, 4711)));
        assert_eq!(stat("S", 4_194_304, 1 << 14), Some((false, 4711)), "asked to end");
        for (state, flags, pending) in [("Z", 4_194_304, 0), ("R", 4_194_308, 0), ("D", 0, 256)] {
            assert_eq!(stat(state, flags, pending), Some((true, 4711)), "{state}");
        }
        assert_eq!(ends(b"7 (a) S 1"), None);
    }

    #[test]
    fn ending_and_waiting() {
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let pid = child.id();
        let id = ProcessId { pid, started: start_time(pid).unwrap() };
        let found = id.find().unwrap();
        assert!(!found.wait(Duration::ZERO));
        found.terminate();
        assert!(found.wait(Duration::from_secs(60)));
        assert!(id.find().is_none(), "a zombie is gone");
        assert!(id.is_dying() && !ProcessId { started: 1, ..id }.is_dying());
        let (long, none) = (Duration::from_secs(60), Duration::ZERO);
        assert!(ends_within(pid, long, none));
        child.wait().unwrap();
        assert!(ends_within(pid, none, none), "it is no more");
        assert!(!ends_within(std::process::id(), long, none));
        assert!(!id.is_dying() && !ProcessId::own().is_dying());
    }
}
