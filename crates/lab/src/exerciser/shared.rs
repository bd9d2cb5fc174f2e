//! Files that all processes use at once, kept consistent by what the kernel promises (O_APPEND,
//! locks, O_EXCL) or by each keeping to its own blocks.

use super::child::{Context, During, Fault, Tried};
use crate::pattern;
use crate::sys::{self, Mapping};
use rand::Rng;
use rustix::fs::{FlockOperation, flock};
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

/// Records: magic, writer, sequence, payload length, payload, crc of all before it.
const HEADER: usize = 4 + 8 + 8 + 4;
const MAGIC: u32 = 0x4c41_4231;
/// The appended file stops growing here.
const APPEND_LIMIT: u64 = 48 << 20;
/// Block size of the strided file: not a multiple of anything.
const STRIDE: usize = 47_008;
const BLOCKS: u64 = 40;
/// Names each process tries for in the exclusive workload.
const ROUNDS: u64 = 2_000;

pub(crate) fn prepare(dir: &Path) -> io::Result<()> {
    File::create_new(dir.join("append"))?;
    File::create_new(dir.join("strided"))?;
    File::create_new(dir.join("counter"))?.write_all(&[0; 4096])?;
    std::fs::create_dir(dir.join("exclusive"))?;
    std::fs::create_dir(dir.join("links"))?;
    File::create_new(dir.join("links.lock"))?;
    File::create_new(dir.join("links/base"))?;
    std::fs::create_dir(dir.join("race"))
}

fn open(path: &Path, flags: i32) -> Result<File, Fault> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).custom_flags(flags);
    options.open(path).during(&format!("open {}", path.display()))
}

fn record(writer: u64, sequence: u64, seed: u64, len: usize) -> Vec<u8> {
    let mut out = MAGIC.to_le_bytes().to_vec();
    out.extend_from_slice(&writer.to_le_bytes());
    out.extend_from_slice(&sequence.to_le_bytes());
    out.extend_from_slice(&(len as u32).to_le_bytes());
    out.extend(pattern::make(len, seed ^ writer, sequence, 0));
    let crc = crc32c::crc32c(&out);
    out.extend_from_slice(&crc.to_le_bytes());
    out
}

pub(crate) fn append(context: &mut Context) -> Tried {
    let path = context.task.dir.join("append");
    let mut file = open(&path, libc::O_APPEND)?;
    let mut sequence = 0;
    while context.tick() {
        if context.rng.random_ratio(1, 50) {
            file = open(&path, libc::O_APPEND)?;
            if file.metadata()?.len() > APPEND_LIMIT {
                break;
            }
        }
        let len = context.rng.random_range(0..3000);
        let data = record(context.task.index, sequence, context.task.seed, len);
        let count = file.write(&data).during("append")?;
        if count != data.len() {
            return Err(Fault(format!("append wrote {count} of {}", data.len())));
        }
        sequence += 1;
    }
    context.add("append", sequence);
    Ok(())
}

fn verify_append(dir: &Path, totals: &[BTreeMap<String, u64>], seed: u64) -> Result<(), String> {
    let data = std::fs::read(dir.join("append")).map_err(|e| e.to_string())?;
    let mut next = vec![0u64; totals.len()];
    let mut at = 0;
    while at < data.len() {
        let bad = |why: &str| format!("append: at {at} of {}: {why}", data.len());
        let head = data.get(at..at + HEADER).ok_or_else(|| bad("a torn header"))?;
        let number =
            |from: usize| u64::from_le_bytes(head[from..from + 8].try_into().unwrap_or([0; 8]));
        let (writer, sequence) = (number(4), number(12));
        let len = u32::from_le_bytes(head[20..24].try_into().unwrap_or([0; 4])) as usize;
        if head[..4] != MAGIC.to_le_bytes() || writer >= totals.len() as u64 {
            return Err(bad("no record starts here"));
        }
        if sequence != next[writer as usize] {
            return Err(bad(&format!(
                "writer {writer}: {sequence}, not {}",
                next[writer as usize]
            )));
        }
        let want = record(writer, sequence, seed, len.min(3000));
        if data.get(at..at + want.len()) != Some(&want) {
            return Err(bad(&format!("record {sequence} of writer {writer} is damaged")));
        }
        next[writer as usize] += 1;
        at += want.len();
    }
    for (writer, (have, want)) in next.iter().zip(totals).enumerate() {
        if *have != want.get("append").copied().unwrap_or(0) {
            return Err(format!("append: writer {writer}: {have} records of {want:?}"));
        }
    }
    Ok(())
}

pub(crate) fn counter(context: &mut Context) -> Tried {
    let file = open(&context.task.dir.join("counter"), 0)?;
    let mut map = Mapping::new(file.as_fd(), 0, 4096, true)
        .map_err(|e| Fault(format!("mmap of the counter: errno {e}")))?;
    // All processes of a run must use the same kind of lock; the seed says which of three.
    let kind = context.task.seed % 3;
    let (by_range, posix) = (kind != 0, kind == 1);
    let range = |kind| {
        let locked = sys::range_wait(file.as_fd(), posix, kind, 0, 8);
        locked.map_err(|e| Fault(format!("lock: errno {e}")))
    };
    let lock = |kind, whole| match by_range {
        true => range(kind),
        false => flock(&file, whole).during("flock"),
    };
    while context.tick() {
        let writes = context.rng.random_ratio(3, 4);
        match writes {
            true => lock(libc::F_WRLCK, FlockOperation::LockExclusive)?,
            false => lock(libc::F_RDLCK, FlockOperation::LockShared)?,
        }
        let seen = seen_both_ways(&file, &map)?;
        if writes {
            let next = (seen + 1).to_le_bytes();
            match context.rng.random() {
                true => map.write(0, &next),
                false => file.write_all_at(&next, 0).during("write of the counter")?,
            }
            context.add("counter", 1);
            // Others may read it now.
            if context.rng.random() {
                lock(libc::F_RDLCK, FlockOperation::LockShared)?;
                seen_both_ways(&file, &map)?;
            }
        }
        lock(libc::F_UNLCK, FlockOperation::Unlock)?;
    }
    Ok(())
}

