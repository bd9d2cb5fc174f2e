//! Three mounts of one file system, random operations, and one order that explains all answers
//! (invariant 3).

use crate::cx::Cx;
use crate::plan::{Check, Need};
use crate::servers::{Cluster, Transport};
use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process};
use std::path::PathBuf;
use std::thread::sleep;
use std::time::Duration;

pub const CHECK: Check = Check {
    name: "coherence",
    about: "what three mounts saw of the same bytes, names and attributes fits one order",
    needs: &[Need::Binary, Need::Apt("fuse3"), Need::Root],
    limit: 600,
    weight: 1,
    slow: false,
    run,
};

const OSTS: u32 = 3;
/// What is not coherent yet, by its name in the lab; see docs/semantics.md.
const WITHOUT: &str = "mapped";

/// How long a killed server or a stopped mount is away, and how long all are well before the next.
const AWAY: Duration = Duration::from_millis(700);
const WELL: Duration = Duration::from_millis(1300);

fn run(cx: &Cx) -> Result<()> {
    let mut cluster = Cluster::new(cx, "cluster", Transport::Unix, OSTS)?;
    let mounts = [cluster.mount("a")?, cluster.mount("b")?, cluster.mount("c")?];
    let seed = |n: u64| cx.seed() * 1000 + n;
    for n in 0..cx.size(3, 1) {
        let name = format!("one truth, seed {}", seed(n));
        cx.case(&name, || one_truth(cx, &mounts, seed(n), |_| Ok(())));
    }
    cx.case("while OSTs are killed", || {
        let osts: Vec<usize> =
            (0..OSTS).map(|n| cluster.find(&format!("ost{n}"))).collect::<Result<_>>()?;
        one_truth(cx, &mounts, seed(100), |round| {
            let at = osts[round % osts.len()];
            cluster.kill(at);
            sleep(AWAY);
            cluster.start(at)
        })
    });
    cx.case("while mounts are stopped", || {
        let pids: Vec<i32> =
            mounts.iter().map(|mnt| cluster.mount_pid(mnt)).collect::<Result<_>>()?;
        one_truth(cx, &mounts, seed(200), |round| {
            let pid = pids[round % pids.len()];
            signal(pid, Signal::STOP)?;
            sleep(AWAY);
            signal(pid, Signal::CONT)
        })
    });
    for mnt in &mounts {
        cluster.unmount(mnt)?;
    }
    // Their clients sleep now and then: schedules that are rare turn up more often.
    let slow =
        ["d", "e", "f"].map(|name| cluster.mount_with(name, &format!("pauses={}", cx.seed())));
    let slow: Vec<PathBuf> = slow.into_iter().collect::<Result<_>>()?;
    cx.case("with pauses", || one_truth(cx, &slow, seed(300), |_| Ok(())));
    cx.case("stop and fsck", || cluster.stop_and_check());
    Ok(())
}

/// Runs the exerciser, and `fault` again and again until it has ended.
fn one_truth(
    cx: &Cx,
    mounts: &[PathBuf],
    seed: u64,
    mut fault: impl FnMut(usize) -> Result<()>,
) -> Result<()> {
    let name = format!("work-{seed}");
    std::fs::create_dir(mounts[0].join(&name))?;
    let mut cmd = cx.lab("coherence").args(["--without", WITHOUT]);
    for mnt in mounts {
        cmd = cmd.arg("--dir").arg(mnt.join(&name));
    }
    let seconds = cx.size("15", "5");
    let cmd = cmd.args(["--seed", &seed.to_string(), "--seconds", seconds]).limit(120);
    std::thread::scope(|scope| {
        let lab = scope.spawn(move || cmd.ok());
        let mut faults = Ok(());
        let mut round = 0;
        while !lab.is_finished() {
            sleep(WELL);
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
