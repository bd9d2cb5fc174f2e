//! A mounted file system of one command, `pinstripe up`, in the scratch directory of a check.

use crate::cx::Cx;
use crate::proc::Cmd;
use crate::sweep::mount_table;
use anyhow::{Context, Result, bail, ensure};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Bound on waiting for something that must come; its length proves nothing.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until `done` answers true, at most [`PATIENCE`].
pub fn until(what: &str, done: impl FnMut() -> bool) -> Result<()> {
    until_within(PATIENCE, what, done)
}

/// As `until`, with another bound.
pub fn until_within(patience: Duration, what: &str, mut done: impl FnMut() -> bool) -> Result<()> {
    let end = Instant::now() + patience;
    while !done() {
        ensure!(Instant::now() < end, "{what}: not within {patience:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// Whether something is mounted at `point`.
pub fn is_mounted(point: &Path) -> bool {
    mount_table().iter().any(|m| m.point == point)
}

/// One number out of what `get_param --json` says.
pub fn figure(said: &[u8], name: &str) -> Result<u64> {
    let said: serde_json::Value = serde_json::from_slice(said)?;
    let figure = said[name].as_str().and_then(|n| n.parse().ok());
    figure.with_context(|| format!("no figure {name}: {said}"))
}

/// How a file system is brought up.
#[derive(Clone)]
pub struct How {
    pub osts: u32,
    pub mdts: u32,
    /// More words for the command line.
    pub more: Vec<String>,
}

impl Default for How {
    fn default() -> Self {
        Self { osts: 4, mdts: 1, more: Vec::new() }
    }
}

/// A file system; taken down when dropped.
pub struct Fs {
    pub mnt: PathBuf,
    pub data: PathBuf,
    program: PathBuf,
    how: How,
    up: bool,
}

impl Fs {
    /// Formats and mounts a new one under `name`, four OSTs.
    pub fn new(cx: &Cx, name: &str) -> Result<Self> {
        Self::with(cx, name, How::default())
    }

    /// Formats and mounts a new one under `name`.
    pub fn with(cx: &Cx, name: &str, how: How) -> Result<Self> {
        let data = cx.scratch().join(name).join("data");
        Self::on(cx, name, data, how)
    }

    /// Mounts under `name` with its targets in `data`.
    pub fn on(cx: &Cx, name: &str, data: PathBuf, how: How) -> Result<Self> {
        let mnt = cx.dir(name)?.join("mnt");
        std::fs::create_dir_all(&mnt)?;
        let program = cx.set.pinstripe.clone();
        let mut how = how;
        if !how.more.iter().any(|word| word == "-o") {
            how.more.extend(cx.set.option_words());
        }
        let mut fs = Self { mnt, data, program, how, up: false };
        fs.up()?;
        Ok(fs)
    }

    /// The command that brings it up, without `--detach`.
    pub fn up_command(&self) -> Cmd {
        Cmd::new(&self.program)
            .arg("up")
            .arg(&self.mnt)
            .arg("--data")
            .arg(&self.data)
            .args(["--osts", &self.how.osts.to_string(), "--mdts", &self.how.mdts.to_string()])
            .args(&self.how.more)
    }

    /// Brings it up and waits until it can be used.
    pub fn up(&mut self) -> Result<String> {
        self.up = true;
        let out = self.up_command().arg("--detach").limit(120).ok()?;
        ensure!(is_mounted(&self.mnt), "`up --detach` returned, but nothing is mounted");
        std::fs::read_dir(&self.mnt).context("the new mount cannot be read")?;
        Ok(out.all())
    }

    /// Takes it down; nothing of it may stay.
    pub fn down(&mut self) -> Result<()> {
        let pids = self.pids()?;
        Cmd::new(&self.program).arg("down").arg(&self.mnt).limit(120).ok()?;
        self.up = false;
        ensure!(!is_mounted(&self.mnt), "`down` returned, but the mount is still there");
        for pid in pids {
            until(&format!("process {pid} ends after `down`"), || !running(pid))?;
        }
        no_panic(&self.data.join("log"))
    }

    /// `status --json`.
    pub fn status(&self) -> Result<serde_json::Value> {
        let out = Cmd::new(&self.program).arg("status").arg(&self.mnt).arg("--json").quiet();
        let out = out.limit(60).ok()?;
        serde_json::from_slice(&out.stdout)
            .with_context(|| format!("`status --json` is not JSON: {}", out.tail()))
    }

    /// A figure of its servers, or of the mount.
    pub fn figure(&self, name: &str) -> Result<u64> {
        let cmd = Cmd::new(&self.program).args(["get_param", "--json", name, "--mount"]);
        figure(&cmd.arg(&self.mnt).quiet().ok()?.stdout, name)
    }

    /// More words for the command line, from the next [`Fs::up`] on.
    pub fn reword(&mut self, more: &[&str]) {
        self.how.more.extend(more.iter().map(|word| (*word).to_owned()));
    }

    /// The processes involved.
    pub fn pids(&self) -> Result<Vec<i32>> {
        let status = self.status()?;
        let mut pids = Vec::new();
        collect_numbers(&status["pids"], &mut pids);
        pids.sort_unstable();
        pids.dedup();
        ensure!(!pids.is_empty(), "`status --json` names no pids: {status}");
        Ok(pids)
    }

    /// kill -9 of all its processes at once. The dead mount stays.
    pub fn kill(&mut self) -> Result<()> {
        for pid in self.pids()? {
            kill9(pid);
        }
        Ok(())
    }

    /// `pinstripe lfs WORDS`.
    pub fn lfs<S: AsRef<std::ffi::OsStr>>(&self, words: impl IntoIterator<Item = S>) -> Cmd {
        Cmd::new(&self.program).arg("lfs").args(words)
    }

    /// A new directory whose files get `count` stripes of `size` bytes (`-1`: all OSTs).
    pub fn striped(&self, name: &str, count: i32, size: u64) -> Result<PathBuf> {
        let dir = self.mnt.join(name);
        std::fs::create_dir(&dir)?;
        let (count, size) = (count.to_string(), size.to_string());
        self.lfs(["setstripe", "-c", &count, "-S", &size]).arg(&dir).ok()?;
        Ok(dir)
    }

    /// Checks the stopped file system; anything found is an error.
    pub fn fsck(&self) -> Result<()> {
        Cmd::new(&self.program).arg("fsck").arg("--data").arg(&self.data).limit(300).ok()?;
        Ok(())
    }

    /// Takes it down and checks it, also the data.
    pub fn down_and_check(&mut self) -> Result<()> {
        self.down()?;
        let fsck = Cmd::new(&self.program).arg("fsck").arg("--data").arg(&self.data);
        fsck.arg("--data-too").limit(600).ok()?;
        Ok(())
    }
}

impl Drop for Fs {
    fn drop(&mut self) {
        if self.up {
            let _ = Cmd::new(&self.program).arg("down").arg(&self.mnt).limit(30).run();
        }
    }
}

/// Whatever a program was given, it may not panic: its logs in `dir` show no trace of one.
pub fn no_panic(dir: &Path) -> Result<()> {
    let Ok(entries) = std::fs::read_dir(dir) else { return Ok(()) };
    for entry in entries.flatten() {
        let text = std::fs::read(entry.path()).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let at = text.lines().position(|l| l.contains("panicked at") || l.contains("panic in"));
        if let Some(at) = at {
            let shown: Vec<_> = text.lines().skip(at).take(12).collect();
            bail!("a panic in {}:\n{}", entry.path().display(), shown.join("\n"));
        }
    }
    Ok(())
}

/// Whether a process runs (a dead one that nobody collected does not).
pub fn running(pid: i32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists() && !crate::sweep::zombie(pid)
}

/// kill -9 of one process that we started, and waits for its end.
pub fn kill9(pid: i32) {
    if let Some(p) = rustix::process::Pid::from_raw(pid) {
        let _ = rustix::process::kill_process(p, rustix::process::Signal::KILL);
        let _ = until("a killed process ends", || !running(pid));
    }
}

fn collect_numbers(value: &serde_json::Value, into: &mut Vec<i32>) {
    match value {
        serde_json::Value::Number(n) => {
            into.extend(n.as_i64().and_then(|n| i32::try_from(n).ok()));
        }
        serde_json::Value::Array(items) => items.iter().for_each(|v| collect_numbers(v, into)),
        serde_json::Value::Object(map) => map.values().for_each(|v| collect_numbers(v, into)),
        _ => {}
    }
}

/// Error unless the two byte strings are equal; says where they part.
pub fn same(what: &str, found: &[u8], wanted: &[u8]) -> Result<()> {
    if found == wanted {
        return Ok(());
    }
    let at = found.iter().zip(wanted).position(|(a, b)| a != b);
    let at = at.unwrap_or(found.len().min(wanted.len()));
    bail!("{what}: {} bytes instead of {}, different from byte {at}", found.len(), wanted.len())
}
