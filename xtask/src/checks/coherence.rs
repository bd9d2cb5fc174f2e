//! Three mounts of one file system, random operations, and one order that explains all answers
//! (invariant 3).

use super::mdt_kills;
use crate::cable::{self, Cable};
use crate::cx::Cx;
use crate::plan::Check;
use crate::servers::{Cluster, Transport};
use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

pub const CHECK: Check = Check {
    name: "coherence",
    about: "what three mounts saw of the same bytes, names and attributes fits one order",
    needs: cable::NEEDS,
    limit: 900,
    weight: 1,
    slow: false,
    run,
};

const OSTS: u32 = 3;

/// How long a killed server or a stopped mount is away, and how long all are well before the next.
const AWAY: Duration = Duration::from_millis(700);
const WELL: Duration = Duration::from_millis(1300);

/// For how long an MDT that is slow answers, and a quarter of how long it may then not.
const SLOW: Duration = Duration::from_millis(20);

/// How long a mount is stopped that is to be evicted, after the 20 seconds it has to answer; and how
/// long it then gets to find its way back before the next.
const EVICTED: Duration = Duration::from_secs(25);
const BACK: Duration = Duration::from_secs(4);
/// When that which is stopped surely is.
const SOON: Duration = Duration::from_millis(200);

/// What a run of the exerciser is like.
struct Work {
    seed: u64,
    seconds: &'static str,
    /// Further arguments.
    args: &'static [&'static str],
    /// Pause between two faults.
    well: Duration,
}

impl Work {
    fn of(cx: &Cx, n: u64) -> Work {
        let seed = cx.seed() * 1000 + n;
        Work { seed, seconds: cx.size("15", "5"), args: &[], well: WELL }
    }

    /// What an evicted mount had not synced is lost, and told; what its own other threads saw of it has
    /// no order.
    fn with_losses(cx: &Cx, n: u64) -> Work {
        let args = &["--sync", "--threads", "1"];
        Work { args, seconds: cx.size("60", "25"), well: BACK, ..Work::of(cx, n) }
    }
}

fn run(cx: &Cx) -> Result<()> {
    let mut cluster = Cluster::new(cx, "cluster", Transport::Unix, OSTS)?;
    let mounts = [cluster.mount("a")?, cluster.mount("b")?, cluster.mount("c")?];
    for n in 0..cx.size(3, 1) {
        let work = Work::of(cx, n);
        let name = format!("one truth, seed {}", work.seed);
        cx.case(&name, || one_truth(cx, &mounts, &work, |_| Ok(())));
    }
    cx.case("while OSTs are killed", || {
        let osts: Vec<usize> =
            (0..OSTS).map(|n| cluster.find(&format!("ost{n}"))).collect::<Result<_>>()?;
        one_truth(cx, &mounts, &Work::of(cx, 100), |round| {
            let at = osts[round % osts.len()];
            cluster.kill(at);
            sleep(AWAY);
            cluster.start(at)
        })
    });
    // Much is under way then, and meets what others do meanwhile.
    cx.case("while the MDT is slow", || {
        let mdt = cluster.find("mdt0").and_then(|at| cluster.pid(at).context("no MDT"))?;
        let work = Work { well: SLOW, args: &["--operations", "100"], ..Work::of(cx, 800) };
        one_truth(cx, &mounts, &work, |round| {
            signal(mdt.cast_signed(), Signal::STOP)?;
            sleep(SLOW * (1 + round as u32 % 4));
            signal(mdt.cast_signed(), Signal::CONT)
        })
    });
    let pids: Vec<i32> = mounts.iter().map(|mnt| cluster.mount_pid(mnt)).collect::<Result<_>>()?;
    let stop = |round: usize, time: Duration| {
        let pid = pids[round % pids.len()];
        signal(pid, Signal::STOP)?;
        sleep(time);
        signal(pid, Signal::CONT)
    };
    cx.case("while mounts are stopped", || {
        one_truth(cx, &mounts, &Work::of(cx, 200), |round| stop(round, AWAY))
    });
    cx.case("while mounts are stopped until they are evicted", || {
        one_truth(cx, &mounts, &Work::with_losses(cx, 400), |round| {
            let (away, here) = (&mounts[round % mounts.len()], &mounts[(round + 1) % mounts.len()]);
            wanted(away, here, round, || stop(round, EVICTED))
        })?;
        some_were_evicted(&cluster)
    });
    cx.case("while the MDT is killed", || {
        let seed = Work::of(cx, 700).seed;
        mdt_kills::one_truth(cx, &mut cluster, &mounts, seed, cx.size("40", "15"))
    });
    cx.case("while mounts are killed", || killed(cx, &mut cluster, &mounts));
    for mnt in &mounts {
        cluster.unmount(mnt)?;
    }
    // Their clients sleep now and then: schedules that are rare turn up more often.
    let slow =
        ["d", "e", "f"].map(|name| cluster.mount_with(name, &format!("pauses={}", cx.seed())));
    let slow: Vec<PathBuf> = slow.into_iter().collect::<Result<_>>()?;
    cx.case("with pauses", || one_truth(cx, &slow, &Work::of(cx, 300), |_| Ok(())));
    cx.case("stop and fsck", || cluster.stop_and_check());
    cx.case("while one mount is cut off until it is evicted", || cut_off(cx));
    Ok(())
}

