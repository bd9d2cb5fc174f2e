//! kill -9 of everything `up` started, while a writer records what it synced; up again, all of it
//! is there.

use crate::cx::Cx;
use crate::durable::{self, Writer};
use crate::fs::{Fs, kill9, running, same, until};
use crate::plan::{Check, Need};
use crate::random::Random;
use anyhow::Result;

pub const CHECK: Check = Check {
    name: "kill-up",
    about: "kill -9 of `up` under a writer; up again: what was synced is there (invariants 1, 2)",
    needs: &[Need::Binary, Need::Apt("fuse3"), Need::Root],
    limit: 600,
    weight: 1,
    slow: false,
    run,
};

fn run(cx: &Cx) -> Result<()> {
    let mut fs = Fs::new(cx, "fs")?;
    let mut logs = Vec::new();
    for round in 0..cx.size(6, 2) {
        cx.case(&format!("round {round}"), || {
            let mut writer = Writer::start(cx, &fs.mnt, cx.seed() * 50 + round)?;
            writer.progress(20 + 60 * (round as usize % 3))?;
            let pids = fs.pids()?;
            fs.kill()?;
            anyhow::ensure!(!pids.iter().any(|p| running(*p)), "a killed process lives");
            logs.push(writer.end()?);
            fs.up()?;
            // Older rounds as well: a crash must not undo what an earlier one kept.
            for log in &logs {
                durable::check(cx, &fs.mnt, log, &[])?;
            }
            Ok(())
        });
    }
    cx.case("syncfs, then kill -9", || synced(&mut fs, cx.seed()));
    cx.case("umount, then kill -9", || unmounted(cx, &mut fs, cx.seed()));
    cx.case("down and fsck", || fs.down_and_check());
    cx.case("checked stopped after a kill", || {
        fs.up()?;
        let mut writer = Writer::start(cx, &fs.mnt, cx.seed() * 50 + 49)?;
        writer.progress(50)?;
        fs.kill()?;
        writer.end()?;
        cx.cmd("umount").arg("-l").arg(&fs.mnt).run()?;
        fs.fsck()
    });
    Ok(())
}

/// What syncfs returned for is there, though no file was synced by itself.
fn synced(fs: &mut Fs, seed: u64) -> Result<()> {
    let mut random = Random::new(seed);
    let dir = fs.mnt.join("synced");
    std::fs::create_dir(&dir)?;
    let contents: Vec<_> = [10, 5_000, 100_000, 3_000_000].map(|n| random.bytes(n)).to_vec();
    for (n, content) in contents.iter().enumerate() {
        std::fs::write(dir.join(n.to_string()), content)?;
    }
    rustix::fs::syncfs(std::fs::File::open(&dir)?)?;
    fs.kill()?;
    fs.up()?;
    for (n, content) in contents.iter().enumerate() {
        same(&format!("file {n}"), &std::fs::read(dir.join(n.to_string()))?, content)?;
    }
    Ok(())
}

/// When umount(8) has returned everything is stored, as on a local file system.
fn unmounted(cx: &Cx, fs: &mut Fs, seed: u64) -> Result<()> {
    let mut random = Random::new(seed + 1);
    let dir = fs.mnt.join("unmounted");
    std::fs::create_dir(&dir)?;
    let contents: Vec<_> = (0..200).map(|n| random.bytes(n * n)).collect();
    let large = random.bytes(3_000_000);
    let pids = fs.pids()?;
    std::fs::write(dir.join("large"), &large)?;
    for (n, content) in contents.iter().enumerate() {
        std::fs::write(dir.join(n.to_string()), content)?;
    }
    cx.cmd("umount").arg(&fs.mnt).ok()?;
    pids.iter().for_each(|pid| kill9(*pid));
    until("they have ended", || !pids.iter().any(|p| running(*p)))?;
    fs.up()?;
    same("the large file", &std::fs::read(dir.join("large"))?, &large)?;
    for (n, content) in contents.iter().enumerate() {
        same(&format!("file {n}"), &std::fs::read(dir.join(n.to_string()))?, content)?;
    }
    Ok(())
}
