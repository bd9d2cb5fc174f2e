//! Workloads of large files.

use super::level;
use super::systems::System;
use super::{Sizes, Unit, Workload};
use crate::checks::Aligned;
use crate::cx::Cx;
use crate::random::Random;
use anyhow::{Result, ensure};
use rustix::fs::{Mode, OFlags, open};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Instant;

const MIB: usize = 1 << 20;
/// Bytes of the unaligned block of the shared file, a size from real checkpoints.
const ODD_BLOCK: usize = 47_008;

pub const ALL: &[Workload] = &[
    Workload {
        name: "sequential write, fsync",
        unit: Unit::Throughput,
        mark: (0.85, "ext4"),
        run: |_, system, sizes| write(system, sizes, OFlags::empty()),
    },
    Workload {
        name: "sequential cold read",
        unit: Unit::Throughput,
        mark: (0.85, "ext4"),
        run: |_, system, sizes| read(system, sizes, OFlags::empty()),
    },
    Workload {
        name: "sequential write, O_DIRECT, fsync",
        unit: Unit::Throughput,
        mark: (0.85, "ext4"),
        run: |_, system, sizes| write(system, sizes, OFlags::DIRECT),
    },
    Workload {
        name: "sequential cold read, O_DIRECT",
        unit: Unit::Throughput,
        mark: (0.85, "ext4"),
        run: |_, system, sizes| read(system, sizes, OFlags::DIRECT),
    },
    Workload {
        name: "random 4 KiB read, O_DIRECT, 32",
        unit: Unit::Rate,
        mark: (0.7, "ext4"),
        run: random_reads,
    },
    Workload {
        name: "random 4 KiB write, fsync",
        unit: Unit::Rate,
        mark: (1.0, "bindfs"),
        run: random_writes,
    },
    Workload { name: "hot 4 KiB reads", unit: Unit::Rate, mark: (0.9, "ext4"), run: hot_reads },
    Workload {
        name: "shared file, 4 writers, 1 MiB",
        unit: Unit::Throughput,
        mark: (0.5, "ext4"),
        run: |_, system, sizes| shared(system, sizes, MIB),
    },
    Workload {
        name: "shared file, 4 writers, 47,008 B",
        unit: Unit::Throughput,
        mark: (0.5, "ext4"),
        run: |_, system, sizes| shared(system, sizes, ODD_BLOCK),
    },
];

fn open_with(path: &Path, flags: OFlags) -> Result<File> {
    Ok(open(path, flags | OFlags::CLOEXEC, Mode::RUSR | Mode::WUSR)?.into())
}

fn write(system: &mut System, sizes: &Sizes, flags: OFlags) -> Result<(f64, f64)> {
    let path = system.dir().join("large");
    let _ = std::fs::remove_file(&path);
    let mut buffer = Aligned::new(MIB);
    Random::new(7).fill(buffer.bytes());
    level::ground(sizes.large);
    let start = Instant::now();
    let file = open_with(&path, OFlags::CREATE | OFlags::WRONLY | flags)?;
    for n in 0..sizes.large {
        file.write_all_at(buffer.bytes(), (n * MIB) as u64)?;
    }
    file.sync_all()?;
    Ok((sizes.large as f64, start.elapsed().as_secs_f64()))
}

/// Makes sure there is a large file.
fn prepare(system: &mut System, sizes: &Sizes) -> Result<std::path::PathBuf> {
    let path = system.dir().join("large");
    let wanted = (sizes.large * MIB) as u64;
    if !std::fs::metadata(&path).is_ok_and(|m| m.len() == wanted) {
        write(system, sizes, OFlags::empty())?;
    }
    Ok(path)
}

