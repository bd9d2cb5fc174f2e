//! A disk that stands still under an OST or the MDT, whose process goes on to answer: nobody is evicted for it, who writes to
//! other OSTs goes on, and when the disk works again so do all, with all that was written.

use super::full;
use super::kill_servers::{DEAD, MUCH};
use crate::cx::Cx;
use crate::fs::{same, until};
use crate::holder::Holder;
use crate::plan::Check;
use crate::servers::{Cluster, Transport};
use anyhow::{Context, Result, anyhow, ensure};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

pub const CHECK: Check = Check {
    name: "frozen",
    about: "a disk stands still under a target: nobody is evicted, others go on, nothing is lost",
    needs: full::NEEDS,
    limit: 300,
    weight: 1,
    slow: false,
    run,
};

/// Writers of so much to the OST whose disk stands still.
const WRITERS: usize = 4;

/// More directories than an MDT takes, and a client keeps, while nothing of them can be made durable.
const MANY: usize = 20_000;

fn run(cx: &Cx) -> Result<()> {
    let disk = full::disk(cx)?;
    let mut cluster = on(cx, &disk, "cluster", "ost0")?;
    cx.case("a disk that stands still costs nobody what he wrote", || {
        stands_still(cx, &mut cluster, &disk)
    });
    cx.case("stop and fsck", || cluster.stop_and_check());
    let mut cluster = on(cx, &disk, "names", "mdt0")?;
    cx.case("a disk of the MDT that stands still costs nobody what he made", || {
        names_stand_still(cx, &mut cluster, &disk)
    });
    cx.case("stop and fsck of that", || cluster.stop_and_check());
    Ok(())
}

/// A cluster one of whose targets lies on this disk.
fn on(cx: &Cx, disk: &Path, name: &str, target: &str) -> Result<Cluster> {
    std::fs::create_dir(disk.join(target))?;
    symlink(disk.join(target), cx.dir(name)?.join(target))?;
    Cluster::new(cx, name, Transport::Tcp, 2)
}

/// A file system that stores nothing until this is dropped.
struct Frozen<'a>(&'a Cx, PathBuf);

impl<'a> Frozen<'a> {
    fn new(cx: &'a Cx, disk: &Path) -> Result<Self> {
        cx.cmd("fsfreeze").arg("--freeze").arg(disk).ok()?;
        Ok(Self(cx, disk.to_owned()))
    }
}

impl Drop for Frozen<'_> {
    fn drop(&mut self) {
        let _ = self.0.cmd("fsfreeze").arg("--unfreeze").arg(&self.1).run();
    }
}

fn stands_still(cx: &Cx, cluster: &mut Cluster, disk: &Path) -> Result<()> {
    let mounts = [cluster.mount("works")?, cluster.mount("asks")?];
    let [works, asks] = &mounts;
    for n in ["0", "1"] {
        let dir = works.join(format!("ost{n}"));
        std::fs::create_dir(&dir)?;
        // The MDT looks for new OSTs now and then.
        until("its OST is known", || {
            let words = ["lfs", "setstripe", "-c", "1", "-i", n];
            cx.pinstripe().args(words).arg(&dir).ok().is_ok()
        })?;
    }
    let names: Vec<_> = (0..WRITERS).map(|n| format!("ost0/f{n}")).collect();
    let writers = names.iter().map(|name| {
        let mut writer = Holder::create(&works.join(name))?;
        writer.does("put 0 300000 1")?;
        Ok(writer)
    });
    let mut writers = writers.collect::<Result<Vec<_>>>()?;
    let mut synced = Holder::create(&works.join("ost0/synced"))?;
    synced.does("put 0 300000 1")?;
    let mut asker = Holder::create(&asks.join("ost0/asker"))?;
    let mut other = Holder::create(&works.join("ost1/other"))?;

    let frozen = Frozen::new(cx, disk)?;
    let begun = Instant::now();
    // What is asked for has to be dirty by then: a clean file needs no disk.
    synced.does("write 0 300000 2")?;
    synced.tell("fsync")?;
    asker.tell("stat synced")?;
    for writer in &mut writers {
        writer.tell(&format!("write 0 {MUCH} 2"))?;
    }
    other.does(&format!("put 0 {MUCH} 3")).context("a write to another OST")?;
    synced.stays_busy(DEAD.saturating_sub(begun.elapsed())).context("who syncs")?;
    asker.is_busy().context("who asks")?;
    for writer in &writers {
        writer.is_busy().context("a writer")?;
    }
    drop(frozen);

    asker.ok().context("who asked")?;
    synced.ok().context("who synced")?;
    for writer in &mut writers {
        writer.ok().context("a writer")?;
        writer.does("fsync")?;
    }
    for mnt in &mounts {
        same("what was synced", &std::fs::read(mnt.join("ost0/synced"))?, &[2; 300_000])?;
        for name in &names {
            let found = std::fs::read(mnt.join(name))?;
            ensure!(found.len() == MUCH && found.iter().all(|b| *b == 2), "{name}: other bytes");
        }
    }
    drop((synced, asker, other, writers));
    mounts.iter().try_for_each(|mnt| cluster.unmount(mnt))
}

