//! Two mounts of one file system at work at the same time: verified workloads whose processes take
//! turns among the mounts, the racer, halves of one file, and the POSIX suite on one mount while the
//! other reads what it does. What is left must look the same through both, and pass fsck.

use super::pjdfstest;
use crate::cx::Cx;
use crate::fs::same;
use crate::plan::{Check, Need};
use crate::random::Random;
use crate::servers::{Cluster, Transport};
use anyhow::{Context, Result, bail, ensure};
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hasher};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

pub const CHECK: Check = Check {
    name: "two-mounts",
    about: "two mounts at work at once: verified workloads, a racer, halves of a file, pjdfstest",
    needs: &[Need::Binary, Need::Tool("pjdfstest"), Need::Apt("fuse3"), Need::Root],
    limit: 600,
    weight: 1,
    slow: false,
    run,
};

/// Whoever waits that long for a name or its bytes waits for a time-out.
const STANDSTILL: Duration = Duration::from_secs(8);
/// Sizes of files that are replaced, in words of 8 bytes: one with the MDT, one with the OSTs.
const WORDS: [usize; 2] = [1, 12_000];
/// Of the file both write.
const HALF: u64 = 1 << 20;

fn run(cx: &Cx) -> Result<()> {
    let mut cluster = Cluster::new(cx, "cluster", Transport::Unix, 3)?;
    // The suite looks at access times, which the other's reading moves, as it does on any file system.
    let (a, b) = (cluster.mount("a")?, cluster.mount_with("b", "noatime")?);
    for mount in [&a, &b] {
        std::fs::set_permissions(mount, std::fs::Permissions::from_mode(0o755))?;
    }
    cx.case("verified workloads", || exercise(cx, &a, &b, &["exerciser"]));
    cx.case("a name that is replaced all the time can be opened", || replaced(cx, &a, &b));
    cx.case("replaced files, and stores under locks, while threads pause anywhere", || {
        let options = format!("noatime,pauses={}", cx.seed());
        let (c, d) = (cluster.mount_with("c", &options)?, cluster.mount_with("d", &options)?);
        exercise(cx, &c, &d, &["exerciser", "--only", "counter,replace"])?;
        [c, d].iter().try_for_each(|mount| cluster.unmount(mount))
    });
    cx.case("racer", || {
        exercise(cx, &a, &b, &["racer"])?;
        alike(&a, &b)
    });
    for seed in 0..cx.size(4, 1) {
        let seed = cx.seed() * 100 + seed;
        cx.case(&format!("halves of one file, seed {seed}"), || halves(cx, &a, &b, seed));
    }
    posix(cx, &a, &b)?;
    cx.case("both see the same", || alike(&a, &b));
    cx.case("stop and fsck", || cluster.stop_and_check());
    Ok(())
}

fn exercise(cx: &Cx, a: &Path, b: &Path, what: &[&str]) -> Result<()> {
    let mut cmd = cx.lab(what[0]).args(&what[1..]).arg("--dir").arg(a).arg("--beside").arg(b);
    cmd = cmd.args(["--processes", "4", "--seed", &cx.seed().to_string()]);
    cmd.args(["--seconds", cx.size("15", "5")]).limit(200).ok().map(|_| ())
}

/// Who opens a name finds one file or the next, however often another mount puts a new one there: on a
/// local file system no such open fails, and none is of anything but a whole file. Nobody stands still.
fn replaced(cx: &Cx, a: &Path, b: &Path) -> Result<()> {
    let until = Instant::now() + Duration::from_secs(cx.size(10, 2));
    let put = |who: u64, n: u64| -> std::io::Result<()> {
        let fresh = a.join(format!("put-{who}"));
        std::fs::write(&fresh, n.to_le_bytes().repeat(WORDS[n as usize % 2]))?;
        std::fs::rename(fresh, a.join("put"))
    };
    put(0, 0)?;
    let (puts, opens) = std::thread::scope(|scope| {
        let put = &put;
        let writers: Vec<_> = (0..2)
            .map(|who| {
                scope.spawn(move || -> Result<u64> {
                    let mut n = 0;
                    while Instant::now() < until {
                        put(who, n).context("put")?;
                        n += 1;
                    }
                    Ok(n)
                })
            })
            .collect();
        let readers: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(move || -> Result<u64> {
                    let mut n = 0;
                    while Instant::now() < until {
                        let asked = Instant::now();
                        let bytes = std::fs::read(b.join("put")).context("open and read")?;
                        ensure!(asked.elapsed() < STANDSTILL, "an open waited for a time-out");
                        let words = WORDS.iter().find(|words| **words * 8 == bytes.len());
                        let whole = words.is_some_and(|words| bytes == bytes[..8].repeat(*words));
                        ensure!(whole, "{} bytes, or such of two files", bytes.len());
                        n += 1;
                    }
                    Ok(n)
                })
            })
            .collect();
        Ok::<_, anyhow::Error>((sum(writers)?, sum(readers)?))
    })?;
    cx.note(format!("{opens} opens while {puts} files were put there"));
    ensure!(puts > 1 && opens > 1, "nothing happened");
    Ok(())
}

