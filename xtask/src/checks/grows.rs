//! A file that grows while others look at its end without pause: cases of `sharing` (invariant 3). Whoever looks
//! is shown all that was appended before, and of what is being appended nothing or what it will be.

use crate::random::Random;
use anyhow::{Context, Result, ensure};
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// Threads that look.
const READERS: u64 = 3;
/// Bytes that are looked at, before the end that was heard of.
const WINDOW: usize = 9_000;
/// Longest pause between two appends, in microseconds.
const PAUSE: u64 = 2_000;
/// Bytes at most that are appended at a time.
const RECORD: usize = 700;

/// The byte that belongs to a place; never zero.
fn byte(at: u64) -> u8 {
    (at % 251) as u8 + 1
}

/// A file that grows.
struct Log {
    path: PathBuf,
    /// Open to be read only.
    readers: Vec<File>,
    /// Open to append.
    writer: Option<File>,
}

/// Files that grow.
pub struct Growing(Vec<Log>);

/// Who appends.
#[derive(Clone, Copy)]
pub enum By<'a> {
    /// Mounts, one after the other, through descriptors that are opened for that.
    Mounts(&'a [&'a Path]),
    /// Another mount, and the readers' one through a descriptor of before. These may be told late of the other's appends.
    Before(&'a Path),
}

/// Makes them, and opens them on this mount: one that lives with its metadata at first, and one that has objects. `writes`: also to
/// append.
pub fn open(mnt: &Path, name: &str, writes: bool) -> Result<Growing> {
    let one = |length: u64| -> Result<_> {
        let path = mnt.join(format!("{name}-{length}"));
        std::fs::write(&path, (0..length).map(byte).collect::<Vec<u8>>())?;
        let files = (0..READERS).map(|_| File::open(&path)).collect::<std::io::Result<_>>()?;
        let writer = || File::options().append(true).open(&path);
        let writer = writes.then(writer).transpose()?;
        Ok(Log { path, readers: files, writer })
    };
    Ok(Growing([100, 200_000].into_iter().map(one).collect::<Result<_>>()?))
}

/// What was just appended is written over by another mount: who has looked at it sees that.
pub fn rewritten(mnt: &Path, other: &Path, times: u64) -> Result<()> {
    let name = "rewritten";
    std::fs::write(other.join(name), "first")?;
    let reader = File::open(mnt.join(name))?;
    let log = File::options().read(true).write(true).open(other.join(name))?;
    let mut length = log.metadata()?.len();
    let mut back = [0; 64];
    for n in 0..times {
        let at = length;
        for bytes in [n.to_le_bytes(), (!n).to_le_bytes()] {
            log.write_all_at(&bytes, at)?;
            // The second look finds what the first has brought.
            for _ in 0..2 {
                let read = reader.read_at(&mut back, at)?;
                ensure!(back[..read] == bytes, "{:?}, not {bytes:?}, at {at}", &back[..read]);
            }
        }
        length += 8;
    }
    Ok(())
}

struct Looks {
    /// The end of what was appended.
    appended: AtomicU64,
    end: AtomicBool,
    looks: AtomicU64,
    /// All that was appended is shown at once.
    at_once: bool,
}

impl Looks {
    fn look(&self, file: &File, random: &mut Random) -> Result<()> {
        let mut back = vec![0; 2 * WINDOW];
        while !self.end.load(SeqCst) {
            let least = self.appended.load(SeqCst);
            let from = least - (random.index(WINDOW) as u64).min(least);
            if random.below(4) == 0 {
                let length = file.metadata()?.len();
                ensure!(
                    !self.at_once || length >= least,
                    "{length} bytes long, {least} were there before"
                );
            }
            let n = file.read_at(&mut back, from)?;
            let odd = (from..).zip(&back[..n]).find(|(at, b)| **b != byte(*at));
            ensure!(odd.is_none(), "offset and byte {odd:?}, {least} were there before");
            let seen = from + n as u64;
            ensure!(
                !self.at_once || seen >= least,
                "{seen} bytes are shown, {least} were there before"
            );
            self.looks.fetch_add(1, SeqCst);
        }
        Ok(())
    }
}

/// They are appended to, by all of these in turn.
pub fn grow(files: &Growing, by: By, seed: u64, time: Duration) -> Result<()> {
    for log in &files.0 {
        let name = log.path.file_name().context("no name")?;
        let open = |mnt: &&Path| File::options().append(true).open(mnt.join(name));
        let writers = match by {
            By::Mounts(mounts) => mounts.iter().map(open).collect::<std::io::Result<_>>()?,
            By::Before(other) => {
                let own = log.writer.as_ref().context("not open to append")?;
                vec![own.try_clone()?, open(&other)?]
            }
        };
        let at_once = matches!(by, By::Mounts(_));
        one(log, writers, at_once, (seed, time)).with_context(|| log.path.display().to_string())?;
    }
    Ok(())
}

fn one(
    Log { path, readers, .. }: &Log,
    mut logs: Vec<File>,
    at_once: bool,
    (seed, time): (u64, Duration),
) -> Result<()> {
    let mut random = Random::new(seed);
    let mut length = logs[0].metadata()?.len();
    let looks = Looks {
        appended: AtomicU64::new(length),
        end: AtomicBool::new(false),
        looks: AtomicU64::new(0),
        at_once,
    };
    std::thread::scope(|scope| {
        let looks = &looks;
        let look = |(n, file)| scope.spawn(move || looks.look(file, &mut Random::new(seed + n)));
        let threads: Vec<_> = (1..).zip(readers).map(look).collect();
        let began = Instant::now();
        let mut append = || -> Result<()> {
            while began.elapsed() < time {
                let record = 1 + random.index(RECORD) as u64;
                let log = random.index(logs.len());
                let log = &mut logs[log];
                log.write_all(&(length..length + record).map(byte).collect::<Vec<u8>>())?;
                length += record;
                looks.appended.store(length, SeqCst);
                // Others come and go.
                drop(File::open(path)?);
                std::thread::sleep(Duration::from_micros(random.below(PAUSE)));
            }
            Ok(())
        };
        let appended = append();
        looks.end.store(true, SeqCst);
        for thread in threads {
            thread.join().map_err(|_| anyhow::anyhow!("a reader panicked"))??;
        }
        appended
    })?;
    ensure!(looks.looks.load(SeqCst) > 0, "nobody looked");
    Ok(())
}
