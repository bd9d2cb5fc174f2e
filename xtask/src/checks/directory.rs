//! A very large directory: made and listed completely while names come and go, removed again.

use crate::cx::Cx;
use crate::fs::Fs;
use crate::plan::{Check, Need};
use crate::random::Random;
use anyhow::{Context, Result, ensure};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use std::collections::HashSet;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

pub const CHECK: Check = Check {
    name: "directory",
    about: "a directory of a million entries: complete listings while others create and remove, with little memory, too",
    needs: &[Need::Binary, Need::Apt("fuse3"), Need::Root],
    limit: 900,
    weight: 2,
    slow: false,
    run,
};

/// Threads that make and remove entries.
const THREADS: u64 = 4;

/// Memory of the metadata target, MiB: the least it can be given, and far less than a million entries take.
const LITTLE_MB: u64 = 16;

fn run(cx: &Cx) -> Result<()> {
    let entries: u64 = cx.size(1_000_000, 20_000);
    let mut fs = Fs::new(cx, "fs")?;
    let dir = fs.mnt.join("large");
    std::fs::create_dir(&dir)?;
    let made = cx.case("create", || parallel(entries, |n| make(&dir, n)));
    ensure!(made, "nothing to look at");
    cx.case("list", || listed(&dir, entries, &HashSet::new()));
    cx.case("list while names come and go", || turbulent(&dir, entries, cx.seed()));
    cx.case("look up at random", || {
        let mut random = Random::new(cx.seed());
        for _ in 0..cx.size(20_000, 2_000) {
            let n = random.below(entries);
            std::fs::symlink_metadata(dir.join(name(n))).with_context(|| name(n))?;
            ensure!(!dir.join(format!("absent-{n}")).exists(), "absent-{n} is there");
        }
        Ok(())
    });
    cx.case("list after a restart", || {
        fs.down()?;
        fs.up()?;
        listed(&dir, entries, &HashSet::new())
    });
    cx.case("list and change it with little memory", || {
        fs.down()?;
        fs.reword(&["--mdt-cache-mb", &LITTLE_MB.to_string()]);
        fs.up()?;
        listed(&dir, entries, &HashSet::new())?;
        let kept = fs.figure("MDT0000.cache_bytes")?;
        ensure!(kept < (2 * LITTLE_MB) << 20, "the target keeps {kept} bytes of it");
        turbulent(&dir, entries, cx.seed() + 1)
    });
    cx.case("rmdir of a full one is refused", || {
        let refused = std::fs::remove_dir(&dir);
        ensure!(refused.is_err_and(|e| e.raw_os_error() == Some(39)), "not ENOTEMPTY");
        Ok(())
    });
    // Many of the pages a listing is read in; the large one stays for fsck.
    let (some, entries) = (fs.mnt.join("some"), cx.size(100_000, 20_000));
    cx.case("remove while listing", || {
        std::fs::create_dir(&some)?;
        parallel(entries, |n| make(&some, n))?;
        removed_while_listing(&some, entries)
    });
    cx.case("down and fsck", || fs.down_and_check());
    Ok(())
}

fn name(n: u64) -> String {
    format!("entry-{n:07}")
}

fn make(dir: &Path, n: u64) -> Result<()> {
    let kind = FileType::RegularFile;
    Ok(mknodat(CWD, dir.join(name(n)), kind, Mode::RUSR | Mode::WUSR, 0)?)
}

/// Runs `body` for every number below `count` on several threads.
fn parallel(count: u64, body: impl Fn(u64) -> Result<()> + Sync) -> Result<()> {
    let body = &body;
    let share = |t: u64| move || (t..count).step_by(THREADS as usize).try_for_each(body);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|t| scope.spawn(share(t))).collect();
        threads.into_iter().try_for_each(|t| t.join().unwrap_or_else(|_| anyhow::bail!("panicked")))
    })
}

/// Every entry once, nothing else but what `others` allows.
fn listed(dir: &Path, entries: u64, others: &HashSet<String>) -> Result<()> {
    let mut seen = vec![false; entries as usize];
    let mut count = 0u64;
    for entry in std::fs::read_dir(dir)? {
        let file = entry?.file_name();
        let text = file.to_str().context("a name that is not ours")?;
        if others.contains(text) {
            continue;
        }
        let number = text.strip_prefix("entry-").and_then(|n| n.parse::<usize>().ok());
        let number =
            number.filter(|n| *n < seen.len()).with_context(|| format!("{text} is listed"))?;
        ensure!(!std::mem::replace(&mut seen[number], true), "{text} is listed twice");
        count += 1;
    }
    ensure!(count == entries, "{count} of {entries} entries are listed");
    Ok(())
}

/// Listings must hold every lasting entry exactly once whatever happens to others meanwhile.
fn turbulent(dir: &Path, entries: u64, seed: u64) -> Result<()> {
    let others: HashSet<String> = (0..2_000).map(|n| format!("other-{n}")).collect();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for t in 0..2 {
            let stop = &stop;
            scope.spawn(move || {
                let mut random = Random::new(seed + t);
                while !stop.load(Ordering::Relaxed) {
                    let other = dir.join(format!("other-{}", random.below(2_000)));
                    if random.below(2) == 0 {
                        let _ = std::fs::File::create(other);
                    } else {
                        let _ = std::fs::remove_file(other);
                    }
                }
            });
        }
        let result = (0..3).try_for_each(|_| listed(dir, entries, &others));
        stop.store(true, Ordering::Relaxed);
        result
    })?;
    for other in &others {
        let _ = std::fs::remove_file(dir.join(other));
    }
    Ok(())
}

/// As `rm -r` does it: removing what a listing returns while it goes on must reach everything.
fn removed_while_listing(dir: &Path, entries: u64) -> Result<()> {
    let mut removed = 0;
    for entry in std::fs::read_dir(dir)? {
        std::fs::remove_file(entry?.path())?;
        removed += 1;
    }
    ensure!(removed == entries, "the listing ended after {removed} of {entries}");
    ensure!(std::fs::read_dir(dir)?.next().is_none(), "something is left");
    ensure!(std::fs::metadata(dir)?.nlink() == 2, "link count");
    std::fs::remove_dir(dir)?;
    Ok(())
}
