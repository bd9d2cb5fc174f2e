//! What the tests share.

use mtools::engine::{Copied, Data, Engine, Fault, Reflink, Settings, Sparse};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc;

/// SplitMix64: the same seed, the same run.
pub struct Random(u64);

impl Random {
    /// Of `ENGINE_SEED`, or a new one; printed, so that a failure can be repeated.
    pub fn new() -> Self {
        let seed = std::env::var("ENGINE_SEED").ok().and_then(|s| s.parse().ok());
        let seed = seed.unwrap_or_else(|| u64::from(std::process::id()) << 20 | clock() & 0xfffff);
        println!("ENGINE_SEED={seed}");
        Self(seed)
    }

    pub fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.word() % limit.max(1)
    }

    pub fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize]
    }

    pub fn bytes(&mut self, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        for chunk in bytes.chunks_mut(8) {
            let word = self.word().to_le_bytes();
            chunk.copy_from_slice(&word[..chunk.len()]);
        }
        bytes
    }
}

fn clock() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(0, |d| u64::from(d.subsec_nanos()))
}

/// A file with data, zeros and holes, of at most `most` bytes.
pub fn ragged(random: &mut Random, path: &Path, most: u64) {
    let file = File::create(path).unwrap();
    let size = random.below(most + 1);
    file.set_len(size).unwrap();
    for _ in 0..random.below(12) {
        let grain = random.pick(&[1, 4096, 65536]);
        let at = random.below(size + 1) / grain * grain;
        let length = random.below((size - at).min(most / 4) + 1) as usize;
        let bytes = if random.below(4) == 0 { vec![0; length] } else { random.bytes(length) };
        file.write_all_at(&bytes, at).unwrap();
    }
}

/// Both sides of a copy, the destination made anew.
pub fn sides(src: &Path, dst: &Path, sparse: Sparse, reflink: Reflink) -> Data {
    let from = File::open(src).unwrap();
    let to = OpenOptions::new().write(true).create(true).truncate(true).open(dst).unwrap();
    data(from, to, src, dst, sparse, reflink)
}

pub fn data(
    src: File,
    dst: File,
    src_name: &Path,
    dst_name: &Path,
    sparse: Sparse,
    reflink: Reflink,
) -> Data {
    let size = src.metadata().unwrap().len();
    Data {
        src,
        dst,
        src_name: src_name.into(),
        dst_name: dst_name.into(),
        size,
        sparse,
        reflink,
        fresh: true,
        marks: None,
    }
}

/// Copies one file by a task of its own.
pub fn copy(engine: &Engine, data: Data) -> Result<Copied, Fault> {
    let (tell, told) = mpsc::channel();
    let task = move |engine: &Engine| {
        engine.copy(data, Box::new(move |_, result| tell.send(result).unwrap()));
    };
    engine.submit(None, Box::new(task));
    engine.drain();
    let result = told.recv().unwrap();
    assert!(told.recv().is_err(), "told twice");
    result
}

/// Copies by an engine made for it.
pub fn copy_file(settings: Settings, src: &Path, dst: &Path, sparse: Sparse) -> Copied {
    let engine = Engine::new(settings).unwrap();
    let copied = copy(&engine, sides(src, dst, sparse, Reflink::Auto)).unwrap();
    assert_eq!(engine.panics(), 0);
    copied
}

/// The genuine cp.
pub fn genuine(words: &[&str], src: &Path, dst: &Path) {
    let status = Command::new("cp").args(words).arg(src).arg(dst).status().unwrap();
    assert!(status.success());
}

/// Blocks a file takes on its disk, after it was written out: they may be given late.
pub fn blocks(path: &Path) -> u64 {
    let file = File::open(path).unwrap();
    file.sync_all().unwrap();
    file.metadata().unwrap().blocks()
}

/// Sectors a file's data takes on its disk, without what the file system notes about them: of that there is the more
/// the more the free space is scattered. Holes take none; what was allocated and not written counts.
pub fn sectors(path: &Path) -> u64 {
    let all = blocks(path);
    let told = Command::new("filefrag").args(["-s", "-v", "-b512"]).arg(path).output();
    let told = told.expect("filefrag, of e2fsprogs, runs");
    // Memory has no extents, and notes nothing.
    if !told.status.success() {
        return all;
    }
    let text = String::from_utf8(told.stdout).unwrap();
    // "  0:   0.. 2047:   107747328.. 107749375:   2048:   last,eof"
    let is_extent =
        |line: &&str| line.split(':').next().is_some_and(|n| n.trim().parse::<u32>().is_ok());
    let length = |line: &str| line.split(':').nth(3).unwrap().trim().parse::<u64>().unwrap();
    let data = text.lines().filter(is_extent).map(length).sum();
    assert!(data <= all, "{data} of {all} sectors: {text}");
    data
}

pub fn same(a: &Path, b: &Path) {
    let (a_bytes, b_bytes) = (std::fs::read(a).unwrap(), std::fs::read(b).unwrap());
    assert_eq!(a_bytes.len(), b_bytes.len(), "sizes of {} and {}", a.display(), b.display());
    if let Some(at) = a_bytes.iter().zip(&b_bytes).position(|(x, y)| x != y) {
        panic!("{} and {} differ at {at}", a.display(), b.display());
    }
}

/// A directory on a disk, and one in memory where there is such a file system.
pub fn grounds() -> Vec<tempfile::TempDir> {
    let memory = Path::new("/dev/shm");
    let there = memory.is_dir().then(|| tempfile::tempdir_in(memory).ok()).flatten();
    [tempfile::tempdir_in(disk()).unwrap()].into_iter().chain(there).collect()
}

pub fn disk() -> PathBuf {
    PathBuf::from("/var/tmp")
}
