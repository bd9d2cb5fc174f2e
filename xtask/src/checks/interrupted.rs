//! Runs of `xtask` that are interrupted, or killed, in the middle of a check or a bench: no mount, process or
//! directory of theirs stays. Looked for in /proc, by the name of their scratch directory.

use crate::cx::Cx;
use crate::fs::until;
use crate::plan::{Check, Need};
use crate::servers::{Cluster, Transport};
use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

pub const CHECK: Check = Check {
    name: "interrupted",
    about: "a run of checks or a bench that is interrupted or killed leaves nothing behind",
    needs: &[
        Need::Binary,
        Need::Apt("fuse3"),
        Need::Apt("bindfs"),
        Need::Apt("gcc"),
        Need::Apt("git"),
        Need::Apt("make"),
        Need::Root,
    ],
    limit: 600,
    weight: 1,
    slow: false,
    run,
};

/// What is interrupted: servers and a mount, and then nothing, until it is ended from outside. Chosen by name
/// only.
pub const HELD: Check = Check {
    name: "held",
    about: "servers and a mount that stay until the run is interrupted (used by `interrupted`)",
    needs: &[Need::Binary, Need::Apt("fuse3"), Need::Root],
    limit: 300,
    weight: 1,
    slow: false,
    run: hold,
};

/// How often a check that is held looks whether it is over; nothing rests on it.
const LOOK: Duration = Duration::from_secs(1);

fn hold(cx: &Cx) -> Result<()> {
    let mut cluster = Cluster::new(cx, "cluster", Transport::Unix, 1)?;
    let mnt = cluster.mount("mnt")?;
    std::fs::write(mnt.join("file"), "held")?;
    // A file that is open, by a process that waits for its input.
    let holder = crate::holder::Holder::open(&mnt.join("file"))?;
    std::fs::write(cx.scratch().join("ready"), "")?;
    loop {
        std::thread::sleep(LOOK);
        holder.is_busy()?;
        ensure!(mnt.join("file").exists(), "the mount is gone");
    }
}

fn run(cx: &Cx) -> Result<()> {
    for (name, signal) in [
        ("SIGINT", Signal::INT),
        ("SIGTERM", Signal::TERM),
        ("SIGHUP", Signal::HUP),
        ("SIGKILL", Signal::KILL),
    ] {
        cx.case(&format!("checks, by {name}"), || {
            ended(cx, &format!("test-{name}"), &["test", "--quick", "held"], signal, |scratch| {
                found(scratch, |dir| dir.join("held/ready").exists())
            })
        });
    }
    for (name, signal) in [("SIGTERM", Signal::TERM), ("SIGKILL", Signal::KILL)] {
        cx.case(&format!("a bench, by {name}"), || {
            ended(cx, &format!("bench-{name}"), &["bench", "--quick", "rpc"], signal, |scratch| {
                !mounted(scratch).is_empty()
            })
        });
    }
    Ok(())
}

/// Killed when dropped, so that a case that fails leaves nothing either: what it has started carries the tag of
/// this check.
struct Run(Child);

impl Drop for Run {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a run, sends it a signal once it is in the middle, and looks for what is left.
fn ended(
    cx: &Cx,
    name: &str,
    words: &[&str],
    signal: Signal,
    is_ready: impl Fn(&Path) -> bool,
) -> Result<()> {
    let scratch = cx.dir(name)?;
    let log = std::fs::File::create(cx.scratch().join(format!("{name}.log")))?;
    let child = Command::new(std::env::current_exe()?)
        .args(words)
        .arg("--pinstripe")
        .arg(&cx.set.pinstripe)
        .arg("--scratch")
        .arg(&scratch)
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .spawn()?;
    let mut run = Run(child);
    let said =
        || std::fs::read_to_string(cx.scratch().join(format!("{name}.log"))).unwrap_or_default();
    until("the run is in the middle", || {
        is_ready(&scratch) || !matches!(run.0.try_wait(), Ok(None))
    })?;
    ensure!(matches!(run.0.try_wait(), Ok(None)), "it ended by itself: {}", said());
    ensure!(!mounted(&scratch).is_empty(), "nothing is mounted: nothing is tried");
    ensure!(processes(&scratch).len() > 1, "there are no processes: nothing is tried");
    kill_process(Pid::from_child(&run.0), signal)?;
    until("the run ends", || !matches!(run.0.try_wait(), Ok(None)))?;
    let left = || [mounted(&scratch), processes(&scratch), entries(&scratch)].concat();
    // Who is killed is cleared up after by another, a moment later.
    until("all of it is gone", || left().is_empty())
        .with_context(|| format!("left: {:?}; it said: {}", left(), said()))
}

fn found(scratch: &Path, what: impl Fn(&Path) -> bool) -> bool {
    let entries = std::fs::read_dir(scratch).into_iter().flatten().flatten();
    entries.into_iter().any(|e| what(&e.path()))
}

fn entries(scratch: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(scratch).into_iter().flatten().flatten();
    entries.map(|e| format!("directory {}", e.path().display())).collect()
}

/// Lines of the mount table that name it.
fn mounted(scratch: &Path) -> Vec<String> {
    let table = std::fs::read_to_string("/proc/mounts").unwrap_or_default();
    let wanted = scratch.display().to_string();
    table.lines().filter(|l| l.contains(&wanted)).map(str::to_owned).collect()
}

/// Processes whose command line or environment names it.
fn processes(scratch: &Path) -> Vec<String> {
    let wanted = scratch.display().to_string().into_bytes();
    let names = |file: std::path::PathBuf| {
        let text = std::fs::read(file).unwrap_or_default();
        text.windows(wanted.len()).any(|w| w == wanted)
    };
    let all = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    all.filter(|e| e.file_name().to_string_lossy().bytes().all(|b| b.is_ascii_digit()))
        .filter(|e| names(e.path().join("cmdline")) || names(e.path().join("environ")))
        .map(|e| {
            let line = std::fs::read(e.path().join("cmdline")).unwrap_or_default();
            let line = String::from_utf8_lossy(&line).replace('\0', " ");
            format!("process {} ({line})", e.file_name().to_string_lossy())
        })
        .collect()
}
