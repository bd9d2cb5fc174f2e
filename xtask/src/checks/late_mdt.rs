//! An MDT that does not answer for several times as long as a request waits: what had been answered before is there when it
//! does, for everybody.

use super::hung_servers::{pids, signal};
use super::kill_servers::LONG;
use crate::cx::Cx;
use crate::fs::{same, until};
use crate::holder::Holder;
use crate::proc::Cmd;
use crate::servers::{Cluster, Transport};
use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// What a request of the one who works has, s.
const REQUEST: u64 = 2;
/// For how long the MDT does not answer.
const AWAY: Duration = Duration::from_secs(4 * REQUEST);
/// Files that are made meanwhile.
const MADE: usize = 300;

/// It is killed, and started again; the mount that works is alone.
pub fn killed(cx: &Cx) -> Result<()> {
    let mut cluster = Cluster::new(cx, "late", Transport::Tcp, 2)?;
    let mdt = cluster.find("mdt0")?;
    let works = cluster.mount_with("works", &format!("request_timeout={REQUEST}"))?;
    let (dir, mut synced) = begin(&works, "killed")?;
    cluster.kill(mdt);
    let made = work(&dir, &mut synced);
    cluster.start(mdt)?;
    made.context("while the MDT is away")?;
    until("what is synced is durable", || synced.does("fsync").is_ok())?;
    let asks = cluster.mount("asks")?;
    for mnt in [&works, &asks] {
        all_there(&mnt.join("killed"))?;
    }
    drop(synced);
    cluster.unmount(&asks)?;
    cluster.unmount(&works)?;
    cluster.stop_and_check()
}

/// It is not there when the mount ends: who ends it hears of the loss, and of nothing else.
pub fn unmounted(cx: &Cx) -> Result<()> {
    let mut cluster = Cluster::new(cx, "gone", Transport::Tcp, 1)?;
    let mdt = cluster.find("mdt0")?;
    let mnt = cluster.mount_with("works", &format!("request_timeout={REQUEST}"))?;
    // In a directory that was made here all names are known.
    std::fs::create_dir(mnt.join("d"))?;
    std::fs::write(mnt.join("d/stored"), "stored")?;
    Cmd::new("sync").arg("-f").arg(&mnt).ok()?;
    cluster.kill(mdt);
    std::fs::write(mnt.join("d/lost"), "lost")?;
    let down = cx.pinstripe().arg("down").arg(&mnt).run()?.refused()?.errors();
    ensure!(down.contains("is lost"), "`down` said: {down}");
    cluster.start(mdt)?;
    let mnt = cluster.mount("works")?;
    same("what was synced", &std::fs::read(mnt.join("d/stored"))?, b"stored")?;
    ensure!(!mnt.join("d/lost").exists(), "nothing was lost");
    cluster.unmount(&mnt)?;
    cluster.stop_and_check()
}

/// It is not there when a mount ends of which it has all: nothing is waited for.
pub fn unmounted_idle(cx: &Cx) -> Result<()> {
    let mut cluster = Cluster::new(cx, "idle", Transport::Tcp, 1)?;
    let mdt = cluster.find("mdt0")?;
    let mnt = cluster.mount("idle")?;
    std::fs::write(mnt.join("stored"), "stored")?;
    Cmd::new("sync").arg("-f").arg(&mnt).ok()?;
    cluster.kill(mdt);
    cx.pinstripe().arg("down").arg(&mnt).ok()?;
    cluster.start(mdt)?;
    let mnt = cluster.mount("idle")?;
    same("what was synced", &std::fs::read(mnt.join("stored"))?, b"stored")?;
    cluster.unmount(&mnt)?;
    cluster.stop_and_check()
}

/// Its process is stopped, and goes on; another mount asks meanwhile for what was done.
pub fn stopped(cluster: &mut Cluster) -> Result<()> {
    let works = cluster.mount_with("works", &format!("request_timeout={REQUEST}"))?;
    let asks = cluster.mount_with("asks", LONG)?;
    // First: who works walks through the root, which nobody must want back meanwhile.
    let mut asker = Holder::create(&asks.join("asker"))?;
    let (dir, mut synced) = begin(&works, "stopped")?;
    let mdt = pids(cluster, &["mdt0"])?;
    signal(&mdt, Signal::STOP)?;
    let busy = work(&dir, &mut synced).context("while the MDT is away").and_then(|()| {
        asker.tell(&format!("cat stopped/f{}", MADE - 1))?;
        asker.stays_busy(AWAY).context("who asks without an MDT")
    });
    signal(&mdt, Signal::CONT)?;
    busy?;
    asker.ok().context("who asked without an MDT")?;
    until("what is synced is durable", || synced.does("fsync").is_ok())?;
    for mnt in [&works, &asks] {
        all_there(&mnt.join("stopped"))?;
    }
    drop((synced, asker));
    cluster.unmount(&asks)?;
    cluster.unmount(&works)
}

/// A directory, and somebody who keeps a file of it open.
fn begin(mnt: &Path, name: &str) -> Result<(PathBuf, Holder)> {
    let dir = mnt.join(name);
    std::fs::create_dir(&dir)?;
    let mut synced = Holder::create(&dir.join("synced"))?;
    synced.does("put 0 3000 1")?;
    Ok((dir, synced))
}

fn content(n: usize) -> Vec<u8> {
    vec![n as u8; 100 + n]
}

/// What one mount does by itself; whoever wants it stored is told that nobody answers.
fn work(dir: &Path, synced: &mut Holder) -> Result<()> {
    let begun = Instant::now();
    for n in 0..MADE {
        let made = dir.join(format!("f{n}"));
        std::fs::write(&made, content(n))?;
        if n % 3 == 0 {
            std::fs::rename(&made, dir.join(format!("renamed{n}")))?;
        }
    }
    synced.does("write 0 3000 2")?;
    while begun.elapsed() < AWAY {
        synced.tell("fsync")?;
        let answer = synced.answer()?;
        ensure!(answer.contains("os error 5"), "fsync without an MDT: {answer}");
    }
    Ok(())
}

/// What [`work`] has done is seen.
fn all_there(dir: &Path) -> Result<()> {
    for n in 0..MADE {
        let name = format!("{}{n}", if n % 3 == 0 { "renamed" } else { "f" });
        same(&name, &std::fs::read(dir.join(&name)).context(name.clone())?, &content(n))?;
    }
    let names = std::fs::read_dir(dir)?.count();
    ensure!(names == MADE + 1, "{names} names");
    same("what was synced", &std::fs::read(dir.join("synced"))?, &[2; 3000])
}
