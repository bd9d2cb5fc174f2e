//! What the README promises: one command makes and mounts a file system, one ends it, and the
//! data is there again afterwards, whatever happened in between.

use crate::cx::Cx;
use crate::fs::{Fs, is_mounted, same, until};
use crate::plan::{Check, Need};
use crate::proc::Cmd;
use crate::random::Random;
use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use std::path::Path;

pub const CHECK: Check = Check {
    name: "smoke",
    about: "up, write, read, lfs getstripe, status, down, up again, kill -9, up again, fsck",
    needs: &[Need::Binary, Need::Apt("fuse3"), Need::Root],
    limit: 300,
    weight: 1,
    slow: false,
    run,
};

fn run(cx: &Cx) -> Result<()> {
    let mut fs = Fs::new(cx, "fs").context("pinstripe up on an empty directory")?;
    cx.count("up", true);
    let data = Random::new(cx.seed()).bytes(5 << 20);
    let file = fs.mnt.join("large");
    cx.case("write and read", || {
        std::fs::write(&file, &data)?;
        std::fs::write(fs.mnt.join("small"), b"hello\n")?;
        same("large", &std::fs::read(&file)?, &data)
    });
    cx.case("lfs getstripe", || stripes(&fs));
    cx.case("OSTs take turns", || turns(&fs));
    cx.case("lfs df, path2fid", || {
        let df = fs.lfs(["df"]).arg(&fs.mnt).ok()?.text();
        ensure!(df.contains("MDT0000") && df.contains("OST0003"), "targets missing in:\n{df}");
        let fid = fs.lfs(["path2fid"]).arg(&file).ok()?.text();
        ensure!(fid.trim().starts_with("[0x"), "not a FID: {fid}");
        Ok(())
    });
    cx.case("status", || status(&fs));
    cx.case("down and up again", || {
        fs.down()?;
        ensure!(std::fs::read_dir(&fs.mnt)?.next().is_none(), "the mount point is not empty");
        fs.up()?;
        intact(&fs, &data)
    });
    cx.case("kill -9 and up again", || {
        rustix::fs::fsync(std::fs::File::open(&file)?)?;
        fs.kill()?;
        shown_as_down(cx, &fs)?;
        fs.up()?;
        intact(&fs, &data)
    });
    cx.case("kill -9 and up elsewhere", || elsewhere(cx, &mut fs, &data));
    cx.case("down --force while a file is in use", || {
        let mut busy = std::fs::File::create(fs.mnt.join("busy"))?;
        std::io::Write::write_all(&mut busy, b"kept")?;
        let refused = cx.pinstripe().arg("down").arg(&fs.mnt).limit(60).run()?.refused()?;
        ensure!(refused.all().contains("in use"), "not told why: {}", refused.all());
        let forced = cx.pinstripe().args(["down", "--force"]).arg(&fs.mnt).limit(60).ok()?;
        ensure!(!forced.all().contains("killed"), "it did not end by itself: {}", forced.all());
        drop(busy);
        fs.up()?;
        same("busy", &std::fs::read(fs.mnt.join("busy"))?, b"kept")
    });
    cx.case("down right after those were killed who worked there", || killed_users(cx, &mut fs));
    cx.case("fsck finds nothing", || fs.down_and_check());
    cx.case("in the foreground, Ctrl-C ends it", || foreground(cx, &fs, &data));
    cx.case("a lazily unmounted one ends", || {
        fs.up()?;
        let pids = fs.pids()?;
        cx.cmd("umount").arg(&fs.mnt).ok()?;
        for pid in pids {
            until("its processes end after umount", || !crate::fs::running(pid))?;
        }
        fs.up()?;
        intact(&fs, &data)
    });
    cx.case("an unmounted one is up again at once", || {
        for _ in 0..5 {
            cx.cmd("umount").arg(&fs.mnt).ok()?;
            fs.up()?;
            intact(&fs, &data)?;
        }
        fs.down_and_check()
    });
    Ok(())
}

fn stripes(fs: &Fs) -> Result<()> {
    let dir = fs.striped("wide", 4, 65536)?;
    let file = dir.join("file");
    std::fs::write(&file, vec![7; 1 << 20])?;
    let said = fs.lfs(["getstripe"]).arg(&file).ok()?.text();
    let field = |name: &str| {
        let line = said.lines().find(|l| l.trim_start().starts_with(name))?;
        line.rsplit(' ').next().map(str::to_owned)
    };
    ensure!(field("lmm_stripe_count:").as_deref() == Some("4"), "not 4 stripes:\n{said}");
    ensure!(field("lmm_stripe_size:").as_deref() == Some("65536"), "not 64 KiB:\n{said}");
    let one = fs.mnt.join("one");
    fs.lfs(["setstripe", "-c", "1", "-i", "2"]).arg(&one).ok()?;
    std::fs::write(&one, vec![1; 200_000])?;
    let index = fs.lfs(["getstripe", "-i"]).arg(&one).ok()?.text();
    ensure!(index.trim() == "2", "the first OST is {index}, not 2");
    let fifo = fs.mnt.join("fifo");
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, 0o644.into(), 0)?;
    let said = fs.lfs(["getstripe"]).arg(&fifo).ok()?.text();
    ensure!(said.contains("has no stripe info"), "a FIFO has stripes: {said}");
    Ok(())
}

