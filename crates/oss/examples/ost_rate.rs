//! Rates of a target beside plain files of the same file system, taken in turns in one run.
//!
//! `ost_rate [DIR] [MIB] [ROUNDS]`: DIR (default: the system's temporary directory) gets a scratch
//! directory that is removed at the end. Prints medians and target/plain ratios.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use pinstripe_oss::{Ost, OstLabel, OstOptions};
use proto::Fid;
use proto::layout::ObjectId;
use proto::oss::{CommitReq, Destroy, Read, W_DIRECT, WriteReq, sums};
use proto::wire::List;

const MIB: usize = 1 << 20;
const RECORD: usize = 47_008;
const THREADS: usize = 4;
const RANDOM: u64 = 20_000;

/// A page-aligned megabyte, as a mount hands them over.
fn megabyte() -> Bytes {
    let raw = vec![0u8; 2 * MIB];
    let skip = raw.as_ptr().addr().next_multiple_of(4096) - raw.as_ptr().addr();
    let mut raw = raw;
    let mut x = 88_172_645_463_325_252u64;
    for b in &mut raw {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        *b = x as u8;
    }
    Bytes::from(raw).slice(skip..skip + MIB)
}

fn object(n: u32) -> ObjectId {
    ObjectId { fid: Fid::new(proto::fid::SEQ_FIRST, n), comp: 0, stripe: 0 }
}

/// Seconds that passed, and seconds of CPU this process took.
fn timed(work: impl FnOnce()) -> (f64, f64) {
    use rustix::time::{ClockId, clock_gettime};
    let cpu = || {
        let t = clock_gettime(ClockId::ProcessCPUTime);
        t.tv_sec as f64 + t.tv_nsec as f64 / 1e9
    };
    let (start, before) = (Instant::now(), cpu());
    work();
    (start.elapsed().as_secs_f64(), cpu() - before)
}

fn forget(path: &Path) {
    let f = File::open(path).unwrap();
    rustix::fs::fadvise(&f, 0, None, rustix::fs::Advice::DontNeed).unwrap();
}

struct Plain<'a>(&'a Path);
struct Target<'a>(&'a Arc<Ost>);

/// One side of the comparison.
trait Side: Sync {
    fn write(&self, n: u32, offset: u64, data: &Bytes, direct: bool);
    fn commit(&self, n: u32);
    fn read(&self, n: u32, offset: u64, len: usize, direct: bool) -> usize;
    fn path(&self, n: u32) -> std::path::PathBuf;
    fn remove(&self, n: u32);
    /// Opens what a series works on; dropped at its end.
    fn open(&self, _n: u32, _direct: bool) -> Option<File> {
        None
    }
    fn write_open(&self, f: &Option<File>, n: u32, offset: u64, data: &Bytes, direct: bool) {
        match f {
            Some(f) => f.write_all_at(data, offset).unwrap(),
            None => self.write(n, offset, data, direct),
        }
    }
    fn read_open(&self, f: &Option<File>, n: u32, offset: u64, buf: &mut [u8], direct: bool) {
        match f {
            Some(f) => f.read_exact_at(buf, offset).unwrap(),
            None => assert_eq!(self.read(n, offset, buf.len(), direct), buf.len()),
        }
    }
}

impl Side for Plain<'_> {
    fn write(&self, _: u32, _: u64, _: &Bytes, _: bool) {}
    fn commit(&self, n: u32) {
        File::open(self.path(n)).unwrap().sync_data().unwrap();
    }
    fn read(&self, _: u32, _: u64, _: usize, _: bool) -> usize {
        0
    }
    fn path(&self, n: u32) -> std::path::PathBuf {
        self.0.join(n.to_string())
    }
    fn remove(&self, n: u32) {
        std::fs::remove_file(self.path(n)).unwrap();
    }
    fn open(&self, n: u32, direct: bool) -> Option<File> {
        let flags = if direct { libc::O_DIRECT } else { 0 };
        let mut o = OpenOptions::new();
        o.read(true).write(true).create(true).truncate(false).custom_flags(flags);
        Some(o.open(self.path(n)).unwrap())
    }
}

impl Side for Target<'_> {
    fn write(&self, n: u32, offset: u64, data: &Bytes, direct: bool) {
        let flags = if direct { W_DIRECT } else { 0 };
        let sums = List(sums(offset, data));
        self.0.write(&WriteReq { object: object(n), offset, flags, sums }, data).unwrap();
    }
    fn commit(&self, n: u32) {
        self.0.commit(&CommitReq { objects: List(vec![object(n)]) }).unwrap();
    }
    fn read(&self, n: u32, offset: u64, len: usize, direct: bool) -> usize {
        let flags = if direct { W_DIRECT } else { 0 };
        let req = Read { object: object(n), offset, len: len as u32, flags };
        self.0.read(&req).unwrap().1.len()
    }
    fn path(&self, n: u32) -> std::path::PathBuf {
        self.0.path().join("objects").join(pinstripe_oss::name::object_path(&object(n)))
    }
    fn remove(&self, n: u32) {
        self.0.destroy(&Destroy { objects: List(vec![object(n)]) }).unwrap();
    }
}

