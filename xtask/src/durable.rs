//! The lab's durable writer and checker: what was synced has to be there.

use crate::cx::Cx;
use crate::fs::until;
use crate::proc::Running;
use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};

/// A writer at work.
pub struct Writer {
    running: Running,
    pub log: PathBuf,
    output: PathBuf,
}

impl Writer {
    /// Starts one in `dir`; it logs what it synced outside the mount.
    pub fn start(cx: &Cx, dir: &Path, seed: u64) -> Result<Self> {
        let log = cx.scratch().join(format!("durable-{seed}.log"));
        let output = cx.scratch().join(format!("durable-{seed}.out"));
        let running = cx
            .lab("durable-write")
            .arg("--dir")
            .arg(dir)
            .arg("--log")
            .arg(&log)
            .args(["--seed", &seed.to_string(), "--seconds", "600", "--grace", "5"])
            .start(&output)?;
        Ok(Self { running, log, output })
    }

    /// Waits until `steps` more steps were synced.
    pub fn progress(&mut self, steps: usize) -> Result<()> {
        let before = done(&self.log);
        let mut ended = false;
        until("the writer makes progress", || {
            ended = !self.running.alive();
            ended || done(&self.log) >= before + steps
        })?;
        let said = || std::fs::read_to_string(&self.output).unwrap_or_default();
        ensure!(!ended, "the writer ended: {}", said());
        Ok(())
    }

    /// Ends it; it may have stopped by itself after an error of the file system, but not have
    /// seen anything odd.
    pub fn end(self) -> Result<PathBuf> {
        self.end_but(|_| false)
    }

    /// The same after an MDS was killed under a client that lives: until clients replay, names it
    /// made and did not sync may be gone, which is no error but to whoever goes on with them.
    pub fn end_without_replay(self) -> Result<PathBuf> {
        self.end_but(|odd| ["(os error 2)", "(os error 116)"].iter().any(|e| odd.ends_with(e)))
    }

    fn end_but(mut self, passes: impl Fn(&str) -> bool) -> Result<PathBuf> {
        if let Some(status) = self.running.wait(0)? {
            let said = std::fs::read_to_string(&self.output).unwrap_or_default();
            // What a mapping reads from a file system that is gone.
            let fault = status.signal() == Some(Signal::BUS.as_raw());
            let mut odd = said.lines().filter(|l| l.trim_start().starts_with("ODD")).peekable();
            let told = odd.peek().is_some() && odd.all(|l| passes(l.trim_end()));
            ensure!(
                status.success() || fault || told,
                "the writer saw something odd: {said} ({status})"
            );
        }
        self.running.kill();
        Ok(self.log.clone())
    }
}

/// Steps the log calls done.
fn done(log: &Path) -> usize {
    std::fs::read_to_string(log).map_or(0, |text| text.matches("Done").count())
}

/// Checks what `log` says was synced against what is in `dir`.
pub fn check(cx: &Cx, dir: &Path, log: &Path, more: &[&str]) -> Result<()> {
    cx.lab("durable-check")
        .arg("--dir")
        .arg(dir)
        .arg("--log")
        .arg(log)
        .args(more)
        .limit(200)
        .ok()
        .with_context(|| format!("{} in {}", log.display(), dir.display()))
        .map(|_| ())
}