/// What fits in one stripe lies on the first OST of its file; all are the first of as many.
fn turns(fs: &Fs) -> Result<()> {
    const FILES: usize = 16;
    let dir = fs.mnt.join("turns");
    std::fs::create_dir(&dir)?;
    let mut firsts = std::collections::BTreeMap::<String, usize>::new();
    for n in 0..FILES {
        let file = dir.join(format!("{n}"));
        std::fs::write(&file, vec![1; 200_000])?;
        std::fs::File::open(&file)?.sync_all()?;
        let said = fs.lfs(["getstripe", "-i"]).arg(&file).ok()?.text();
        *firsts.entry(said.trim().to_owned()).or_default() += 1;
    }
    let even = firsts.len() == 4 && firsts.values().all(|n| *n == FILES / 4);
    ensure!(even, "first OSTs of {FILES} files: {firsts:?}");
    Ok(())
}

fn status(fs: &Fs) -> Result<()> {
    let text = fs.status()?.to_string();
    for target in ["MDT0000", "OST0000", "OST0001", "OST0002", "OST0003"] {
        ensure!(text.contains(target), "{target} is missing in {text}");
    }
    fs.pids().map(|_| ())
}

/// `status` tells of a mount whose process is gone, whether it is asked for it or for all.
fn shown_as_down(cx: &Cx, fs: &Fs) -> Result<()> {
    let name = fs.mnt.display().to_string();
    for which in [Some(&fs.mnt), None] {
        let said = cx.pinstripe().arg("status").args(which).limit(60).run()?.refused()?.all();
        ensure!(said.contains(&name) && said.contains("down"), "{which:?}: {said}");
    }
    Ok(())
}

/// Who has much memory is a while in dying, and has its files open until then.
fn killed_users(cx: &Cx, fs: &mut Fs) -> Result<()> {
    let program =
        "open(F, '>', $ARGV[0]) or die; $much = 'x' x 4e8; syswrite(F, 'ready'); sleep 1000";
    let names = ["killed-0", "killed-1", "killed-2"].map(|name| fs.mnt.join(name));
    let users = names.each_ref().map(|name| {
        Cmd::new("perl").args(["-e", program]).arg(name).start(&cx.scratch().join("users.log"))
    });
    let mut users = users.into_iter().collect::<Result<Vec<_>>>()?;
    for name in &names {
        until("all are there", || std::fs::read(name).is_ok_and(|said| said == b"ready"))?;
    }
    users.iter_mut().for_each(|user| user.signal(Signal::KILL));
    cx.pinstripe().arg("down").arg(&fs.mnt).limit(60).ok()?;
    fs.up().map(drop)
}

/// What a killed process left mounted does not stay when its files are mounted somewhere else.
fn elsewhere(cx: &Cx, fs: &mut Fs, data: &[u8]) -> Result<()> {
    fs.kill()?;
    fs.lfs(["df"]).run()?.refused()?;
    let left = std::mem::replace(&mut fs.mnt, cx.dir("elsewhere")?);
    fs.up()?;
    ensure!(!is_mounted(&left), "the dead mount is still there");
    intact(fs, data)?;
    fs.down()?;
    fs.mnt = left;
    fs.up().map(|_| ())
}

fn intact(fs: &Fs, data: &[u8]) -> Result<()> {
    same("large", &std::fs::read(fs.mnt.join("large"))?, data)?;
    same("small", &std::fs::read(fs.mnt.join("small"))?, b"hello\n")
}

fn foreground(cx: &Cx, fs: &Fs, data: &[u8]) -> Result<()> {
    let log = cx.scratch().join("foreground.log");
    let mut running = fs.up_command().start(&log)?;
    until("mounted in the foreground", || is_mounted(&fs.mnt) || !running.alive())?;
    until("usable in the foreground", || Path::new(&fs.mnt.join("small")).exists())?;
    intact(fs, data)?;
    running.signal(Signal::INT);
    running.ok(60).with_context(|| std::fs::read_to_string(&log).unwrap_or_default())?;
    ensure!(!is_mounted(&fs.mnt), "still mounted after Ctrl-C");
    Ok(())
}
