//! Logs that several threads of several clients append to and read: a lease on such a file comes and
//! goes all the time, and what was written under it must be seen, and be where it was written, by who
//! goes on without it.

mod common;

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use common::{READ, World, root};
use pinstripe_client::{Client, Data, OpenFlags, Options, Pauses};
use proto::{Fid, FileKind};

const CLIENTS: usize = 3;
const THREADS: usize = 2;
const LOGS: usize = 150;
/// The same for clients that pause.
const SLOW_LOGS: usize = 20;
/// Steps of a thread on each log.
const STEPS: usize = 25;
const RECORD: usize = 8;
const WRITE: OpenFlags = OpenFlags { read: false, write: true, ..READ };

/// What is known for certain of a log.
#[derive(Default)]
struct Log {
    /// What was there when it was begun, in bytes.
    begun: usize,
    next: AtomicU64,
    /// Appended, and answered: where to.
    done: Mutex<BTreeMap<u64, u64>>,
    /// The longest that was read.
    read: Mutex<Vec<u64>>,
}

impl Log {
    /// Appends a record that says by whom it is.
    fn append(&self, client: &Client, fid: Fid, (number, thread): (usize, usize)) {
        let by = (number * 10 + thread) as u64 * 1000;
        let record = by + 1 + self.next.fetch_add(1, SeqCst);
        let file = client.open(&root(), fid, WRITE).unwrap();
        let at = file.append(Data::Slice(&record.to_le_bytes())).unwrap();
        file.flush().unwrap();
        file.release();
        self.done.lock().unwrap().insert(record, at);
    }

    /// Everything that was answered before is there, and what was there before is where it was.
    fn look(&self, client: &Client, fid: Fid, who: &str) {
        let done = self.done.lock().unwrap().clone();
        let read = self.read.lock().unwrap().clone();
        let attr = client.getattr(&root(), fid).unwrap();
        let size = attr.size as usize;
        // Whether one is lost for good, or was only not seen.
        let then = || {
            let (attr, now) = (client.getattr(&root(), fid).unwrap(), self.records(client, fid));
            format!("of {done:?}, then {attr:?} and {now:?}")
        };
        assert!(size >= self.begun + done.len() * RECORD, "{who}: {attr:?}; {}", then());
        let now = self.records(client, fid);
        let lost: Vec<_> = done.keys().filter(|r| !now.contains(r)).collect();
        assert!(lost.is_empty(), "{who}: {attr:?}, {lost:?} not in {now:?}; {}", then());
        assert!(now.starts_with(&read), "{who}: after {read:?} came {now:?}; {}", then());
        let mut longest = self.read.lock().unwrap();
        if now.len() > longest.len() {
            *longest = now;
        }
    }

    /// What is there now.
    fn records(&self, client: &Client, fid: Fid) -> Vec<u64> {
        let file = client.open(&root(), fid, READ).unwrap();
        let mut bytes = vec![0; CLIENTS * THREADS * STEPS * RECORD];
        let n = file.read(self.begun as u64, &mut bytes).unwrap();
        file.release();
        let record = |b: &[u8]| u64::from_le_bytes(b.try_into().unwrap());
        bytes[..n].chunks_exact(RECORD).map(record).collect()
    }
}

/// Everybody appends to the same logs, which are begun with so many bytes.
fn append_together(begun: usize) {
    let world = World::new(2);
    let clients: Vec<Client> = (0..CLIENTS).map(|_| world.client()).collect();
    append_to(LOGS, begun, &clients);
    drop(clients);
    let slow = |seed| Options {
        pauses: Pauses::seeded(seed, 8, Duration::from_millis(3)),
        ..Options::default()
    };
    let clients: Vec<Client> = (1..=CLIENTS as u64).map(|n| world.client_with(slow(n))).collect();
    append_to(SLOW_LOGS, begun, &clients);
}

fn append_to(logs: usize, begun: usize, clients: &[Client]) {
    for n in 0..logs {
        let (name, mode) = (format!("{n} of {logs}"), FileKind::File.mode_bits() | 0o644);
        let first = &clients[n % CLIENTS];
        let made =
            first.create(&root(), Fid::ROOT, name.as_bytes(), mode, 0, 0, b"", 0, Some(WRITE));
        let (made, log) = (made.unwrap(), Log { begun, ..Log::default() });
        let (fid, file) = (made.attr.fid, made.file.unwrap());
        file.write(0, Data::Owned(vec![1; begun].into())).unwrap();
        file.flush().unwrap();
        file.release();
        std::thread::scope(|scope| {
            for thread in 0..CLIENTS * THREADS {
                let (client, log, at) = (&clients[thread % CLIENTS], &log, thread / CLIENTS);
                let who = format!("log {n}, client {}, thread {at}", thread % CLIENTS);
                let mut turn = n * 31 + thread * 7;
                scope.spawn(move || {
                    for _ in 0..STEPS {
                        turn = turn.wrapping_mul(25_214_903_917).wrapping_add(11);
                        match turn >> 20 & 1 {
                            0 => log.append(client, fid, (thread % CLIENTS, at)),
                            _ => log.look(client, fid, &who),
                        }
                    }
                });
            }
        });
    }
}

#[test]
fn nothing_that_was_appended_is_lost_or_moves() {
    append_together(0);
}

#[test]
fn appends_to_objects_are_not_lost_and_never_read_as_zeros() {
    append_together(70_000);
}

#[test]
fn appends_while_a_file_moves_to_objects_are_not_lost() {
    append_together(65_400);
}
