//! Names of directories that a mount's kernel keeps while others move them: cases of `sharing`
//! (invariant 3).

use super::kept_changes::while_stopped;
use crate::fs::until;
use crate::random::Random;
use anyhow::{Context, Result, bail, ensure};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use std::fmt::Debug;
use std::fs::Metadata;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// A directory that was known for so long is kept also when it is looked up again.
const SETTLED: Duration = Duration::from_secs(6);

/// Directories made where another looks.
const MADE: u64 = 500;

/// A path that was walked before is walked again without asking the mount, but for what is at its end.
pub fn walked(mnt: &Path, other: &Path, pid: i32) -> Result<()> {
    let deep = Path::new("walked/a/b/c");
    std::fs::create_dir_all(other.join(deep))?;
    let path = mnt.join(deep);
    let ino = std::fs::metadata(&path)?.ino();
    // What was changed above it a moment ago may be in doubt for a second.
    until("the path is kept", || {
        let (looked, path) = (std::fs::metadata(&path).is_ok(), path.clone());
        let again = || while_stopped(pid, move || std::fs::metadata(path).map(|m| m.ino()).ok());
        looked && again().is_ok_and(|again| again == Some(ino))
    })?;
    // Changed at the other mount: known again, and kept again.
    std::fs::create_dir(other.join(deep).join("new"))?;
    equal("links", &std::fs::metadata(&path)?.nlink(), &3)
}

fn equal<T: PartialEq + Debug>(what: &str, found: &T, wanted: &T) -> Result<()> {
    ensure!(found == wanted, "{what}: {found:?}, not {wanted:?}");
    Ok(())
}

/// Looks at a path; `None`: there is nothing.
fn look(path: &Path) -> Result<Option<Metadata>> {
    match std::fs::metadata(path) {
        Ok(m) => Ok(Some(m)),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e).with_context(|| path.display().to_string()),
    }
}

/// Round by round one mount moves, exchanges, replaces or removes a directory that the other has just walked through;
/// what the other then finds by either path must be what was done. Meanwhile both walk there without pause, and
/// make and remove names beside it.
pub fn moved(a: &Path, b: &Path, seed: u64, rounds: u64) -> Result<()> {
    let mut random = Random::new(seed ^ 23);
    std::fs::create_dir(a.join("moved"))?;
    let (round, over) = (AtomicU64::new(0), AtomicBool::new(false));
    let walk = |mount: &Path| {
        while !over.load(SeqCst) {
            for side in ["x", "y"] {
                let dir = place(mount, round.load(SeqCst), side);
                // What is found changes all the time.
                let _ = std::fs::metadata(dir.join("in/f"));
            }
        }
    };
    let busy = |mount: &Path, name: &str| -> Result<()> {
        let name = mount.join("moved").join(name);
        while !over.load(SeqCst) {
            std::fs::create_dir(&name)?;
            std::fs::remove_dir(&name)?;
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let walkers = [a, b].map(|mount| scope.spawn(move || walk(mount)));
        let makers = [(a, "beside-a"), (b, "beside-b")]
            .map(|(mount, name)| scope.spawn(move || busy(mount, name)));
        let done = (0..rounds).try_for_each(|n| {
            round.store(n, SeqCst);
            let mounts = if random.below(2) == 0 { [a, b] } else { [b, a] };
            one(mounts, n, random.below(4)).with_context(|| format!("round {n}"))
        });
        over.store(true, SeqCst);
        walkers.into_iter().for_each(|w| drop(w.join()));
        for maker in makers {
            maker.join().unwrap_or_else(|_| bail!("who makes names beside it panicked"))?;
        }
        done
    })
}

fn place(mount: &Path, round: u64, side: &str) -> PathBuf {
    mount.join("moved").join(format!("{side}{round}"))
}

