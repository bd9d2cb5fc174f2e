//! `mcp --resume` onto a mount whose servers, and then whose own process, are killed (-9) under it.
//!
//! Compared with the source itself: byte for byte, modes and times.

use crate::cx::Cx;
use crate::fs::{kill9, until};
use crate::plan::{Check, Need};
use crate::proc::{Cmd, Running};
use crate::random::Random;
use crate::servers::{Cluster, Transport};
use anyhow::{Context, Result, ensure};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;

pub const CHECK: Check = Check {
    name: "mcp-lost",
    about: "servers, and the mount itself, are killed under mcp: it goes on, or --resume does",
    needs: &[Need::Binary, Need::Apt("fuse3"), Need::Apt("rsync"), Need::Root],
    limit: 600,
    weight: 1,
    slow: false,
    run,
};

/// Bytes of the large file that is being copied when something is killed.
const LARGE: usize = 192 << 20;
/// Files of its own size each, from inline ones to several chunks.
const SMALL: usize = 300;
/// Seconds in which a copy is done, with all restarts.
const PATIENCE: u64 = 120;

fn run(cx: &Cx) -> Result<()> {
    let source = cx.dir("source")?;
    fill(&source, cx.seed())?;
    let mut cluster = Cluster::new(cx, "cluster", Transport::Unix, 2)?;
    let mnt = cluster.mount("mnt")?;
    let job = |name: &str| Job {
        mcp: cx.set.pinstripe.with_file_name("mcp"),
        journal: cx.scratch().join(name),
        source: source.clone(),
        copy: mnt.join(name),
    };
    let all: Vec<String> = cluster.servers.iter().map(|s| s.name.clone()).collect();
    let osts = ["ost0", "ost1"].map(str::to_owned);
    for (n, (what, victims)) in [("the OSTs", &osts[..]), ("all servers", &all)].iter().enumerate()
    {
        let name = format!("servers-{n}");
        cx.case(&format!("{what} are killed and start again"), || {
            let ended = servers(&mut cluster, victims, &job(&name))?;
            cx.note(format!("{what}: the copy ended with {ended}"));
            Ok(())
        });
    }
    cx.case("the mount is killed and mounted again", || {
        mount(&mut cluster, &mnt, &job("mount"), cx.seed())
    });
    cx.case("stop and fsck", || cluster.stop_and_check());
    Ok(())
}

/// What of a copy must be the source's.
#[derive(Clone, Copy)]
enum Like {
    All,
    /// All but times: a time that was set while metadata servers stopped may become that of the data.
    ButTimes,
}

/// One copy and where it stands.
struct Job {
    mcp: PathBuf,
    journal: PathBuf,
    source: PathBuf,
    copy: PathBuf,
}

impl Job {
    fn command(&self) -> Cmd {
        let resume = format!("--resume={}", self.journal.display());
        Cmd::new(&self.mcp).args(["-a", &resume, "-T"]).arg(&self.source).arg(&self.copy)
    }

    /// Starts it and waits until it is amid the large file.
    fn begin(&self, threshold: u64) -> Result<Running> {
        let mut running = self.command().start(&self.journal.with_extension("log"))?;
        let large = self.copy.join("large");
        until("the copy has begun", || {
            std::fs::metadata(&large).is_ok_and(|m| m.len() >= threshold) || !running.alive()
        })?;
        Ok(running)
    }

    /// The same command once more ends well and leaves the source's tree and no journal.
    fn finish(&self, like: Like) -> Result<()> {
        self.command().limit(PATIENCE).ok()?;
        self.is_whole(like)
    }

    fn is_whole(&self, like: Like) -> Result<()> {
        let slash = |dir: &Path| format!("{}/", dir.display());
        let found = Cmd::new("rsync")
            .args(["-naHi", "--checksum", "--delete"])
            .args(matches!(like, Like::ButTimes).then_some("--no-times"))
            .args([slash(&self.source), slash(&self.copy)])
            .limit(PATIENCE)
            .ok()?
            .text();
        ensure!(found.is_empty(), "the copy differs:\n{found}");
        ensure!(!self.journal.exists(), "the journal of a complete copy is still there");
        Ok(())
    }

    /// What has its source's size has its bytes.
    fn nothing_looks_complete(&self) -> Result<()> {
        for entry in std::fs::read_dir(&self.source)? {
            let entry = entry?;
            let Ok(bytes) = std::fs::read(self.copy.join(entry.file_name())) else { continue };
            let wanted = std::fs::read(entry.path())?;
            let name = entry.file_name();
            ensure!(bytes.len() != wanted.len() || bytes == wanted, "{name:?} only looks complete");
        }
        Ok(())
    }
}

fn fill(dir: &Path, seed: u64) -> Result<()> {
    let mut random = Random::new(seed);
    let block = random.bytes(1 << 20);
    let large = File::create(dir.join("large"))?;
    for at in (0..LARGE).step_by(block.len()) {
        let mut own = block.clone();
        own[..8].copy_from_slice(&(at as u64).to_le_bytes());
        large.write_all_at(&own, at as u64)?;
    }
    for n in 0..SMALL {
        let bytes = random.bytes(1 + n * n * 8);
        std::fs::write(dir.join(format!("small-{n}")), bytes)?;
    }
    Ok(())
}

/// Without metadata servers among them the copy itself must end well; with them what they had not
/// committed may be told as lost, and the same command once more makes it whole.
fn servers(cluster: &mut Cluster, names: &[String], job: &Job) -> Result<ExitStatus> {
    let mut running = job.begin(8 << 20)?;
    ensure!(running.alive(), "the copy had ended before anything was killed");
    let victims = names.iter().map(|name| cluster.find(name)).collect::<Result<Vec<_>>>()?;
    victims.iter().for_each(|&at| cluster.kill(at));
    for &at in &victims {
        cluster.start(at)?;
    }
    let ended = running.wait(PATIENCE)?.context("the copy goes on for ever")?;
    let lossy = names.iter().any(|name| name.starts_with("mdt"));
    let like = if lossy { Like::ButTimes } else { Like::All };
    if ended.success() {
        job.is_whole(like)?;
        return Ok(ended);
    }
    ensure!(lossy, "the copy failed: {ended}");
    job.nothing_looks_complete()?;
    job.finish(like)?;
    Ok(ended)
}

fn mount(cluster: &mut Cluster, mnt: &Path, job: &Job, seed: u64) -> Result<()> {
    let from = 1 + Random::new(seed).below(LARGE as u64 / 2);
    let mut running = job.begin(from)?;
    ensure!(running.alive(), "the copy had ended before anything was killed");
    kill9(cluster.mount_pid(mnt)?);
    let ended = running.wait(PATIENCE)?.context("the copy does not end with its mount")?;
    ensure!(ended.code() == Some(1), "without the mount the copy ended with {ended}");
    let told = std::fs::read_to_string(job.journal.with_extension("log"))?;
    let (name, reason) = (job.copy.display().to_string(), "Transport endpoint is not connected");
    ensure!(told.contains(&name) && told.contains(reason), "it says only {told:?}");
    Cmd::new("umount").arg("-l").arg(mnt).ok()?;
    cluster.mount_at(mnt, &[])?;
    job.nothing_looks_complete()?;
    job.finish(Like::All)
}
