//! Open files and directories whose bytes the kernel keeps, and that others write: cases of `sharing` (invariant 3).
//! It keeps what is read and written through one that was opened while its mount was alone, also when others come; and
//! what is read of one that was opened among others, to be read only.

use crate::fs::PATIENCE;
use anyhow::{Context, Result, ensure};
use rustix::fs::{Dir, FlockOperation, fcntl_lock, flock};
use std::cell::RefCell;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// Lengths of the files: one lives with its metadata, one has objects.
const LENGTHS: [usize; 2] = [32_768, 300_000];
const PAGE: u64 = 4096;
/// Where a number is that the other mount counts up; behind it one that this mount counts up.
const THEIRS: u64 = 0;
const OURS: u64 = 2 * PAGE;
/// Where a number is that both count up, under a lock.
const BOTH: u64 = 3 * PAGE;
/// Where more than a page is written here, the last of them in part.
const MORE: u64 = 4 * PAGE;
/// Threads that read.
const READERS: usize = 2;

/// Files of a mount, open, and a directory.
pub struct Kept {
    files: Vec<(PathBuf, File, File)>,
    /// Its name.
    name: &'static str,
    dir: RefCell<Dir>,
}

/// Opens new ones, once for reading only and once for writing, too.
pub fn open(mnt: &Path, name: &'static str) -> Result<Kept> {
    let open = |length: &usize| -> Result<_> {
        let path = mnt.join(format!("{name}-{length}"));
        std::fs::write(&path, vec![0; *length])?;
        let read = File::open(&path)?;
        let write = File::options().read(true).write(true).open(&path)?;
        for file in [&read, &write] {
            number(file, THEIRS)?;
        }
        Ok((path, read, write))
    };
    std::fs::create_dir(mnt.join(name))?;
    std::fs::write(mnt.join(name).join("first"), "")?;
    let dir = RefCell::new(Dir::new(File::open(mnt.join(name))?)?);
    let kept = Kept { files: LENGTHS.iter().map(open).collect::<Result<_>>()?, name, dir };
    ensure!(kept.names()? == ["first"]);
    Ok(kept)
}

impl Kept {
    /// What is in the directory, by nothing but getdents(2) from its beginning.
    fn names(&self) -> Result<Vec<String>> {
        let mut dir = self.dir.borrow_mut();
        dir.rewind();
        let mut names = Vec::new();
        while let Some(entry) = dir.read() {
            let name = entry?.file_name().to_string_lossy().into_owned();
            if !matches!(&*name, "." | "..") {
                names.push(name);
            }
        }
        names.sort();
        Ok(names)
    }
}

/// The other makes, renames and removes; a directory that is open is listed.
pub fn listed(kept: &Kept, other: &Path, times: u64) -> Result<()> {
    let dir = other.join(kept.name);
    for n in 0..times {
        let name = format!("n{n}");
        match n % 3 {
            0 => std::fs::write(dir.join(&name), "")?,
            1 => std::fs::rename(dir.join(format!("n{}", n - 1)), dir.join(&name))?,
            _ => std::fs::remove_file(dir.join(format!("n{}", n - 1)))?,
        }
        let there = if n % 3 == 2 { vec!["first".into()] } else { vec!["first".into(), name] };
        // Once more, when the kernel has what it listed.
        for _ in 0..2 {
            let names = kept.names()?;
            ensure!(names == there, "{names:?} is listed, {there:?} is there");
        }
    }
    Ok(())
}

fn number(file: &File, at: u64) -> Result<u64> {
    let mut bytes = [0; 8];
    file.read_exact_at(&mut bytes, at)?;
    Ok(u64::from_le_bytes(bytes))
}

/// Waits, without a pause, until a number is there.
fn arrived(file: &File, at: u64, wanted: u64) -> Result<()> {
    let end = Instant::now() + PATIENCE;
    while number(file, at)? != wanted {
        ensure!(Instant::now() < end, "{wanted} has not arrived within {PATIENCE:?}");
    }
    Ok(())
}

/// Counts up for that long while others look: whoever looks sees what was written before he did.
fn count(writer: &File, at: u64, readers: &[&File], time: Duration) -> Result<()> {
    let (written, end, looks) = (AtomicU64::new(0), AtomicBool::new(false), AtomicU64::new(0));
    let look = |reader: &File| -> Result<()> {
        while !end.load(SeqCst) {
            let least = written.load(SeqCst);
            let seen = number(reader, at)?;
            ensure!(seen >= least, "{seen} is shown, {least} was written before");
            looks.fetch_add(1, SeqCst);
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let look = &look;
        let threads: Vec<_> = readers.iter().map(|r| scope.spawn(move || look(r))).collect();
        let began = std::time::Instant::now();
        let mut n = 0u64;
        let mut write = || -> Result<()> {
            while began.elapsed() < time {
                n += 1;
                writer.write_all_at(&n.to_le_bytes(), at)?;
                written.store(n, SeqCst);
            }
            Ok(())
        };
        let wrote = write();
        end.store(true, SeqCst);
        for thread in threads {
            thread.join().map_err(|_| anyhow::anyhow!("a reader panicked"))??;
        }
        wrote
    })?;
    ensure!(looks.load(SeqCst) > 0 && written.load(SeqCst) > 0, "nothing was tried");
    Ok(())
}

/// The same files, opened for writing on another mount.
pub fn others(kept: &Kept, mnt: &Path) -> Result<Vec<File>> {
    let open = |path: &Path| -> Result<File> {
        let path = mnt.join(path.file_name().context("no name")?);
        Ok(File::options().read(true).write(true).open(path)?)
    };
    kept.files.iter().map(|(path, ..)| open(path)).collect()
}

