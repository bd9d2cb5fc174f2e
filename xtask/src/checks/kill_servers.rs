//! kill -9 of server processes under a writer: of an OST, of the MDS, of all. After they are
//! started again an idle client goes on by itself, and what was synced is there.

use super::{hung_servers, late_mdt};
use crate::cx::Cx;
use crate::durable::{self, Writer};
use crate::fs::{same, until};
use crate::holder::Holder;
use crate::plan::{Check, Need};
use crate::proc::Cmd;
use crate::servers::{Cluster, Transport};
use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

pub const CHECK: Check = Check {
    name: "kill-servers",
    about: "kill -9 of MDS, OST, MGS and all under a writer; idle clients reconnect by themselves",
    needs: &[Need::Binary, Need::Apt("fuse3"), Need::Root],
    limit: 900,
    weight: 1,
    slow: false,
    run,
};

fn run(cx: &Cx) -> Result<()> {
    let mut cluster = Cluster::new(cx, "cluster", Transport::Tcp, 2)?;
    let idle = cluster.mount("idle")?;
    std::fs::write(idle.join("before"), "before")?;
    let all: Vec<String> = cluster.servers.iter().map(|s| s.name.clone()).collect();
    let victims: &[(&str, Vec<String>)] = &[
        ("an OST", vec!["ost1".into()]),
        ("the MDS", vec!["mdt0".into()]),
        ("the MGS", vec!["mgs".into()]),
        ("all", all),
    ];
    for (n, (what, names)) in victims.iter().enumerate() {
        cx.case(&format!("kill -9 of {what}"), || {
            let mnt = cluster.mount(&format!("writer-{n}"))?;
            let mut writer = Writer::start(cx, &mnt, cx.seed() * 10 + n as u64)?;
            writer.progress(60)?;
            let victims: Vec<_> =
                names.iter().map(|name| cluster.find(name)).collect::<Result<_>>()?;
            for &at in &victims {
                cluster.kill(at);
            }
            for &at in &victims {
                cluster.start(at)?;
            }
            let log = match names.iter().any(|name| name.starts_with("mdt")) {
                true => writer.end_without_replay()?,
                false => writer.end()?,
            };
            until("the idle client works again", || {
                std::fs::read_to_string(idle.join("before")).is_ok_and(|t| t == "before")
            })?;
            until("the idle client writes again", || {
                std::fs::write(idle.join(format!("after-{n}")), "after").is_ok()
            })?;
            durable::check(cx, &idle, &log, &[])?;
            let fresh = cluster.mount(&format!("fresh-{n}"))?;
            durable::check(cx, &fresh, &log, &[])?;
            cluster.unmount(&fresh)?;
            cluster.unmount(&mnt)
        });
    }
    cx.case("a server takes the place of one that was killed just now", || {
        replaced(cx, &mut cluster, &idle)
    });
    cx.case("a cut that fails leaves the file as it was", || uncut(cx, &mut cluster));
    cx.case("a directory is listed without an OST", || listed(&mut cluster, &idle));
    cx.case("a write that waits for lost OSTs keeps nobody else waiting", || {
        waiting(&mut cluster, &idle)
    });
    cx.case("who closes a copy of a descriptor takes no error away", || inherited(&mut cluster));
    cx.case("who waits for lost OSTs is not taken for dead", || awaited(&mut cluster));
    cx.case("a lost OST keeps nobody from the others", || elsewhere(cx, &mut cluster));
    cx.case("who waits for an OST that hangs is not taken for dead", || {
        hung_servers::hung(&mut cluster)
    });
    cx.case("what lies on an OST that hangs keeps no other file", || {
        hung_servers::beside(cx, &mut cluster)
    });
    cx.case("a crowd that waits for an OST leaves room for others", || {
        hung_servers::crowd(&mut cluster)
    });
    cx.case("an MDT that stood still evicts nobody for that", || {
        hung_servers::stood_still(&mut cluster)
    });
    cx.case("an MDT that comes late is told all that was done", || late_mdt::killed(cx));
    cx.case("who unmounts without an MDT is told what is lost", || late_mdt::unmounted(cx));
    cx.case("who unmounts without an MDT that has all does not wait", || {
        late_mdt::unmounted_idle(cx)
    });
    cx.case("an MDT that hangs for long is told all that was done", || {
        late_mdt::stopped(&mut cluster)
    });
    cx.case("the first write of a file waits for lost OSTs", || first_write(&mut cluster, &idle));
    cx.case("who waits for lost servers can be killed", || killed(&mut cluster));
    cx.case("stop and fsck", || cluster.stop_and_check());
    Ok(())
}

