//! A file that several clients write at once, each telling late what its writes did to size and times:
//! whoever looks sees what was done before he looked (invariant 3), as if each write had been told.

mod common;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use common::{READ, World, root, until};
use pinstripe_client::{Client, Data, OpenFile, OpenFlags, Options, Pauses};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use proto::attr::{A_SIZE_LAGS, S_MTIME};
use proto::{Attr, Fid, FileKind, SetAttr, TimeSpec};

const WRITE: OpenFlags = OpenFlags { write: true, ..READ };
/// Not a multiple of anything.
const BLOCK: usize = 47_008;
/// Large enough to have objects.
const BEGUN: usize = 200_000;
const NAME: &[u8] = b"f";

#[derive(Clone, Debug)]
enum Step {
    Write { by: usize, at: usize, len: usize, seed: u8 },
    Append { by: usize, len: usize, seed: u8 },
    Cut { by: usize, size: usize },
    SetTime { by: usize, sec: i64 },
    Stat { by: usize },
    Read { by: usize },
    Sync { by: usize },
    Reopen { by: usize },
}

fn step() -> impl Strategy<Value = Step> {
    let by = || 0..3usize;
    prop_oneof![
        12 => (0..2usize, 0..400_000usize, 1..60_000usize, any::<u8>())
            .prop_map(|(by, at, len, seed)| Step::Write { by, at, len, seed }),
        1 => (0..2usize, 1..9000usize, any::<u8>())
            .prop_map(|(by, len, seed)| Step::Append { by, len, seed }),
        2 => (0..2usize, 100_000..500_000usize).prop_map(|(by, size)| Step::Cut { by, size }),
        // Of this year there is only what the test itself does.
        1 => (by(), 5_000_000_000..6_000_000_000i64).prop_map(|(by, sec)| Step::SetTime { by, sec }),
        4 => by().prop_map(|by| Step::Stat { by }),
        2 => by().prop_map(|by| Step::Read { by }),
        1 => by().prop_map(|by| Step::Sync { by }),
        1 => (0..2usize).prop_map(|by| Step::Reopen { by }),
    ]
}

/// Three clients; the first two have the file open for writing.
struct Trio {
    clients: [Client; 3],
    files: Vec<Arc<OpenFile>>,
    fid: Fid,
    bytes: Vec<u8>,
    /// The time of the last change, at the earliest; or exactly, if it was set.
    changed: TimeSpec,
    set: bool,
}

fn now() -> TimeSpec {
    SystemTime::now().into()
}

impl Trio {
    fn new(w: &World) -> Trio {
        Trio::of([w.client(), w.client(), w.client()])
    }

    /// Clients that pause here and there, so that what they do behind overtakes what they are asked.
    fn slow(w: &World, seed: u64) -> Trio {
        let client = |n| {
            let pauses = Pauses::seeded(seed + n, 8, Duration::from_millis(3));
            w.client_with(Options { pauses, ..Options::default() })
        };
        Trio::of([client(1), client(2), client(3)])
    }

    fn of(clients: [Client; 3]) -> Trio {
        let c = &clients[0];
        let mode = FileKind::File.mode_bits() | 0o644;
        let made = c.create(&root(), c.root().fid, NAME, mode, 0, 0, b"", 0, Some(WRITE)).unwrap();
        let (fid, first) = (made.attr.fid, made.file.unwrap());
        let bytes = vec![7; BEGUN];
        first.write(0, Data::Slice(&bytes)).unwrap();
        let second = clients[1].open(&root(), fid, WRITE).unwrap();
        let third = clients[2].open(&root(), fid, READ).unwrap();
        let changed = TimeSpec::default();
        Trio { clients, files: vec![first, second, third], fid, bytes, changed, set: false }
    }

    fn put(&mut self, at: usize, len: usize, seed: u8) -> Vec<u8> {
        let data: Vec<u8> = (0..len).map(|i| (i as u8).wrapping_mul(13) ^ seed).collect();
        self.bytes.resize(self.bytes.len().max(at + len), 0);
        self.bytes[at..at + len].copy_from_slice(&data);
        (self.changed, self.set) = (now(), false);
        data
    }

    fn check(&self, attr: &Attr) {
        assert_eq!(attr.size, self.bytes.len() as u64);
        match self.set {
            true => assert_eq!(attr.mtime, self.changed, "the time that was set"),
            false => assert!(attr.mtime >= self.changed && attr.mtime <= now(), "{attr:?}"),
        }
    }

