//! `xtask guard`: outlives the process that started it, and clears up after it if it could not do so itself.
//!
//! Whoever starts checks or a bench starts a guard first and tells it at the end that all is cleared up. If
//! it is killed instead, or dies of a signal nobody reckoned with, the pipe between the two ends
//! without that word, and the guard sweeps. It is in a process group of its own, so that what a terminal or
//! a shell sends to the group of the one does not reach the other. Never does: touch anything but what
//! belongs to its scratch directory ([`crate::sweep`]).

use crate::sweep::{Scope, sweep, sweep_net, tag};
use anyhow::{Context, Result};
use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// What it is told at the end.
const CLEAR: &[u8] = b"clear\n";

#[derive(clap::Args)]
pub struct Watch {
    pub scratch: PathBuf,
    /// Process id of whom it watches
    pub run: u32,
    /// Leave the scratch directory
    #[arg(long)]
    pub keep: bool,
}

/// Sweeps when standard input ends without the word.
pub fn run(watch: &Watch) -> Result<bool> {
    let mut said = Vec::new();
    std::io::stdin().lock().read_to_end(&mut said)?;
    if said == CLEAR {
        return Ok(true);
    }
    // Its checks run in groups of their own, and are found by their tag like all they have started.
    for left in sweep(&Scope { dir: watch.scratch.clone(), tag: tag(&watch.scratch) }) {
        eprintln!("xtask {} was killed and left {left}", watch.run);
    }
    sweep_net(watch.run);
    if !watch.keep {
        let _ = std::fs::remove_dir_all(&watch.scratch);
    }
    Ok(false)
}

/// The guard of a scratch directory.
pub struct Guard(Child);

impl Guard {
    /// Watches over this process from now on.
    pub fn over(scratch: &Path, keep: bool) -> Result<Guard> {
        let mut cmd = Command::new(std::env::current_exe()?);
        cmd.arg("guard").arg(scratch).arg(std::process::id().to_string());
        if keep {
            cmd.arg("--keep");
        }
        let child = cmd.process_group(0).stdin(Stdio::piped()).stdout(Stdio::null()).spawn()?;
        Ok(Guard(child))
    }

    /// Nothing is left.
    pub fn clear(mut self) -> Result<()> {
        let mut pipe = self.0.stdin.take().context("the guard has no pipe")?;
        pipe.write_all(CLEAR)?;
        drop(pipe);
        self.0.wait()?;
        Ok(())
    }
}