/// Who was killed under load takes a while to end: who is started at once waits for that. The load is another process's:
/// a server is started with copies of all that is open here, and closing them waits for the servers.
fn replaced(cx: &Cx, cluster: &mut Cluster, mnt: &Path) -> Result<()> {
    let dir = cx.dir("load")?;
    let count = dir.join("count");
    let script = "n=0; while :; do n=$((n + 1)); echo $n > \"$1\"; \
        head -c 80000 /dev/zero > \"$0/load-$((n % 2000))\"; done";
    let load = Cmd::new("sh").args(["-c", script]).arg(mnt).arg(&count);
    let mut load = load.start(&dir.join("log"))?;
    let made = || std::fs::read_to_string(&count).ok().and_then(|n| n.trim().parse::<u64>().ok());
    let tried = (0..5 * cluster.servers.len()).try_for_each(|n| {
        let (at, before) = (n % cluster.servers.len(), made().unwrap_or(0));
        until("the load goes on", || made().is_some_and(|now| now > before + 100))?;
        let name = cluster.servers[at].name.clone();
        let killed = cluster.let_die(at);
        let started = cluster.start(at).with_context(|| format!("{name}, start {n}"));
        killed.into_iter().for_each(|mut killed| killed.kill());
        started
    });
    load.kill();
    tried
}

/// One of two OSTs is lost while a file is cut: who cuts it hears so. The file is as long as it was for everybody, keeps
/// what was not to be cut, and shows none of the rest once it has been cut and grows.
fn uncut(cx: &Cx, cluster: &mut Cluster) -> Result<()> {
    const LONG: u64 = 300_000;
    let mounts =
        [cluster.mount_with("cuts", "request_timeout=2")?, cluster.mount_with("looks", "rw")?];
    let ways: [(&str, u64, fn(&Path, &File, u64) -> Result<()>); 3] = [
        ("path", 100_000, |path, _, to| truncate(path, to)),
        ("descriptor", 100_000, |_, file, to| Ok(file.set_len(to)?)),
        ("open", 0, |path, _, _| {
            Ok(File::options().write(true).truncate(true).open(path).map(drop)?)
        }),
    ];
    let osts = osts(cluster)?;
    for (n, (name, to, cut)) in ways.into_iter().enumerate() {
        let [path, other] = [&mounts[0], &mounts[1]].map(|mnt| mnt.join(format!("cut-by-{name}")));
        cx.pinstripe().args(["lfs", "setstripe", "-c", "2", "-S", "64K"]).arg(&path).ok()?;
        std::fs::write(&path, vec![b'x'; LONG as usize])?;
        // Where it is not cut by a descriptor nobody has it open to write.
        let file = File::options().read(true).write(name == "descriptor").open(&path)?;
        file.sync_all()?;
        cluster.kill(osts[n % 2]);
        let cut_now = || cut(&path, &file, to);
        ensure!(cut_now().is_err(), "{name}: cut without one of its objects");
        cluster.start(osts[n % 2])?;
        let agree = |len: u64, kept: u64| -> Result<Vec<u8>> {
            let [a, b] = [std::fs::read(&path)?, std::fs::read(&other)?];
            ensure!(a == b, "{name}: two mounts see other bytes ({} and {})", a.len(), b.len());
            ensure!(a.len() as u64 == len, "{name}: {} bytes, not {len}", a.len());
            ensure!(a[..kept as usize].iter().all(|b| *b == b'x'), "{name}: kept bytes are gone");
            Ok(a)
        };
        let found = agree(LONG, to)?;
        ensure!(found.iter().all(|b| matches!(b, b'x' | 0)), "{name}: other bytes");
        until("the file can be cut", || cut_now().is_ok())?;
        agree(to, to)?;
        truncate(&path, LONG)?;
        let grown = agree(LONG, to)?;
        ensure!(grown[to as usize..].iter().all(|b| *b == 0), "{name}: what was cut is back");
    }
    mounts.iter().try_for_each(|mnt| cluster.unmount(mnt))
}

