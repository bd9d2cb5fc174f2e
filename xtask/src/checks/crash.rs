//! Power cuts: the data directory lies on the lab's forgetful disk, which journals every change
//! and every sync. Images of cuts at arbitrary points are built from the journal; each must open
//! cleanly, hold what was synced by then, and satisfy fsck.

use crate::cx::Cx;
use crate::durable;
use crate::fs::{Fs, How, is_mounted, until};
use crate::plan::{Check, Need};
use crate::proc::Running;
use crate::random::Random;
use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use std::path::{Path, PathBuf};

pub const CHECK: Check = Check {
    name: "crash",
    about: "images cut at arbitrary writes open cleanly and hold what was synced (invariant 2)",
    needs: &[Need::Binary, Need::Apt("fuse3"), Need::Root],
    limit: 900,
    weight: 1,
    slow: false,
    run,
};

struct Recording {
    journal: PathBuf,
    log: PathBuf,
    /// Operations when the file system was first usable.
    usable: u64,
    operations: u64,
    barriers: Vec<u64>,
}

fn run(cx: &Cx) -> Result<()> {
    let recording = record(cx).context("recording")?;
    cx.count("recording", true);
    cx.note(format!(
        "{} operations, {} syncs, usable after {}",
        recording.operations,
        recording.barriers.len(),
        recording.usable
    ));
    let mut random = Random::new(cx.seed());
    for n in 0..cx.size(24, 4) {
        let at = place(&recording, &mut random, n);
        // Every third image holds nothing that was not synced, the others some of it, torn.
        let luck = (n % 3 != 0).then(|| random.below(1 << 30));
        cx.case(&format!("cut {n} at {at}, luck {luck:?}"), || cut(cx, &recording, n, at, luck));
    }
    Ok(())
}

/// Points just around syncs are the interesting ones; the end and any point besides.
fn place(recording: &Recording, random: &mut Random, n: u64) -> u64 {
    let (from, to) = (recording.usable, recording.operations);
    let after: Vec<_> = recording.barriers.iter().copied().filter(|b| *b > from).collect();
    let near = |random: &mut Random| {
        let barrier = after.get(random.index(after.len())).copied().unwrap_or(to);
        (barrier + random.below(3)).saturating_sub(1).clamp(from, to)
    };
    match n % 4 {
        _ if n == 0 => to,
        0 | 1 => near(random),
        _ => from + random.below(to - from + 1),
    }
}

fn start_disk(cx: &Cx, disk: &Path, journal: &Path, seq: &Path) -> Result<Running> {
    let mut running = cx
        .lab("forgetful")
        .arg("mount")
        .arg("--backing")
        .arg(cx.dir("backing")?)
        .arg("--mountpoint")
        .arg(disk)
        .arg("--journal")
        .arg(journal)
        .arg("--seq-file")
        .arg(seq)
        .start(&cx.scratch().join("forgetful.log"))?;
    until("the forgetful disk is mounted", || is_mounted(disk) || !running.alive())?;
    ensure!(is_mounted(disk), "the forgetful disk does not start");
    Ok(running)
}

fn sequence(seq: &Path) -> Result<u64> {
    let bytes = std::fs::read(seq)?;
    Ok(u64::from_le_bytes(bytes.get(..8).context("a short seq file")?.try_into()?))
}

/// A writer's work on a file system whose data directory is on the forgetful disk.
fn record(cx: &Cx) -> Result<Recording> {
    let (disk, journal, seq) =
        (cx.dir("disk")?, cx.scratch().join("journal"), cx.scratch().join("seq"));
    let mut forgetful = start_disk(cx, &disk, &journal, &seq)?;
    let how = How { osts: 2, ..How::default() };
    let mut fs = Fs::on(cx, "recorded", disk.join("data"), how)?;
    let usable = sequence(&seq)?;
    let log = cx.scratch().join("durable.log");
    cx.lab("durable-write")
        .arg("--dir")
        .arg(&fs.mnt)
        .arg("--log")
        .arg(&log)
        .args(["--seed", &cx.seed().to_string(), "--seconds", cx.size("10", "4")])
        .arg("--seq-file")
        .arg(&seq)
        .limit(120)
        .ok()?;
    fs.down()?;
    forgetful.signal(Signal::INT);
    forgetful.ok(60)?;
    let info = cx.lab("forgetful").args(["info", "--json", "--journal"]).arg(&journal).ok()?;
    let info: serde_json::Value = serde_json::from_slice(&info.stdout)?;
    let operations = info["operations"].as_u64().context("no count of operations")?;
    let barriers = info["barriers"].as_array().into_iter().flatten();
    let barriers = barriers.filter_map(serde_json::Value::as_u64).collect();
    Ok(Recording { journal, log, usable, operations, barriers })
}

fn cut(cx: &Cx, recording: &Recording, n: u64, at: u64, luck: Option<u64>) -> Result<()> {
    let image = cx.scratch().join(format!("image-{n}"));
    let mut build = cx.lab("forgetful").arg("cut").arg("--journal").arg(&recording.journal);
    build = build.args(["--at", &at.to_string()]).arg("--out").arg(&image);
    if let Some(luck) = luck {
        build = build.args(["--seed", &luck.to_string()]);
    }
    build.ok()?;
    let how = How { osts: 2, ..How::default() };
    let mut fs = Fs::on(cx, &format!("cut-{n}"), image.join("data"), how).context("opening")?;
    let until = at.to_string();
    durable::check(cx, &fs.mnt, &recording.log, &["--until-seq", &until])?;
    // It must also go on from there.
    std::fs::write(fs.mnt.join("after the cut"), vec![1; 200_000])?;
    fs.down_and_check()?;
    drop(fs);
    std::fs::remove_dir_all(&image)?;
    Ok(())
}
