//! Commands with a time limit. Each runs in a process group of its own, and the group is killed
//! when the limit is reached; output goes to memory and, shortened, to the check's log.

use anyhow::{Context, Result, bail};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Seconds a command may take unless it says otherwise.
pub const DEFAULT_LIMIT: u64 = 120;
/// Output kept of a command, in bytes; the rest is read and dropped.
const KEPT: usize = 64 << 20;
/// Lines of output shown of a command that failed.
const SHOWN: usize = 40;

/// A command about to run.
pub struct Cmd {
    inner: Command,
    limit: Duration,
    quiet: bool,
    input: Option<Vec<u8>>,
}

/// What a command left behind.
pub struct Out {
    pub status: ExitStatus,
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
    pub timed_out: bool,
    line: String,
}

impl Out {
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    pub fn errors(&self) -> String {
        String::from_utf8_lossy(&self.stderr).into_owned()
    }

    /// Both streams, for looking for a message.
    pub fn all(&self) -> String {
        format!("{}{}", self.text(), self.errors())
    }

    /// The output if the command succeeded, else an error that shows it.
    pub fn ok(self) -> Result<Self> {
        if self.timed_out {
            bail!("{}: time limit reached\n{}", self.line, self.tail());
        }
        if !self.status.success() {
            bail!("{}: {}\n{}", self.line, self.status, self.tail());
        }
        Ok(self)
    }

    /// The output if the command ended by itself, not by a signal, with a failure.
    pub fn refused(self) -> Result<Self> {
        if self.timed_out {
            bail!("{}: hangs instead of refusing\n{}", self.line, self.tail());
        }
        if self.status.success() {
            bail!("{}: succeeded, but had to be refused\n{}", self.line, self.tail());
        }
        if let Some(signal) = self.status.signal() {
            bail!("{}: killed by signal {signal}\n{}", self.line, self.tail());
        }
        let all = self.all();
        if self.status.code() == Some(101) || all.contains("panicked at") {
            bail!("{}: panicked\n{}", self.line, self.tail());
        }
        if all.trim().is_empty() {
            bail!("{}: refused without a word ({})", self.line, self.status);
        }
        Ok(self)
    }

    pub fn tail(&self) -> String {
        let all = self.all();
        let lines: Vec<_> = all.lines().collect();
        lines[lines.len().saturating_sub(SHOWN)..].join("\n")
    }
}

impl Cmd {
    pub fn new(program: impl AsRef<OsStr>) -> Self {
        let mut inner = Command::new(program);
        inner.process_group(0);
        Self { inner, limit: Duration::from_secs(DEFAULT_LIMIT), quiet: false, input: None }
    }

    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.inner.arg(arg);
        self
    }

    pub fn args<S: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = S>) -> Self {
        self.inner.args(args);
        self
    }

    pub fn env(mut self, key: &str, value: impl AsRef<OsStr>) -> Self {
        self.inner.env(key, value);
        self
    }

    pub fn env_remove(mut self, key: &str) -> Self {
        self.inner.env_remove(key);
        self
    }

    pub fn cwd(mut self, dir: impl AsRef<Path>) -> Self {
        self.inner.current_dir(dir);
        self
    }

    /// Time limit in seconds.
    pub fn limit(mut self, seconds: u64) -> Self {
        self.limit = Duration::from_secs(seconds);
        self
    }

    /// Do not log the command.
    pub fn quiet(mut self) -> Self {
        self.quiet = true;
        self
    }

    /// Bytes for its standard input (empty otherwise).
    pub fn input(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.input = Some(bytes.into());
        self
    }

    fn line(&self) -> String {
        let mut line = self.inner.get_program().to_string_lossy().into_owned();
        for arg in self.inner.get_args() {
            line.push(' ');
            line.push_str(&arg.to_string_lossy());
        }
        if line.len() > 400 {
            line.truncate(line.floor_char_boundary_(400));
            line.push_str(" ...");
        }
        line
    }

    /// Starts it with all output in the file `log`, without waiting.
    pub fn start(mut self, log: &Path) -> Result<Running> {
        let line = self.line();
        println!("start {line}");
        let out = std::fs::OpenOptions::new().create(true).append(true).open(log)?;
        let err = out.try_clone()?;
        self.inner.stdin(Stdio::null()).stdout(out).stderr(err);
        let child = self.inner.spawn().with_context(|| line.clone())?;
        Ok(Running { child, line })
    }

    /// Runs it to its end or its limit.
    pub fn run(mut self) -> Result<Out> {
        let line = self.line();
        if !self.quiet {
            println!("run   {line}");
        }
        self.inner.stdin(if self.input.is_some() { Stdio::piped() } else { Stdio::null() });
        self.inner.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = self.inner.spawn().with_context(|| line.clone())?;
        if let (Some(input), Some(mut pipe)) = (self.input.take(), child.stdin.take()) {
            // A program that closes its input early is judged by its status.
            std::thread::spawn(move || std::io::Write::write_all(&mut pipe, &input));
        }
        let stdout = drain(child.stdout.take());
        let stderr = drain(child.stderr.take());
        let (status, timed_out) = wait(&mut child, self.limit)?;
        // A daemon that kept the pipe open must not hold us: take what has come within a bound.
        let out = Out { status, stdout: stdout(), stderr: stderr(), timed_out, line };
        if !self.quiet && (timed_out || !out.status.success()) {
            println!("      -> {}{}", out.status, if timed_out { " (time limit)" } else { "" });
        }
        Ok(out)
    }

    /// Runs it and demands success.
    pub fn ok(self) -> Result<Out> {
        self.run()?.ok()
    }
}

