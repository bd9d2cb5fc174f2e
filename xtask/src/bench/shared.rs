//! `cargo xtask bench shared`: four mounts write and read one file in strides, beside four files of
//! their own, in blocks of 1 MiB and of 47,008 bytes (a multiple of nothing). Every mount reads what
//! its neighbour wrote. Shown are medians and the ratio of one file to four; also where the OSTs are a
//! millisecond away, as on a network, where only who waits for each answer is slower.

use super::table::{NOT_JUDGED, middle};
use super::{Bench, far, level};
use crate::cx::Cx;
use crate::servers::{Cluster, Transport};
use anyhow::{Context, Result, ensure};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const MOUNTS: usize = 4;
const MIB: usize = 1 << 20;
/// To an OST and back, where they are away.
const RTT: Duration = Duration::from_millis(1);
const BLOCKS: [(&str, usize); 2] = [("1 MiB", MIB), ("47,008 bytes", 47_008)];

/// Where the blocks of a writer lie.
#[derive(Clone, Copy, PartialEq)]
enum Way {
    Apart,
    Together,
}

impl Way {
    /// File and offset of a writer's block.
    fn spot(self, writer: usize, block: usize, size: usize) -> (usize, u64) {
        match self {
            Way::Apart => (writer, (block * size) as u64),
            Way::Together => (0, ((block * MOUNTS + writer) * size) as u64),
        }
    }
}

struct Job {
    mounts: Vec<PathBuf>,
    dir: String,
    way: Way,
    size: usize,
    blocks: usize,
}

impl Job {
    /// MiB a second of all mounts together, from the first open to the last close.
    fn speed(&self, work: impl Fn(usize) -> Result<()> + Sync) -> Result<f64> {
        let begun = Instant::now();
        std::thread::scope(|scope| {
            let each = (0..MOUNTS).map(|n| {
                scope.spawn({
                    let work = &work;
                    move || work(n)
                })
            });
            let each: Vec<_> = each.collect();
            each.into_iter().try_for_each(|t| {
                t.join().unwrap_or_else(|_| Err(anyhow::anyhow!("a worker panicked")))
            })
        })?;
        let amount = (MOUNTS * self.blocks * self.size) as f64 / MIB as f64;
        Ok(amount / begun.elapsed().as_secs_f64())
    }

    fn path(&self, mount: usize, file: usize) -> PathBuf {
        self.mounts[mount].join(&self.dir).join(format!("f{file}"))
    }

    /// A worker opens all files it touches: one.
    fn write(&self, n: usize) -> Result<()> {
        let file = File::options().write(true).open(self.path(n, self.way.spot(n, 0, 1).0))?;
        let data = vec![n as u8 + 1; self.size];
        for block in 0..self.blocks {
            file.write_all_at(&data, self.way.spot(n, block, self.size).1)?;
        }
        Ok(file.sync_all()?)
    }

    fn read(&self, n: usize) -> Result<()> {
        let writer = (n + 1) % MOUNTS;
        let file = File::open(self.path(n, self.way.spot(writer, 0, 1).0))?;
        let mut data = vec![0; self.size];
        for block in 0..self.blocks {
            file.read_exact_at(&mut data, self.way.spot(writer, block, self.size).1)?;
            ensure!(data.iter().all(|b| *b == writer as u8 + 1), "other bytes than were written");
        }
        Ok(())
    }

    /// Writing and reading.
    fn run(&self) -> Result<[f64; 2]> {
        std::fs::create_dir(self.mounts[0].join(&self.dir))?;
        let files = if self.way == Way::Apart { MOUNTS } else { 1 };
        (0..files).try_for_each(|f| File::create(self.path(0, f)).map(drop))?;
        let each = (MOUNTS * self.blocks * self.size).div_ceil(MIB);
        level::ground(each);
        let written = self.speed(|n| self.write(n))?;
        let read = self.speed(|n| self.read(n))?;
        std::fs::remove_dir_all(self.mounts[0].join(&self.dir))?;
        Ok([written, read])
    }
}

/// Figures of the two ways to lay blocks, of writing and reading.
type Speeds = [[Vec<f64>; 2]; 2];

/// Measures, interleaved.
pub fn measure(bench: &Bench, cx: &Cx) -> Result<()> {
    println!("{:30} {:>12} {:>12} {:>7}  mark 0.9", "MiB/s", "four files", "one file", "ratio");
    let mut list = Vec::new();
    for (name, away, each) in [("near", Duration::ZERO, 128 * MIB), ("far", RTT, 32 * MIB)] {
        let each = if bench.quick { each / 8 } else { each };
        let speeds = compare(bench, cx, (name, away), each)?;
        for ((about, size), [apart, together]) in BLOCKS.iter().zip(&speeds) {
            for (what, (apart, one)) in ["write", "read"].iter().zip(apart.iter().zip(together)) {
                let (apart, one) = (middle(apart), middle(one));
                let far = if away.is_zero() { "" } else { ", 1 ms away" };
                let (step, name) = (format!("{what}{far}"), format!("{what}, {about}{far}"));
                println!("{name:30} {apart:>12.0} {one:>12.0} {:>7.2}", one / apart);
                list.push(serde_json::json!({
                    "step": step, "block_bytes": size, "rtt_us": away.as_micros() as u64,
                    "four_files_mib_s": apart, "one_file_mib_s": one,
                }));
            }
        }
    }
    if bench.quick {
        println!("{NOT_JUDGED}");
    }
    if let Some(file) = &bench.json {
        std::fs::write(file, serde_json::to_vec_pretty(&list)?)?;
    }
    Ok(())
}

/// `each`: bytes of each mount.
fn compare(
    bench: &Bench,
    cx: &Cx,
    (name, away): (&str, Duration),
    each: usize,
) -> Result<Vec<Speeds>> {
    let mut cluster = Cluster::new(cx, name, Transport::Unix, 4)?;
    if !away.is_zero() {
        for server in cluster.servers.iter().filter(|s| s.name.starts_with("ost")) {
            let socket = server.address.strip_prefix("unix:").context("no socket")?;
            far::away(Path::new(socket), away / 2)?;
        }
    }
    let mounts =
        (0..MOUNTS).map(|n| cluster.mount(&format!("m{n}"))).collect::<Result<Vec<_>>>()?;
    let mut speeds: Vec<Speeds> = vec![Speeds::default(); BLOCKS.len()];
    for round in 0..bench.rounds {
        for ((about, size), speeds) in BLOCKS.iter().zip(&mut speeds) {
            for (at, way) in [Way::Apart, Way::Together].into_iter().enumerate() {
                let files = ["four files", "one file"][at];
                eprintln!("round {round}: blocks of {about}, {files}, {name}");
                let dir = format!("{round}-{size}-{at}");
                let blocks = each / size;
                let job = Job { mounts: mounts.clone(), dir, way, size: *size, blocks };
                let seen = job.run().with_context(|| format!("blocks of {about}"))?;
                speeds[at].iter_mut().zip(seen).for_each(|(all, one)| all.push(one));
            }
        }
    }
    cluster.stop_and_check()?;
    Ok(speeds)
}
