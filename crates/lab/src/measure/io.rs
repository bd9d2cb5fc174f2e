//! Plain data workloads on one file or a few; each returns its work in bytes or operations.

use crate::pattern;
use crate::sys::Aligned;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::fs::File;
use std::io::{Error, Result};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

fn open(path: &Path, create: bool, direct: bool) -> Result<File> {
    let flags = if direct { libc::O_DIRECT } else { 0 };
    File::options().read(true).write(true).create(create).custom_flags(flags).open(path)
}

/// Writes `bytes` in blocks and syncs the file. Gives the bytes.
pub fn write_sequential(path: &Path, bytes: u64, block: usize, direct: bool) -> Result<f64> {
    let file = open(path, true, direct)?;
    let data = Aligned::filled(&pattern::make(block, 1, 1, 0));
    let mut at = 0;
    while at < bytes {
        file.write_all_at(&data, at)?;
        at += block as u64;
    }
    file.sync_all()?;
    Ok(at as f64)
}

/// Reads a file from start to end. Gives the bytes.
pub fn read_sequential(path: &Path, block: usize, direct: bool) -> Result<f64> {
    let file = open(path, false, direct)?;
    let mut data = Aligned::new(block);
    let mut at = 0;
    loop {
        match file.read_at(&mut data, at)? {
            0 => return Ok(at as f64),
            n => at += n as u64,
        }
    }
}

/// Random reads of `block` bytes by `depth` threads, each with one read under way, for `limit`.
/// Gives the reads done.
pub fn read_random(
    path: &Path,
    block: usize,
    depth: usize,
    limit: Duration,
    direct: bool,
) -> Result<f64> {
    let blocks = std::fs::metadata(path)?.len() / block as u64;
    if blocks == 0 {
        return Err(Error::other("the file is smaller than a block"));
    }
    let end = Instant::now() + limit;
    let one = |seed: usize| -> Result<u64> {
        let file = open(path, false, direct)?;
        let mut rng = StdRng::seed_from_u64(seed as u64);
        let (mut data, mut done) = (Aligned::new(block), 0);
        while Instant::now() < end {
            file.read_exact_at(&mut data, rng.random_range(0..blocks) * block as u64)?;
            done += 1;
        }
        Ok(done)
    };
    threads(depth, one)
}

/// `writers` threads, each with a descriptor of its own, write every n-th block of one file until
/// it has `bytes`, and sync. Gives the bytes.
pub fn write_strided(path: &Path, bytes: u64, block: usize, writers: usize) -> Result<f64> {
    open(path, true, false)?;
    let blocks = bytes / block as u64;
    let one = |index: usize| -> Result<u64> {
        let file = open(path, false, false)?;
        let data = pattern::make(block, 1, index as u64, 0);
        let mut done = 0;
        for at in (index as u64..blocks).step_by(writers) {
            file.write_all_at(&data, at * block as u64)?;
            done += block as u64;
        }
        file.sync_all()?;
        Ok(done)
    };
    threads(writers, one)
}

fn threads(count: usize, one: impl Fn(usize) -> Result<u64> + Sync) -> Result<f64> {
    std::thread::scope(|scope| {
        let one = &one;
        let running: Vec<_> = (0..count).map(|n| scope.spawn(move || one(n))).collect();
        let mut total = 0;
        for thread in running {
            total += thread.join().map_err(|_| Error::other("a thread panicked"))??;
        }
        Ok(total as f64)
    })
}