fn sum(threads: Vec<ScopedJoinHandle<'_, Result<u64>>>) -> Result<u64> {
    let each = threads.into_iter().map(|t| t.join().unwrap_or_else(|_| bail!("a thread panicked")));
    each.sum()
}

/// Each mount's process reads and writes its own half at random places; every read is compared with
/// what it wrote, and in the end the whole file with both.
fn halves(cx: &Cx, a: &Path, b: &Path, seed: u64) -> Result<()> {
    let name = format!("halves-{seed}");
    std::fs::File::create(a.join(&name))?.set_len(2 * HALF)?;
    let steps = cx.size(1500, 300);
    let both = std::thread::scope(|scope| {
        let work = |mount: &Path, at: u64| half(&mount.join(&name), at, seed ^ at, steps);
        let other = scope.spawn(move || work(b, HALF));
        let mine = work(a, 0);
        let other = other.join().unwrap_or_else(|_| bail!("the other half panicked"));
        Ok::<_, anyhow::Error>([mine?, other?].concat())
    })?;
    same("by a", &std::fs::read(a.join(&name))?, &both)?;
    same("by b", &std::fs::read(b.join(&name))?, &both)
}

fn half(path: &Path, base: u64, seed: u64, steps: u32) -> Result<Vec<u8>> {
    let mut random = Random::new(seed);
    let mut model = vec![0; HALF as usize];
    let open = || std::fs::File::options().read(true).write(true).open(path);
    let mut file = open()?;
    for step in 0..steps {
        let at = random.index(HALF as usize);
        let len = (1 + random.index(70_000)).min(HALF as usize - at);
        match random.below(20) {
            0 => file = open()?,
            1 => file.sync_all()?,
            2..11 => {
                let data = random.bytes(len);
                file.write_all_at(&data, base + at as u64)?;
                model[at..at + len].copy_from_slice(&data);
            }
            _ => {
                let mut data = vec![0; len];
                file.read_exact_at(&mut data, base + at as u64)?;
                same(&format!("step {step} at {at}"), &data, &model[at..at + len])?;
            }
        }
    }
    Ok(model)
}

/// The suite on one mount, as [`pjdfstest`] runs it, while the other looks at all that comes and goes.
fn posix(cx: &Cx, a: &Path, b: &Path) -> Result<()> {
    let (mine, other) = (a.join("pjd"), b.join("pjd"));
    std::fs::create_dir(&mine)?;
    let (stop, seen) = (AtomicBool::new(false), AtomicU64::new(0));
    let outcomes = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(SeqCst) {
                seen.fetch_add(look(&other), SeqCst);
            }
        });
        let outcomes = pjdfstest::on(cx, &mine);
        stop.store(true, SeqCst);
        outcomes
    })?;
    cx.note(format!("the other mount looked at {} names meanwhile", seen.load(SeqCst)));
    ensure!(seen.load(SeqCst) > 0, "the other mount saw nothing");
    for (name, ok) in outcomes {
        cx.count(&format!("{name} beside a reader"), ok);
    }
    Ok(())
}

/// Lists, stats and reads a tree; names that go meanwhile are no error. How many it met.
fn look(dir: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(dir) else { return 0 };
    let mut seen = 0;
    for entry in entries.flatten() {
        seen += 1;
        match entry.path().symlink_metadata() {
            Ok(m) if m.is_dir() => seen += look(&entry.path()),
            // Beyond that a sparse file would take long.
            Ok(m) if m.is_file() && m.len() < 1 << 20 => drop(std::fs::read(entry.path())),
            _ => {}
        }
    }
    seen
}

fn hash(data: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(data);
    hasher.finish()
}

/// Every name, with what can be seen of it.
fn tree(root: &Path, at: &Path, into: &mut BTreeMap<String, String>) -> Result<()> {
    for entry in std::fs::read_dir(at)? {
        let path = entry?.path();
        let m = path.symlink_metadata().with_context(|| path.display().to_string())?;
        let data = match m.is_file() && m.len() < 16 << 20 {
            true => hash(&std::fs::read(&path)?),
            false => 0,
        };
        let times = (m.mtime(), m.mtime_nsec(), m.ctime(), m.ctime_nsec());
        let what = (m.ino(), m.mode(), m.nlink(), m.uid(), m.gid(), m.size(), times, data);
        into.insert(path.strip_prefix(root)?.display().to_string(), format!("{what:?}"));
        if m.is_dir() {
            tree(root, &path, into)?;
        }
    }
    Ok(())
}

fn alike(a: &Path, b: &Path) -> Result<()> {
    let (mut by_a, mut by_b) = (BTreeMap::new(), BTreeMap::new());
    tree(a, a, &mut by_a)?;
    tree(b, b, &mut by_b)?;
    for (name, what) in &by_a {
        let other = by_b.get(name);
        ensure!(other == Some(what), "{name} is {what} by a and {other:?} by b");
    }
    ensure!(by_a.len() == by_b.len(), "{} names by a, {} by b", by_a.len(), by_b.len());
    Ok(())
}