/// What another mount is writing, of which only a lost OST knows the length, hides nothing else of its directory.
fn listed(cluster: &mut Cluster, writes: &Path) -> Result<()> {
    let lists = cluster.mount_with("lists", "request_timeout=2")?;
    let dir = writes.join("listed");
    std::fs::create_dir(&dir)?;
    let files = (0..6).map(|n| {
        let file = File::create(dir.join(format!("f{n}")))?;
        file.write_all_at(&[b'x'; 100_000], 0)?;
        file.sync_all()?;
        // Half of them are written on.
        Ok((n, (n % 2 == 0).then_some(file)))
    });
    let files = files.collect::<Result<Vec<_>>>()?;
    let osts = osts(cluster)?;
    osts.iter().for_each(|&at| cluster.kill(at));
    let other = lists.join("listed");
    for round in 0..2 {
        let names = std::fs::read_dir(&other)?.collect::<std::io::Result<Vec<_>>>();
        let names = names.with_context(|| format!("the listing, round {round}"))?;
        ensure!(names.len() == files.len(), "round {round}: {} names", names.len());
        for (n, written) in &files {
            let found = std::fs::metadata(other.join(format!("f{n}")));
            match written {
                Some(_) => ensure!(found.is_err(), "f{n}: who told its length?"),
                None => ensure!(found?.len() == 100_000, "f{n} has another length"),
            }
        }
    }
    osts.iter().try_for_each(|&at| cluster.start(at))?;
    for (n, _) in &files {
        let path = other.join(format!("f{n}"));
        until("all is there again", || std::fs::read(&path).is_ok_and(|b| b.len() == 100_000))?;
    }
    drop(files);
    cluster.unmount(&lists)
}

/// truncate(2), of what nobody needs to have open.
fn truncate(path: &Path, to: u64) -> Result<()> {
    let program = "truncate($ARGV[0], $ARGV[1]) or die \"$!\\n\"";
    Cmd::new("perl").args(["-e", program]).arg(path).arg(to.to_string()).ok().map(drop)
}

/// While a handler of the mount blocks, others are served, also those that come late; and when the
/// OSTs are back the writer has what it asked for.
fn waiting(cluster: &mut Cluster, mnt: &Path) -> Result<()> {
    let osts = osts(cluster)?;
    let mut writer = Holder::create(&mnt.join("large"))?;
    osts.iter().for_each(|&at| cluster.kill(at));
    writer.tell("put 0 300000 7")?;
    // The request has to be quiet for a while.
    writer.stays_busy(Duration::from_millis(700))?;
    rustix::fs::statvfs(mnt)?;
    std::fs::create_dir(mnt.join("meanwhile"))?;
    std::fs::write(mnt.join("meanwhile/small"), "small")?;
    writer.is_busy().context("the others were served only when the writer had ended")?;
    for at in osts {
        cluster.start(at)?;
    }
    writer.ok().context("the writer")?;
    same("what was written", &std::fs::read(mnt.join("large"))?, &[7; 300_000])
}

/// What the OSTs did not take is told by fsync(2), although another process, which cares for nothing, had a copy of the
/// descriptor and closed it when the error was there. It is told as long as they are away, and nothing is lost.
fn inherited(cluster: &mut Cluster) -> Result<()> {
    let mnt = cluster.mount_with("inherits", "request_timeout=2")?;
    let path = mnt.join("inherited");
    let file = File::create(&path)?;
    file.write_all_at(&[1; 300_000], 0)?;
    file.sync_all()?;
    without(cluster, &["ost0", "ost1"], || {
        file.write_all_at(&[2; 300_000], 0)?;
        let child = std::process::Command::new("true").stdout(file.try_clone()?).status()?;
        ensure!(child.success(), "the child: {child}");
        let told = [(); 2].map(|()| file.sync_all().map_err(|e| e.raw_os_error()));
        drop(file);
        ensure!(told == [Err(Some(libc::EIO)); 2], "two fsyncs without OSTs: {told:?}");
        Ok(())
    })?;
    until("what was written is there", || std::fs::read(&path).is_ok_and(|b| b == [2; 300_000]))?;
    cluster.unmount(&mnt)?;
    let other = cluster.mount("other")?;
    same("what was written", &std::fs::read(other.join("inherited"))?, &[2; 300_000])?;
    cluster.unmount(&other)
}