/// The other mount writes; what is read here was read before, and is kept.
pub fn read(kept: &Kept, other: &Path, time: Duration) -> Result<()> {
    for ((path, read, _), theirs) in kept.files.iter().zip(others(kept, other)?) {
        count(&theirs, THEIRS, &[read; READERS], time).with_context(|| say(path))?;
    }
    Ok(())
}

/// Both write, beside each other: what is written here is kept, too.
pub fn written(kept: &Kept, other: &Path, time: Duration) -> Result<()> {
    for ((path, read, write), theirs) in kept.files.iter().zip(others(kept, other)?) {
        let both = || -> Result<()> {
            // A whole page, of which the kernel then knows all, and which the other writes over.
            for n in 1..200u64 {
                write.write_all_at(&[1; PAGE as usize], PAGE)?;
                theirs.write_all_at(&n.to_le_bytes(), PAGE)?;
                ensure!(number(write, PAGE)? == n, "a page that was written here is shown");
                ensure!(number(read, PAGE)? == n, "by another open file");
                write.write_all_at(&[1; 2 * PAGE as usize + 100], MORE)?;
                for at in [MORE, MORE + PAGE, MORE + 2 * PAGE] {
                    theirs.write_all_at(&n.to_le_bytes(), at)?;
                    ensure!(number(write, at)? == n, "one of several pages is shown, at {at}");
                }
            }
            std::thread::scope(|scope| {
                let here = scope.spawn(|| count(write, OURS, &[&theirs; READERS], time));
                let there = count(&theirs, THEIRS, &[read, write], time);
                here.join().map_err(|_| anyhow::anyhow!("a writer panicked"))?.and(there)
            })
        };
        both().with_context(|| say(path))?;
    }
    Ok(())
}

/// Others on this mount look while whole pages are written that are kept, and a part of one: all is seen as soon as that has
/// returned.
pub fn looked_at(kept: &Kept, rounds: u64) -> Result<()> {
    for (path, read, write) in &kept.files {
        let (ended, pages) = (AtomicBool::new(false), [MORE, MORE + PAGE, MORE + 2 * PAGE]);
        let look = || -> Result<()> {
            while !ended.load(SeqCst) {
                pages.iter().try_for_each(|at| number(read, *at).map(drop))?;
            }
            Ok(())
        };
        let rounds = || -> Result<()> {
            let mut bytes = vec![0; 2 * PAGE as usize + 100];
            for n in 1..=rounds {
                for at in pages {
                    let at = (at - MORE) as usize;
                    bytes[at..at + 8].copy_from_slice(&n.to_le_bytes());
                }
                write.write_all_at(&bytes, MORE)?;
                for (at, file) in pages.iter().flat_map(|at| [(*at, read), (*at, write)]) {
                    let seen = number(file, at)?;
                    ensure!(seen == n, "{seen} is shown at {at}, {n} was written");
                }
            }
            Ok(())
        };
        let both = std::thread::scope(|scope| {
            let looks = scope.spawn(look);
            let wrote = rounds();
            ended.store(true, SeqCst);
            looks.join().map_err(|_| anyhow::anyhow!("a reader panicked"))?.and(wrote)
        });
        both.with_context(|| say(path))?;
    }
    Ok(())
}

/// The other writes over pages when they have arrived where they are kept, and maybe before who wrote them here is answered.
pub fn overtaken(kept: &Kept, other: &Path, rounds: u64) -> Result<()> {
    for ((path, read, write), theirs) in kept.files.iter().zip(others(kept, other)?) {
        for n in 1..=rounds {
            let (at, length) = [(PAGE, PAGE), (MORE, 2 * PAGE + 100)][n as usize % 2];
            let (ours, over) = (2 * n, 2 * n + 1);
            let mut bytes = vec![0; length as usize];
            bytes[..8].copy_from_slice(&ours.to_le_bytes());
            let shown = |when: &str| -> Result<()> {
                for file in [read, write] {
                    let seen = number(file, at)?;
                    ensure!(seen == over, "{seen} is shown {when}, {over} was written over it");
                }
                Ok(())
            };
            let round = || -> Result<()> {
                std::thread::scope(|scope| {
                    let here = scope.spawn(|| write.write_all_at(&bytes, at));
                    arrived(&theirs, at, ours)?;
                    theirs.write_all_at(&over.to_le_bytes(), at)?;
                    shown("meanwhile")?;
                    here.join().map_err(|_| anyhow::anyhow!("a writer panicked"))??;
                    shown("behind it")
                })
            };
            round().with_context(|| format!("{}, round {n}", say(path)))?;
        }
    }
    Ok(())
}

/// Both count one number up, each under a lock: none is lost.
pub fn locked(kept: &Kept, other: &Path, times: u64) -> Result<()> {
    for ((path, _, write), theirs) in kept.files.iter().zip(others(kept, other)?) {
        let start = number(write, BOTH)?;
        let one = |file: &File, n: u64| -> Result<()> {
            let posix = n.is_multiple_of(2);
            match posix {
                true => fcntl_lock(file, FlockOperation::LockExclusive)?,
                false => flock(file, FlockOperation::LockExclusive)?,
            }
            let seen = number(file, BOTH)?;
            ensure!(seen == start + n, "{seen} is shown under the lock, and is {}", start + n);
            file.write_all_at(&(seen + 1).to_le_bytes(), BOTH)?;
            match posix {
                true => fcntl_lock(file, FlockOperation::Unlock)?,
                false => flock(file, FlockOperation::Unlock)?,
            }
            Ok(())
        };
        for n in 0..times {
            let file = if n % 3 == 0 { write } else { &theirs };
            one(file, n).with_context(|| say(path))?;
        }
    }
    Ok(())
}

fn say(path: &Path) -> String {
    path.display().to_string()
}