fn read(system: &mut System, sizes: &Sizes, flags: OFlags) -> Result<(f64, f64)> {
    let path = prepare(system, sizes)?;
    system.cold()?;
    let mut buffer = Aligned::new(MIB);
    level::ground(sizes.large);
    let start = Instant::now();
    let file = open_with(&path, OFlags::RDONLY | flags)?;
    for n in 0..sizes.large {
        file.read_exact_at(buffer.bytes(), (n * MIB) as u64)?;
    }
    Ok((sizes.large as f64, start.elapsed().as_secs_f64()))
}

/// `threads` threads read 4 KiB blocks at random.
fn reads(path: &Path, flags: OFlags, blocks: u64, threads: u64, each: usize) -> Result<f64> {
    let start = Instant::now();
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..threads)
            .map(|t| {
                scope.spawn(move || -> Result<()> {
                    let file = open_with(path, OFlags::RDONLY | flags)?;
                    let mut random = Random::new(t);
                    let mut buffer = Aligned::new(4096);
                    for _ in 0..each {
                        file.read_exact_at(buffer.bytes(), random.below(blocks) * 4096)?;
                    }
                    Ok(())
                })
            })
            .collect();
        for reader in readers {
            ensure!(reader.join().is_ok_and(|r| r.is_ok()), "a reader failed");
        }
        Ok(())
    })?;
    Ok(start.elapsed().as_secs_f64())
}

fn random_reads(_: &Cx, system: &mut System, sizes: &Sizes) -> Result<(f64, f64)> {
    let path = prepare(system, sizes)?;
    system.cold()?;
    level::ground(sizes.large);
    let each = sizes.reads / 32;
    let took = reads(&path, OFlags::DIRECT, (sizes.large * 256) as u64, 32, each)?;
    Ok(((each * 32) as f64, took))
}

/// One thread writes 4 KiB blocks at random over a file that is there, as databases do, then fsync.
fn random_writes(_: &Cx, system: &mut System, sizes: &Sizes) -> Result<(f64, f64)> {
    let path = prepare(system, sizes)?;
    let blocks = (sizes.large * 256) as u64;
    level::ground(sizes.large);
    let start = Instant::now();
    let file = open_with(&path, OFlags::WRONLY)?;
    let mut random = Random::new(3);
    for n in 0..sizes.reads {
        file.write_all_at(&[n as u8; 4096], random.below(blocks) * 4096)?;
    }
    file.sync_all()?;
    Ok((sizes.reads as f64, start.elapsed().as_secs_f64()))
}

fn hot_reads(_: &Cx, system: &mut System, sizes: &Sizes) -> Result<(f64, f64)> {
    let path = prepare(system, sizes)?;
    let blocks = 16 * 256;
    let file = File::open(&path)?;
    let mut buffer = vec![0; MIB];
    for n in 0..16 {
        file.read_exact_at(&mut buffer, (n * MIB) as u64)?;
    }
    let each = sizes.reads * 5;
    let took = reads(&path, OFlags::empty(), blocks, 1, each)?;
    Ok((each as f64, took))
}

/// Four writers, each every fourth block of one file, then fsync.
fn shared(system: &mut System, sizes: &Sizes, block: usize) -> Result<(f64, f64)> {
    let path = system.dir().join("shared");
    let _ = std::fs::remove_file(&path);
    let blocks = sizes.large / 2 * MIB / block;
    let path = &path;
    level::ground(sizes.large);
    let start = Instant::now();
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..4)
            .map(|t| {
                scope.spawn(move || -> Result<()> {
                    let file = open_with(path, OFlags::CREATE | OFlags::WRONLY)?;
                    let buffer = vec![t as u8; block];
                    for n in (t..blocks).step_by(4) {
                        file.write_all_at(&buffer, (n * block) as u64)?;
                    }
                    file.sync_all()?;
                    Ok(())
                })
            })
            .collect();
        for writer in writers {
            ensure!(writer.join().is_ok_and(|r| r.is_ok()), "a writer failed");
        }
        Ok(())
    })?;
    Ok(((blocks * block) as f64 / MIB as f64, start.elapsed().as_secs_f64()))
}