/// Longer than an MDT waits for a client that does not give back a lease.
pub const DEAD: Duration = Duration::from_secs(25);

/// Another mount looks at what this one writes, reads and opens while it waits for lost OSTs: all wait until those are
/// back, and nothing that was written is lost.
fn awaited(cluster: &mut Cluster) -> Result<()> {
    let mounts = [cluster.mount("works")?, cluster.mount("asks")?];
    let [works, asks] = [&mounts[0], &mounts[1]].map(|mnt| mnt.join("awaited"));
    std::fs::create_dir(&works)?;
    let names = ["synced", "written", "read"];
    let holders = names.iter().map(|name| {
        let mut holder = Holder::create(&works.join(name))?;
        holder.does("put 0 300000 1")?;
        Ok(holder)
    });
    let mut holders = holders.collect::<Result<Vec<_>>>()?;
    let askers = names.map(|_| Holder::create(&asks.join("asker")));
    let mut askers = askers.into_iter().collect::<Result<Vec<_>>>()?;
    without(cluster, &["ost0", "ost1"], || {
        for holder in &mut holders[..2] {
            holder.does("write 0 300000 2")?;
        }
        holders[0].tell("fsync")?;
        holders[2].tell("read 0 300000")?;
        for (asker, name) in askers.iter_mut().zip(names) {
            asker.tell(&format!("stat {name}"))?;
        }
        holders[0].stays_busy(DEAD).context("who writes")?;
        holders[2].is_busy().context("who reads")?;
        askers[0].is_busy().context("who asks for what is synced")?;
        Ok(())
    })?;
    for (asker, name) in askers.iter_mut().zip(names) {
        asker.ok().with_context(|| format!("who asked for {name}"))?;
    }
    holders[0].ok().context("fsync")?;
    holders[2].ok().context("the reader")?;
    for (name, byte) in names.iter().zip([2, 2, 1]) {
        let found = [&asks, &works].map(|dir| std::fs::read(dir.join(name)));
        for found in found {
            same(name, &found?, &[byte; 300_000])?;
        }
    }
    holders[1].does("fsync")?;
    drop((holders, askers));
    mounts.iter().try_for_each(|mnt| cluster.unmount(mnt))
}

/// A new directory whose files lie on one OST.
pub fn on_ost(cx: &Cx, dir: &Path, ost: &str) -> Result<()> {
    std::fs::create_dir(dir)?;
    let set = || cx.pinstripe().args(["lfs", "setstripe", "-c", "1", "-i", ost]).arg(dir).ok();
    // The MDT looks for OSTs now and then.
    until(&format!("OST {ost} can be chosen"), || set().is_ok())
}

/// More than a mount holds back of what it was given to write, bytes.
pub const MUCH: usize = 100_000_000;

/// Writers of what a lost OST is to take wait, and leave room for those who write elsewhere.
fn elsewhere(cx: &Cx, cluster: &mut Cluster) -> Result<()> {
    let mnt = cluster.mount("elsewhere")?;
    let dirs = ["0", "1"].map(|n| (n, mnt.join(format!("ost{n}"))));
    for (n, dir) in &dirs {
        on_ost(cx, dir, n)?;
    }
    let [(_, lost), (_, there)] = &dirs;
    let writers = (0..5).map(|n| {
        let mut writer = Holder::create(&lost.join(format!("f{n}")))?;
        writer.does("put 0 100000 1")?;
        Ok(writer)
    });
    let mut writers = writers.collect::<Result<Vec<_>>>()?;
    without(cluster, &["ost0"], || {
        for writer in &mut writers {
            writer.tell(&format!("write 0 {MUCH} 2"))?;
        }
        let mut other = Holder::create(&there.join("f"))?;
        for byte in [3, 4] {
            other.does(&format!("put 0 {MUCH} {byte}"))?;
        }
        other.does(&format!("read 0 {MUCH}"))?;
        for writer in &mut writers {
            writer.is_busy().context("all of it was taken without its OST")?;
        }
        Ok(())
    })?;
    for (n, writer) in writers.iter_mut().enumerate() {
        writer.ok().context("a writer whose OST is back")?;
        writer.does("fsync")?;
        let found = std::fs::read(lost.join(format!("f{n}")))?;
        ensure!(found.len() == MUCH && found.iter().all(|b| *b == 2), "f{n} holds other bytes");
    }
    drop(writers);
    cluster.unmount(&mnt)
}

