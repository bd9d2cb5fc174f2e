//! A file of one thread, through every way to read and write it (buffered, O_APPEND, O_DIRECT,
//! mapped, truncate, punch, another name), against a copy in memory.

use super::child::{Context, During, Fault, Tried};
use crate::sys::{Aligned, Mapping};
use rand::Rng;
use rustix::fs::{self as rfs, FallocateFlags, OFlags};
use std::fs::{File, OpenOptions};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::PathBuf;

/// Size the file never exceeds.
const MAX_SIZE: usize = 1 << 20;

struct Private {
    path: PathBuf,
    file: File,
    appender: File,
    direct: Option<File>,
    shadow: Vec<u8>,
    generation: u64,
    seed: u64,
}

pub(crate) fn run(context: &mut Context) -> Tried {
    let name = format!("private-{}-{}", context.task.index, context.thread);
    let path = context.task.dir.join(name);
    let mut file = Private::open(path, context.task.direct, context.rng.random())?;
    let mut steps = 0u64;
    while context.tick() {
        file.step(context)?;
        steps += 1;
        if steps.is_multiple_of(150) {
            file.verify(0, MAX_SIZE, false)?;
            file.rename(steps)?;
        }
    }
    file.verify(0, MAX_SIZE, false)?;
    std::fs::remove_file(&file.path)?;
    file.verify(0, MAX_SIZE, false)
}

fn reopen(path: &PathBuf, flags: OFlags) -> Result<File, Fault> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).custom_flags(flags.bits() as i32);
    options.open(path).during("open")
}

impl Private {
    fn open(path: PathBuf, direct: bool, seed: u64) -> Result<Self, Fault> {
        File::create_new(&path).during("create")?;
        Ok(Private {
            file: reopen(&path, OFlags::empty())?,
            appender: reopen(&path, OFlags::APPEND)?,
            direct: if direct { Some(reopen(&path, OFlags::DIRECT)?) } else { None },
            path,
            shadow: Vec::new(),
            generation: 0,
            seed,
        })
    }

    fn rename(&mut self, steps: u64) -> Tried {
        let new = self.path.with_extension(steps.to_string());
        std::fs::rename(&self.path, &new).during("rename")?;
        self.path = new;
        self.file = reopen(&self.path, OFlags::empty())?;
        Ok(())
    }

    fn data(&mut self, at: usize, len: usize) -> Vec<u8> {
        self.generation += 1;
        crate::pattern::make(len, self.seed, self.generation, at as u64)
    }

    /// Puts bytes into the copy; the file grows with zeros if need be.
    fn put(&mut self, at: usize, data: &[u8]) {
        if self.shadow.len() < at + data.len() {
            self.shadow.resize(at + data.len(), 0);
        }
        self.shadow[at..at + data.len()].copy_from_slice(data);
    }

    fn step(&mut self, context: &mut Context) -> Tried {
        let rng = &mut context.rng;
        let at = rng.random_range(0..MAX_SIZE - 200_000);
        let len = match rng.random_range(0..4) {
            0 => rng.random_range(1..150_000),
            _ => rng.random_range(1..12_000),
        };
        match rng.random_range(0..20) {
            0..=4 => {
                let data = self.data(at, len);
                self.file.write_all_at(&data, at as u64).during("write")?;
                self.put(at, &data);
                Ok(())
            }
            5 if self.shadow.len() + len < MAX_SIZE => {
                let at = self.shadow.len();
                let data = self.data(at, len);
                std::io::Write::write_all(&mut &self.appender, &data).during("append")?;
                self.put(at, &data);
                Ok(())
            }
            6..=7 => self.direct_write(at & !4095, len.next_multiple_of(4096)),
            8..=9 => self.map(at & !4095, len, rng.random()),
            10 => {
                let size = rng.random_range(0..MAX_SIZE - 200_000);
                self.file.set_len(size as u64).during("truncate")?;
                self.shadow.resize(size, 0);
                Ok(())
            }
            11 => self.punch(at, len),
            12 => self.file.sync_data().during("fdatasync"),
            13 => {
                let size = self.file.metadata().during("stat")?.len();
                match size == self.shadow.len() as u64 {
                    true => Ok(()),
                    false => Err(Fault(format!("size {size}, not {}", self.shadow.len()))),
                }
            }
            _ => self.verify(at, len, rng.random()),
        }
    }

    fn direct_write(&mut self, at: usize, len: usize) -> Tried {
        let data = self.data(at, len);
        let Some(direct) = &self.direct else { return Ok(()) };
        direct.write_all_at(&Aligned::filled(&data), at as u64).during("direct write")?;
        self.put(at, &data);
        Ok(())
    }

    fn map(&mut self, at: usize, len: usize, write: bool) -> Tried {
        let len = len.min(self.shadow.len().saturating_sub(at));
        if len == 0 {
            return Ok(());
        }
        let mut map = Mapping::new(self.file.as_fd(), at as u64, len, true)
            .map_err(|e| Fault(format!("mmap: errno {e}")))?;
        if write {
            let data = self.data(at, len);
            map.write(0, &data);
            self.put(at, &data);
        }
        let mut seen = vec![0; len];
        map.read(0, &mut seen);
        self.same("mapped", at, &seen)
    }

    fn punch(&mut self, at: usize, len: usize) -> Tried {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        rfs::fallocate(&self.file, flags, at as u64, len as u64).during("punch")?;
        let end = (at + len).min(self.shadow.len());
        if at < end {
            self.shadow[at..end].fill(0);
        }
        Ok(())
    }

    fn verify(&mut self, at: usize, len: usize, direct: bool) -> Tried {
        let (file, at, what) = match &self.direct {
            Some(direct_file) if direct => (direct_file, at & !4095, "direct read"),
            _ => (&self.file, at, "read"),
        };
        let mut buffer = Aligned::new(len.next_multiple_of(4096));
        let mut got = 0;
        while got < buffer.len() {
            match file.read_at(&mut buffer[got..], (at + got) as u64).during(what)? {
                0 => break,
                n => got += n,
            }
            if direct && got % 4096 != 0 {
                break;
            }
        }
        let want = self.shadow.len().saturating_sub(at).min(buffer.len());
        if got != want {
            return Err(Fault(format!("{what} at {at}: {got} bytes, not {want}")));
        }
        self.same(what, at, &buffer[..got])
    }

    fn same(&self, what: &str, at: usize, seen: &[u8]) -> Tried {
        if seen.is_empty() {
            return Ok(());
        }
        let want = &self.shadow[at..at + seen.len()];
        match seen.iter().zip(want).position(|(a, b)| a != b) {
            None => Ok(()),
            Some(i) => Err(Fault(format!(
                "{}: {what}: byte {} is {:#04x}, not {:#04x} (file of {} bytes)",
                self.path.display(),
                at + i,
                seen[i],
                want[i],
                self.shadow.len()
            ))),
        }
    }
}
