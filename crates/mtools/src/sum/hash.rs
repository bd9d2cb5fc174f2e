//! From a file's name to its digest: plain, or the tree hash where that was asked for.

use super::budget::Budget;
use super::digest::{Algorithm, Digest};
use super::own::Own;
use super::source::{Buffer, Input, Reading, read_at};
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// What a tree hash begins with, so that no file's plain digest is the root of another's tree.
const TREE_MARK: &[u8] = b"MSUM-TREE\n";
/// The most chunks of a file whose digests are kept (48 MiB of SHA-512 would be a million).
const MAX_CHUNKS: u64 = 1 << 18;

/// What is to be hashed.
#[derive(Clone, Debug)]
pub struct Job {
    pub name: OsString,
    pub algorithm: Algorithm,
    /// The chunk of a tree hash.
    pub split: Option<u64>,
}

/// What came out.
#[derive(Debug)]
pub struct Sum {
    pub digest: Vec<u8>,
    pub bytes: u64,
}

impl Job {
    pub fn run(&self, reading: &Reading<'_>, buffer: &mut Buffer) -> io::Result<Sum> {
        let input = Input::open(&self.name, reading.own.direct)?;
        match (self.split, &input) {
            (None, _) => self.plain(&input, reading, buffer),
            (Some(split), Input::File(file)) if file.metadata()?.is_file() => {
                Tree::new(self.algorithm, split, file, reading)?.run(buffer)
            }
            (Some(split), _) => self.tree_in_turn(split, &input, reading, buffer),
        }
    }

    fn plain(&self, input: &Input, reading: &Reading<'_>, buffer: &mut Buffer) -> io::Result<Sum> {
        let mut digest = Digest::new(self.algorithm);
        let overlap = self.algorithm.is_slow();
        let bytes = reading.feed(input, buffer, overlap, |part| digest.update(part))?;
        Ok(Sum { digest: digest.finish(), bytes })
    }

    /// Of what cannot be read at several places at once.
    fn tree_in_turn(
        &self,
        split: u64,
        input: &Input,
        reading: &Reading<'_>,
        buffer: &mut Buffer,
    ) -> io::Result<Sum> {
        let mut root = Root::new(self.algorithm, split);
        let mut chunk = Digest::new(self.algorithm);
        let mut room = split;
        let bytes = reading.feed(input, buffer, true, |mut part| {
            while !part.is_empty() {
                let len = part.len().min(usize::try_from(room).unwrap_or(usize::MAX));
                chunk.update(&part[..len]);
                room -= len as u64;
                part = &part[len..];
                if room == 0 {
                    let full = std::mem::replace(&mut chunk, Digest::new(self.algorithm));
                    root.add(&full.finish());
                    room = split;
                }
            }
        })?;
        if room < split {
            root.add(&chunk.finish());
        }
        Ok(Sum { digest: root.finish(bytes), bytes })
    }
}

/// The tree hash of an open regular file, by as many threads as `budget` has left.
pub fn tree(algorithm: Algorithm, split: u64, file: &File, budget: &Budget) -> io::Result<Vec<u8>> {
    let (own, bytes) = (Own::default(), AtomicU64::new(0));
    let reading = Reading { own: &own, budget, bytes: &bytes };
    let _share = budget.worker();
    let mut buffer = Buffer::new(own.buffer);
    Tree::new(algorithm, split, file, &reading)?.run(&mut buffer).map(|sum| sum.digest)
}

/// digest(mark, digests of the chunks, length of the file, length of a chunk): the two lengths as
/// 64 bits, the least significant byte first.
struct Root {
    digest: Digest,
    split: u64,
}

impl Root {
    fn new(algorithm: Algorithm, split: u64) -> Self {
        let mut digest = Digest::new(algorithm);
        digest.update(TREE_MARK);
        Self { digest, split }
    }

    fn add(&mut self, chunk: &[u8]) {
        self.digest.update(chunk);
    }