/// One round: `looker` walked there before `mover` changes it.
fn one([looker, mover]: [&Path; 2], n: u64, kind: u64) -> Result<()> {
    let (x, y) = (place(mover, n, "x"), place(mover, n, "y"));
    let (seen_x, seen_y) = (place(looker, n, "x"), place(looker, n, "y"));
    std::fs::create_dir_all(x.join("in"))?;
    std::fs::write(x.join("in/f"), "x")?;
    let is = |path: &Path| look(&path.join("in/f")).map(|m| m.map(|m| m.ino()));
    let ino = is(&seen_x)?.context("nothing where it was made")?;
    match kind {
        0 => {
            std::fs::rename(&x, &y)?;
            equal("where it was", &is(&seen_x)?, &None)?;
            equal("where it is", &is(&seen_y)?, &Some(ino))?;
            std::fs::rename(&y, &x)?;
        }
        1 => {
            std::fs::create_dir_all(y.join("in"))?;
            std::fs::write(y.join("in/f"), "y")?;
            let other = is(&seen_y)?.context("nothing where the other was made")?;
            renameat_with(CWD, &x, CWD, &y, RenameFlags::EXCHANGE)?;
            equal("exchanged", &[is(&seen_x)?, is(&seen_y)?], &[Some(other), Some(ino)])?;
            std::fs::remove_dir_all(&y)?;
            equal("removed", &is(&seen_y)?, &None)?;
            return Ok(std::fs::remove_dir_all(&x)?);
        }
        2 => {
            std::fs::create_dir(&y)?;
            equal("empty", &(look(&seen_y)?.is_some(), is(&seen_y)?), &(true, None))?;
            std::fs::rename(&x, &y)?;
            equal("put over an empty one", &is(&seen_y)?, &Some(ino))?;
            equal("where it was", &look(&seen_x)?.is_some(), &false)?;
            return Ok(std::fs::remove_dir_all(&y)?);
        }
        _ => {
            std::fs::remove_dir_all(&x)?;
            equal("removed", &look(&seen_x)?.is_some(), &false)?;
            std::fs::create_dir(&x)?;
            equal("made anew", &(look(&seen_x)?.is_some(), is(&seen_x)?), &(true, None))?;
            return Ok(std::fs::remove_dir(&x)?);
        }
    }
    equal("where it was before", &(is(&seen_x)?, is(&seen_y)?), &(Some(ino), None))?;
    Ok(std::fs::remove_dir_all(&x)?)
}

/// Ends the process when it is dropped.
struct Sleeper(Child);

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A directory that somebody works in stays in the tree, whatever another mount makes in it.
pub fn worked_in(a: &Path, b: &Path) -> Result<()> {
    let deep = Path::new("worked/in/it");
    std::fs::create_dir_all(a.join(deep))?;
    let here = a.join(deep).canonicalize()?;
    let mut sleep = Command::new("sleep");
    let sleeper = Sleeper(sleep.arg("600").current_dir(&here).stdout(Stdio::null()).spawn()?);
    let cwd = PathBuf::from(format!("/proc/{}/cwd", sleeper.0.id()));
    std::thread::sleep(SETTLED);
    for n in 0..20 {
        std::fs::metadata(here.join("x")).err().context("there is such a name")?;
        std::fs::create_dir(b.join(deep).join(format!("{n}")))?;
        std::fs::create_dir(b.join("worked/in").join(format!("{n}")))?;
        equal("links", &std::fs::metadata(&here)?.nlink(), &(3 + n))?;
        equal("working directory", &std::fs::read_link(&cwd)?, &here)?;
    }
    Ok(())
}

/// One mount makes names in a directory that the other made, and looks at without pause.
pub fn made(a: &Path, b: &Path) -> Result<()> {
    let dir = |mount: &Path| mount.join("looked-at");
    std::fs::create_dir(dir(a))?;
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let looker = scope.spawn(|| {
            while !over.load(SeqCst) {
                // It is the walk that counts.
                let _ = std::fs::metadata(dir(a).join("x"));
            }
        });
        std::thread::sleep(SETTLED);
        let begun = Instant::now();
        let made = (0..MADE).try_for_each(|n| std::fs::create_dir(dir(b).join(format!("{n}"))));
        println!("{MADE} directories were made in {:?}", begun.elapsed());
        over.store(true, SeqCst);
        looker.join().map_err(|_| anyhow::anyhow!("who looks panicked"))?;
        made?;
        equal("links", &std::fs::metadata(dir(a))?.nlink(), &(2 + MADE))
    })
}
