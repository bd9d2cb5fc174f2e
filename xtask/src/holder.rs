//! `xtask hold`: a process that has a file open and does with it what it is told, line by line.
//!
//! A check that starts processes while servers are gone or a client is stopped must not hold a file
//! of that mount open itself: between fork and exec the new process has it open too, and closing it
//! there is a FLUSH, which waits for what may only come after that process has started.

use crate::proc::kill;
use anyhow::{Context, Result, bail, ensure};
use std::fs::File;
use std::io::{BufRead, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

/// Bound on waiting for an answer, above all time-outs of a client; its length proves nothing.
const PATIENCE: Duration = Duration::from_secs(200);

#[derive(clap::Args)]
pub struct Hold {
    pub file: PathBuf,
    /// Make it, or cut it to nothing
    #[arg(long)]
    pub create: bool,
}

/// Opens the file, then does what the lines of standard input say; answers each with one line.
pub fn run(hold: &Hold) -> Result<bool> {
    let mut how = File::options();
    how.read(true).write(true).create(hold.create).truncate(hold.create);
    let file = how.open(&hold.file);
    answer(&file.as_ref().map(|_| ()))?;
    let Ok(file) = file else { return Ok(false) };
    for line in std::io::stdin().lock().lines() {
        answer(&obey(&hold.file, &file, &line?))?;
    }
    Ok(true)
}

fn obey(path: &Path, file: &File, line: &str) -> std::io::Result<()> {
    let words: Vec<&str> = line.split(' ').collect();
    let number = |n: usize| words.get(n).and_then(|w| w.parse::<u64>().ok()).unwrap_or(0);
    match words[0] {
        "write" => file.write_all_at(&vec![number(3) as u8; number(2) as usize], number(1)),
        "put" => obey(path, file, &line.replacen("put", "write", 1)).and_then(|()| file.sync_all()),
        "read" => file.read_exact_at(&mut vec![0; number(2) as usize], number(1)),
        // Of a name beside it, as the next.
        "cat" => std::fs::read(path.with_file_name(words[1])).map(|_| ()),
        "stat" => path.with_file_name(words[1]).symlink_metadata().map(|_| ()),
        "fsync" => file.sync_all(),
        "statfs" => Ok(rustix::fs::fstatvfs(file).map(|_| ())?),
        other => Err(std::io::Error::other(format!("no such word: {other}"))),
    }
}

fn answer<E: std::fmt::Display>(outcome: &Result<(), E>) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    match outcome {
        Ok(()) => writeln!(out, "ok")?,
        Err(e) => writeln!(out, "{e}")?,
    }
    out.flush()
}

/// Such a process; killed when dropped, and gone then: what it held is not in use any more.
pub struct Holder {
    child: Child,
    input: Option<ChildStdin>,
    answers: Receiver<String>,
}

impl Holder {
    /// Opens a file that is there.
    pub fn open(file: &Path) -> Result<Self> {
        let mut holder = Self::start(file, &[])?;
        holder.ok()?;
        Ok(holder)
    }

    /// Makes a file, or empties it.
    pub fn create(file: &Path) -> Result<Self> {
        let mut holder = Self::start(file, &["--create"])?;
        holder.ok()?;
        Ok(holder)
    }

    /// As the two before, without waiting until it is open.
    pub fn start(file: &Path, words: &[&str]) -> Result<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .arg("hold")
            .arg(file)
            .args(words)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let output = child.stdout.take().context("no output")?;
        let (send, answers) = channel();
        std::thread::spawn(move || {
            let lines = std::io::BufReader::new(output).lines();
            lines.map_while(Result::ok).try_for_each(|line| send.send(line))
        });
        Ok(Self { input: child.stdin.take(), child, answers })
    }

    /// Tells it what to do, without waiting.
    pub fn tell(&mut self, line: &str) -> Result<()> {
        let input = self.input.as_mut().context("no input")?;
        Ok(writeln!(input, "{line}")?)
    }

    /// That it has not answered yet.
    pub fn is_busy(&self) -> Result<()> {
        self.stays_busy(Duration::ZERO)
    }

    /// That it does not answer for so long; what it answers ends the waiting.
    pub fn stays_busy(&self, time: Duration) -> Result<()> {
        match self.answers.recv_timeout(time) {
            Err(RecvTimeoutError::Timeout) => Ok(()),
            Err(RecvTimeoutError::Disconnected) => bail!("the holder of a file ended"),
            Ok(answer) => bail!("the holder of a file answered already: {answer}"),
        }
    }

    /// Its next answer.
    pub fn answer(&mut self) -> Result<String> {
        match self.answers.recv_timeout(PATIENCE) {
            Ok(answer) => Ok(answer),
            Err(RecvTimeoutError::Timeout) => bail!("no answer within {PATIENCE:?}"),
            Err(RecvTimeoutError::Disconnected) => bail!("the holder of a file ended"),
        }
    }

    /// Its next answer, which has to be that it is done.
    pub fn ok(&mut self) -> Result<()> {
        let answer = self.answer()?;
        ensure!(answer == "ok", "the holder of a file was told: {answer}");
        Ok(())
    }

    /// Has it do something, to the end.
    pub fn does(&mut self, line: &str) -> Result<()> {
        self.tell(line)?;
        self.ok().with_context(|| line.to_owned())
    }

    /// Ends it by a signal, whatever it is doing, and waits until it is gone.
    pub fn end_by(mut self, signal: rustix::process::Signal) -> Result<()> {
        let pid =
            rustix::process::Pid::from_raw(self.child.id().cast_signed()).context("no pid")?;
        rustix::process::kill_process(pid, signal)?;
        crate::fs::until("a killed process ends", || matches!(self.child.try_wait(), Ok(Some(_))))
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        kill(&mut self.child);
    }
}
