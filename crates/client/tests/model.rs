//! Random writes, reads, truncates, punches and appends through a client equal a vector of bytes,
//! over several stripe counts, with OSTs that restart in between (invariants 1 and 6), and with a
//! second client that makes the first one give its lease up (invariant 3).

mod common;

use std::sync::Arc;

use bytes::Bytes;
use common::{World, root, until};
use pinstripe_client::{Client, Data, FallocMode, OpenFile, OpenFlags, Options, Whence};
use proptest::prelude::*;
use proto::layout::LayoutSpec;
use proto::{Errno, Fid, FileKind};

const RW: OpenFlags =
    OpenFlags { read: true, write: true, trunc: false, direct: false, sync: false, noatime: true };
/// Furthest byte a step touches.
const SPAN: u64 = 3 << 20;

#[derive(Clone, Debug)]
enum Step {
    Write { at: u64, len: usize, owned: bool },
    Append { len: usize },
    Read { at: u64, len: usize },
    Truncate { size: u64 },
    Falloc { mode: FallocMode, at: u64, len: u64 },
    Seek { at: u64 },
    Copy { from: u64, to: u64, len: u64 },
    Fsync { data: bool },
    Flush,
    Reopen { direct: bool, trunc: bool },
    RestartOst(usize),
    Remount,
    Other,
}

/// Sizes about the edges of blocks, stripes, chunks and the inline limit.
fn size() -> impl Strategy<Value = u64> {
    let edges = prop::sample::select(vec![0u64, 1, 4096, 65536, 131072, 1 << 20, 2 << 20]);
    prop_oneof![
        3 => 0u64..SPAN,
        2 => (edges, 0u64..3).prop_map(|(e, d)| (e + d).saturating_sub(1)),
        2 => 0u64..70_000,
    ]
}

fn len() -> impl Strategy<Value = u64> {
    prop_oneof![2 => 1u64..5000, 2 => 1u64..150_000, 1 => 1u64..1_300_000]
}

fn step() -> impl Strategy<Value = Step> {
    let mode = prop::sample::select(vec![
        FallocMode::Allocate,
        FallocMode::KeepSize,
        FallocMode::Punch,
        FallocMode::Zero,
        FallocMode::ZeroKeepSize,
    ]);
    prop_oneof![
        8 => (size(), len(), any::<bool>())
            .prop_map(|(at, len, owned)| Step::Write { at, len: len as usize, owned }),
        2 => len().prop_map(|len| Step::Append { len: len as usize }),
        6 => (size(), len()).prop_map(|(at, len)| Step::Read { at, len: len as usize }),
        3 => size().prop_map(|size| Step::Truncate { size }),
        3 => (mode, size(), len()).prop_map(|(mode, at, len)| Step::Falloc { mode, at, len }),
        1 => size().prop_map(|at| Step::Seek { at }),
        1 => (size(), size(), len()).prop_map(|(from, to, len)| Step::Copy { from, to, len }),
        2 => any::<bool>().prop_map(|data| Step::Fsync { data }),
        2 => Just(Step::Flush),
        2 => (any::<bool>(), any::<bool>()).prop_map(|(direct, t)| Step::Reopen { direct, trunc: t }),
        1 => (0usize..4).prop_map(Step::RestartOst),
        1 => Just(Step::Remount),
        1 => Just(Step::Other),
    ]
}

/// Fields are dropped in this order: clients before their servers.
struct Run {
    file: Arc<OpenFile>,
    client: Client,
    other: Option<Client>,
    world: World,
    fid: Fid,
    model: Vec<u8>,
    seed: u8,
    through: bool,
}

fn options(through: bool) -> Options {
    Options {
        max_dirty_mb: 2,
        max_uncommitted_mb: 2,
        write_through: through,
        request_timeout: std::time::Duration::from_secs(20),
        ..Options::default()
    }
}

impl Run {
    fn new(stripes: usize, through: bool) -> Run {
        let world = World::new(stripes);
        let client = world.client_with(options(through));
        let spec =
            LayoutSpec { stripe_size: 65536, stripe_count: stripes as i32, stripe_offset: -1 };
        client.set_layout(&root(), Fid::ROOT, spec).unwrap();
        let mode = FileKind::File.mode_bits() | 0o600;
        let made = client.create(&root(), Fid::ROOT, b"f", mode, 0, 0, b"", 0, Some(RW)).unwrap();
        let file = made.file.unwrap();
        let fid = made.attr.fid;
        Run { world, client, other: None, file, fid, model: Vec::new(), seed: 0, through }
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        self.seed = self.seed.wrapping_add(41) | 1;
        let seed = self.seed;
        (0..len).map(|i| (i as u8).wrapping_mul(31).wrapping_add((i >> 8) as u8) ^ seed).collect()
    }

    fn put(&mut self, at: usize, data: &[u8]) {
        if self.model.len() < at + data.len() {
            self.model.resize(at + data.len(), 0);
        }
        self.model[at..at + data.len()].copy_from_slice(data);
    }

    fn check(&self, at: u64, len: usize) {
        let mut buf = vec![0xee; len];
        let n = self.file.read(at, &mut buf).unwrap();
        let from = (at as usize).min(self.model.len());
        let expect = &self.model[from..(from + len).min(self.model.len())];
        assert_eq!(n, expect.len(), "bytes read at {at}");
        if let Some(i) = (0..n).find(|i| buf[*i] != expect[*i]) {
            panic!("byte {} is {:#x}, not {:#x}", at + i as u64, buf[i], expect[i]);
        }
    }

