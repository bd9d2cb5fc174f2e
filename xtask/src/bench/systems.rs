//! What is measured: the local file system, bindfs over it, and ours on it; and where the kernel's
//! share is the question, one that does nothing.

use super::table::Table;
use crate::cx::Cx;
use crate::fs::Fs;
use crate::proc::Cmd;
use crate::where_;
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

/// A file system under measurement.
pub enum System {
    Local {
        dir: PathBuf,
    },
    /// `mark`: processor seconds its daemon had used when the measuring began; so for ours.
    Bindfs {
        dir: PathBuf,
        back: PathBuf,
        pid: i32,
        mark: f64,
    },
    Ours {
        fs: Box<Fs>,
        dir: PathBuf,
        mark: f64,
    },
    /// A FUSE file system that does nothing, on our session layer: what the kernel costs.
    Floor {
        dir: PathBuf,
        daemon: Child,
        mark: f64,
    },
}

/// The system that only workloads measured against it run on.
pub const FLOOR: &str = "floor";

impl System {
    pub fn all(cx: &Cx) -> Result<Vec<Self>> {
        let local = cx.dir("local")?;
        let (back, bound) = (cx.dir("bindfs-back")?, cx.dir("bindfs")?);
        start_bindfs(&back, &bound)?;
        let fs = Fs::new(cx, "ours")?;
        let dir = fs.striped("work", 4, 1 << 20)?;
        let pid = bindfs_pid(&bound);
        Ok(vec![
            Self::Local { dir: local },
            Self::Bindfs { dir: bound, back, pid, mark: 0.0 },
            Self::Ours { fs: Box::new(fs), dir, mark: 0.0 },
        ])
    }

    /// The one that does nothing, built first.
    pub fn floor(cx: &Cx) -> Result<Self> {
        let profile = crate::steps::profile(cx.set.release);
        let build = cx.cmd("cargo").args(["build", "--profile", profile, "-p", "pinstripe-fuse"]);
        let build = build.args(["--example", FLOOR, "--target-dir"]).arg(where_::target());
        build.cwd(where_::root()).limit(1490).ok()?;
        let dir = cx.dir(FLOOR)?;
        let program = where_::target().join(profile).join("examples").join(FLOOR);
        let mut command = Command::new(program);
        command.arg(&dir).arg("off").stdin(Stdio::piped()).stdout(Stdio::null());
        let daemon = command.spawn().context("starting the file system that does nothing")?;
        let system = Self::Floor { dir: dir.clone(), daemon, mark: 0.0 };
        crate::fs::until("it is mounted", || dir.join("f0").exists())?;
        Ok(system)
    }

    pub fn name(&self) -> &'static str {
        match self {
            Self::Local { .. } => "ext4",
            Self::Bindfs { .. } => "bindfs",
            Self::Ours { .. } => "pinstripe",
            Self::Floor { .. } => FLOOR,
        }
    }

    /// Where workloads work.
    pub fn dir(&self) -> &Path {
        match self {
            Self::Local { dir }
            | Self::Bindfs { dir, .. }
            | Self::Ours { dir, .. }
            | Self::Floor { dir, .. } => dir,
        }
    }

    /// Begins to count the processor's time.
    pub fn mark(&mut self) {
        let now = self.cpu();
        match self {
            Self::Local { .. } => {}
            Self::Bindfs { mark, .. } | Self::Ours { mark, .. } | Self::Floor { mark, .. } => {
                *mark = now;
            }
        }
    }

    /// Processor seconds its daemons used since the mark.
    pub fn spent(&self) -> f64 {
        match self {
            Self::Local { .. } => 0.0,
            Self::Bindfs { mark, .. } | Self::Ours { mark, .. } | Self::Floor { mark, .. } => {
                self.cpu() - mark
            }
        }
    }

    /// Processor seconds its daemons have used.
    fn cpu(&self) -> f64 {
        match self {
            Self::Local { .. } => 0.0,
            Self::Bindfs { pid, .. } => processor_seconds(*pid),
            Self::Floor { daemon, .. } => processor_seconds(daemon.id().cast_signed()),
            Self::Ours { fs, .. } => {
                fs.pids().unwrap_or_default().into_iter().map(processor_seconds).sum()
            }
        }
    }

    /// Forgets everything cached: by the kernel, and by daemons, which start anew; the time their
    /// start took does not count.
    pub fn cold(&mut self) -> Result<()> {
        match self {
            Self::Local { .. } | Self::Floor { .. } => {}
            Self::Bindfs { dir, back, pid, .. } => {
                Cmd::new("umount").arg(&*dir).quiet().ok()?;
                start_bindfs(back, dir)?;
                *pid = bindfs_pid(dir);
            }
            Self::Ours { fs, .. } => {
                fs.down()?;
                fs.up()?;
            }
        }
        std::fs::write("/proc/sys/vm/drop_caches", "3")?;
        self.mark();
        Ok(())
    }

    /// Ends it; of ours, start-up and memory go into the table.
    pub fn end(self, cx: &Cx, table: &mut Table) -> Result<()> {
        match self {
            Self::Local { .. } => Ok(()),
            Self::Bindfs { dir, .. } => Cmd::new("umount").arg(dir).ok().map(|_| ()),
            Self::Floor { mut daemon, .. } => {
                // Its input ends, and so does it.
                drop(daemon.stdin.take());
                daemon.wait()?;
                Ok(())
            }
            Self::Ours { mut fs, .. } => {
                fs.down()?;
                let start = Instant::now();
                fs.up()?;
                table.fact("up on old data to usable mount, s", start.elapsed().as_secs_f64());
                fs.down()?;
                drop(fs);
                let start = Instant::now();
                let mut fresh = Fs::new(cx, "fresh")?;
                table.fact("up on new data to usable mount, s", start.elapsed().as_secs_f64());
                let pids = fresh.pids()?;
                let memory: f64 = pids.into_iter().map(resident_mib).sum();
                table.fact("idle memory of all its processes, MiB", memory);
                fresh.down()
            }
        }
    }
}

fn start_bindfs(back: &Path, at: &Path) -> Result<()> {
    Cmd::new("bindfs").args(["--multithreaded", "-o", "allow_other"]).arg(back).arg(at).ok()?;
    Ok(())
}

/// The bindfs of ours that serves `at`.
fn bindfs_pid(at: &Path) -> i32 {
    let wanted = at.as_os_str().as_encoded_bytes();
    let Ok(entries) = std::fs::read_dir("/proc") else { return 0 };
    entries
        .flatten()
        .filter_map(|e| e.file_name().to_str()?.parse().ok())
        .find(|pid: &i32| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let mut words = line.split(|b| *b == 0);
            words.next().is_some_and(|w| w.ends_with(b"bindfs")) && words.any(|w| w == wanted)
        })
        .unwrap_or(0)
}

/// User and system time of a process, all threads.
pub fn processor_seconds(pid: i32) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let rest = stat.rsplit(')').next().unwrap_or_default();
    let ticks: u64 =
        rest.split_whitespace().skip(11).take(2).filter_map(|w| w.parse::<u64>().ok()).sum();
    ticks as f64 / rustix::param::clock_ticks_per_second() as f64
}

fn resident_mib(pid: i32) -> f64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:"));
    let kib = line.and_then(|l| l.split_whitespace().next()?.parse::<f64>().ok());
    kib.unwrap_or(0.0) / 1024.0
}