/// Seconds of each series.
fn run(side: &dyn Side, n: u32, mib: usize) -> Vec<(&'static str, (f64, f64))> {
    let data = megabyte();
    let mut out = Vec::new();
    for (direct, write, read) in [
        (false, "write 1 MiB + commit", "cold read 1 MiB"),
        (true, "write 1 MiB direct + commit", "read 1 MiB direct"),
    ] {
        let write_all = || {
            let f = side.open(n, direct);
            for i in 0..mib {
                side.write_open(&f, n, (i * MIB) as u64, &data, direct);
            }
            side.commit(n);
        };
        out.push((write, timed(write_all)));
        forget(&side.path(n));
        let read_all = |label, direct| {
            let f = side.open(n, direct);
            let mut raw = vec![0; MIB + 4096];
            let skip = raw.as_ptr().addr().next_multiple_of(4096) - raw.as_ptr().addr();
            let buf = &mut raw[skip..skip + MIB];
            (
                label,
                timed(|| {
                    (0..mib).for_each(|i| side.read_open(&f, n, (i * MIB) as u64, buf, direct))
                }),
            )
        };
        out.push(read_all(read, direct));
        if !direct {
            out.push(read_all("hot read 1 MiB", false));
            out.push(("hot random read 4 KiB", random(side, n, mib, false, RANDOM)));
        } else {
            out.push((
                "random read 4 KiB direct, 4 threads",
                random(side, n, mib, true, RANDOM / 4),
            ));
        }
        side.remove(n);
    }
    out.push(("strided 47,008 x 4 threads + commit", strided(side, n, mib, &data, RECORD)));
    side.remove(n);
    out.push(("strided 1 MiB x 4 threads + commit", strided(side, n, mib, &data, MIB)));
    side.remove(n);
    out
}

fn random(side: &dyn Side, n: u32, mib: usize, direct: bool, count: u64) -> (f64, f64) {
    let threads = if direct { THREADS as u64 } else { 1 };
    timed(|| {
        std::thread::scope(|s| {
            for t in 0..threads {
                s.spawn(move || {
                    let f = side.open(n, direct);
                    let mut raw = vec![0; 8192];
                    let skip = raw.as_ptr().addr().next_multiple_of(4096) - raw.as_ptr().addr();
                    let mut x = 0x9e37_79b9_7f4a_7c15 ^ t;
                    for _ in 0..count / threads {
                        x ^= x << 13;
                        x ^= x >> 7;
                        x ^= x << 17;
                        let at = x % (mib as u64 * 256) * 4096;
                        side.read_open(&f, n, at, &mut raw[skip..skip + 4096], direct);
                    }
                });
            }
        });
    })
}

fn strided(side: &dyn Side, n: u32, mib: usize, data: &Bytes, record: usize) -> (f64, f64) {
    let records = mib * MIB / record;
    timed(|| {
        std::thread::scope(|s| {
            for t in 0..THREADS {
                let data = data.slice(..record);
                s.spawn(move || {
                    let f = side.open(n, false);
                    for i in (t..records).step_by(THREADS) {
                        side.write_open(&f, n, (i * record) as u64, &data, false);
                    }
                });
            }
        });
        side.commit(n);
    })
}

fn median(v: &[(f64, f64)], pick: impl Fn(&(f64, f64)) -> f64) -> f64 {
    let mut v: Vec<f64> = v.iter().map(pick).collect();
    v.sort_by(f64::total_cmp);
    v[v.len() / 2]
}

fn main() {
    let mut args = std::env::args().skip(1);
    let base = args.next().map_or_else(std::env::temp_dir, Into::into);
    let mib: usize = args.next().map_or(512, |a| a.parse().expect("MIB"));
    let rounds: usize = args.next().map_or(3, |a| a.parse().expect("ROUNDS"));
    let scratch = tempfile::Builder::new().prefix("ost-rate-").tempdir_in(base).expect("scratch");
    let (plain, target) = (scratch.path().join("plain"), scratch.path().join("ost"));
    std::fs::create_dir(&plain).expect("plain directory");
    let label = OstLabel { fs: [1; 16], fs_name: "rate".into(), index: 0, uuid: [2; 16] };
    Ost::format(&target, &label).expect("format");
    let ost = Ost::open(&target, OstOptions::default()).expect("open");
    let mut seen: Vec<(&str, Vec<(f64, f64)>, Vec<(f64, f64)>)> = Vec::new();
    for round in 0..rounds as u32 {
        let (a, b) = (run(&Plain(&plain), round, mib), run(&Target(&ost), round, mib));
        for (i, ((name, p), (_, t))) in a.into_iter().zip(b).enumerate() {
            if seen.len() <= i {
                seen.push((name, Vec::new(), Vec::new()));
            }
            seen[i].1.push(p);
            seen[i].2.push(t);
        }
    }
    println!("{mib} MiB, medians of {rounds}");
    for (name, p, t) in seen {
        let (ps, ts) = (median(&p, |x| x.0), median(&t, |x| x.0));
        let (pc, tc) = (median(&p, |x| x.1), median(&t, |x| x.1));
        println!(
            "{name:36} plain {ps:7.3} s cpu {pc:6.3}   OST {ts:7.3} s cpu {tc:6.3}   ratio {:.2}",
            ps / ts
        );
    }
    let _ = ost.close();
}
