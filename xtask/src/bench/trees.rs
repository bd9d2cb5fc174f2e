//! Workloads of many small files, as a developer has them.

use super::systems::System;
use super::{Sizes, Unit, Workload};
use crate::cx::Cx;
use crate::proc::Cmd;
use crate::random::Random;
use anyhow::Result;
use std::path::{Path, PathBuf};
use std::time::Instant;

pub const ALL: &[Workload] = &[
    Workload { name: "untar small files", unit: Unit::Rate, mark: (1.0, "bindfs"), run: untar },
    Workload {
        name: "open, read, close small, warm",
        unit: Unit::Rate,
        mark: (1.0, "bindfs"),
        run: read_all,
    },
    Workload { name: "find, warm", unit: Unit::Rate, mark: (0.5, "ext4"), run: find },
    Workload { name: "ls -lR, warm", unit: Unit::Rate, mark: (0.5, "ext4"), run: list },
    Workload { name: "git add", unit: Unit::Rate, mark: (1.0, "bindfs"), run: git_add },
    Workload { name: "git status", unit: Unit::Rate, mark: (1.0, "bindfs"), run: git_status },
    Workload {
        name: "create and close, one thread",
        unit: Unit::Rate,
        mark: (0.6, "floor"),
        run: create,
    },
    Workload { name: "rm -rf", unit: Unit::Rate, mark: (1.0, "bindfs"), run: remove },
];

/// The archive, made once in the scratch directory.
fn archive(cx: &Cx, sizes: &Sizes) -> Result<PathBuf> {
    let tar = cx.scratch().join("tree.tar");
    if tar.exists() {
        return Ok(tar);
    }
    let tree = cx.scratch().join("tree");
    let mut random = Random::new(3);
    for n in 0..sizes.files {
        let dir = tree.join(format!("d{}/d{}", n / 1000, n / 40));
        if n % 40 == 0 {
            std::fs::create_dir_all(&dir)?;
        }
        let length = random.index(8_000);
        std::fs::write(dir.join(format!("f{n}.txt")), random.bytes(length))?;
    }
    cx.cmd("tar").arg("-cf").arg(&tar).arg("tree").cwd(cx.scratch()).ok()?;
    std::fs::remove_dir_all(&tree)?;
    Ok(tar)
}

fn timed(sizes: &Sizes, cmd: Cmd) -> Result<(f64, f64)> {
    let start = Instant::now();
    cmd.quiet().limit(1200).ok()?;
    Ok((sizes.files as f64, start.elapsed().as_secs_f64()))
}

fn untar(cx: &Cx, system: &mut System, sizes: &Sizes) -> Result<(f64, f64)> {
    let tar = archive(cx, sizes)?;
    let _ = std::fs::remove_dir_all(system.dir().join("tree"));
    timed(sizes, cx.cmd("tar").arg("-xf").arg(tar).cwd(system.dir()))
}

/// Makes sure the tree is there, and read once, so that what follows is warm.
fn warm(cx: &Cx, system: &mut System, sizes: &Sizes) -> Result<PathBuf> {
    let tree = system.dir().join("tree");
    if !tree.exists() {
        untar(cx, system, sizes)?;
    }
    cx.cmd("ls").arg("-lR").arg(&tree).quiet().limit(600).ok()?;
    Ok(tree)
}

fn read_all(cx: &Cx, system: &mut System, sizes: &Sizes) -> Result<(f64, f64)> {
    let tree = warm(cx, system, sizes)?;
    let mut files = Vec::new();
    walk(&tree, &mut files)?;
    for file in &files {
        std::fs::read(file)?;
    }
    let start = Instant::now();
    for file in &files {
        std::fs::read(file)?;
    }
    Ok((files.len() as f64, start.elapsed().as_secs_f64()))
}

fn walk(dir: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            walk(&entry.path(), files)?;
        } else {
            files.push(entry.path());
        }
    }
    Ok(())
}

fn find(cx: &Cx, system: &mut System, sizes: &Sizes) -> Result<(f64, f64)> {
    let tree = warm(cx, system, sizes)?;
    timed(sizes, cx.cmd("find").arg(tree))
}

fn list(cx: &Cx, system: &mut System, sizes: &Sizes) -> Result<(f64, f64)> {
    let tree = warm(cx, system, sizes)?;
    timed(sizes, cx.cmd("ls").arg("-lR").arg(tree))
}

fn git(cx: &Cx, tree: &Path, words: &[&str]) -> Cmd {
    cx.cmd("git").args(["-c", "safe.directory=*"]).args(words).cwd(tree)
}

fn git_add(cx: &Cx, system: &mut System, sizes: &Sizes) -> Result<(f64, f64)> {
    let tree = warm(cx, system, sizes)?;
    let _ = std::fs::remove_dir_all(tree.join(".git"));
    git(cx, &tree, &["init", "-q"]).quiet().ok()?;
    timed(sizes, git(cx, &tree, &["add", "."]))
}

fn git_status(cx: &Cx, system: &mut System, sizes: &Sizes) -> Result<(f64, f64)> {
    let tree = warm(cx, system, sizes)?;
    if !tree.join(".git/index").exists() {
        git_add(cx, system, sizes)?;
    }
    git(cx, &tree, &["status", "--porcelain"]).quiet().limit(600).ok()?;
    timed(sizes, git(cx, &tree, &["status", "--porcelain"]))
}

/// Empty files, made and closed one after the other, in the directory itself.
fn create(_: &Cx, system: &mut System, sizes: &Sizes) -> Result<(f64, f64)> {
    let paths: Vec<_> = (0..sizes.files).map(|n| system.dir().join(format!("made{n}"))).collect();
    let start = Instant::now();
    paths.iter().try_for_each(|path| std::fs::File::create_new(path).map(drop))?;
    let seconds = start.elapsed().as_secs_f64();
    paths.iter().try_for_each(std::fs::remove_file)?;
    Ok((sizes.files as f64, seconds))
}

fn remove(cx: &Cx, system: &mut System, sizes: &Sizes) -> Result<(f64, f64)> {
    let tree = warm(cx, system, sizes)?;
    let _ = std::fs::remove_dir_all(tree.join(".git"));
    timed(sizes, cx.cmd("rm").arg("-rf").arg(tree))
}
