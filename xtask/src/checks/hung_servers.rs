//! Servers that hang: their processes stand still (SIGSTOP), their connections stay, and nothing comes. Cases of
//! `kill-servers`.

use super::kill_servers::{DEAD, LONG, on_ost};
use crate::cx::Cx;
use crate::fs::{same, until};
use crate::holder::Holder;
use crate::servers::Cluster;
use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// As when they are lost, where their machines still answer for them: the connections stay, and nothing comes.
pub fn hung(cluster: &mut Cluster) -> Result<()> {
    let mounts = [cluster.mount("works")?, cluster.mount("asks")?];
    let [works, asks] = [&mounts[0], &mounts[1]].map(|mnt| mnt.join("hung"));
    std::fs::create_dir(&works)?;
    let mut writer = Holder::create(&works.join("written"))?;
    writer.does("put 0 300000 1")?;
    let mut asker = Holder::create(&asks.join("asker"))?;
    let mut measurer = Holder::create(&works.join("measurer"))?;
    let osts = pids(cluster, &["ost0", "ost1"])?;
    signal(&osts, Signal::STOP)?;
    let begun = Instant::now();
    let waited = writer
        .tell("put 0 300000 2")
        .and_then(|()| asker.tell("stat written"))
        .and_then(|()| measurer.does("statfs"))
        .and_then(|()| writer.stays_busy(DEAD.saturating_sub(begun.elapsed())));
    signal(&osts, Signal::CONT)?;
    waited.context("while the OSTs hang")?;
    asker.ok().context("who asked")?;
    writer.ok().context("the writer")?;
    for dir in [&works, &asks] {
        same("what was written", &std::fs::read(dir.join("written"))?, &[2; 300_000])?;
    }
    drop((writer, asker, measurer));
    mounts.iter().try_for_each(|mnt| cluster.unmount(mnt))
}

/// One mount wants files of another that lie on an OST that hangs, more of them than the other is asked for at once: it has those
/// that lie elsewhere meanwhile, large and small.
pub fn beside(cx: &Cx, cluster: &mut Cluster) -> Result<()> {
    const MANY: usize = 6;
    let mounts = [cluster.mount_with("works", LONG)?, cluster.mount_with("asks", LONG)?];
    let [works, asks] = [&mounts[0], &mounts[1]].map(|mnt| mnt.join("beside"));
    std::fs::create_dir(&works)?;
    for n in ["0", "1"] {
        on_ost(cx, &works.join(n), n)?;
    }
    let made = |ost: &str, length: usize| -> Result<Vec<Holder>> {
        let make = |n: usize| {
            let mut holder = Holder::create(&works.join(format!("{ost}/f{length}-{n}")))?;
            holder.does(&format!("put 0 {length} 1"))?;
            Ok(holder)
        };
        (0..MANY).map(make).collect()
    };
    let mut slow = made("0", 300_000)?;
    let mut others = made("1", 300_000)?;
    others.extend(made("1", 3_000)?);
    let askers = (0..MANY).map(|n| Holder::create(&asks.join(format!("asker{n}"))));
    let mut askers = askers.collect::<Result<Vec<_>>>()?;
    let mut other = Holder::create(&asks.join("other"))?;
    let ost = pids(cluster, &["ost0"])?;
    signal(&ost, Signal::STOP)?;
    let wrote = slow.iter_mut().try_for_each(|holder| holder.does("write 0 300000 2"));
    let waited = wrote.and_then(|()| {
        for (n, asker) in askers.iter_mut().enumerate() {
            asker.tell(&format!("stat 0/f300000-{n}"))?;
        }
        for (length, n) in [300_000, 3_000].iter().flat_map(|l| (0..MANY).map(move |n| (l, n))) {
            other.does(&format!("stat 1/f{length}-{n}"))?;
            other.does(&format!("cat 1/f{length}-{n}"))?;
        }
        for asker in askers.iter_mut() {
            asker.is_busy().context("what the OST is to take was not waited for")?;
        }
        Ok(())
    });
    signal(&ost, Signal::CONT)?;
    waited.context("while the OST hangs")?;
    askers.iter_mut().try_for_each(|asker| asker.ok().context("who asked"))?;
    for (n, holder) in slow.iter_mut().enumerate() {
        holder.does("fsync").context("the writer")?;
        let found = std::fs::read(asks.join(format!("0/f300000-{n}")))?;
        same("what was written", &found, &[2; 300_000])?;
    }
    drop((slow, others, askers, other));
    mounts.iter().try_for_each(|mnt| cluster.unmount(mnt))
}

