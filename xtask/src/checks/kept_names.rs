//! Names of files, and absent ones, that a mount's kernel keeps while others change them: cases of `sharing`
//! (invariant 3).

use super::kept_changes::while_stopped;
use crate::fs::until;
use crate::random::Random;
use anyhow::{Context, Result, bail, ensure};
use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// Directories whose names are changed one after the other, and how long each rests at least.
const DIRS: usize = 150;
const RESTS: Duration = Duration::from_millis(700);
/// Bytes a file grows by.
const GROWTH: u64 = 5000;
/// After so long without a change names of a directory are kept for certain.
const SETTLED: Duration = Duration::from_millis(500);
/// Threads of each mount that contend for one name.
const CONTENDERS: usize = 3;
/// Files that are made, read and looked at.
const MADE: u64 = 20;

fn exists(path: &Path) -> Result<bool> {
    match path.symlink_metadata() {
        Ok(_) => Ok(true),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(false),
        Err(e) => Err(e).with_context(|| path.display().to_string()),
    }
}

/// What was looked at before is answered without the mount, until the other changes it.
pub fn looked_at(mnt: &Path, other: &Path, pid: i32) -> Result<()> {
    // Not where other cases have changed names just now.
    let at = |mount: &Path, name: &str| mount.join("quiet/kept-names").join(name);
    std::fs::create_dir_all(other.join("quiet/kept-names"))?;
    std::fs::write(at(other, "there"), "x")?;
    let ino = std::fs::metadata(at(other, "there"))?.ino();
    let (there, absent) = (at(mnt, "there"), at(mnt, "absent"));
    for round in 0..2 {
        // What its maker still had to tell is told by the first look.
        until("names are kept", || {
            let looked = std::fs::metadata(&there).is_ok() && !exists(&absent).unwrap_or(true);
            let (there, absent) = (there.clone(), absent.clone());
            looked
                && while_stopped(pid, move || {
                    (std::fs::metadata(there).map(|m| m.ino()).ok(), exists(&absent).ok())
                })
                .is_ok_and(|told| told == (Some(ino), Some(false)))
        })?;
        let (new, old) = (format!("other {round}"), at(other, "there"));
        std::fs::write(at(other, "absent"), "y")?;
        ensure!(exists(&absent)?, "round {round}: what was made is not there");
        std::fs::rename(&old, at(other, &new))?;
        ensure!(!exists(&there)?, "round {round}: what was renamed is there still");
        ensure!(std::fs::metadata(at(mnt, &new))?.ino() == ino, "round {round}: not what it was");
        std::fs::rename(at(other, &new), &old)?;
        ensure!(!exists(&at(mnt, &new))?, "round {round}: what was renamed back is there still");
        std::fs::remove_file(at(other, "absent"))?;
        ensure!(!exists(&absent)?, "round {round}: what was removed is there still");
    }
    Ok(())
}

/// What was read as soon as it was written is looked at again without the mount, as by a build that finds nothing to do.
pub fn made_and_read(mnt: &Path, pid: i32) -> Result<()> {
    let dir = mnt.join("made-and-read");
    std::fs::create_dir(&dir)?;
    let files: Vec<PathBuf> = (0..MADE).map(|n| dir.join(n.to_string())).collect();
    for (n, file) in (1..).zip(&files) {
        std::fs::write(file, vec![b'x'; n])?;
    }
    // Nothing of them is to be told any more.
    rustix::fs::syncfs(&File::open(&dir)?)?;
    for (n, file) in (1..).zip(&files) {
        // Not by what asks for its length when it has it open.
        let read = File::open(file)?.read_at(&mut [0; 2 * MADE as usize], 0)?;
        ensure!(read == n, "{read} bytes are read of {n}");
    }
    let wanted: Vec<u64> = (1..=MADE).collect();
    until("attributes are kept", || {
        let lengths = |files: &[PathBuf]| -> Vec<u64> {
            files.iter().filter_map(|file| Some(std::fs::metadata(file).ok()?.len())).collect()
        };
        let again = files.clone();
        lengths(&files) == wanted
            && while_stopped(pid, move || lengths(&again)).is_ok_and(|told| told == wanted)
    })
}

