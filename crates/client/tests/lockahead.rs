//! A file that several clients write, each at even distances: what they write there waits in their memory, and whoever looks
//! sees what was done before he looked nevertheless (invariant 3).

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use common::{READ, World, root};
use pinstripe_client::{Client, Data, OpenFile, OpenFlags, Options, Pauses};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use proto::attr::S_MTIME;
use proto::{Attr, Fid, FileKind, SetAttr, TimeSpec};

const WRITE: OpenFlags = OpenFlags { write: true, ..READ };
const BOTH: OpenFlags = OpenFlags { write: true, read: true, ..READ };
/// Those who write, and one more who looks.
const WRITERS: usize = 3;
const LOOKS: usize = WRITERS;
/// Not a multiple of anything; and one that is gathered with its neighbours.
const LENS: [usize; 2] = [47_008, 5000];
/// Large enough to have objects.
const BEGUN: usize = 70_000;
const NAME: &[u8] = b"f";

/// Clients, and a file that the first of them have open.
struct Crowd {
    clients: Vec<Client>,
    files: Vec<Arc<OpenFile>>,
    fid: Fid,
    bytes: Vec<u8>,
    /// Which block each writer is at, and where its blocks begin.
    at: [usize; WRITERS],
    first: [usize; WRITERS],
    len: usize,
}

fn pausing(w: &World, seed: u64) -> Client {
    let pauses = Pauses::seeded(seed, 8, Duration::from_millis(3));
    w.client_with(Options { pauses, ..Options::default() })
}

impl Crowd {
    fn new(w: &World, len: usize, flags: OpenFlags, seed: Option<u64>) -> Crowd {
        let client = |n| seed.map_or_else(|| w.client(), |seed| pausing(w, seed + n));
        let clients: Vec<Client> = (0..=LOOKS as u64).map(client).collect();
        let c = &clients[0];
        let mode = FileKind::File.mode_bits() | 0o644;
        let made = c.create(&root(), c.root().fid, NAME, mode, 0, 0, b"", 0, Some(flags)).unwrap();
        let fid = made.attr.fid;
        let bytes = vec![7; BEGUN];
        let first = made.file.unwrap();
        first.write(0, Data::Slice(&bytes)).unwrap();
        let others = clients[1..WRITERS].iter();
        let others = others.map(|c| c.open(&root(), fid, flags).unwrap());
        let files = std::iter::once(first).chain(others).collect();
        let first = [0, len, 2 * len];
        Crowd { clients, files, fid, bytes, at: [0; WRITERS], first, len }
    }

    fn put(&mut self, by: usize, at: usize, len: usize, seed: u8) {
        let data: Vec<u8> = (0..len).map(|i| (i as u8).wrapping_mul(13) ^ seed).collect();
        self.bytes.resize(self.bytes.len().max(at + len), 0);
        self.bytes[at..at + len].copy_from_slice(&data);
        self.files[by].write(at as u64, Data::Slice(&data)).unwrap();
    }

    /// A writer's next block.
    fn next(&mut self, by: usize, seed: u8) {
        let at = self.first[by] + self.at[by] * WRITERS * self.len;
        self.at[by] += 1;
        self.put(by, at, self.len, seed ^ self.at[by] as u8);
    }

    fn rounds(&mut self, n: usize, seed: u8) {
        for _ in 0..n {
            (0..WRITERS).for_each(|by| self.next(by, seed));
        }
    }

    fn compare(&self, file: &OpenFile) {
        let mut all = vec![0; self.bytes.len() + 100];
        let n = file.read(0, &mut all).unwrap();
        let differs = (0..n.min(self.bytes.len())).find(|i| all[*i] != self.bytes[*i]);
        assert_eq!((n, differs), (self.bytes.len(), None));
    }

    fn looks(&self, by: usize) -> Attr {
        let c = &self.clients[by];
        let attr = c.getattr(&root(), self.fid).unwrap();
        assert_eq!(attr.size, self.bytes.len() as u64);
        attr
    }

    fn written(&self) -> u64 {
        let writes = |c: &Client| c.stats().oss_messages.get("write").copied().unwrap_or(0);
        self.clients.iter().map(writes).sum()
    }

    /// Bytes that no OST has.
    fn waiting(&self) -> u64 {
        self.clients.iter().map(|c| c.stats().dirty_bytes).sum()
    }

