//! Work with git: the workspace is cloned into the mount and a crate of it is built there.

use crate::cx::Cx;
use crate::fs::Fs;
use crate::plan::{Check, Need};
use crate::proc::Cmd;
use crate::where_;
use anyhow::{Result, ensure};
use std::path::Path;

pub const CHECK: Check = Check {
    name: "git",
    about: "clone the workspace into the mount, build a crate there, git status and git fsck",
    needs: &[Need::Binary, Need::Apt("git"), Need::Apt("fuse3"), Need::Root],
    limit: 900,
    weight: 2,
    slow: false,
    run,
};

/// git that trusts the checkout whoever owns it, and needs no user set up.
fn git(cx: &Cx, dir: &Path) -> Cmd {
    cx.cmd("git")
        .args(["-c", "safe.directory=*", "-c", "user.name=t", "-c", "user.email=t@localhost"])
        .env("GIT_CONFIG_COUNT", "1")
        .env("GIT_CONFIG_KEY_0", "safe.directory")
        .env("GIT_CONFIG_VALUE_0", "*")
        .cwd(dir)
        .limit(300)
}

fn run(cx: &Cx) -> Result<()> {
    let mut fs = Fs::new(cx, "fs")?;
    let clone = fs.mnt.join("clone");
    let source = repository(cx)?;
    let cloned = cx.case("clone", || {
        git(cx, &fs.mnt).args(["clone", "-q", "--no-hardlinks"]).arg(&source).arg(&clone).ok()?;
        Ok(())
    });
    ensure!(cloned, "nothing to work with");
    cx.case("cargo build in the mount", || {
        cx.cmd("cargo")
            .args(["build", "--offline", "-p", "pinstripe-proto", "--jobs", "2"])
            .env_remove("CARGO_TARGET_DIR")
            .env("CARGO_INCREMENTAL", "1")
            .cwd(&clone)
            .limit(600)
            .ok()?;
        ensure!(clone.join("target/debug/libpinstripe_proto.rlib").exists(), "nothing was built");
        Ok(())
    });
    cx.case("status is clean", || clean(cx, &clone));
    cx.case("commit, branch, checkout, gc", || history(cx, &clone));
    cx.case("git fsck", || git(cx, &clone).args(["fsck", "--full", "--strict"]).ok().map(|_| ()));
    cx.case("the same after a restart", || {
        fs.down()?;
        fs.up()?;
        clean(cx, &clone)?;
        git(cx, &clone).args(["fsck", "--full"]).ok()?;
        Ok(())
    });
    cx.case("remove", || Ok(std::fs::remove_dir_all(&clone)?));
    cx.case("down and fsck", || fs.down_and_check());
    Ok(())
}

/// A local repository of the workspace as it is now, committed or not.
fn repository(cx: &Cx) -> Result<std::path::PathBuf> {
    let copy = cx.scratch().join("source");
    let root = where_::root();
    let is_repository = root.join(".git").exists();
    if is_repository {
        git(cx, cx.scratch()).args(["clone", "-q"]).arg(&root).arg(&copy).ok()?;
    } else {
        cx.cmd("cp").arg("-a").arg(&root).arg(&copy).ok()?;
        git(cx, &copy).args(["init", "-q"]).ok()?;
        git(cx, &copy).args(["add", "."]).ok()?;
        git(cx, &copy).args(["commit", "-q", "-m", "all"]).ok()?;
    }
    Ok(copy)
}

fn clean(cx: &Cx, clone: &Path) -> Result<()> {
    let out = git(cx, clone).args(["status", "--porcelain"]).ok()?.text();
    ensure!(out.is_empty(), "not clean:\n{out}");
    Ok(())
}

fn history(cx: &Cx, clone: &Path) -> Result<()> {
    git(cx, clone).args(["checkout", "-q", "-b", "other"]).ok()?;
    for n in 0..20 {
        std::fs::write(clone.join(format!("file-{n}")), format!("{n}\n").repeat(500))?;
        git(cx, clone).args(["add", "."]).ok()?;
        git(cx, clone).args(["commit", "-q", "-m", &n.to_string()]).quiet().ok()?;
    }
    git(cx, clone).args(["checkout", "-q", "-"]).ok()?;
    ensure!(!clone.join("file-3").exists(), "checkout left a file of the other branch");
    git(cx, clone).args(["checkout", "-q", "other"]).ok()?;
    ensure!(clone.join("file-19").exists(), "checkout lacks a file");
    git(cx, clone).args(["gc", "-q", "--prune=now"]).ok()?;
    clean(cx, clone)
}
