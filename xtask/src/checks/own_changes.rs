//! What the mount that changes something shows meanwhile (invariant 3).
//!
//! Role: one thread changes something through a mount, again and again, each time to a higher number; one sees
//! numbers through another mount and publishes the highest; others take what is published, and then look through
//! the first: what they see must not be lower. While a change is on its way its own mount knows least of all
//! whether it is done.

use anyhow::{Context, Result, ensure};
use rustix::fs::{AtFlags, CWD, StatxFlags, Timespec, Timestamps, statx, utimensat};
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// What is counted up, and how it is read through a mount.
struct Counter<'a> {
    set: &'a (dyn Fn(u64) -> Result<()> + Sync),
    /// Several ways to look, each with its name; None: it says nothing this time.
    looks: &'a [(&'static str, &'a Look<'a>)],
}

type Look<'a> = dyn Fn(&Path) -> Result<Option<u64>> + Sync + 'a;

/// Counts for some time; nothing may be seen to go back once the other mount has shown it.
fn count(near: &Path, far: &Path, time: Duration, counter: &Counter<'_>) -> Result<()> {
    let (seen, end, looks) = (AtomicU64::new(0), AtomicBool::new(false), AtomicU64::new(0));
    let until_end = |turn: &(dyn Fn() -> Result<()> + Sync)| -> Result<()> {
        while !end.load(SeqCst) {
            turn().inspect_err(|_| end.store(true, SeqCst))?;
        }
        Ok(())
    };
    let begun = Instant::now();
    let next = AtomicU64::new(1);
    let set = || {
        (counter.set)(next.fetch_add(1, SeqCst))?;
        if begun.elapsed() > time {
            end.store(true, SeqCst);
        }
        Ok(())
    };
    let publish = || {
        let (_, look) = counter.looks[0];
        if let Some(n) = look(far)? {
            seen.fetch_max(n, SeqCst);
        }
        Ok(())
    };
    let check = |what: &str, look: &Look<'_>| {
        let known = seen.load(SeqCst);
        if let Some(n) = look(near)? {
            ensure!(
                n >= known,
                "{what} shows {n} where it is changed, the other mount showed {known}"
            );
            looks.fetch_add(1, SeqCst);
        }
        Ok(())
    };
    let done: Vec<Result<()>> = std::thread::scope(|s| {
        let mut threads = vec![s.spawn(|| until_end(&set)), s.spawn(|| until_end(&publish))];
        for (what, look) in counter.looks {
            let check = &check;
            threads.push(s.spawn(move || until_end(&|| check(what, look))));
        }
        threads.into_iter().map(|t| t.join().expect("no panic")).collect()
    });
    done.into_iter().collect::<Result<()>>()?;
    let (sets, seen, looks) = (next.load(SeqCst), seen.load(SeqCst), looks.load(SeqCst));
    ensure!(sets > 50 && seen > 20 && looks > 200, "hardly tried: {sets}, {seen}, {looks}");
    Ok(())
}

/// Times that are set.
pub fn times(near: &Path, far: &Path, time: Duration) -> Result<()> {
    std::fs::write(near.join("counted"), b"x")?;
    let file = std::fs::File::open(near.join("counted"))?;
    let at = |path: &Path| path.join("counted");
    let set = |n: u64| {
        let t = Timespec { tv_sec: n as i64, tv_nsec: 0 };
        let times = Timestamps { last_access: t, last_modification: t };
        Ok(utimensat(CWD, at(near), &times, AtFlags::empty())?)
    };
    let count_of = |mtime: i64| (mtime < 1_000_000_000).then_some(mtime as u64);
    let by_name = |mnt: &Path| Ok(count_of(std::fs::metadata(at(mnt))?.mtime()));
    let open = |_: &Path| Ok(count_of(file.metadata()?.mtime()));
    let extended = |mnt: &Path| {
        let told = statx(CWD, at(mnt), AtFlags::empty(), StatxFlags::ALL)?;
        Ok(count_of(told.stx_mtime.tv_sec))
    };
    let looks: &[(&str, &Look<'_>)] = &[("stat", &by_name), ("fstat", &open), ("statx", &extended)];
    count(near, far, time, &Counter { set: &set, looks })
}

/// A directory's number of links, as subdirectories are made in it.
pub fn links(near: &Path, far: &Path, time: Duration) -> Result<()> {
    let dir = |mnt: &Path| mnt.join("growing-dir");
    std::fs::create_dir(dir(near))?;
    let set = |n: u64| Ok(std::fs::create_dir(dir(near).join(n.to_string()))?);
    let nlink = |mnt: &Path| Ok(Some(std::fs::metadata(dir(mnt))?.nlink()));
    let listed = |mnt: &Path| Ok(Some(std::fs::read_dir(dir(mnt))?.count() as u64 + 2));
    count(
        near,
        far,
        time,
        &Counter { set: &set, looks: &[("stat", &nlink), ("a listing", &listed)] },
    )
}

/// The name of a file, or of a directory, that is renamed.
pub fn renamed(near: &Path, far: &Path, time: Duration, is_dir: bool) -> Result<()> {
    let top = |mnt: &Path| mnt.join(if is_dir { "renamed-dirs" } else { "renamed" });
    let name = |mnt: &Path, n: u64| top(mnt).join(format!("n.{n}"));
    std::fs::create_dir(top(near))?;
    match is_dir {
        true => std::fs::create_dir(name(near, 0))?,
        false => std::fs::write(name(near, 0), b"x")?,
    }
    let set = |n: u64| Ok(std::fs::rename(name(near, n - 1), name(near, n))?);
    let listed = |mnt: &Path| {
        let mut found = None;
        for entry in std::fs::read_dir(top(mnt))? {
            let text = entry?.file_name().into_string().ok();
            let number = text.as_deref().and_then(|t| t.strip_prefix("n.")?.parse().ok());
            found = found.max(Some(number.context("not a name of ours")?));
        }
        Ok(found)
    };
    // Walks up from the highest that was found: whatever is found may be another by the next look.
    let last = AtomicU64::new(0);
    let walked = |mnt: &Path| {
        let from = last.load(SeqCst);
        let found = (from..from + 3).find(|n| std::fs::symlink_metadata(name(mnt, *n)).is_ok());
        match found {
            Some(n) => drop(last.fetch_max(n, SeqCst)),
            None => last.store(listed(mnt)?.unwrap_or(from), SeqCst),
        }
        Ok(found)
    };
    let looks: &[(&str, &Look<'_>)] = &[("a listing", &listed), ("a look-up", &walked)];
    count(near, far, time, &Counter { set: &set, looks })
}

/// Names that are made, of files and links.
pub fn made(near: &Path, far: &Path, time: Duration) -> Result<()> {
    let name = |mnt: &Path, n: u64| mnt.join("made").join(n.to_string());
    std::fs::create_dir(near.join("made"))?;
    let set = |n: u64| match n % 2 {
        0 => Ok(std::fs::write(name(near, n), b"")?),
        _ => Ok(symlink("nowhere", name(near, n))?),
    };
    let exists = |path: PathBuf| path.symlink_metadata().is_ok();
    // Each thread goes on from where it was last.
    let (last_far, last_near) = (AtomicU64::new(0), AtomicU64::new(0));
    let walked = |mnt: &Path| {
        let last = if mnt == far { &last_far } else { &last_near };
        let mut n = last.load(SeqCst);
        while exists(name(mnt, n + 1)) {
            n += 1;
        }
        last.store(n, SeqCst);
        Ok(Some(n))
    };
    count(near, far, time, &Counter { set: &set, looks: &[("a look-up", &walked)] })
}
