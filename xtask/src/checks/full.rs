//! A full disk under the targets: ENOSPC comes, removing works, the space returns, nothing that
//! was synced is lost.

use crate::cx::Cx;
use crate::fs::{Fs, How, same, until};
use crate::plan::{Check, Need};
use crate::random::Random;
use anyhow::{Context, Result, bail, ensure};
use std::io::Write;
use std::path::{Path, PathBuf};

/// What a check needs that has a disk of its own.
pub const NEEDS: &[Need] =
    &[Need::Binary, Need::Apt("e2fsprogs"), Need::Apt("mount"), Need::Apt("fuse3"), Need::Root];

pub const CHECK: Check = Check {
    name: "full",
    about: "a small disk under the targets fills up: ENOSPC, rm works, the space returns",
    needs: NEEDS,
    limit: 600,
    weight: 1,
    slow: false,
    run,
};

const ENOSPC: i32 = 28;
/// Size of the disk; the engine's own files need some of it.
const DISK: u64 = 768 << 20;
const FILE: usize = 8 << 20;

fn run(cx: &Cx) -> Result<()> {
    let disk = disk(cx)?;
    let mut fs = Fs::on(cx, "fs", disk.join("data"), How { osts: 2, ..How::default() })?;
    let kept = Random::new(cx.seed()).bytes(3 << 20);
    let file = fs.mnt.join("kept");
    std::fs::write(&file, &kept)?;
    std::fs::File::open(&file)?.sync_all()?;
    let dir = fs.striped("fill", 2, 1 << 20)?;
    let mut files = 0;
    cx.case("who goes on writing hears of it", || refused(&dir));
    let filled = cx.case("ENOSPC comes", || {
        files = fill(&dir, DISK / FILE as u64 + 10)?;
        ensure!(files > 10, "full after {files} files of 8 MiB");
        Ok(())
    });
    ensure!(filled, "it cannot be filled");
    cx.case("what was synced is there", || same("kept", &std::fs::read(&file)?, &kept));
    cx.case("a write error is reported once", || reported_once(&dir));
    cx.case("reads and statfs work", || {
        let stat = rustix::fs::statvfs(&fs.mnt)?;
        let free = stat.f_bavail * stat.f_frsize;
        ensure!(free < DISK / 4, "{free} bytes are said to be free");
        ensure!(std::fs::read(dir.join("0"))?.len() == FILE, "the first file is short");
        Ok(())
    });
    cx.case("rm works and the space returns", || {
        for n in 0..=files {
            let _ = std::fs::remove_file(dir.join(n.to_string()));
        }
        until("half of the space is free", || {
            rustix::fs::statvfs(&fs.mnt).is_ok_and(|s| s.f_bavail * s.f_frsize > DISK / 2)
        })
    });
    cx.case("writing works again", || {
        let data = vec![5; 20 << 20];
        std::fs::write(dir.join("again"), &data)?;
        std::fs::File::open(dir.join("again"))?.sync_all()?;
        same("again", &std::fs::read(dir.join("again"))?, &data)
    });
    cx.case("restart on a full disk", || {
        let files = fill(&dir, DISK / FILE as u64 + 10)?;
        fs.down()?;
        fs.up()?;
        same("kept", &std::fs::read(&file)?, &kept)?;
        for n in 0..=files {
            let _ = std::fs::remove_file(dir.join(n.to_string()));
        }
        Ok(())
    });
    cx.case("mcp leaves nothing that looks complete", || copies(cx, &fs, &dir));
    cx.case("down and fsck", || fs.down_and_check());
    Ok(())
}