    fn end(self) {
        for file in &self.files {
            file.flush().unwrap();
            file.release();
        }
        let c = &self.clients[LOOKS];
        self.compare(&c.open(&root(), self.fid, READ).unwrap());
        self.looks(0);
        c.unlink(&root(), c.root().fid, NAME).unwrap();
    }
}

#[derive(Clone, Debug)]
enum Step {
    /// All write some blocks.
    Rounds {
        n: usize,
        seed: u8,
    },
    /// One does.
    Run {
        by: usize,
        n: usize,
        seed: u8,
    },
    /// A writer goes on elsewhere: among its own blocks, or with blocks that are others', too.
    Moves {
        by: usize,
        to: usize,
    },
    Back {
        by: usize,
    },
    Elsewhere {
        by: usize,
        at: usize,
        len: usize,
        seed: u8,
    },
    Append {
        by: usize,
        len: usize,
        seed: u8,
    },
    Cut {
        by: usize,
        size: usize,
    },
    SetTime {
        by: usize,
        sec: i64,
    },
    Stat {
        by: usize,
    },
    Fstat {
        by: usize,
    },
    Read {
        by: usize,
    },
    ReadHere {
        by: usize,
    },
    Sync {
        by: usize,
    },
    Reopen {
        by: usize,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let (by, any_one) = (|| 0..WRITERS, || 0..=LOOKS);
    prop_oneof![
        12 => (1..12usize, any::<u8>()).prop_map(|(n, seed)| Step::Rounds { n, seed }),
        6 => (by(), 1..10usize, any::<u8>()).prop_map(|(by, n, seed)| Step::Run { by, n, seed }),
        1 => (by(), 0..100_000usize).prop_map(|(by, to)| Step::Moves { by, to }),
        1 => by().prop_map(|by| Step::Back { by }),
        2 => (by(), 0..900_000usize, 1..60_000usize, any::<u8>())
            .prop_map(|(by, at, len, seed)| Step::Elsewhere { by, at, len, seed }),
        1 => (by(), 1..9000usize, any::<u8>())
            .prop_map(|(by, len, seed)| Step::Append { by, len, seed }),
        1 => (by(), 1_000_000..3_000_000usize).prop_map(|(by, size)| Step::Cut { by, size }),
        1 => (any_one(), 5_000_000_000..6_000_000_000i64).prop_map(|(by, sec)| Step::SetTime { by, sec }),
        3 => any_one().prop_map(|by| Step::Stat { by }),
        1 => by().prop_map(|by| Step::Fstat { by }),
        3 => any_one().prop_map(|by| Step::Read { by }),
        1 => by().prop_map(|by| Step::ReadHere { by }),
        1 => by().prop_map(|by| Step::Sync { by }),
        1 => by().prop_map(|by| Step::Reopen { by }),
    ]
}

impl Crowd {
    fn run(&mut self, step: &Step) {
        match *step {
            Step::Rounds { n, seed } => self.rounds(n, seed),
            Step::Run { by, n, seed } => (0..n).for_each(|_| self.next(by, seed)),
            Step::Moves { by, to } => {
                self.first[by] = to;
                self.at[by] = 0;
            }
            Step::Back { by } => self.at[by] = 0,
            Step::Elsewhere { by, at, len, seed } => self.put(by, at, len, seed),
            Step::Append { by, len, seed } => {
                let data = vec![seed; len];
                let at = self.files[by].append(Data::Slice(&data)).unwrap();
                assert_eq!(at, self.bytes.len() as u64);
                self.bytes.extend(data);
            }
            Step::Cut { by, size } => {
                self.bytes.resize(size, 0);
                let set = SetAttr::size(size as u64);
                self.clients[by].setattr(&root(), self.fid, set, None).unwrap();
            }
            Step::SetTime { by, sec } => {
                let mtime = TimeSpec { sec, nsec: 5 };
                let set = SetAttr { valid: S_MTIME, mtime, ..SetAttr::none() };
                self.clients[by].setattr(&root(), self.fid, set, None).unwrap();
                // Nothing was written since, whatever came to its OSTs since.
                assert_eq!(self.looks(LOOKS).mtime, mtime);
                assert_eq!(self.looks(by).mtime, mtime);
            }
            Step::Stat { by } => drop(self.looks(by)),
            Step::Fstat { by } => {
                assert_eq!(self.files[by].attr().unwrap().size, self.bytes.len() as u64);
            }
            Step::Read { by } => {
                self.compare(&self.clients[by].open(&root(), self.fid, READ).unwrap());
            }
            Step::ReadHere { by } => self.compare(&self.files[by]),
            Step::Sync { by } => self.files[by].fsync(false).unwrap(),
            Step::Reopen { by } => {
                self.files[by].flush().unwrap();
                self.files[by].release();
                self.files[by] = self.clients[by].open(&root(), self.fid, BOTH).unwrap();
            }
        }
    }
}

fn as_a_model_says(cases: u32, pauses: bool) {
    let w = World::new(2);
    let mut runner = TestRunner::new(Config { cases, max_shrink_iters: 60, ..Config::default() });
    let steps = proptest::collection::vec(step(), 30..90);
    let run = |(seed, len, steps): (u64, usize, Vec<Step>)| {
        let mut crowd = Crowd::new(&w, len, BOTH, pauses.then_some(seed % 1000));
        // Most have something to lose from the first step on.
        crowd.rounds(25, 3);
        steps.iter().for_each(|step| crowd.run(step));
        crowd.end();
        Ok(())
    };
    let lens = prop::sample::select(LENS.to_vec());
    runner.run(&(any::<u64>(), lens, steps), run).unwrap();
}

#[test]
fn whoever_looks_sees_what_was_written_before_although_it_waits() {
    as_a_model_says(10, false);
}

#[test]
fn what_comes_out_while_a_client_looks_is_what_it_sees() {
    as_a_model_says(10, true);
}

#[test]
fn writers_that_keep_apart_send_many_blocks_in_a_message() {
    let w = World::new(2);
    let mut crowd = Crowd::new(&w, LENS[0], WRITE, None);
    crowd.rounds(40, 1);
    let before = crowd.written();
    crowd.rounds(200, 2);
    crowd.files.iter().for_each(|file| file.fsync(false).unwrap());
    let sent = crowd.written() - before;
    assert!(sent < 200, "{sent} messages for 600 blocks");
    crowd.end();
}

/// One after the other, without gaps: each has a part of the file.
#[test]
fn writers_of_parts_of_a_file_send_many_blocks_in_a_message() {
    const PART: usize = 48 << 20;
    let w = World::new(2);
    let mut crowd = Crowd::new(&w, 64 << 10, WRITE, None);
    let block = |crowd: &mut Crowd, n: usize| {
        (0..WRITERS).for_each(|by| {
            let data = vec![(n * WRITERS + by) as u8; 64 << 10];
            crowd.files[by].write((by * PART + n * data.len()) as u64, Data::Slice(&data)).unwrap();
        });
    };
    (0..80).for_each(|n| block(&mut crowd, n));
    let before = crowd.written();
    (80..380).for_each(|n| block(&mut crowd, n));
    crowd.files.iter().for_each(|file| file.fsync(false).unwrap());
    let sent = crowd.written() - before;
    assert!(sent < 300, "{sent} messages for 900 blocks");
    let file = crowd.clients[LOOKS].open(&root(), crowd.fid, READ).unwrap();
    let mut block = vec![0; 64 << 10];
    for (by, n) in (0..WRITERS).flat_map(|by| (0..380).map(move |n| (by, n))) {
        file.read((by * PART + n * block.len()) as u64, &mut block).unwrap();
        assert!(block.iter().all(|b| *b == (n * WRITERS + by) as u8), "block {n} of {by}");
    }
}

#[test]
fn who_comes_reads_or_looks_finds_all_with_the_osts() {
    let w = World::new(2);
    for looks in 0..4 {
        let mut crowd = Crowd::new(&w, LENS[0], BOTH, None);
        crowd.rounds(60, 1);
        assert!(crowd.waiting() > 0, "nothing waits");
        match looks {
            0 => drop(crowd.looks(LOOKS)),
            1 => crowd.compare(&crowd.clients[LOOKS].open(&root(), crowd.fid, READ).unwrap()),
            2 => crowd.compare(&crowd.files[1]),
            _ => crowd.put(2, 0, 10, 9),
        }
        assert_eq!(crowd.waiting(), 0);
        crowd.rounds(20, 2);
        crowd.end();
    }
}

/// What fsync said is there is not lost with an OST, what was not synced is sent again; and all is there although the MDT
/// forgot who had promised what.
#[test]
fn what_waits_is_not_lost_with_servers() {
    let mut w = World::new(2);
    let mut crowd = Crowd::new(&w, LENS[0], BOTH, None);
    crowd.rounds(60, 1);
    crowd.files[0].fsync(false).unwrap();
    crowd.rounds(5, 2);
    w.restart_ost(0);
    w.restart_ost(1);
    crowd.rounds(5, 3);
    crowd.compare(&crowd.clients[LOOKS].open(&root(), crowd.fid, READ).unwrap());
    crowd.rounds(60, 4);
    assert!(crowd.waiting() > 0, "nothing waits");
    w.restart_mdt();
    // Until a client has noticed it believes what it was told before (a limit in docs/semantics.md).
    for c in &crowd.clients {
        c.setxattr(&root(), Fid::ROOT, b"user.back", b"", 0).unwrap();
    }
    crowd.files.iter().for_each(|file| file.fsync(false).unwrap());
    crowd.compare(&crowd.files[2]);
    crowd.rounds(60, 5);
    crowd.end();
}

/// What it knew of the length was so before another cut the file.
#[test]
fn who_is_left_alone_while_bytes_wait_knows_how_long_the_file_is() {
    const SIZE: usize = 1_000_000;
    let w = World::new(2);
    let mut crowd = Crowd::new(&w, LENS[1], BOTH, None);
    crowd.rounds(200, 1);
    crowd.run(&Step::Cut { by: 1, size: SIZE });
    for seed in 2..6 {
        crowd.at = [0; WRITERS];
        crowd.rounds(60, seed);
    }
    assert!(crowd.clients[0].stats().dirty_bytes > 0, "nothing waits");
    for file in crowd.files.drain(1..) {
        file.flush().unwrap();
        file.release();
    }
    crowd.clients.truncate(1);
    common::until(|| crowd.clients[0].is_sole());
    assert_eq!(crowd.files[0].attr().unwrap().size, SIZE as u64);
    crowd.compare(&crowd.files[0]);
    crowd.files[0].fsync(false).unwrap();
    assert_eq!(crowd.looks(0).size, SIZE as u64);
}

/// Writers that go on, over and over, while others read: a reader never finds a block older than one whose write had
/// returned before the read began.
#[test]
fn no_reader_meets_a_block_older_than_what_was_written_before() {
    const BLOCKS: usize = 40;
    const LEN: usize = 3000;
    for seed in 0..3 {
        let w = World::new(2);
        let crowd = Crowd::new(&w, LEN, BOTH, Some(100 * seed));
        let done: Vec<AtomicU64> = (0..WRITERS).map(|_| AtomicU64::new(0)).collect();
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for by in 0..WRITERS {
                let (file, done, stop) = (&crowd.files[by], &done[by], &stop);
                scope.spawn(move || {
                    let _stops = Stops(stop);
                    for n in 0..1200u64 {
                        let block = n as usize % BLOCKS;
                        let at = BEGUN + (block * WRITERS + by) * LEN;
                        let data = n.to_le_bytes().repeat(LEN / 8);
                        file.write(at as u64, Data::Slice(&data)).unwrap();
                        done.store(n + 1, SeqCst);
                    }
                });
            }
            while !stop.load(SeqCst) {
                for (by, done) in done.iter().enumerate() {
                    let least = done.load(SeqCst);
                    let file = crowd.clients[LOOKS].open(&root(), crowd.fid, READ).unwrap();
                    for block in (0..BLOCKS).filter(|b| (*b as u64) < least) {
                        let mut seen = vec![0; LEN];
                        let at = BEGUN + (block * WRITERS + by) * LEN;
                        assert_eq!(file.read(at as u64, &mut seen).unwrap(), LEN);
                        let seen = u64::from_le_bytes(seen[..8].try_into().unwrap());
                        // The last that was written there before the read began.
                        let last = (least - 1 - block as u64) / BLOCKS as u64;
                        let last = block as u64 + last * BLOCKS as u64;
                        assert!(seen >= last, "seed {seed}: {seen} where {last} had been written");
                    }
                    file.release();
                    // They are let alone for a while.
                    std::thread::yield_now();
                }
                let begun = crowd.written();
                common::until(|| crowd.written() > begun + 10 || stop.load(SeqCst));
            }
        });
    }
}

/// However a writer ends.
struct Stops<'a>(&'a AtomicBool);

impl Drop for Stops<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}
