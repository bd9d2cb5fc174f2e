//! `xtask lock`: a process that takes a lock, says so, and holds it until its input ends. Record
//! locks belong to processes, so testing them takes several.

use anyhow::{Context, Result, bail};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

/// What lock is wanted.
#[derive(clap::Args)]
pub struct Lock {
    pub file: PathBuf,
    /// read or write
    #[arg(long, default_value = "write")]
    pub kind: String,
    #[arg(long, default_value_t = 0)]
    pub start: i64,
    /// 0: to the end
    #[arg(long, default_value_t = 0)]
    pub length: i64,
    /// Wait until it is free, else fail with exit code 1
    #[arg(long)]
    pub wait: bool,
    /// flock instead of a record lock
    #[arg(long)]
    pub flock: bool,
    /// Say who holds a lock in the way, take none
    #[arg(long)]
    pub ask: bool,
}

/// Takes the lock, writes `held` and waits for the end of standard input.
pub fn run(lock: &Lock) -> Result<bool> {
    let file = File::options().read(true).write(true).open(&lock.file)?;
    if lock.ask {
        println!("{}", holder(&file, lock)?);
        return Ok(true);
    }
    let taken = if lock.flock { take_flock(&file, lock) } else { take_record(&file, lock) };
    match taken {
        Ok(()) => {}
        Err(e) => {
            println!("refused {}", e.raw_os_error().unwrap_or(0));
            return Ok(false);
        }
    }
    println!("held");
    std::io::stdout().flush()?;
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(true)
}

fn take_flock(file: &File, lock: &Lock) -> std::io::Result<()> {
    use rustix::fs::FlockOperation as Op;
    let operation = match (lock.kind.as_str(), lock.wait) {
        ("read", true) => Op::LockShared,
        ("read", false) => Op::NonBlockingLockShared,
        (_, true) => Op::LockExclusive,
        (_, false) => Op::NonBlockingLockExclusive,
    };
    Ok(rustix::fs::flock(file, operation)?)
}

fn wanted(lock: &Lock) -> libc::flock {
    let kind = if lock.kind == "read" { libc::F_RDLCK } else { libc::F_WRLCK };
    // SAFETY: all zeros is a valid `flock`, a plain structure of numbers.
    let mut request: libc::flock = unsafe { std::mem::zeroed() };
    request.l_type = kind as i16;
    request.l_whence = libc::SEEK_SET as i16;
    request.l_start = lock.start;
    request.l_len = lock.length;
    request
}

fn take_record(file: &File, lock: &Lock) -> std::io::Result<()> {
    let request = wanted(lock);
    let command = if lock.wait { libc::F_SETLKW } else { libc::F_SETLK };
    // SAFETY: the descriptor is open and `request` outlives the call.
    match unsafe { libc::fcntl(file.as_raw_fd(), command, &raw const request) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// `free`, or the process that holds a lock in the way.
fn holder(file: &File, lock: &Lock) -> Result<String> {
    let mut request = wanted(lock);
    // SAFETY: the descriptor is open and `request` outlives the call.
    if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETLK, &raw mut request) } != 0 {
        return Err(std::io::Error::last_os_error().into());
    }
    if request.l_type == libc::F_UNLCK as i16 {
        return Ok("free".into());
    }
    Ok(format!("{} {} {}", request.l_pid, request.l_start, request.l_len))
}

/// A process that holds, or waits for, a lock; ended when dropped.
pub struct Locker {
    child: std::process::Child,
    output: PathBuf,
}

impl Locker {
    /// Starts one; `words` are options of `xtask lock`.
    pub fn start(file: &Path, output: PathBuf, words: &[&str]) -> Result<Self> {
        let out = File::create(&output)?;
        let child = std::process::Command::new(std::env::current_exe()?)
            .arg("lock")
            .arg(file)
            .args(words)
            .stdin(std::process::Stdio::piped())
            .stdout(out)
            .spawn()?;
        Ok(Self { child, output })
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn held(&self) -> bool {
        std::fs::read_to_string(&self.output).is_ok_and(|t| t.starts_with("held"))
    }

    /// Waits until it has the lock.
    pub fn until_held(&mut self) -> Result<()> {
        let mut ended = false;
        crate::fs::until("the lock is held", || {
            ended = !matches!(self.child.try_wait(), Ok(None));
            self.held() || ended
        })?;
        if self.held() {
            return Ok(());
        }
        bail!("no lock: {}", std::fs::read_to_string(&self.output).unwrap_or_default())
    }

    /// Whether it sleeps in the kernel, waiting for its lock.
    pub fn waits(&self) -> bool {
        let stat =
            std::fs::read_to_string(format!("/proc/{}/stat", self.pid())).unwrap_or_default();
        let state = stat.rsplit(')').next().unwrap_or_default().trim_start().chars().next();
        let call = std::fs::read_to_string(format!("/proc/{}/syscall", self.pid()));
        let number = call.ok().and_then(|c| c.split(' ').next()?.parse::<i64>().ok());
        state == Some('S') && matches!(number, Some(libc::SYS_fcntl | libc::SYS_flock))
    }

    /// Lets go of the lock by ending.
    pub fn release(mut self) -> Result<()> {
        drop(self.child.stdin.take());
        let mut ended = false;
        crate::fs::until("the holder ends", || {
            ended = matches!(self.child.try_wait(), Ok(Some(_)));
            ended
        })
    }

    /// Ends it with a signal, also while it waits, and collects it.
    pub fn signal(mut self, signal: rustix::process::Signal) -> Result<()> {
        let pid = rustix::process::Pid::from_raw(self.pid().cast_signed()).context("no pid")?;
        rustix::process::kill_process(pid, signal)?;
        crate::fs::until("the signalled process ends", || {
            matches!(self.child.try_wait(), Ok(Some(_)))
        })
    }
}

impl Drop for Locker {
    fn drop(&mut self) {
        crate::proc::kill(&mut self.child);
    }
}
