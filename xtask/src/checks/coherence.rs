//! Three mounts of one file system, random operations, and one order that explains all answers
//! (invariant 3).

use crate::cx::Cx;
use crate::plan::{Check, Need};
use crate::servers::{Cluster, Transport};
use anyhow::Result;
use std::path::PathBuf;

pub const CHECK: Check = Check {
    name: "coherence",
    about: "what three mounts saw of the same bytes, names and attributes fits one order",
    needs: &[Need::Binary, Need::Apt("fuse3"), Need::Root],
    limit: 400,
    weight: 1,
    slow: false,
    run,
};

/// What is not coherent yet, by its name in the lab; see docs/semantics.md.
const WITHOUT: &str = "mapped";

fn run(cx: &Cx) -> Result<()> {
    let mut cluster = Cluster::new(cx, "cluster", Transport::Unix, 3)?;
    let mounts = [cluster.mount("a")?, cluster.mount("b")?, cluster.mount("c")?];
    for n in 0..cx.size(3, 1) {
        one_truth(cx, &format!("work{n}"), &mounts, cx.seed() * 1000 + n)?;
    }
    for mnt in &mounts {
        cluster.unmount(mnt)?;
    }
    // Their clients sleep now and then: schedules that are rare turn up more often.
    let mut slow = Vec::new();
    for name in ["d", "e", "f"] {
        slow.push(cluster.mount_with(name, &format!("pauses={}", cx.seed()))?);
    }
    one_truth(cx, "slow", &slow, cx.seed() * 1000 + 500)?;
    cx.case("stop and fsck", || cluster.stop_and_check());
    Ok(())
}

fn one_truth(cx: &Cx, name: &str, mounts: &[PathBuf], seed: u64) -> Result<()> {
    let dirs: Vec<_> = mounts.iter().map(|m| m.join(name)).collect();
    std::fs::create_dir(&dirs[0])?;
    cx.case(&format!("one truth in {name}, seed {seed}"), || {
        let mut cmd = cx.lab("coherence").args(["--without", WITHOUT]);
        for dir in &dirs {
            cmd = cmd.arg("--dir").arg(dir);
        }
        let seconds = cx.size("15", "5");
        cmd.args(["--seed", &seed.to_string(), "--seconds", seconds]).limit(120).ok()?;
        Ok(())
    });
    Ok(())
}
