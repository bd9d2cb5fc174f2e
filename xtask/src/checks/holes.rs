//! Sparse and very large files: holes, SEEK_HOLE and SEEK_DATA, fallocate, copy_file_range.

use crate::cx::Cx;
use crate::fs::{Fs, same};
use crate::plan::{Check, Need};
use crate::probe::{Probe, compare};
use crate::random::Random;
use anyhow::{Context, Result, ensure};
use rustix::fs::{FallocateFlags, SeekFrom, copy_file_range, fallocate, ftruncate, seek};
use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

pub const CHECK: Check = Check {
    name: "holes",
    about: "sparse files beyond 8 TiB, SEEK_HOLE and SEEK_DATA, fallocate, copy_file_range",
    needs: &[Need::Binary, Need::Apt("fuse3"), Need::Root],
    limit: 300,
    weight: 1,
    slow: false,
    run,
};

const MIB: u64 = 1 << 20;
const TIB: u64 = 1 << 40;

fn run(cx: &Cx) -> Result<()> {
    let mut fs = Fs::new(cx, "fs")?;
    let local = cx.dir("local")?;
    compare(cx, "fallocate", &fs.mnt, &local, allocations)?;
    compare(cx, "ends", &fs.mnt, &local, ends)?;
    for (count, size) in [(1, 65536), (4, 65536), (4, MIB)] {
        let dir = fs.striped(&format!("s{count}-{size}"), count, size)?;
        let label = |what: &str| format!("{what}, {count} stripes of {size}");
        cx.case(&label("far apart"), || far(&dir.join("far"), cx.seed()));
        cx.case(&label("map of holes"), || map(&dir.join("map")));
        cx.case(&label("punch gives space back"), || punch(&dir.join("punch"), cx.seed()));
        cx.case(&label("copy_file_range"), || copy(&dir, cx.seed()));
        cx.case(&label("no old bytes after truncate"), || stale(&dir.join("stale"), cx.seed()));
    }
    cx.case("down and fsck", || fs.down_and_check());
    Ok(())
}

fn new(path: &Path) -> Result<File> {
    Ok(File::options().read(true).write(true).create_new(true).open(path)?)
}

/// Bytes at 9 TiB and near the largest offset a file can have.
fn far(path: &Path, seed: u64) -> Result<()> {
    let file = new(path)?;
    let data = Random::new(seed).bytes(300_000);
    let places = [0, 9 * TIB - 100, 15 * TIB];
    for place in places {
        file.write_all_at(&data, place).with_context(|| format!("write at {place}"))?;
    }
    file.sync_all()?;
    ensure!(file.metadata()?.len() == 15 * TIB + data.len() as u64, "size");
    let again = File::open(path)?;
    for place in places {
        let mut back = vec![0; data.len()];
        again.read_exact_at(&mut back, place)?;
        same(&format!("bytes at {place}"), &back, &data)?;
    }
    let mut zeros = vec![1; 100_000];
    again.read_exact_at(&mut zeros, 8 * TIB - 50_000)?;
    ensure!(zeros.iter().all(|b| *b == 0), "a hole that is not zero");
    let used = file.metadata()?.blocks() * 512;
    ensure!(used < 64 * MIB, "{used} bytes used for three pieces of {}", data.len());
    file.set_len(9 * TIB)?;
    let mut back = vec![0; 100];
    again.read_exact_at(&mut back, 9 * TIB - 100)?;
    same("before the cut", &back, &data[..100])?;
    std::fs::remove_file(path)?;
    Ok(())
}

/// What SEEK_DATA and SEEK_HOLE say covers all data, and the holes they name are zeros.
fn map(path: &Path) -> Result<()> {
    let file = new(path)?;
    let pieces = [(0, MIB), (10 * MIB, MIB), (40 * MIB + 12345, 100_000), (9 * TIB, 10)];
    for (at, length) in pieces {
        file.write_all_at(&vec![7; length as usize], at)?;
    }
    let size = file.metadata()?.len();
    let extents = extents(&file, size)?;
    for (at, length) in pieces {
        let covered = extents.iter().any(|&(from, to)| from <= at && at + length <= to);
        ensure!(covered, "data at {at} is in a hole of {extents:?}");
    }
    let total: u64 = extents.iter().map(|(from, to)| to - from).sum();
    ensure!(total < 16 * MIB, "{total} bytes of data are reported: {extents:?}");
    ensure!(seek(&file, SeekFrom::Data(size)).is_err(), "SEEK_DATA at the end must fail");
    ensure!(seek(&file, SeekFrom::Hole(size)).is_err(), "SEEK_HOLE at the end must fail");
    ensure!(seek(&file, SeekFrom::Hole(size - 1))? == size, "the end is a hole");
    Ok(())
}

fn extents(file: &File, size: u64) -> Result<Vec<(u64, u64)>> {
    let mut found: Vec<(u64, u64)> = Vec::new();
    let mut at = 0;
    while at < size {
        let from = match seek(file, SeekFrom::Data(at)) {
            Ok(from) => from,
            Err(rustix::io::Errno::NXIO) => break,
            Err(e) => return Err(e.into()),
        };
        let to = seek(file, SeekFrom::Hole(from))?;
        ensure!(from >= at && to > from && to <= size, "data from {from} to {to} after {at}");
        ensure!(found.len() < 100_000, "no end of extents");
        match found.last_mut() {
            Some(last) if last.1 == from => last.1 = to,
            _ => found.push((from, to)),
        }
        at = to;
    }
    Ok(found)
}

