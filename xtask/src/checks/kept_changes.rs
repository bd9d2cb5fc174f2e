//! What the kernel of a mount keeps of a file, and how another mount, or the same one, may change it:
//! cases of `sharing` (invariant 3). Each change is compared, through descriptors that stay open and new ones of both
//! mounts, with an array of bytes.

use super::Aligned;
use crate::fs::until;
use crate::random::Random;
use anyhow::{Context, Result, ensure};
use rustix::fs::{FallocateFlags, Mode, OFlags, copy_file_range, fallocate, ftruncate};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

/// What O_DIRECT asks of offsets, lengths and memory on common disks, in bytes.
const ALIGN: usize = 4096;
const PAGE: u64 = 4096;
/// How long a read may take that asks nobody.
const AT_ONCE: Duration = Duration::from_secs(5);
/// Changes that the file is made for.
const CHANGES: u64 = 12;

/// A read of what was read before, and what another mount wrote before that, asks not even the mount.
pub fn stopped(mnt: &Path, other: &Path, pid: i32) -> Result<()> {
    let bytes = Random::new(1).bytes(200_000);
    std::fs::write(other.join("stopped"), &bytes)?;
    let file = File::open(mnt.join("stopped"))?;
    let mut back = vec![0; bytes.len()];
    file.read_exact_at(&mut back, 0)?;
    // The file comes back, too: closing it asks the mount.
    let (read, _file) = while_stopped(pid, move || {
        let read = file.read_exact_at(&mut back, 0);
        (read.map(|()| back), file)
    })?;
    ensure!(read? == bytes, "other bytes");
    Ok(())
}

/// What some work gives while the process of a mount is stopped; it must not wait for that.
pub fn while_stopped<T: Send + 'static>(
    pid: i32,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T> {
    let pid = Pid::from_raw(pid).context("no process")?;
    kill_process(pid, Signal::STOP)?;
    let (done, outcome) = mpsc::channel();
    // Nobody waits any more if it came too late.
    let worker = std::thread::spawn(move || drop(done.send(work())));
    let given = outcome.recv_timeout(AT_ONCE);
    kill_process(pid, Signal::CONT)?;
    worker.join().map_err(|_| anyhow::anyhow!("the worker panicked"))?;
    given.context("it waits for the mount")
}

/// A program is read once, however often it runs; the other mount puts another one in its place.
pub fn runs(a: &Path, b: &Path, from: &Path, bytes_read: impl Fn() -> Result<u64>) -> Result<()> {
    let (here, there) = (a.join("program"), b.join("program"));
    std::fs::copy(from, &here)?;
    let version = |path: &Path| -> Result<bool> {
        let status = Command::new(path).arg("version").stdout(Stdio::null()).status();
        Ok(status.with_context(|| path.display().to_string())?.success())
    };
    ensure!(version(&here)? && version(&there)?, "it does not run");
    // Not before its writer is done with it, and its access time has moved.
    until("a run reads nothing", || {
        let read = || -> Result<u64> {
            let before = bytes_read()?;
            ensure!(version(&here)?, "it does not run again");
            Ok(bytes_read()? - before)
        };
        read().is_ok_and(|read| read == 0)
    })?;
    let before = bytes_read()?;
    for _ in 0..3 {
        ensure!(version(&here)?, "it does not run again");
    }
    let read = bytes_read()? - before;
    // Its last page, once, where it was changed just now.
    ensure!(read <= PAGE, "{read} bytes were read again");
    // In its place, not beside it: the node stays the same.
    std::fs::write(&there, "#!/bin/sh\nexit 1\n")?;
    ensure!(!version(&here)?, "what was there before still runs");
    std::fs::write(&there, std::fs::read(from)?)?;
    ensure!(version(&here)?, "what was there before still runs");
    Ok(())
}

struct Changed<'a> {
    paths: [PathBuf; 2],
    readers: Vec<File>,
    /// Open to write, on one of them, now and then.
    writer: Option<(usize, File)>,
    model: Vec<u8>,
    length: usize,
    random: &'a mut Random,
}

/// Changes a file of about that many bytes so many times, each time in another way.
pub fn each(a: &Path, b: &Path, length: usize, seed: u64, times: u64) -> Result<()> {
    let mut random = Random::new(seed);
    let paths = [a, b].map(|mnt| mnt.join(format!("changed-{length}")));
    let model = random.bytes(length);
    std::fs::write(&paths[0], &model)?;
    let readers = paths.iter().map(File::open).collect::<std::io::Result<_>>()?;
    let mut changed = Changed { paths, readers, writer: None, model, length, random: &mut random };
    for n in 0..times {
        let (at, kind) = (changed.random.index(2), changed.random.below(CHANGES));
        let say = || format!("change {n} of seed {seed}, of kind {kind}, by mount {at}");
        changed.change(at, kind).with_context(say)?;
        changed.look().with_context(say)?;
    }
    Ok(())
}

