//! Clearing up after checks, also after those that were killed. Everything is found by what it
//! belongs to: mounts and loop devices by the scratch directory, processes by the tag in their
//! environment, network namespaces by their prefix. Nothing else is ever touched.

use crate::cx::TAG;
use rustix::mount::{UnmountFlags, unmount};
use rustix::process::{Pid, Signal, kill_process};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What belongs to a check or to a whole run.
pub struct Scope {
    pub dir: PathBuf,
    /// Prefix of the tag in the environment.
    pub tag: String,
}

/// Tag of the processes of one check.
pub fn tag(scratch: &Path) -> String {
    format!("{}/", scratch.display())
}

/// Prefix of the network namespaces of one run.
pub fn net_prefix(run: u32) -> String {
    format!("px{run}-")
}

/// Removes everything of `scope` and returns a line for each thing that was there.
pub fn sweep(scope: &Scope) -> Vec<String> {
    let found = look(scope);
    for _ in 0..50 {
        abort_connections(scope);
        thaw(scope);
        for pid in processes(scope) {
            if let Some(pid) = Pid::from_raw(pid) {
                let _ = kill_process(pid, Signal::KILL);
            }
        }
        for (point, _) in mounts(&scope.dir).into_iter().rev() {
            let _ = unmount(&point, UnmountFlags::DETACH);
        }
        for (device, _) in loops(&scope.dir) {
            let _ = std::process::Command::new("losetup").arg("-d").arg(device).output();
        }
        if look(scope).is_empty() {
            break;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    found
}

/// Who writes to a frozen disk cannot be killed.
fn thaw(scope: &Scope) {
    for (point, _) in mounts(&scope.dir).into_iter().filter(|(_, kind)| kind == "ext4") {
        let _ = std::process::Command::new("fsfreeze").arg("--unfreeze").arg(point).output();
    }
}

/// What of `scope` is there now.
pub fn look(scope: &Scope) -> Vec<String> {
    let mut found = Vec::new();
    for (point, kind) in mounts(&scope.dir) {
        found.push(format!("mount {} ({kind})", point.display()));
    }
    for pid in processes(scope) {
        found.push(format!("process {pid} ({})", command_line(pid)));
    }
    for (device, file) in loops(&scope.dir) {
        found.push(format!("loop device {} of {file}", device.display()));
    }
    found
}

/// Mount points under `dir` with their type, in the order they were made.
pub fn mounts(dir: &Path) -> Vec<(PathBuf, String)> {
    mount_table()
        .into_iter()
        .filter(|m| m.point.starts_with(dir))
        .map(|m| (m.point, m.kind))
        .collect()
}

/// One line of the mount table.
pub struct Mount {
    pub point: PathBuf,
    pub kind: String,
    /// The device as the kernel keeps its number, which is that of a FUSE connection: a mount through a
    /// loop device has a major number, too.
    pub connection: u64,
}

/// The mount table of this process.
pub fn mount_table() -> Vec<Mount> {
    let text = std::fs::read("/proc/self/mountinfo").unwrap_or_default();
    text.split(|&b| b == b'\n').filter_map(mount_line).collect()
}

fn mount_line(line: &[u8]) -> Option<Mount> {
    let mut words = line.split(|&b| b == b' ');
    let device = words.nth(2)?;
    let (major, minor) = std::str::from_utf8(device).ok()?.split_once(':')?;
    let connection = major.parse::<u64>().ok()? << 20 | minor.parse::<u64>().ok()?;
    let point = unescape(words.nth(1)?);
    let kind = words.skip_while(|w| *w != b"-").nth(1)?;
    Some(Mount { point, kind: String::from_utf8_lossy(kind).into_owned(), connection })
}

/// The table writes blanks and the like as three octal digits.
fn unescape(word: &[u8]) -> PathBuf {
    let mut out = Vec::with_capacity(word.len());
    let mut rest = word;
    while let Some((&first, tail)) = rest.split_first() {
        let octal = (first == b'\\')
            .then(|| std::str::from_utf8(tail.get(..3)?).ok())
            .flatten()
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match octal {
            Some(byte) => {
                out.push(byte);
                rest = &tail[3..];
            }
            None => {
                out.push(first);
                rest = tail;
            }
        }
    }
    std::ffi::OsString::from_vec(out).into()
}

/// Ends the FUSE connections of the scope, so that nothing sleeps in the kernel for an answer.
fn abort_connections(scope: &Scope) {
    for mount in mount_table() {
        if mount.point.starts_with(&scope.dir) && mount.kind.starts_with("fuse") {
            let _ = std::fs::write(
                format!("/sys/fs/fuse/connections/{}/abort", mount.connection),
                b"1",
            );
        }
    }
}

/// Processes of the scope except this one.
pub fn processes(scope: &Scope) -> Vec<i32> {
    let want = format!("{TAG}={}", scope.tag).into_bytes();
    let own = std::process::id().cast_signed();
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    entries
        .flatten()
        .filter_map(|e| e.file_name().to_str()?.parse::<i32>().ok())
        .filter(|&pid| pid != own && carries(pid, &want) && !zombie(pid))
        .collect()
}

fn carries(pid: i32, want: &[u8]) -> bool {
    let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    environment.split(|&b| b == 0).any(|pair| pair.starts_with(want))
}

/// A dead process nobody has collected yet is not left over.
pub fn zombie(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(')').next().is_none_or(|rest| rest.trim_start().starts_with('Z'))
}

fn command_line(pid: i32) -> String {
    let bytes = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&bytes).replace('\0', " ").trim().chars().take(200).collect()
}

/// Loop devices whose backing file is under `dir`.
fn loops(dir: &Path) -> Vec<(PathBuf, String)> {
    let Ok(entries) = std::fs::read_dir("/sys/block") else { return Vec::new() };
    entries
        .flatten()
        .filter_map(|e| {
            let file = std::fs::read_to_string(e.path().join("loop/backing_file")).ok()?;
            Path::new(file.trim())
                .starts_with(dir)
                .then(|| (Path::new("/dev").join(e.file_name()), file.trim().to_owned()))
        })
        .collect()
}

/// Deletes the network namespaces of a run.
pub fn sweep_net(run: u32) {
    let Ok(entries) = std::fs::read_dir("/run/netns") else { return };
    for entry in entries.flatten() {
        if entry.file_name().to_string_lossy().starts_with(&net_prefix(run)) {
            let _ = std::process::Command::new("ip")
                .args(["netns", "delete"])
                .arg(entry.file_name())
                .output();
        }
    }
}
