//! flock and record locks between processes: who is let in, who waits, who is interrupted.

use crate::cx::Cx;
use crate::fs::{Fs, How, until};
use crate::locker::Locker;
use crate::plan::{Check, Need};
use anyhow::{Result, bail, ensure};
use rustix::fs::{FlockOperation, flock};
use rustix::process::Signal;
use std::cell::Cell;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

pub const CHECK: Check = Check {
    name: "locks",
    about: "flock and fcntl locks between processes, waiting, interruption, release by death",
    needs: &[Need::Binary, Need::Apt("fuse3"), Need::Root],
    limit: 300,
    weight: 1,
    slow: false,
    run,
};

struct Ring<'a> {
    cx: &'a Cx,
    place: &'a str,
    file: PathBuf,
    next: Cell<u32>,
}

impl Ring<'_> {
    fn start(&self, words: &[&str]) -> Result<Locker> {
        let n = self.next.replace(self.next.get() + 1);
        Locker::start(&self.file, self.cx.scratch().join(format!("{}-{n}", self.place)), words)
    }

    fn held(&self, words: &[&str]) -> Result<Locker> {
        let mut locker = self.start(words)?;
        locker.until_held()?;
        Ok(locker)
    }

    /// Tries without waiting: whether it got in.
    fn tries(&self, words: &[&str]) -> Result<bool> {
        let out = self
            .cx
            .cmd(std::env::current_exe()?)
            .arg("lock")
            .arg(&self.file)
            .args(words)
            .quiet()
            .run()?;
        let text = out.text();
        ensure!(text.starts_with("held") || text.starts_with("refused 11"), "{}", out.all());
        Ok(text.starts_with("held"))
    }

    fn asks(&self, words: &[&str]) -> Result<String> {
        let me = self.cx.cmd(std::env::current_exe()?).arg("lock").arg(&self.file).arg("--ask");
        Ok(me.args(words).quiet().ok()?.text().trim().to_owned())
    }
}

fn run(cx: &Cx) -> Result<()> {
    let mut fs = Fs::new(cx, "fs")?;
    // The same on the local file system shows that the check itself is right.
    let local = cx.dir("local")?;
    for (place, dir) in [("local", local.as_path()), ("mount", &fs.mnt)] {
        on(cx, place, dir)?;
    }
    cx.case("down and fsck", || fs.down_and_check());
    let more = vec!["-o".to_owned(), "localflock".to_owned()];
    let mut fs = Fs::with(cx, "localflock", How { more, ..How::default() })?;
    on(cx, "localflock", &fs.mnt)?;
    cx.case("down and fsck, localflock", || fs.down_and_check());
    Ok(())
}

fn on(cx: &Cx, place: &str, dir: &Path) -> Result<()> {
    let file = dir.join("file");
    std::fs::write(&file, vec![0; 1000])?;
    let ring = Ring { cx, place, file, next: Cell::new(1) };
    for (kind, how) in [("record", ""), ("flock", "--flock")] {
        let with = |words: &[&'static str]| -> Vec<&'static str> {
            words.iter().copied().chain((how == "--flock").then_some("--flock")).collect()
        };
        let label = |what: &str| format!("{place}: {kind} lock, {what}");
        cx.case(&label("one writer, many readers"), || exclusion(&ring, &with));
        cx.case(&label("waiting"), || waiting(&ring, &with));
        cx.case(&label("a waiter is killed"), || interrupted(&ring, &with));
        cx.case(&label("a holder is killed"), || killed(&ring, &with));
    }
    cx.case(&format!("{place}: ranges"), || ranges(&ring));
    let rounds = cx.size(1500, 200);
    cx.case(&format!("{place}: flock by descriptors that live for a moment"), || {
        momentary(&dir.join("counter"), rounds)
    });
    Ok(())
}

/// Each opens, locks, counts and closes, again and again: an open file is followed by others at the same address, and
/// the end of the first must not end the locks of those.
fn momentary(file: &Path, rounds: usize) -> Result<()> {
    const THREADS: usize = 3;
    std::fs::write(file, 0u64.to_le_bytes())?;
    let inside = AtomicUsize::new(0);
    let count = || -> Result<()> {
        for _ in 0..rounds {
            let open = std::fs::File::options().read(true).write(true).open(file)?;
            flock(&open, FlockOperation::LockExclusive)?;
            ensure!(inside.fetch_add(1, SeqCst) == 0, "two hold it");
            let mut number = [0; 8];
            open.read_exact_at(&mut number, 0)?;
            std::thread::sleep(Duration::from_micros(100));
            open.write_all_at(&(u64::from_le_bytes(number) + 1).to_le_bytes(), 0)?;
            inside.fetch_sub(1, SeqCst);
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(count)).collect();
        threads.into_iter().try_for_each(|t| t.join().unwrap_or_else(|_| bail!("a panic")))
    })?;
    let counted = std::fs::read(file)?;
    let wanted = (THREADS * rounds) as u64;
    ensure!(counted == wanted.to_le_bytes(), "{counted:?} was counted, not {wanted}");
    Ok(())
}