/// Longer than a write asks an MDT for objects without waiting for OSTs that are lost.
const LOST: Duration = Duration::from_secs(7);

/// A file gets its objects although an MDT has not heard of any OST since it began.
fn first_write(cluster: &mut Cluster, mnt: &Path) -> Result<()> {
    let osts = osts(cluster)?;
    let mdt = cluster.find("mdt0")?;
    osts.iter().for_each(|&at| cluster.kill(at));
    cluster.kill(mdt);
    cluster.start(mdt)?;
    let mut writer = Holder::create(&mnt.join("first"))?;
    writer.tell("put 0 300000 8")?;
    writer.stays_busy(LOST).context("a write without any OST")?;
    for at in osts {
        cluster.start(at)?;
    }
    writer.ok().context("the writer")?;
    same("what was written first", &std::fs::read(mnt.join("first"))?, &[8; 300_000])
}

/// Far beyond what a killed process may take: no request ends by itself before the case does.
pub const LONG: &str = "request_timeout=3600";

/// Processes that read, write, fsync, open and stat end when they are killed, although the servers
/// never answer; what they had begun is done when the servers are back.
fn killed(cluster: &mut Cluster) -> Result<()> {
    let mnt = cluster.mount_with("hangs", LONG)?;
    // Made on another mount, so that nothing is answered from memory.
    let other = cluster.mount("other")?;
    for name in ["read", "large", "small", "stat", "open", "name"] {
        std::fs::write(other.join(name), vec![1; 300_000])?;
    }
    let tasks = ["read 0 300000", "put 0 300000 2", "put 0 100 3", "stat name"];
    let files = ["read", "large", "small", "stat"].map(|name| Holder::open(&mnt.join(name)));
    let mut holders = files.into_iter().collect::<Result<Vec<_>>>()?;
    let servers: Vec<usize> = (0..cluster.servers.len()).collect();
    servers.iter().for_each(|&at| cluster.kill(at));
    for (holder, task) in holders.iter_mut().zip(tasks) {
        holder.tell(task)?;
    }
    holders.push(Holder::start(&mnt.join("open"), &[])?);
    holders[0].stays_busy(Duration::from_secs(2)).context("a read without servers")?;
    for (n, holder) in holders.into_iter().enumerate() {
        holder.is_busy().with_context(|| format!("number {n}, without servers"))?;
        let signal = if n % 2 == 0 { Signal::KILL } else { Signal::INT };
        holder.end_by(signal).with_context(|| format!("number {n}, {signal:?}"))?;
    }
    for at in servers {
        cluster.start(at)?;
    }
    same("read after all", &std::fs::read(mnt.join("read"))?, &[1; 300_000])?;
    cluster.unmount(&other)?;
    cluster.unmount(&mnt)
}

/// Does something while servers are gone; they are back afterwards, whatever came of it.
fn without<T>(
    cluster: &mut Cluster,
    names: &[&str],
    work: impl FnOnce() -> Result<T>,
) -> Result<T> {
    let servers = names.iter().map(|name| cluster.find(name)).collect::<Result<Vec<_>>>()?;
    servers.iter().for_each(|&at| cluster.kill(at));
    let done = work();
    servers.iter().try_for_each(|&at| cluster.start(at))?;
    done
}

fn osts(cluster: &Cluster) -> Result<Vec<usize>> {
    ["ost0", "ost1"].into_iter().map(|name| cluster.find(name)).collect()
}