/// What finds no room is not as long as its source, however it is told that: at write, or only at close,
/// by when the page cache has taken all. With room, --resume finishes it.
fn copies(cx: &Cx, fs: &Fs, dir: &Path) -> Result<()> {
    let mcp = cx.set.pinstripe.with_file_name("mcp");
    let source = cx.scratch().join("source");
    let bytes = Random::new(cx.seed()).bytes(20 * FILE + 4321);
    std::fs::write(&source, &bytes)?;
    let free = || rustix::fs::statvfs(&fs.mnt).map_or(0, |s| s.f_bavail * s.f_frsize);
    let files = fill(dir, DISK / FILE as u64 + 10)?;
    for n in 0..10.min(files) {
        std::fs::remove_file(dir.join(n.to_string()))?;
    }
    until("there is some room", || free() > 6 * FILE as u64)?;
    let ways = [&["--direct-write"][..], &["--no-direct-write"], &["-a", "--no-direct-write"]];
    let copy = |n: usize, resume: bool| {
        let mut cmd = cx.cmd(&mcp).args(ways[n]);
        if resume {
            let journal = cx.scratch().join(format!("journal-{n}"));
            cmd = cmd.arg(format!("--resume={}", journal.display()));
        }
        cmd.arg(&source).arg(dir.join(format!("copy-{n}"))).limit(120)
    };
    for (n, way) in ways.iter().enumerate() {
        let file = dir.join(format!("copy-{n}"));
        for resume in [false, true] {
            let out = copy(n, resume).run()?;
            let what = format!("{way:?}, resume {resume}");
            ensure!(out.status.code() == Some(1), "{what}: {:?}", out.status);
            ensure!(out.errors().contains("No space left on device"), "{what}: {}", out.errors());
            let len = std::fs::metadata(&file)?.len();
            ensure!(len < bytes.len() as u64, "{what}: all of {len} bytes seem to be there");
            if !resume {
                std::fs::remove_file(&file)?;
                until("its room is back", || free() > 6 * FILE as u64)?;
            }
        }
        std::fs::File::options().write(true).open(&file)?.set_len(0)?;
        until("its room is back", || free() > 6 * FILE as u64)?;
    }
    for n in 0..=files {
        let _ = std::fs::remove_file(dir.join(n.to_string()));
    }
    until("there is room for one", || free() > 24 * FILE as u64)?;
    for n in 0..ways.len() {
        copy(n, true).ok()?;
        let file = dir.join(format!("copy-{n}"));
        same("the copy that was resumed", &std::fs::read(&file)?, &bytes)?;
        std::fs::remove_file(&file)?;
        until("there is room for the next", || free() > 24 * FILE as u64)?;
    }
    Ok(())
}

/// Of an open file with bytes that found no room, write, fsync or close says so, and only once.
fn reported_once(dir: &Path) -> Result<()> {
    let path = dir.join("once");
    let mut file = std::fs::File::create(&path)?;
    let mut failures = 0;
    for _ in 0..DISK / FILE as u64 {
        if file.write_all(&vec![1; FILE]).is_err() {
            failures += 1;
            break;
        }
    }
    failures += u32::from(file.sync_all().is_err());
    ensure!(failures > 0, "neither write nor fsync said that there is no room");
    // Nothing was written since, so there is nothing left to complain about.
    file.sync_all().context("the same error is reported again")?;
    drop(file);
    std::fs::remove_file(&path)?;
    Ok(())
}

/// write(2) itself fails, soon after there is no more room; and if fsync then says that the rest is there, it is.
fn refused(dir: &Path) -> Result<()> {
    let path = dir.join("refused");
    let mut file = std::fs::File::create(&path)?;
    let (mut written, data) = (0, vec![1; FILE]);
    let refused = loop {
        ensure!(written < 2 * DISK, "twice as much was written as there is room for");
        match file.write(&data) {
            Ok(n) => written += n as u64,
            Err(e) => break e,
        }
    };
    let enospc = |e: &std::io::Error| e.raw_os_error() == Some(ENOSPC);
    ensure!(enospc(&refused), "write: {refused}");
    match file.sync_all() {
        Ok(()) => {
            let back = std::fs::read(&path)?;
            let whole = back.len() as u64 == written && back.iter().all(|b| *b == 1);
            ensure!(whole, "fsync says that all {written} bytes are there");
        }
        Err(e) => ensure!(enospc(&e), "fsync: {e}"),
    }
    drop(file);
    std::fs::remove_file(&path)?;
    // Its objects are destroyed a moment later, which whoever writes waits for.
    let next = dir.join("next");
    std::fs::write(&next, &data).context("with all of the space given back")?;
    std::fs::File::open(&next)?.sync_all()?;
    Ok(std::fs::remove_file(&next)?)
}

/// A loop device with ext4, mounted in the scratch directory; the sweep takes it away.
pub fn disk(cx: &Cx) -> Result<PathBuf> {
    let image = cx.scratch().join("disk.img");
    std::fs::File::create(&image)?.set_len(DISK)?;
    cx.cmd("mkfs.ext4").args(["-q", "-F", "-m", "0"]).arg(&image).ok()?;
    let disk = cx.dir("disk")?;
    cx.cmd("mount").args(["-o", "loop"]).arg(&image).arg(&disk).ok()?;
    cx.on_end(disk.clone());
    Ok(disk)
}

/// Writes files until there is no more room; how many were written whole. The error may come at
/// write, fsync or close, but it must come.
fn fill(dir: &Path, most: u64) -> Result<u64> {
    let data = vec![0x5a; FILE];
    for n in 0..most {
        let path = dir.join(n.to_string());
        let written = (|| {
            let mut file = std::fs::File::create(&path)?;
            file.write_all(&data)?;
            file.sync_all()
        })();
        match written {
            Ok(()) => {}
            Err(e) if e.raw_os_error() == Some(ENOSPC) => return Ok(n),
            Err(e) => return Err(e).with_context(|| format!("file {n}: not ENOSPC")),
        }
    }
    bail!("{most} files of {FILE} bytes fit on a disk of {DISK}")
}