    fn finish(mut self, bytes: u64) -> Vec<u8> {
        self.digest.update(&bytes.to_le_bytes());
        self.digest.update(&self.split.to_le_bytes());
        self.digest.finish()
    }
}

/// One regular file, hashed by as many threads as are free.
struct Tree<'a> {
    algorithm: Algorithm,
    split: u64,
    file: &'a File,
    reading: &'a Reading<'a>,
    chunks: u64,
    next: AtomicU64,
    bytes: AtomicU64,
    failed: AtomicBool,
}

/// Numbers of chunks and their digests, as one thread has made them.
type Chunks = io::Result<Vec<(u64, Vec<u8>)>>;

impl<'a> Tree<'a> {
    fn new(
        algorithm: Algorithm,
        split: u64,
        file: &'a File,
        reading: &'a Reading<'a>,
    ) -> io::Result<Self> {
        let chunks = file.metadata()?.len().div_ceil(split);
        if chunks > MAX_CHUNKS {
            return Err(io::Error::other(format!(
                "more than {MAX_CHUNKS} chunks of {split} bytes: give a larger --split-size"
            )));
        }
        let (next, bytes, failed) = Default::default();
        Ok(Self { algorithm, split, file, reading, chunks, next, bytes, failed })
    }

    fn run(&self, buffer: &mut Buffer) -> io::Result<Sum> {
        let size = buffer.space().len();
        let mut all = std::thread::scope(|scope| -> Chunks {
            let mut helpers = Vec::new();
            // Threads may become free while this file is read, so each chunk asks again.
            let own = self.take_chunks(buffer, &mut || {
                let left = self.chunks.saturating_sub(self.next.load(Ordering::Relaxed));
                if left <= helpers.len() as u64 {
                    return;
                }
                if let Some(share) = self.reading.budget.helper() {
                    let help = move || {
                        let _share = share;
                        self.take_chunks(&mut Buffer::new(size), &mut || {})
                    };
                    // Where no thread can be had, this one does it alone.
                    helpers.extend(std::thread::Builder::new().spawn_scoped(scope, help).ok());
                }
            });
            let mut all = own?;
            for helper in helpers {
                let part = helper.join().unwrap_or_else(|_| Err(io::Error::other("a thread died")));
                all.extend(part?);
            }
            Ok(all)
        })?;
        all.sort_unstable_by_key(|(chunk, _)| *chunk);
        let mut root = Root::new(self.algorithm, self.split);
        all.iter().for_each(|(_, digest)| root.add(digest));
        let bytes = self.bytes.load(Ordering::Relaxed);
        Ok(Sum { digest: root.finish(bytes), bytes })
    }

    fn take_chunks(&self, buffer: &mut Buffer, before_each: &mut dyn FnMut()) -> Chunks {
        let mut done = Vec::new();
        while !self.failed.load(Ordering::Relaxed) {
            let chunk = self.next.fetch_add(1, Ordering::Relaxed);
            if chunk >= self.chunks {
                break;
            }
            before_each();
            match self.chunk(chunk, buffer) {
                Ok(digest) => done.push((chunk, digest)),
                Err(e) => {
                    self.failed.store(true, Ordering::Relaxed);
                    return Err(e);
                }
            }
        }
        Ok(done)
    }

    fn chunk(&self, chunk: u64, buffer: &mut Buffer) -> io::Result<Vec<u8>> {
        let mut digest = Digest::new(self.algorithm);
        let mut offset = chunk * self.split;
        let mut left = self.split;
        while left > 0 {
            let space = buffer.space();
            let most = space.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            let len = read_at(self.file, &mut space[..most], offset)?;
            if len == 0 {
                break;
            }
            digest.update(&space[..len]);
            offset += len as u64;
            left -= len as u64;
            self.bytes.fetch_add(len as u64, Ordering::Relaxed);
            self.reading.bytes.fetch_add(len as u64, Ordering::Relaxed);
        }
        Ok(digest.finish())
    }
}