/// A process that runs beside the check; killed when dropped.
pub struct Running {
    pub child: Child,
    line: String,
}

impl Running {
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn alive(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Waits up to `seconds`; `None` when it still runs.
    pub fn wait(&mut self, seconds: u64) -> Result<Option<ExitStatus>> {
        let end = Instant::now() + Duration::from_secs(seconds);
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(Some(status));
            }
            if Instant::now() > end {
                return Ok(None);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Waits up to `seconds` and demands success.
    pub fn ok(&mut self, seconds: u64) -> Result<()> {
        match self.wait(seconds)? {
            Some(status) if status.success() => Ok(()),
            Some(status) => bail!("{}: {status}", self.line),
            None => bail!("{}: still runs after {seconds} s", self.line),
        }
    }

    pub fn signal(&self, signal: rustix::process::Signal) {
        if let Some(pid) = rustix::process::Pid::from_raw(self.child.id().cast_signed()) {
            let _ = rustix::process::kill_process(pid, signal);
        }
    }

    /// kill -9, and collects it.
    pub fn kill(&mut self) {
        kill(&mut self.child);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.alive() {
            kill_group(self.child.id());
            let _ = self.wait(5);
        }
    }
}

/// Whether a child ends within that time. Does not collect it.
pub fn ends(child: &Child, limit: Duration) -> Result<bool> {
    let pid = Pid::from_child(child);
    let fd = pidfd_open(pid, PidfdFlags::empty())?;
    let end = Instant::now() + limit;
    loop {
        let left = Timespec::try_from(end.saturating_duration_since(Instant::now()))?;
        match poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&left)) {
            Ok(ended) => return Ok(ended > 0),
            Err(Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
}

/// kill -9 of a child, and collects it: what it held is not in use any more. One that waits for servers that are
/// away is left after a while.
pub fn kill(child: &mut Child) {
    let _ = child.kill();
    if ends(child, COLLECTED).unwrap_or(false) {
        let _ = child.wait();
    }
}

/// kill -9 of a process group that we started.
pub fn kill_group(leader: u32) {
    if let Some(pid) = rustix::process::Pid::from_raw(leader.cast_signed()) {
        let _ = rustix::process::kill_process_group(pid, rustix::process::Signal::KILL);
    }
}

/// How long a process that was killed may take to be gone.
const GONE: Duration = Duration::from_secs(5);
/// How long one is waited for that is to be collected.
const COLLECTED: Duration = Duration::from_secs(10);

fn wait(child: &mut Child, limit: Duration) -> Result<(ExitStatus, bool)> {
    if ends(child, limit)? {
        return Ok((child.wait()?, false));
    }
    kill_group(child.id());
    // Stuck in the kernel even against SIGKILL: the sweep will abort its mount.
    let gone = ends(child, GONE)?;
    Ok((if gone { child.wait()? } else { ExitStatus::from_raw(9) }, true))
}

/// Reads a pipe on a thread; the returned function takes what came, waiting at most a second
/// after the process has ended.
/// Reads all of a pipe beside its process; what came is had in the end.
pub fn drain(pipe: Option<impl Read + Send + 'static>) -> impl FnOnce() -> Vec<u8> {
    let (send, receive) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let Some(mut pipe) = pipe else { return };
        let mut buffer = vec![0u8; 1 << 16];
        while let Ok(n) = pipe.read(&mut buffer) {
            if n == 0 || send.send(buffer[..n].to_vec()).is_err() {
                return;
            }
        }
    });
    move || {
        let mut all = Vec::new();
        while let Ok(piece) = receive.recv_timeout(Duration::from_secs(1)) {
            if all.len() < KEPT {
                all.extend_from_slice(&piece);
            }
        }
        all
    }
}

trait Boundary {
    fn floor_char_boundary_(&self, at: usize) -> usize;
}

impl Boundary for String {
    fn floor_char_boundary_(&self, at: usize) -> usize {
        (0..=at).rev().find(|&i| self.is_char_boundary(i)).unwrap_or(0)
    }
}