/// Before it gives a directory back, who made names in it tells the MDT of them, which cannot take any more.
fn names_stand_still(cx: &Cx, cluster: &mut Cluster, disk: &Path) -> Result<()> {
    let [works, asks] = [cluster.mount("works")?, cluster.mount("asks")?];
    let (dir, seen) = (works.join("made"), asks.join("made"));
    std::fs::create_dir(&dir)?;
    let mut written = Holder::create(&works.join("written"))?;
    written.does("put 0 3000 1")?;
    let made = AtomicUsize::new(0);
    std::thread::scope(|scope| -> Result<()> {
        let frozen = Frozen::new(cx, disk)?;
        let maker = scope.spawn(|| {
            (0..MANY).try_for_each(|n| {
                std::fs::create_dir(dir.join(n.to_string()))?;
                made.fetch_add(1, Relaxed);
                std::io::Result::Ok(())
            })
        });
        let stuck = stands(&made)?;
        let begun = Instant::now();
        let lists = scope.spawn(|| count(&seen));
        until("a client counts as dead", || begun.elapsed() > DEAD)?;
        let busy = !maker.is_finished() && !lists.is_finished();
        drop(frozen);
        ensure!(busy, "somebody did not wait for the disk");
        let joined = |what: &'static str| move |_| anyhow!("{what} panicked");
        maker.join().map_err(joined("who makes names"))?.context("who makes names")?;
        let listed = lists.join().map_err(joined("who lists"))?.context("who lists")?;
        ensure!(listed >= stuck, "{listed} names were listed of {stuck} that had been made");
        Ok(())
    })?;
    written.does("fsync").context("a file that was written before")?;
    for mnt in [&works, &asks] {
        let names = count(&mnt.join("made"))?;
        ensure!(names == MANY, "{names} names");
        same("what was written", &std::fs::read(mnt.join("written"))?, &[1; 3000])?;
    }
    drop(written);
    cluster.unmount(&asks)?;
    cluster.unmount(&works)
}

/// Waits until a number has not changed for a second.
fn stands(number: &AtomicUsize) -> Result<usize> {
    let mut seen = (0, Instant::now());
    until("no name is made any more", || {
        let now = number.load(Relaxed);
        if now != seen.0 {
            seen = (now, Instant::now());
        }
        now > 0 && seen.1.elapsed() > Duration::from_secs(1)
    })?;
    Ok(seen.0)
}

/// How many names a listing has.
fn count(dir: &Path) -> std::io::Result<usize> {
    std::fs::read_dir(dir)?.try_fold(0, |n, entry| entry.map(|_| n + 1))
}