fn punch(path: &Path, seed: u64) -> Result<()> {
    let file = new(path)?;
    let mut model = Random::new(seed).bytes(16 * MIB as usize);
    file.write_all_at(&model, 0)?;
    file.sync_all()?;
    let before = file.metadata()?.blocks();
    ensure!(before * 512 >= 15 * MIB, "{before} blocks for 16 MiB");
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    let (at, length) = (2 * MIB + 1000, 12 * MIB + 77);
    fallocate(&file, flags, at, length)?;
    model[at as usize..(at + length) as usize].fill(0);
    same("after the punch", &std::fs::read(path)?, &model)?;
    file.sync_all()?;
    let after = file.metadata()?.blocks();
    ensure!(after < before / 2, "{before} blocks before the punch, {after} after");
    fallocate(&file, FallocateFlags::ZERO_RANGE, 100, 5000)?;
    model[100..5100].fill(0);
    same("after zeroing", &std::fs::read(path)?, &model)
}

fn copy(dir: &Path, seed: u64) -> Result<()> {
    let data = Random::new(seed).bytes(7 * MIB as usize + 123);
    let (from, to) = (new(&dir.join("from"))?, new(&dir.join("to"))?);
    from.write_all_at(&data, 0)?;
    let (mut at, mut out) = (100, 5);
    while (at as usize) < data.len() {
        let n = copy_file_range(&from, Some(&mut at), &to, Some(&mut out), 3 * MIB as usize)?;
        ensure!(n > 0, "copy_file_range stops before the end");
    }
    let copied = std::fs::read(dir.join("to"))?;
    ensure!(copied.len() == data.len() - 95, "{} bytes copied", copied.len());
    same("the copy", &copied[5..], &data[100..])?;
    let n = copy_file_range(&from, Some(&mut at), &to, Some(&mut out), 1000)?;
    ensure!(n == 0, "{n} bytes copied from behind the end");
    Ok(())
}

/// Bytes cut off never come back, neither by growing nor by writing behind the end.
fn stale(path: &Path, seed: u64) -> Result<()> {
    let file = new(path)?;
    let mut model = Random::new(seed).bytes(3 * MIB as usize);
    file.write_all_at(&model, 0)?;
    for (cut, grow) in [(2_000_001, 2_900_000), (70_001, 1_000_000), (4_097, 200_000), (1, 70_000)]
    {
        file.set_len(cut)?;
        model.truncate(cut as usize);
        if cut % 2 == 1 {
            file.set_len(grow)?;
        }
        file.write_all_at(b"end", grow)?;
        model.resize(grow as usize, 0);
        model.extend_from_slice(b"end");
        same(&format!("cut to {cut}, grown to {grow}"), &std::fs::read(path)?, &model)?;
    }
    Ok(())
}

fn allocations(p: &mut Probe) -> Result<()> {
    let file = new(&p.at("f"))?;
    let keep = FallocateFlags::KEEP_SIZE;
    p.say("allocate", fallocate(&file, FallocateFlags::empty(), 0, 100_000));
    p.say("its size", file.metadata().map(|m| m.len()));
    p.say("keep size", fallocate(&file, keep, 0, 500_000));
    p.say("size kept", file.metadata().map(|m| m.len()));
    p.say("punch without keep", fallocate(&file, FallocateFlags::PUNCH_HOLE, 0, 10));
    p.say("punch behind the end", fallocate(&file, FallocateFlags::PUNCH_HOLE | keep, 1 << 30, 10));
    p.say("zero beyond the end", fallocate(&file, FallocateFlags::ZERO_RANGE, 90_000, 50_000));
    p.say("size then", file.metadata().map(|m| m.len()));
    p.say("zero, keep size", fallocate(&file, FallocateFlags::ZERO_RANGE | keep, 0, 400_000));
    p.say("size still", file.metadata().map(|m| m.len()));
    p.say("length 0", fallocate(&file, FallocateFlags::empty(), 0, 0));
    p.say("read-only", fallocate(File::open(p.at("f"))?, FallocateFlags::empty(), 0, 10));
    p.say("on a directory", fallocate(File::open(&p.dir)?, FallocateFlags::empty(), 0, 10));
    Ok(())
}

fn ends(p: &mut Probe) -> Result<()> {
    let file = new(&p.at("f"))?;
    p.say("read an empty file", file.read_at(&mut [0; 10], 0));
    p.say("write nothing", file.write_at(b"", 1000));
    p.say("size of nothing", file.metadata().map(|m| m.len()));
    p.say("write behind", file.write_at(b"x", 99_999));
    p.say("read across the end", file.read_at(&mut [0; 1000], 99_500));
    p.say("read behind the end", file.read_at(&mut [0; 1000], 100_000));
    p.say("read at the largest offset", file.read_at(&mut [0; 10], i64::MAX as u64 - 10));
    p.say("write beyond it", file.write_at(b"xx", i64::MAX as u64));
    p.say("truncate beyond it", ftruncate(&file, u64::MAX));
    p.say("truncate a read-only descriptor", ftruncate(File::open(p.at("f"))?, 10));
    p.say("seek data in a hole", seek(&file, SeekFrom::Data(200_000)));
    p.say("size at last", file.metadata().map(|m| m.len()));
    Ok(())
}