/// Files are made here and read elsewhere: here they are read on without asking for their bytes, which `asked` counts, and show
/// when the other has read them.
pub fn read_elsewhere(mnt: &Path, other: &Path, asked: impl Fn() -> Result<u64>) -> Result<()> {
    let dir = |mount: &Path| mount.join("read-elsewhere");
    std::fs::create_dir(dir(mnt))?;
    let numbers = || 0..MADE;
    let at = |mount: &Path, n: u64| dir(mount).join(n.to_string());
    let text = |n: u64| format!("the text of {n}");
    numbers().try_for_each(|n| std::fs::write(at(mnt, n), text(n)))?;
    let read = |mount: &Path, n: u64| -> Result<()> {
        ensure!(std::fs::read(at(mount, n))? == text(n).as_bytes(), "file {n} has other bytes");
        Ok(())
    };
    // What is read here first is asked for: from then on that is counted.
    std::fs::write(dir(other).join("first"), "x")?;
    std::fs::read(dir(mnt).join("first"))?;
    for round in 0..2 {
        numbers().try_for_each(|n| read(other, n))?;
        let before = asked()?;
        numbers().try_for_each(|n| read(mnt, n))?;
        let after = asked()?;
        ensure!(after == before, "round {round}: {} files were asked for again", after - before);
    }
    let accessed = |mount: &Path| -> Result<Vec<(i64, i64)>> {
        let one = |n: u64| {
            let found = std::fs::metadata(at(mount, n))?;
            Ok((found.atime(), found.atime_nsec()))
        };
        numbers().map(one).collect()
    };
    let theirs = accessed(other)?;
    for mount in [mnt, other] {
        rustix::fs::syncfs(&File::open(dir(mount))?)?;
    }
    until("both show when they were read", || {
        accessed(mnt).is_ok_and(|ours| {
            ours.iter().zip(&theirs).all(|(ours, theirs)| ours >= theirs)
                && accessed(other).is_ok_and(|theirs| theirs == ours)
        })
    })
}

/// A file whose name is kept has grown elsewhere: who opens it, and asks nothing else, is shown all of it.
pub fn grown(mnt: &Path, other: &Path, times: u64) -> Result<()> {
    let at = |mount: &Path| mount.join("quiet/grown");
    std::fs::create_dir_all(other.join("quiet"))?;
    std::fs::write(at(other), "")?;
    for n in 1..=times {
        ensure!(std::fs::metadata(at(mnt))?.len() == (n - 1) * GROWTH, "it is not as long");
        let mut file = File::options().append(true).open(at(other))?;
        std::io::Write::write_all(&mut file, &[b'x'; GROWTH as usize])?;
        drop(file);
        // sendfile(2) goes by the size that the kernel knows.
        let (from, to) = (File::open(at(mnt))?, tempfile(mnt)?);
        let mut sent = 0;
        while let some @ 1.. = rustix::fs::sendfile(&to, &from, None, 1 << 20)? {
            sent += some as u64;
        }
        ensure!(sent == n * GROWTH, "{sent} bytes were sent of {}", n * GROWTH);
    }
    Ok(())
}

/// A file without a name.
fn tempfile(mount: &Path) -> Result<File> {
    Ok(File::options().write(true).custom_flags(libc_o_tmpfile()).open(mount)?)
}

fn libc_o_tmpfile() -> i32 {
    rustix::fs::OFlags::TMPFILE.bits().cast_signed()
}