type With<'a> = dyn Fn(&[&'static str]) -> Vec<&'static str> + 'a;

fn exclusion(ring: &Ring, with: &With) -> Result<()> {
    let writer = ring.held(&with(&[]))?;
    ensure!(!ring.tries(&with(&[]))?, "a second writer got in");
    ensure!(!ring.tries(&with(&["--kind", "read"]))?, "a reader got in beside a writer");
    writer.release()?;
    let reader = ring.held(&with(&["--kind", "read"]))?;
    ensure!(ring.tries(&with(&["--kind", "read"]))?, "a second reader was refused");
    ensure!(!ring.tries(&with(&[]))?, "a writer got in beside a reader");
    reader.release()?;
    ensure!(ring.tries(&with(&[]))?, "the lock was not let go");
    Ok(())
}

fn waiting(ring: &Ring, with: &With) -> Result<()> {
    let holder = ring.held(&with(&[]))?;
    let mut waiters = Vec::new();
    for _ in 0..3 {
        let waiter = ring.start(&with(&["--wait"]))?;
        until("it waits", || waiter.waits())?;
        waiters.push(waiter);
    }
    ensure!(waiters.iter().all(|w| !w.held()), "a waiter got in beside the holder");
    holder.release()?;
    // One after the other, in whatever order they get in.
    while !waiters.is_empty() {
        until("one of them gets in", || waiters.iter().any(Locker::held))?;
        ensure!(waiters.iter().filter(|w| w.held()).count() == 1, "two hold it");
        let at = waiters.iter().position(Locker::held).unwrap_or(0);
        waiters.remove(at).release()?;
    }
    Ok(())
}

fn interrupted(ring: &Ring, with: &With) -> Result<()> {
    let holder = ring.held(&with(&[]))?;
    for signal in [Signal::TERM, Signal::KILL, Signal::INT] {
        let waiter = ring.start(&with(&["--wait"]))?;
        until("it waits", || waiter.waits())?;
        waiter.signal(signal)?;
    }
    holder.release()?;
    // None of the dead may be given the lock.
    ensure!(ring.tries(&with(&[]))?, "the lock went to a dead waiter");
    Ok(())
}

fn killed(ring: &Ring, with: &With) -> Result<()> {
    let holder = ring.held(&with(&[]))?;
    let mut waiter = ring.start(&with(&["--wait"]))?;
    until("it waits", || waiter.waits())?;
    holder.signal(Signal::KILL)?;
    waiter.until_held()?;
    waiter.release()
}

fn ranges(ring: &Ring) -> Result<()> {
    let first = ring.held(&["--start", "0", "--length", "100"])?;
    let second = ring.held(&["--start", "100", "--length", "100"])?;
    let far = ring.held(&["--start", "5000000000000", "--length", "1"])?;
    ensure!(!ring.tries(&["--start", "99", "--length", "1"])?, "inside the first");
    ensure!(!ring.tries(&["--start", "50", "--length", "100"])?, "over both");
    ensure!(ring.tries(&["--start", "200", "--length", "1"])?, "behind both");
    ensure!(!ring.tries(&["--start", "300"])?, "to the end, over the far one");
    let said = ring.asks(&["--start", "150", "--length", "1"])?;
    ensure!(said == format!("{} 100 100", second.pid()), "F_GETLK says {said}");
    second.release()?;
    ensure!(ring.asks(&["--start", "150", "--length", "1"])? == "free", "still held");
    first.release()?;
    far.release()
}
