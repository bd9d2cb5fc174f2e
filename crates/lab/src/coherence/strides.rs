//! Registers in blocks of one file that many write at even distances, as ranks of a job write a checkpoint.
//!
//! Role: in some rounds all workers write their own blocks of a file with objects, one after the other, over and over, and
//! look at others' now and then: often enough to meet what a mount holds back of them, so rarely that there is such. Each
//! block is a register, set by its worker only. Left out where metadata targets are killed: what is held back is then seen
//! late by others (a limit of the file system's own).

use super::drive::{Any, Worker};
use super::objects::RegisterOp;
use rand::Rng;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Blocks of each worker, and their length: no multiple of a page.
pub(super) const BLOCKS: usize = 40;
const BLOCK: usize = 22_000;
/// Every so many rounds is one of these, and how many times the operations of others it has.
const EVERY: u64 = 3;
pub(super) const TIMES: usize = 8;
/// One in so many operations is none of a worker's blocks in turn, of each kind.
const RARELY: u32 = 1000;
const NAME: &str = "strides";

/// Whether a round is one.
pub(super) fn is_strided(round: u64) -> bool {
    round % EVERY == EVERY - 1
}

/// Makes the file, long enough to have objects.
pub(super) fn prepare(dir: &Path) -> io::Result<()> {
    std::fs::write(dir.join(NAME), vec![0; 4 * BLOCK])
}

impl Worker<'_> {
    fn workers(&self) -> usize {
        self.options.dirs.len() * self.options.threads
    }

    fn strided(&self) -> PathBuf {
        self.dir.join(NAME)
    }

    /// `first` is the number of the first such register.
    pub(super) fn strides(&mut self, first: usize) {
        let own = self.who.mount * self.options.threads + self.who.thread;
        match self.rng.random_range(0..RARELY) {
            0 => {
                let (of, block) =
                    (self.rng.random_range(0..self.workers()), self.rng.random_range(0..BLOCKS));
                self.look_at_block(first, of, block);
            }
            1 => self.look_at_length(),
            // Out of turn.
            2 => {
                let block = self.rng.random_range(0..BLOCKS);
                self.set_block(first, own, block);
            }
            _ => {
                let block = self.turn % BLOCKS;
                self.turn += 1;
                self.set_block(first, own, block);
            }
        }
    }

    fn place_of_block(&self, of: usize, block: usize) -> u64 {
        ((block * self.workers() + of) * BLOCK) as u64
    }

    fn set_block(&mut self, first: usize, own: usize, block: usize) {
        let (path, at, value) = (self.strided(), self.place_of_block(own, block), self.value());
        let register = first + own * BLOCKS + block;
        self.note(
            |w| {
                let bytes = value.to_le_bytes().repeat(BLOCK / 8);
                let file = w.kept(&path)?;
                file.write_all_at(&bytes, at)?;
                if w.options.sync {
                    w.kept(&path)?.sync_data()?;
                }
                w.reached = w.reached.max(at + bytes.len() as u64);
                Ok(Any::Register(register, RegisterOp::Set(value)))
            },
            Some(Any::Register(register, RegisterOp::MaybeSet(value))),
        );
    }

    /// By a file of its own, or by the one it writes through.
    fn look_at_block(&mut self, first: usize, of: usize, block: usize) {
        let (path, at, how) =
            (self.strided(), self.place_of_block(of, block), self.rng.random_range(0..2));
        self.who.way = how;
        let register = first + of * BLOCKS + block;
        self.note(
            |w| {
                let mut bytes = [0; 8];
                let n = match how {
                    1 => w.kept(&path)?.read_at(&mut bytes, at)?,
                    _ => w.open(&path, false, false)?.read_at(&mut bytes, at)?,
                };
                // Beyond the end nothing was written.
                let seen = if n == 0 { 0 } else { u64::from_le_bytes(bytes) };
                Ok(Any::Register(register, RegisterOp::Get(seen)))
            },
            None,
        );
    }

    /// At the end.
    pub(super) fn look_at_all_blocks(&mut self, first: usize) {
        for of in 0..self.workers() {
            (0..BLOCKS).for_each(|block| self.look_at_block(first, of, block));
        }
    }

    /// It is as long as what this worker itself has written, at least.
    fn look_at_length(&mut self) {
        let (path, least) = (self.strided(), self.reached);
        if let Ok(meta) = std::fs::metadata(path)
            && meta.size() < least
        {
            let short = format!("{} bytes where {least} had been written", meta.size());
            self.faults.push(format!("the strided file on mount {}: {short}", self.who.mount));
        }
    }
}