/// Mounts other than the first, which makes the exerciser's files, are killed and mounted again. It
/// comes to them by links, which lead nowhere while nothing is mounted: an empty mount point would say that
/// a name is absent.
fn killed(cx: &Cx, cluster: &mut Cluster, mounts: &[PathBuf]) -> Result<()> {
    let links: Vec<PathBuf> =
        (0..mounts.len()).map(|n| cx.scratch().join(format!("way-{n}"))).collect();
    let point = |n: usize, to: &Path| -> Result<()> {
        let new = links[n].with_extension("new");
        symlink(to, &new)?;
        Ok(std::fs::rename(&new, &links[n])?)
    };
    for (n, mnt) in mounts.iter().enumerate() {
        point(n, mnt)?;
    }
    // Each kill makes what the mount had wait for its eviction: the run takes three times as long.
    let work = Work { seconds: cx.size("30", "25"), ..Work::with_losses(cx, 600) };
    one_truth(cx, &links, &work, |round| {
        let n = 1 + round % (mounts.len() - 1);
        signal(cluster.mount_pid(&mounts[n])?, Signal::KILL)?;
        sleep(AWAY);
        point(n, &links[n])?;
        cluster.unmount(&mounts[n])?;
        cluster.mount_at(&mounts[n], &[])?;
        point(n, &mounts[n])
    })
}

/// One of three mounts is at the other end of a cable.
fn cut_off(cx: &Cx) -> Result<()> {
    let cable = Cable::lay(cx, "h")?;
    let mut cluster = Cluster::new(cx, "apart", cable.transport(), OSTS)?;
    let mut mounts = Vec::new();
    for (name, space) in [("a", cable.near()), ("b", cable.near()), ("c", cable.far())] {
        let mnt = cluster.dir.join(name);
        std::fs::create_dir_all(&mnt)?;
        cluster.mount_at(&mnt, &["nsenter", &space, "--"])?;
        mounts.push(mnt);
    }
    one_truth(cx, &mounts, &Work::with_losses(cx, 500), |round| {
        wanted(&mounts[2], &mounts[0], round, || {
            cable.cut()?;
            sleep(EVICTED);
            cable.mend()
        })
    })?;
    some_were_evicted(&cluster)?;
    cluster.stop_and_check()
}

/// One mount goes away with something that another wants as soon as it is gone: whatever the exerciser
/// happens to do meanwhile, the MDT has to call it back in vain.
fn wanted(away: &Path, here: &Path, round: usize, goes: impl FnOnce() -> Result<()>) -> Result<()> {
    let name = format!("wanted-{round}");
    std::fs::write(away.join(&name), "not synced").context("the mount that goes away")?;
    let path = here.join(&name);
    std::thread::scope(|scope| {
        // Lost or not: the answer comes when the other is evicted.
        scope.spawn(|| {
            sleep(SOON);
            path.metadata().map(drop)
        });
        goes()
    })
}

/// Without this nothing was tried.
fn some_were_evicted(cluster: &Cluster) -> Result<()> {
    let mdt = &cluster.servers[cluster.find("mdt0")?].address;
    let text = cluster.ask(&["get_param", "net.evicted", "--mgs-addr", mdt])?;
    let count = text.trim().strip_prefix("net.evicted=").and_then(|n| n.parse::<u64>().ok());
    ensure!(count.with_context(|| text.clone())? > 0, "nobody was evicted");
    Ok(())
}

/// Runs the exerciser, and `fault` again and again until it has ended.
fn one_truth(
    cx: &Cx,
    mounts: &[PathBuf],
    work: &Work,
    mut fault: impl FnMut(usize) -> Result<()>,
) -> Result<()> {
    let name = format!("work-{}", work.seed);
    std::fs::create_dir(mounts[0].join(&name))?;
    let mut cmd = cx.lab("coherence");
    for mnt in mounts {
        cmd = cmd.arg("--dir").arg(mnt.join(&name));
    }
    let seed = work.seed.to_string();
    let cmd = cmd.args(["--seed", &seed, "--seconds", work.seconds]).args(work.args).limit(200);
    std::thread::scope(|scope| {
        let lab = scope.spawn(move || cmd.ok());
        let mut faults = Ok(());
        let mut round = 0;
        while !lab.is_finished() {
            sleep(work.well);
            if faults.is_ok() {
                faults = fault(round);
            }
            round += 1;
        }
        let found = lab.join().map_err(|_| anyhow::anyhow!("the exerciser's thread panicked"))?;
        found.and(faults)
    })
}

fn signal(pid: i32, signal: Signal) -> Result<()> {
    let pid = Pid::from_raw(pid).context("no process")?;
    Ok(kill_process(pid, signal)?)
}