/// The counter, which under a lock is the same in the file and in its mapping.
fn seen_both_ways(file: &File, map: &Mapping) -> Result<u64, Fault> {
    let (mut bytes, mut mapped) = ([0; 8], [0; 8]);
    file.read_exact_at(&mut bytes, 0).during("read of the counter")?;
    map.read(0, &mut mapped);
    match bytes == mapped {
        true => Ok(u64::from_le_bytes(bytes)),
        false => Err(Fault(format!("counter: read {bytes:?}, mapped {mapped:?}"))),
    }
}

pub(crate) fn strided(context: &mut Context) -> Tried {
    let file = open(&context.task.dir.join("strided"), 0)?;
    let seed = context.task.seed;
    let mut round = 0;
    while context.tick() {
        for block in 0..BLOCKS {
            let at = (block * context.task.processes + context.task.index) * STRIDE as u64;
            let data = pattern::make(STRIDE, seed, round, at);
            file.write_all_at(&data, at).during("strided write")?;
            context.tick();
        }
        for block in 0..BLOCKS {
            let at = (block * context.task.processes + context.task.index) * STRIDE as u64;
            check_block(&file, at, seed, round).map_err(Fault)?;
            context.tick();
        }
        round += 1;
    }
    context.add("strided", round);
    Ok(())
}

fn check_block(file: &File, at: u64, seed: u64, round: u64) -> Result<(), String> {
    let mut data = vec![0; STRIDE];
    file.read_exact_at(&mut data, at).map_err(|e| format!("strided read at {at}: {e}"))?;
    match pattern::mismatch(&data, seed, round, at) {
        None => Ok(()),
        Some(i) => Err(format!("strided: byte {} of round {round} is wrong", at + i as u64)),
    }
}

pub(crate) fn exclusive(context: &mut Context) -> Tried {
    let dir = context.task.dir.join("exclusive");
    let mut won = 0;
    for round in 0..ROUNDS {
        if !context.tick() {
            break;
        }
        let path = dir.join(round.to_string());
        match File::create_new(&path) {
            Ok(mut file) => {
                file.write_all(&context.task.index.to_le_bytes()).during("write")?;
                won += 1;
            }
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            Err(e) => return Err(e.into()),
        }
        match std::fs::create_dir(dir.join(format!("{round}.d"))) {
            Ok(()) => context.add("exclusive-dirs", 1),
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            Err(e) => return Err(e.into()),
        }
    }
    context.add("exclusive", won);
    Ok(())
}

fn verify_exclusive(dir: &Path, totals: &[BTreeMap<String, u64>]) -> Result<(), String> {
    let mut won = vec![0u64; totals.len()];
    let mut dirs = 0;
    for entry in std::fs::read_dir(dir.join("exclusive")).map_err(|e| e.to_string())? {
        let path = entry.map_err(|e| e.to_string())?.path();
        if path.is_dir() {
            dirs += 1;
            continue;
        }
        let data = std::fs::read(&path).map_err(|e| e.to_string())?;
        let winner =
            u64::from_le_bytes(data.try_into().map_err(|_| "exclusive: torn".to_string())?);
        *won.get_mut(winner as usize).ok_or("exclusive: no such winner")? += 1;
    }
    let of = |t: &BTreeMap<String, u64>, k: &str| t.get(k).copied().unwrap_or(0);
    let want: Vec<u64> = totals.iter().map(|t| of(t, "exclusive")).collect();
    if won != want {
        return Err(format!("exclusive: files belong to {won:?}, processes won {want:?}"));
    }
    let made: u64 = totals.iter().map(|t| of(t, "exclusive-dirs")).sum();
    if made != dirs { Err(format!("exclusive: {dirs} dirs, {made} mkdirs")) } else { Ok(()) }
}

/// Checks what all processes together must have left behind.
pub(crate) fn verify(
    dir: &Path,
    seed: u64,
    totals: &[BTreeMap<String, u64>],
    workloads: &[String],
) -> Result<(), String> {
    let ran = |name: &str| workloads.iter().any(|w| w == name);
    if ran("append") {
        verify_append(dir, totals, seed)?;
    }
    if ran("exclusive") {
        verify_exclusive(dir, totals)?;
    }
    if ran("counter") {
        let data = std::fs::read(dir.join("counter")).map_err(|e| e.to_string())?;
        let have = u64::from_le_bytes(data[..8].try_into().map_err(|_| "counter: short")?);
        let want: u64 = totals.iter().filter_map(|t| t.get("counter")).sum();
        if have != want {
            return Err(format!("counter: {have}, not {want}"));
        }
    }
    if ran("strided") {
        let file = File::open(dir.join("strided")).map_err(|e| e.to_string())?;
        for (index, total) in totals.iter().enumerate() {
            let Some(round) = total.get("strided").copied().and_then(|r| r.checked_sub(1)) else {
                continue;
            };
            for block in 0..BLOCKS {
                let at = (block * totals.len() as u64 + index as u64) * STRIDE as u64;
                check_block(&file, at, seed, round)?;
            }
        }
    }
    Ok(())
}