    fn run(&mut self, step: &Step) {
        match step.clone() {
            Step::Write { at, len, owned } => {
                let data = self.bytes(len);
                let given =
                    if owned { Data::Owned(Bytes::from(data.clone())) } else { Data::Slice(&data) };
                assert_eq!(self.file.write(at, given).unwrap(), len);
                self.put(at as usize, &data);
            }
            Step::Append { len } => {
                let data = self.bytes(len);
                let at = self.file.append(Data::Slice(&data)).unwrap();
                assert_eq!(at, self.model.len() as u64);
                self.put(at as usize, &data);
            }
            Step::Read { at, len } => self.check(at, len),
            Step::Truncate { size } => {
                assert_eq!(self.file.truncate(size).unwrap().size, size);
                self.model.resize(size as usize, 0);
            }
            Step::Falloc { mode, at, len } => {
                self.file.fallocate(mode, at, len).unwrap();
                let (at, end) = (at as usize, (at + len) as usize);
                if matches!(mode, FallocMode::Allocate | FallocMode::Zero) && self.model.len() < end
                {
                    self.model.resize(end, 0);
                }
                let end = end.min(self.model.len());
                let zeros =
                    matches!(mode, FallocMode::Punch | FallocMode::Zero | FallocMode::ZeroKeepSize);
                if zeros && at < end {
                    self.model[at..end].fill(0);
                }
            }
            Step::Seek { at } => self.seek(at),
            Step::Copy { from, to, len } => {
                let n = self.file.copy_range(from, &self.file, to, len);
                let (from, to) = (from as usize, to as usize);
                // Overlapping ranges are the kernel's to refuse.
                if from.abs_diff(to) < len as usize {
                    self.resync();
                    return;
                }
                let expect = (len as usize).min(self.model.len().saturating_sub(from));
                assert_eq!(n.unwrap(), expect as u64);
                if expect > 0 {
                    let data = self.model[from..from + expect].to_vec();
                    self.put(to, &data);
                }
            }
            Step::Fsync { data } => self.file.fsync(data).unwrap(),
            Step::Flush => self.file.flush().unwrap(),
            Step::Reopen { direct, trunc } => {
                self.file.flush().unwrap();
                self.file.release();
                let flags = OpenFlags { direct, trunc, ..RW };
                self.file = self.client.open(&root(), self.fid, flags).unwrap();
                if trunc {
                    self.model.clear();
                }
            }
            Step::RestartOst(i) => {
                let i = i % self.world.osts.len();
                self.world.restart_ost(i);
            }
            Step::Remount => {
                self.file.flush().unwrap();
                self.file.release();
                self.client.shutdown().unwrap();
                self.client = self.world.client_with(options(self.through));
                self.file = self.client.open(&root(), self.fid, RW).unwrap();
            }
            Step::Other => match self.other.take() {
                Some(c) => {
                    c.shutdown().unwrap();
                    if !self.through {
                        let client = self.client.clone();
                        until(|| client.is_sole());
                    }
                }
                None => {
                    let c = self.world.client();
                    let attr = c.getattr(&root(), self.fid).unwrap();
                    assert_eq!(attr.size, self.model.len() as u64, "size seen by another client");
                    self.other = Some(c);
                }
            },
        }
        assert_eq!(self.file.attr().unwrap().size, self.model.len() as u64, "size after {step:?}");
    }

    /// Reads the model anew where it does not say what must be.
    fn resync(&mut self) {
        let size = self.file.attr().unwrap().size as usize;
        self.model = vec![0; size];
        assert_eq!(self.file.read(0, &mut self.model).unwrap(), size);
    }

    /// Data is never said to be a hole, and positions are in order.
    fn seek(&mut self, at: u64) {
        let size = self.model.len() as u64;
        if at >= size {
            assert_eq!(self.file.seek(at, Whence::Data).unwrap_err(), Errno::ENXIO);
            return;
        }
        let hole = self.file.seek(at, Whence::Hole).unwrap();
        assert!(hole >= at && hole <= size);
        match self.file.seek(at, Whence::Data) {
            Ok(data) => {
                assert!(data >= at && data < size);
                assert!(self.model[at as usize..data as usize].iter().all(|b| *b == 0));
            }
            Err(e) => {
                assert_eq!(e, Errno::ENXIO);
                assert!(self.model[at as usize..].iter().all(|b| *b == 0));
            }
        }
    }

    /// Everything, here and by another client.
    fn finish(mut self) {
        let all = self.model.len() + 10;
        self.check(0, all);
        self.file.flush().unwrap();
        self.file.release();
        self.client.sync_all().unwrap();
        let attr = self.client.getattr(&root(), self.fid).unwrap();
        assert_eq!(attr.size, self.model.len() as u64);
        let fresh = self.world.client();
        assert_eq!(fresh.getattr(&root(), self.fid).unwrap().size, self.model.len() as u64);
        self.file = fresh.open(&root(), self.fid, OpenFlags { write: false, ..RW }).unwrap();
        self.check(0, all);
    }
}

fn cases() -> ProptestConfig {
    ProptestConfig {
        cases: 24,
        max_shrink_iters: 60,
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn one_file_equals_a_vector(
        stripes in 1usize..=4,
        through in prop::bool::weighted(0.2),
        steps in proptest::collection::vec(step(), 1..60),
    ) {
        let mut run = Run::new(stripes, through);
        for step in &steps {
            run.run(step);
        }
        run.finish();
    }
}