/// Both mounts change names, each directory's now and then, which both look at without pause.
pub fn changed_now_and_then(a: &Path, b: &Path, seed: u64, time: Duration) -> Result<()> {
    let name = |mount: &Path, dir: usize, n: u64| {
        mount.join("now-and-then").join(dir.to_string()).join(format!("n.{n}"))
    };
    for dir in 0..DIRS {
        let first = name(a, dir, 0);
        std::fs::create_dir_all(first.parent().context("no parent")?)?;
        std::fs::write(first, b"x")?;
    }
    // Up to where each directory's name has been counted for certain.
    let seen: Vec<AtomicU64> = (0..DIRS).map(|_| AtomicU64::new(0)).collect();
    let (over, looks) = (AtomicBool::new(false), AtomicU64::new(0));
    let change = || -> Result<()> {
        let (mut random, begun) = (Random::new(seed), Instant::now());
        for n in 1.. {
            for (dir, seen) in seen.iter().enumerate() {
                let mount = if random.below(2) == 0 { a } else { b };
                std::fs::rename(name(mount, dir, n - 1), name(mount, dir, n))?;
                seen.store(n, SeqCst);
                if begun.elapsed() > time {
                    return Ok(());
                }
                std::thread::sleep(RESTS / DIRS as u32);
            }
        }
        Ok(())
    };
    let look = |mount: &Path, seed: u64| -> Result<()> {
        let mut random = Random::new(seed);
        while !over.load(SeqCst) {
            let dir = random.index(DIRS);
            let known = seen[dir].load(SeqCst);
            if known > 0 {
                let before = name(mount, dir, known - 1);
                ensure!(!exists(&before)?, "{} was renamed", before.display());
            }
            let (now, next) = (name(mount, dir, known), name(mount, dir, known + 1));
            // It may be renamed meanwhile; then the other is there for a while.
            let found = exists(&now)? || exists(&next)? || seen[dir].load(SeqCst) > known;
            let late = || Ok::<_, anyhow::Error>(exists(&next)? || seen[dir].load(SeqCst) > known);
            ensure!(found || late()?, "{} is nowhere", now.display());
            looks.fetch_add(1, SeqCst);
        }
        Ok(())
    };
    let (look, over) = (&look, &over);
    std::thread::scope(|scope| {
        let lookers: Vec<_> = [a, b, a, b]
            .into_iter()
            .zip(seed..)
            .map(|(mount, seed)| {
                scope.spawn(move || look(mount, seed).inspect_err(|_| over.store(true, SeqCst)))
            })
            .collect();
        let changed = change();
        over.store(true, SeqCst);
        for looker in lookers {
            looker.join().unwrap_or_else(|_| bail!("who looks panicked"))?;
        }
        changed
    })?;
    let changes = seen.iter().map(|n| n.load(SeqCst)).sum::<u64>();
    println!("{changes} changes, {} looks", looks.load(SeqCst));
    ensure!(changes > DIRS as u64 && looks.load(SeqCst) > 1000, "hardly tried");
    Ok(())
}

/// Threads of both mounts make and remove the same names of one directory at once, which all have just looked at.
pub fn contended(a: &Path, b: &Path, rounds: u64) -> Result<()> {
    for round in 0..rounds {
        // Each time another: where names have been changed they are not kept for longer and longer.
        let dir = |mount: &Path| mount.join(format!("contended {round}"));
        std::fs::create_dir(dir(a))?;
        let name = |mount: &Path| dir(mount).join(format!("name {round}"));
        let own = |mount: &Path, n: usize| dir(mount).join(format!("{round} of {n}"));
        let mounts: Vec<PathBuf> =
            (0..2 * CONTENDERS).map(|n| if n % 2 == 0 { a.into() } else { b.into() }).collect();
        std::thread::sleep(SETTLED);
        let start = Barrier::new(mounts.len());
        let contend = |n: usize, mount: &Path| -> Result<bool> {
            ensure!(!exists(&name(mount))? && !exists(&own(mount, n))?, "not made yet");
            start.wait();
            let won = match File::options().write(true).create_new(true).open(name(mount)) {
                Ok(_) => true,
                Err(e) if e.kind() == ErrorKind::AlreadyExists => false,
                Err(e) => return Err(e).context("making it"),
            };
            ensure!(exists(&name(mount))?, "it is not there where it was made");
            // Made without O_EXCL: the kernel uses what it knows.
            File::options().write(true).create(true).truncate(false).open(own(mount, n))?;
            std::fs::rename(own(mount, n), own(mount, n).with_extension("moved"))?;
            start.wait();
            for n in 0..2 * CONTENDERS {
                ensure!(!exists(&own(mount, n))?, "{n} was moved");
                ensure!(
                    exists(&own(mount, n).with_extension("moved"))?,
                    "{n} is not where it was moved"
                );
            }
            start.wait();
            std::fs::remove_file(own(mount, n).with_extension("moved"))?;
            Ok(won)
        };
        let won = std::thread::scope(|scope| {
            let contend = &contend;
            let threads: Vec<_> = mounts
                .iter()
                .enumerate()
                .map(|(n, mount)| scope.spawn(move || contend(n, mount)))
                .collect();
            let done = threads.into_iter().map(|t| t.join().expect("no panic"));
            done.collect::<Result<Vec<bool>>>()
        });
        let won = won.with_context(|| format!("round {round}"))?;
        let winners = won.iter().filter(|won| **won).count();
        ensure!(winners == 1, "round {round}: {winners} made it");
    }
    Ok(())
}