    fn run(&mut self, step: &Step) {
        match *step {
            Step::Write { by, at, len, seed } => {
                let data = self.put(at, len, seed);
                self.files[by].write(at as u64, Data::Slice(&data)).unwrap();
            }
            Step::Append { by, len, seed } => {
                let at = self.bytes.len();
                let data = self.put(at, len, seed);
                assert_eq!(self.files[by].append(Data::Slice(&data)).unwrap(), at as u64);
            }
            Step::Cut { by, size } => {
                self.bytes.resize(size, 0);
                (self.changed, self.set) = (now(), false);
                let set = SetAttr::size(size as u64);
                self.clients[by].setattr(&root(), self.fid, set, None).unwrap();
            }
            Step::SetTime { by, sec } => {
                (self.changed, self.set) = (TimeSpec { sec, nsec: 5 }, true);
                let set = SetAttr { valid: S_MTIME, mtime: self.changed, ..SetAttr::none() };
                self.clients[by].setattr(&root(), self.fid, set, None).unwrap();
            }
            Step::Stat { by } => {
                let c = &self.clients[by];
                self.check(&c.getattr(&root(), self.fid).unwrap());
                self.check(&c.lookup(&root(), c.root().fid, NAME).unwrap());
            }
            Step::Read { by } => {
                let mut all = vec![0; 1 << 20];
                let file = self.clients[by].open(&root(), self.fid, READ).unwrap();
                let n = file.read(0, &mut all).unwrap();
                assert!(all[..n] == self.bytes[..], "{n} bytes of {}", self.bytes.len());
            }
            Step::Sync { by } => self.files[by].fsync(false).unwrap(),
            Step::Reopen { by } => {
                self.files[by].flush().unwrap();
                self.files[by].release();
                self.files[by] = self.clients[by].open(&root(), self.fid, WRITE).unwrap();
            }
        }
    }

    fn close(&self) {
        for file in &self.files {
            file.flush().unwrap();
            file.release();
        }
    }

    fn end(&self) {
        self.close();
        // The closes go behind.
        let fresh = || self.clients[2].getattr(&root(), self.fid).unwrap();
        until(|| fresh().flags & A_SIZE_LAGS == 0);
        self.check(&fresh());
    }
}

fn look_after_each(cases: u32, trio: impl Fn(&World, u64) -> Trio) {
    let w = World::new(2);
    let mut runner = TestRunner::new(Config { cases, ..Config::default() });
    let steps = (any::<u64>(), proptest::collection::vec(step(), 40..120));
    let run = |(seed, steps): (u64, Vec<Step>)| {
        let mut trio = trio(&w, seed % 1000);
        for step in &steps {
            trio.run(step);
        }
        trio.end();
        let c = &trio.clients[0];
        c.unlink(&root(), c.root().fid, NAME).unwrap();
        Ok(())
    };
    runner.run(&steps, run).unwrap();
}

#[test]
fn whoever_looks_sees_what_was_written_before_although_it_is_told_late() {
    look_after_each(12, |w, _| Trio::new(w));
}

#[test]
fn what_is_told_while_a_client_looks_is_what_it_sees() {
    look_after_each(12, Trio::slow);
}

#[test]
fn a_write_ends_a_time_to_come_that_was_set_also_where_it_is_not_told_yet() {
    let w = World::new(2);
    let mut trio = Trio::new(&w);
    for n in 0..8 {
        let by = n % 2;
        trio.run(&Step::SetTime { by: (n / 2) % 3, sec: 5_000_000_000 + n as i64 });
        // With the open comes the right to tell late.
        trio.run(&Step::Reopen { by });
        trio.run(&Step::Write { by, at: 0, len: BLOCK, seed: n as u8 });
        trio.run(&Step::Stat { by });
        trio.run(&Step::Stat { by: 1 - by });
    }
    trio.end();
}

#[test]
fn writes_beside_others_cost_the_mdt_next_to_nothing() {
    let w = World::new(2);
    let mut trio = Trio::new(&w);
    let step = |trio: &mut Trio, n: usize| {
        let by = n % 2;
        trio.run(&Step::Write { by, at: n * BLOCK, len: BLOCK, seed: n as u8 });
    };
    (0..4).for_each(|n| step(&mut trio, n));
    let messages = |trio: &Trio| trio.clients.iter().map(|c| c.stats().mds_messages).sum::<u64>();
    let (before, begun) = (messages(&trio), std::time::Instant::now());
    (4..204).for_each(|n| step(&mut trio, n));
    // One each while they write for so long, and what a slow machine adds.
    let most = 8 * (2 + begun.elapsed().as_millis() as u64 / 250);
    let told = messages(&trio) - before;
    assert!(told <= most.min(150), "{told} messages for 200 writes");
    (0..3).for_each(|by| trio.run(&Step::Stat { by }));
    trio.end();
}

#[test]
fn what_was_to_be_told_late_is_told_after_a_restart_of_the_mdt() {
    let mut w = World::new(2);
    let mut trio = Trio::new(&w);
    (0..20).for_each(|n| {
        trio.run(&Step::Write { by: n % 2, at: n * BLOCK, len: BLOCK, seed: 3 });
    });
    w.restart_mdt();
    // Until a client has noticed it believes what it was told before (a limit in docs/semantics.md).
    for c in &trio.clients {
        c.setxattr(&root(), Fid::ROOT, b"user.back", b"", 0).unwrap();
    }
    trio.run(&Step::Write { by: 0, at: 0, len: BLOCK, seed: 5 });
    trio.run(&Step::Write { by: 1, at: BLOCK, len: BLOCK, seed: 6 });
    (0..3).for_each(|by| trio.run(&Step::Stat { by }));
    // Whether somebody who wrote did not come back the MDT cannot know: the file stays marked.
    trio.close();
    trio.run(&Step::Stat { by: 2 });
}
