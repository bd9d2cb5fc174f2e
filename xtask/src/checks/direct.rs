//! Random operations on one file through O_DIRECT and a buffered descriptor at once, compared
//! with an array of bytes.

use crate::random::Random;
use anyhow::{Context, Result, ensure};
use rustix::fs::{FallocateFlags, Mode, OFlags, fallocate, ftruncate, open};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// What O_DIRECT asks of offsets, lengths and memory on common disks, in bytes.
const ALIGN: usize = 4096;
/// Longest file, in blocks.
const BLOCKS: u64 = 512;
/// Longest operation, in blocks.
const LONGEST: u64 = 48;
/// Operations shown when something differs.
const HISTORY: usize = 30;

struct State {
    direct: File,
    buffered: File,
    model: Vec<u8>,
    random: Random,
    history: Vec<String>,
}

/// Runs `operations` on a new file at `path`.
pub fn exercise(path: &Path, seed: u64, operations: u64) -> Result<()> {
    let mut state = State::new(path, seed)?;
    for n in 0..operations {
        state.step(path).with_context(|| {
            let from = state.history.len().saturating_sub(HISTORY);
            format!("operation {n} of seed {seed}, after\n  {}", state.history[from..].join("\n  "))
        })?;
    }
    std::fs::remove_file(path)?;
    Ok(())
}

fn open_direct(path: &Path) -> Result<File> {
    Ok(open(path, OFlags::RDWR | OFlags::DIRECT | OFlags::CLOEXEC, Mode::empty())?.into())
}

impl State {
    fn new(path: &Path, seed: u64) -> Result<Self> {
        let buffered = File::options().read(true).write(true).create_new(true).open(path)?;
        let direct = open_direct(path)?;
        let random = Random::new(seed);
        Ok(Self { direct, buffered, model: Vec::new(), random, history: Vec::new() })
    }

    fn step(&mut self, path: &Path) -> Result<()> {
        let offset = self.random.index(BLOCKS as usize) * ALIGN;
        let room = BLOCKS - (offset / ALIGN) as u64;
        let length = (1 + self.random.index(LONGEST.min(room) as usize)) * ALIGN;
        match self.random.below(100) {
            0..35 => self.write(offset, length, true),
            35..45 => self.write(offset, length, false),
            45..70 => self.read(offset, length, true),
            70..80 => self.read(offset, length, false),
            80..86 => self.truncate(),
            86..91 => self.punch(offset, length),
            91..94 => {
                self.history.push("fsync".into());
                Ok(rustix::fs::fsync(&self.buffered)?)
            }
            94..97 => {
                self.history.push("reopen".into());
                self.direct = open_direct(path)?;
                Ok(())
            }
            _ => self.whole(path),
        }
    }

    fn write(&mut self, offset: usize, length: usize, direct: bool) -> Result<()> {
        self.history.push(format!("write {length} at {offset}, direct {direct}"));
        let mut buffer = Aligned::new(length);
        self.random.fill(buffer.bytes());
        let file = if direct { &self.direct } else { &self.buffered };
        file.write_all_at(buffer.bytes(), offset as u64)?;
        self.grow(offset + length);
        self.model[offset..offset + length].copy_from_slice(buffer.bytes());
        self.size()
    }

    fn read(&mut self, offset: usize, length: usize, direct: bool) -> Result<()> {
        self.history.push(format!("read {length} at {offset}, direct {direct}"));
        let mut buffer = Aligned::new(length);
        let file = if direct { &self.direct } else { &self.buffered };
        let mut done = 0;
        // Short reads may only end at the end of the file.
        loop {
            let n = file.read_at(&mut buffer.bytes()[done..], (offset + done) as u64)?;
            done += n;
            if n == 0 || done == length || !done.is_multiple_of(ALIGN) {
                break;
            }
        }
        let from = offset.min(self.model.len());
        let wanted = &self.model[from..(offset + length).min(self.model.len())];
        crate::fs::same("read", &buffer.bytes()[..done], wanted)
    }

    fn truncate(&mut self) -> Result<()> {
        let length = self.random.index(BLOCKS as usize * ALIGN);
        self.history.push(format!("truncate to {length}"));
        ftruncate(&self.buffered, length as u64)?;
        self.model.resize(length, 0);
        self.size()
    }

    fn punch(&mut self, offset: usize, length: usize) -> Result<()> {
        self.history.push(format!("punch {length} at {offset}"));
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        fallocate(&self.direct, flags, offset as u64, length as u64)?;
        let end = (offset + length).min(self.model.len());
        if offset < end {
            self.model[offset..end].fill(0);
        }
        self.size()
    }

    fn whole(&mut self, path: &Path) -> Result<()> {
        self.history.push("read the whole file anew".into());
        crate::fs::same("whole file", &std::fs::read(path)?, &self.model)
    }

    fn size(&self) -> Result<()> {
        let size = self.direct.metadata()?.len();
        let wanted = self.model.len() as u64;
        ensure!(size == wanted, "size is {size}, not {wanted}");
        Ok(())
    }

    fn grow(&mut self, length: usize) {
        if self.model.len() < length {
            self.model.resize(length, 0);
        }
    }
}

/// Memory aligned as O_DIRECT wants it.
pub struct Aligned {
    memory: Vec<u8>,
    from: usize,
    length: usize,
}

impl Aligned {
    pub fn new(length: usize) -> Self {
        let memory = vec![0u8; length + ALIGN];
        let from = memory.as_ptr().align_offset(ALIGN);
        Self { memory, from, length }
    }

    pub fn bytes(&mut self) -> &mut [u8] {
        &mut self.memory[self.from..self.from + self.length]
    }
}