/// More readers wait for OSTs that hang than a mount has threads at first: who needs none of these OSTs is served.
pub fn crowd(cluster: &mut Cluster) -> Result<()> {
    let many = 16 * std::thread::available_parallelism()?.get() + 32;
    let fills = cluster.mount("fills")?;
    let made = fills.join("crowd");
    std::fs::create_dir(&made)?;
    for n in 0..many {
        std::fs::write(made.join(format!("f{n}")), vec![1; 100_000])?;
    }
    cluster.unmount(&fills)?;
    let reads = cluster.mount("reads")?;
    let dir = reads.join("crowd");
    let mut small = Holder::create(&dir.join("small"))?;
    let osts = pids(cluster, &["ost0", "ost1"])?;
    signal(&osts, Signal::STOP)?;
    let mut files = (0..many).map(|n| dir.join(format!("f{n}")));
    let mut readers = Readers(Vec::new());
    let waited = files
        .try_for_each(|file| readers.add(&file))
        .and_then(|()| readers.wait_for_servers())
        .and_then(|()| small.does("put 0 100 2").context("a small file is written"))
        .and_then(|()| readers.all_run());
    signal(&osts, Signal::CONT)?;
    waited.context("while the OSTs hang")?;
    readers.succeed()?;
    drop(small);
    cluster.unmount(&reads)
}

/// Processes that read a file each; none is left when this is dropped.
struct Readers(Vec<Child>);

impl Readers {
    fn add(&mut self, file: &Path) -> Result<()> {
        let mut cat = Command::new("cat");
        self.0.push(cat.arg(file).stdin(Stdio::null()).stdout(Stdio::null()).spawn()?);
        Ok(())
    }

    /// All of them have their file open and stand in the kernel, as it tells.
    fn wait_for_servers(&self) -> Result<()> {
        let stands = |reader: &Child| {
            let process = Path::new("/proc").join(reader.id().to_string());
            let at = std::fs::read_to_string(process.join("wchan"));
            // Those it began with, and its file.
            let open = std::fs::read_dir(process.join("fd")).map_or(0, Iterator::count);
            open > 3 && at.is_ok_and(|at| !at.is_empty() && at != "0")
        };
        until("all readers wait", || self.0.iter().all(stands))
    }

    fn all_run(&mut self) -> Result<()> {
        for reader in &mut self.0 {
            ensure!(reader.try_wait()?.is_none(), "a reader was answered without the OSTs");
        }
        Ok(())
    }

    fn succeed(mut self) -> Result<()> {
        for reader in &mut self.0 {
            let status = reader.wait()?;
            ensure!(status.success(), "a reader: {status}");
        }
        Ok(())
    }
}

impl Drop for Readers {
    fn drop(&mut self) {
        for reader in &mut self.0 {
            let _ = reader.kill();
            let _ = reader.wait();
        }
    }
}

/// A client answers the MDT while that stands still, for longer than it waits for clients: it finds that in its socket when
/// it goes on, and the time over.
pub fn stood_still(cluster: &mut Cluster) -> Result<()> {
    let mounts = [cluster.mount("works")?, cluster.mount("asks")?];
    let [works, asks] = [&mounts[0], &mounts[1]].map(|mnt| mnt.join("stood"));
    std::fs::create_dir(&works)?;
    let mut writer = Holder::create(&works.join("written"))?;
    writer.does("put 0 300000 1")?;
    let mut asker = Holder::create(&asks.join("asker"))?;
    let (osts, mdt) = (pids(cluster, &["ost0", "ost1"])?, pids(cluster, &["mdt0"])?);
    // What was written cannot be sent, so that the lease is not given back at once.
    signal(&osts, Signal::STOP)?;
    let asked = writer
        .does("write 0 300000 2")
        .and_then(|()| asker.tell("stat written"))
        .and_then(|()| asker.stays_busy(Duration::from_secs(1)));
    signal(&mdt, Signal::STOP)?;
    signal(&osts, Signal::CONT)?;
    let waited = asked.and_then(|()| asker.stays_busy(DEAD));
    signal(&mdt, Signal::CONT)?;
    waited.context("while the MDT stands still")?;
    asker.ok().context("who asked")?;
    writer.does("fsync").context("the writer")?;
    for dir in [&works, &asks] {
        same("what was written", &std::fs::read(dir.join("written"))?, &[2; 300_000])?;
    }
    drop((writer, asker));
    mounts.iter().try_for_each(|mnt| cluster.unmount(mnt))
}

/// The processes of servers.
pub fn pids(cluster: &Cluster, names: &[&str]) -> Result<Vec<Pid>> {
    let pid = |name: &&str| {
        let pid = cluster.pid(cluster.find(name)?).and_then(|pid| Pid::from_raw(pid.cast_signed()));
        pid.with_context(|| format!("{name} does not run"))
    };
    names.iter().map(pid).collect()
}

pub fn signal(pids: &[Pid], signal: Signal) -> Result<()> {
    Ok(pids.iter().try_for_each(|pid| kill_process(*pid, signal))?)
}
