//! A large source tree as a tarball: unpacked, compared to the last detail, removed.

use crate::cx::Cx;
use crate::fs::Fs;
use crate::plan::{Check, Need};
use crate::proc::Cmd;
use crate::tree;
use anyhow::{Result, ensure};
use std::path::Path;

pub const CHECK: Check = Check {
    name: "tarball",
    about: "unpack 12,000 files with every oddity, diff -r and rsync -aHAXn --checksum, remove",
    needs: &[Need::Binary, Need::Apt("rsync"), Need::Apt("fuse3"), Need::Root],
    limit: 600,
    weight: 1,
    slow: false,
    run,
};

fn run(cx: &Cx) -> Result<()> {
    let source = cx.scratch().join("source");
    tree::make(&source, cx.seed(), cx.size(12_000, 2_000))?;
    let tar = cx.scratch().join("source.tar");
    archive(cx, &["--acls", "--xattrs", "--xattrs-include=*", "-cpf"], &tar, cx.scratch())
        .arg("source")
        .ok()?;
    let mut fs = Fs::new(cx, "fs")?;
    let before = files(&fs.data)?;
    let copy = fs.mnt.join("source");
    cx.case("unpack", || {
        archive(cx, &["--acls", "--xattrs", "--xattrs-include=*", "-xpf"], &tar, &fs.mnt).ok()?;
        Ok(())
    });
    cx.case("compare", || compare(cx, &source, &copy));
    cx.case("compare after a restart", || {
        fs.down()?;
        fs.up()?;
        compare(cx, &source, &copy)
    });
    cx.case("cp -a inside", || {
        let second = fs.mnt.join("second");
        cx.cmd("cp").arg("-a").arg(&copy).arg(&second).limit(300).ok()?;
        compare(cx, &source, &second)
    });
    cx.case("rename and compare", || {
        std::fs::rename(fs.mnt.join("second"), fs.mnt.join("moved"))?;
        rsync(cx, &source, &fs.mnt.join("moved"))
    });
    cx.case("remove", || {
        cx.cmd("rm").arg("-rf").arg(&copy).arg(fs.mnt.join("moved")).limit(300).ok()?;
        ensure!(std::fs::read_dir(&fs.mnt)?.next().is_none(), "something is left");
        // Engines keep a few files of their own; objects must not stay.
        crate::fs::until("objects are gone", || files(&fs.data).is_ok_and(|n| n < before + 100))
    });
    cx.case("down and fsck", || fs.down_and_check());
    Ok(())
}

fn archive(cx: &Cx, words: &[&str], tar: &Path, dir: &Path) -> Cmd {
    cx.cmd("tar")
        .args(["--numeric-owner", "--format=posix"])
        .args(words)
        .arg(tar)
        .cwd(dir)
        .limit(300)
}

/// Regular files under `dir`, which may change meanwhile.
fn files(dir: &Path) -> Result<usize> {
    let mut count = 0;
    for entry in std::fs::read_dir(dir)?.flatten() {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => count += files(&entry.path()).unwrap_or(0),
            Ok(_) => count += 1,
            Err(_) => {}
        }
    }
    Ok(count)
}

fn compare(cx: &Cx, source: &Path, copy: &Path) -> Result<()> {
    let diff = cx.cmd("diff").args(["-r", "--no-dereference"]).arg(source).arg(copy);
    let text = diff.limit(300).run()?.all();
    let lines: Vec<_> = text.lines().filter(|l| !special(l)).take(30).collect();
    ensure!(lines.is_empty(), "diff -r says:\n{}", lines.join("\n"));
    rsync(cx, source, copy)
}

/// diff calls FIFOs and devices different from themselves; rsync compares those.
fn special(line: &str) -> bool {
    ["a fifo", "a character special file"]
        .iter()
        .any(|kind| line.ends_with(kind) && line.contains(&format!("is {kind} while")))
}

/// Whatever rsync would change is a difference: content, modes, owners, times, links, ACLs, xattrs.
pub(super) fn rsync(cx: &Cx, source: &Path, copy: &Path) -> Result<()> {
    let mut from = source.as_os_str().to_owned();
    from.push("/");
    let out = cx
        .cmd("rsync")
        .args(["-aHAXn", "--checksum", "--delete", "--itemize-changes"])
        .arg(from)
        .arg(copy)
        .limit(300)
        .ok()?;
    let lines = out.text();
    let shown: Vec<_> = lines.lines().take(30).collect();
    ensure!(lines.trim().is_empty(), "rsync would change:\n{}", shown.join("\n"));
    Ok(())
}