impl Changed<'_> {
    /// A place within the file, and bytes for it.
    fn some(&mut self) -> (usize, Vec<u8>) {
        let length = 1 + self.random.index(self.length.min(40_000));
        (self.random.index(self.length), self.random.bytes(length))
    }

    fn writer(&self, at: usize) -> Result<File> {
        match &self.writer {
            Some((there, file)) if *there == at => Ok(file.try_clone()?),
            _ => Ok(File::options().read(true).write(true).open(&self.paths[at])?),
        }
    }

    fn change(&mut self, at: usize, kind: u64) -> Result<()> {
        let file = self.writer(at)?;
        let (offset, bytes) = self.some();
        let (start, count) = (offset as u64, bytes.len() as u64);
        match kind {
            0..=2 => {
                file.write_all_at(&bytes, start)?;
                self.put(offset, &bytes);
            }
            3 => {
                use std::io::Write;
                File::options().append(true).open(&self.paths[at])?.write_all(&bytes)?;
                self.put(self.model.len(), &bytes);
                self.cut(at, self.model.len().min(2 * self.length))?;
            }
            4 => self.cut(at, offset)?,
            5 => {
                ftruncate(&file, start + count)?;
                self.model.resize(offset + bytes.len(), 0);
            }
            6 => {
                let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                fallocate(&file, punch, start, count)?;
                self.clear(offset, bytes.len());
            }
            7 => {
                fallocate(&file, FallocateFlags::ZERO_RANGE, start, count)?;
                let end = self.model.len().max(offset + bytes.len());
                self.model.resize(end, 0);
                self.clear(offset, bytes.len());
            }
            8 => self.copy(&file, offset, bytes.len())?,
            9 => self.direct(at, offset)?,
            10 => {
                std::fs::write(&self.paths[at], &bytes)?;
                self.model = bytes;
            }
            _ => self.writer = self.writer.take().is_none().then_some((at, file)),
        }
        Ok(())
    }

    fn put(&mut self, offset: usize, bytes: &[u8]) {
        let end = self.model.len().max(offset + bytes.len());
        self.model.resize(end, 0);
        self.model[offset..offset + bytes.len()].copy_from_slice(bytes);
    }

    fn clear(&mut self, offset: usize, count: usize) {
        let end = self.model.len();
        self.model[offset.min(end)..(offset + count).min(end)].fill(0);
    }

    fn cut(&mut self, at: usize, length: usize) -> Result<()> {
        File::options().write(true).open(&self.paths[at])?.set_len(length as u64)?;
        self.model.resize(length, 0);
        Ok(())
    }

    /// Within the file, to where it does not overlap.
    fn copy(&mut self, file: &File, offset: usize, count: usize) -> Result<()> {
        let count = count.min(self.model.len() / 2);
        let from = offset.min(self.model.len() / 2 - count);
        let to = self.model.len() / 2;
        let (mut source, mut target) = (from as u64, to as u64);
        let n = copy_file_range(file, Some(&mut source), file, Some(&mut target), count)?;
        let bytes = self.model[from..from + n].to_vec();
        self.put(to, &bytes);
        Ok(())
    }

    fn direct(&mut self, at: usize, offset: usize) -> Result<()> {
        let flags = OFlags::WRONLY | OFlags::DIRECT | OFlags::CLOEXEC;
        let file: File = rustix::fs::open(&self.paths[at], flags, Mode::empty())?.into();
        let offset = offset / ALIGN * ALIGN;
        let mut aligned = Aligned::new(2 * ALIGN);
        let bytes = aligned.bytes();
        self.random.fill(bytes);
        file.write_all_at(bytes, offset as u64)?;
        self.put(offset, bytes);
        Ok(())
    }

    /// All of it, or a part, by each way to it.
    fn look(&mut self) -> Result<()> {
        let new: Vec<File> = self.paths.iter().map(File::open).collect::<std::io::Result<_>>()?;
        let (from, count) = match self.random.below(3) {
            0 => (self.random.index(self.length), self.random.index(20_000)),
            _ => (0, self.model.len() + 1),
        };
        let end = self.model.len();
        let there = &self.model[from.min(end)..(from + count).min(end)];
        for (file, which) in self.readers.iter().chain(&new).zip(["a", "b", "a, new", "b, new"]) {
            let mut back = vec![0; count];
            let n = read_at(file, &mut back, from as u64)?;
            ensure!(n == there.len(), "{which}: {n} bytes from {from}, not {}", there.len());
            let odd = back.iter().zip(there).position(|(x, y)| x != y);
            ensure!(odd.is_none(), "{which}: another byte at {from} + {odd:?}");
            let length = file.metadata()?.len();
            ensure!(length == end as u64, "{which}: {length} bytes long, not {end}");
        }
        Ok(())
    }
}

/// As many bytes as there are.
fn read_at(file: &File, into: &mut [u8], offset: u64) -> Result<usize> {
    let mut n = 0;
    while n < into.len() {
        match file.read_at(&mut into[n..], offset + n as u64)? {
            0 => break,
            more => n += more,
        }
    }
    Ok(n)
}
