//! Clients that do everything at once to the same few files: nobody waits in a circle or for what never
//! ends, which would lead to an eviction (and errors) after the time a call-back has.

mod common;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

use common::{READ, WRITE, World, root, until};
use pinstripe_client::{Client, Data};
use proto::attr::{S_ATIME, S_MODE, S_MTIME_NOW};
use proto::{Errno, Fid, FileKind, SetAttr, TimeSpec};

const FILES: usize = 2;
const THREADS: usize = 3;
const ROUNDS: usize = 400;

fn step(client: &Client, fid: Fid, n: usize) -> Result<(), Errno> {
    let set = |valid| {
        let atime = TimeSpec { sec: 1_000_000_000, nsec: 0 };
        let mode = 0o600 | n as u32 & 0o77;
        let set = SetAttr { valid, mode, atime, ..SetAttr::none() };
        client.setattr(&root(), fid, set, None).map(drop)
    };
    match n % 8 {
        0 => set(S_MODE),
        1 => set(S_ATIME),
        2 => set(S_MTIME_NOW),
        3 => client.setattr(&root(), fid, SetAttr::size(n as u64 % 90_000), None).map(drop),
        4 => {
            let file = client.open(&root(), fid, WRITE)?;
            file.write(n as u64 * 97 % 80_000, Data::Slice(&[n as u8; 3000]))?;
            file.flush()
        }
        5 => client.setxattr(&root(), fid, b"user.n", &[n as u8], 0).map(drop),
        6 => client.getattr(&root(), fid).map(drop),
        _ => {
            let file = client.open(&root(), fid, READ)?;
            file.read(0, &mut [0; 5000]).map(drop)
        }
    }
}

/// Runs `step` with random numbers in [`THREADS`] threads of each client.
fn all_at_once(clients: &[Client], step: impl Fn(&Client, &mut dyn FnMut() -> usize) + Sync) {
    let steps = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for (c, client) in clients.iter().enumerate() {
            for t in 0..THREADS {
                let (step, steps) = (&step, &steps);
                scope.spawn(move || {
                    let mut random = 0x9e37_79b9_7f4a_7c15_u64 ^ ((c * THREADS + t) as u64) << 20;
                    let mut next = || {
                        random ^= random << 13;
                        random ^= random >> 7;
                        random ^= random << 17;
                        (random >> 16) as usize
                    };
                    for _ in 0..ROUNDS {
                        step(client, &mut next);
                        steps.fetch_add(1, SeqCst);
                    }
                });
            }
        }
    });
    assert_eq!(steps.load(SeqCst), (clients.len() * THREADS * ROUNDS) as u64);
}

#[test]
fn clients_that_change_the_same_files_never_wait_in_a_circle() {
    let world = World::new(2);
    let clients = [world.client(), world.client(), world.client()];
    let mode = FileKind::File.mode_bits() | 0o644;
    let make = |i: usize| {
        let name = format!("f{i}");
        clients[0].create(&root(), Fid::ROOT, name.as_bytes(), mode, 0, 0, b"", 0, None)
    };
    let files: Vec<Fid> = (0..FILES).map(|i| make(i).unwrap().attr.fid).collect();
    all_at_once(&clients, |client, next| {
        step(client, files[next() % FILES], next() % 100_000).unwrap();
    });
}

/// What another's change of a name may lead to.
const FINE: [Errno; 8] = [
    Errno::ENOENT,
    Errno::EEXIST,
    Errno::ENOTEMPTY,
    Errno::EISDIR,
    Errno::ENOTDIR,
    Errno::ESTALE,
    Errno::EINVAL,
    Errno::EPERM,
];

/// One operation on names, of which others may make or remove any at any time.
fn name_step(client: &Client, dirs: &[Fid], next: &mut dyn FnMut() -> usize) -> Result<(), Errno> {
    let mut place = || (dirs[next() % dirs.len()], [b'a' + (next() % 4) as u8]);
    let ((dir, name), (other, to)) = (place(), place());
    let cred = root();
    let file = FileKind::File.mode_bits() | 0o644;
    let look = || client.lookup(&cred, dir, &name);
    match next() % 14 {
        0 | 1 => {
            let made = client.create(&cred, dir, &name, file, 0, 0, b"", 0, Some(WRITE))?;
            let file = made.file.ok_or(Errno::EISDIR)?;
            file.write(0, Data::Slice(&[7; 2000]))?;
            file.flush()
        }
        2 => client.unlink(&cred, dir, &name).map(drop),
        3 => client.rename(&cred, dir, &name, other, &to, 0).map(drop),
        4 => client.rename(&cred, dir, &name, other, &to, proto::mds::RN_EXCHANGE).map(drop),
        5 => client.link(&cred, look()?.fid, other, &to).map(drop),
        6 => {
            let mode = FileKind::Dir.mode_bits() | 0o755;
            client.create(&cred, dir, &name, mode, 0, 0, b"", 0, None).map(drop)
        }
        7 => client.rmdir(&cred, dir, &name).map(drop),
        8 => client.readdir(&cred, dir, 0, 65_536, true).map(drop),
        9 => {
            let file = client.open(&cred, look()?.fid, READ)?;
            file.read(0, &mut [0; 5000]).map(drop)
        }
        10 => {
            let file = client.open(&cred, look()?.fid, WRITE)?;
            file.append(Data::Slice(&[8; 30_000]))?;
            file.truncate(next() as u64 % 90_000)?;
            file.fsync(false)
        }
        11 => client
            .setattr(&cred, look()?.fid, SetAttr::size(next() as u64 % 90_000), None)
            .map(drop),
        12 => {
            let from = client.open(&cred, look()?.fid, READ)?;
            let into = client.lookup(&cred, other, &to)?.fid;
            from.copy_range(0, &client.open(&cred, into, WRITE)?, 10_000, 30_000).map(drop)
        }
        _ => client.sync_all(),
    }
}

#[test]
fn clients_that_change_the_same_names_never_wait_in_a_circle() {
    let world = World::new(2);
    let clients = [world.client(), world.client(), world.client()];
    let mode = FileKind::Dir.mode_bits() | 0o755;
    let make = |name: &[u8]| {
        clients[0].create(&root(), Fid::ROOT, name, mode, 0, 0, b"", 0, None).unwrap().attr.fid
    };
    let dirs = [make(b"x"), make(b"y")];
    all_at_once(&clients, |client, next| {
        if let Err(e) = name_step(client, &dirs, next) {
            assert!(FINE.contains(&e), "{e}");
        }
    });
}

/// The same while one of two comes and goes: the other is alone in between, and finds out each time.
#[test]
fn a_client_that_comes_and_goes_never_stops_the_other() {
    const VISITS: usize = 25;
    let world = World::new(2);
    let stays = world.client();
    let mode = FileKind::Dir.mode_bits() | 0o755;
    let make = |name: &[u8]| {
        stays.create(&root(), Fid::ROOT, name, mode, 0, 0, b"", 0, None).unwrap().attr.fid
    };
    let dirs = [make(b"x"), make(b"y")];
    let fine = |done: Result<(), Errno>| {
        assert!(done.is_ok() || done.is_err_and(|e| FINE.contains(&e)), "{done:?}")
    };
    let gone = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            all_at_once(std::slice::from_ref(&stays), |client, next| {
                while !gone.load(SeqCst) {
                    fine(name_step(client, &dirs, next));
                }
            });
        });
        for visit in 0..VISITS {
            let guest = world.client();
            let mut n = visit * 1000;
            for _ in 0..40 {
                fine(name_step(&guest, &dirs, &mut || {
                    n = n
                        .wrapping_mul(6_364_136_223_846_793_005)
                        .wrapping_add(1_442_695_040_888_963_407);
                    n >> 33
                }));
            }
        }
        gone.store(true, SeqCst);
    });
}

/// The same while the MDT restarts again and again: operations may fail, none stands still.
#[test]
fn restarts_of_the_mdt_leave_nobody_waiting() {
    const RESTARTS: usize = 8;
    /// Operations between two restarts.
    const BETWEEN: u64 = 300;
    let mut world = World::new(2);
    let clients = [world.client(), world.client()];
    let mode = FileKind::Dir.mode_bits() | 0o755;
    let make = |name: &[u8]| {
        clients[0].create(&root(), Fid::ROOT, name, mode, 0, 0, b"", 0, None).unwrap().attr.fid
    };
    let dirs = [make(b"x"), make(b"y")];
    clients[0].sync_all().unwrap();
    let (over, done) = (AtomicBool::new(false), AtomicU64::new(0));
    let work = || {
        all_at_once(&clients, |client, next| {
            while !over.load(SeqCst) {
                // Which errors a restart may lead to is the matter of other tests.
                let _ = name_step(client, &dirs, next);
                done.fetch_add(1, SeqCst);
            }
        });
    };
    std::thread::scope(|scope| {
        let working = scope.spawn(work);
        for _ in 0..RESTARTS {
            let before = done.load(SeqCst);
            until(|| done.load(SeqCst) >= before + BETWEEN);
            world.stop_mdt_hard();
            world.start_mdt();
        }
        over.store(true, SeqCst);
        working.join().unwrap();
    });
    for client in &clients {
        client.getattr(&root(), dirs[0]).unwrap();
    }
}

/// Writers that never pause do not keep others from looking at their file, and lose nothing by it.
#[test]
fn a_file_that_is_written_all_the_time_can_be_looked_at() {
    const WRITERS: usize = 24;
    const PART: usize = 1 << 18;
    const STEP: usize = 8192;
    let world = World::new(2);
    let (a, b) = (world.client(), world.client());
    let mode = FileKind::File.mode_bits() | 0o644;
    let made = a.create(&root(), Fid::ROOT, b"f", mode, 0, 0, b"", 0, Some(WRITE)).unwrap();
    let fid = made.attr.fid;
    made.file.unwrap().truncate((WRITERS * PART) as u64).unwrap();
    let (stop, writes) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for part in 0..WRITERS {
            let (a, stop, writes) = (&a, &stop, &writes);
            scope.spawn(move || {
                let file = a.open(&root(), fid, WRITE).unwrap();
                for n in 0.. {
                    if stop.load(SeqCst) {
                        break;
                    }
                    let at = part * PART + n * STEP % PART;
                    file.write(at as u64, Data::Slice(&[part as u8 + 1; STEP])).unwrap();
                    writes.fetch_add(1, SeqCst);
                }
                file.flush().unwrap();
            });
        }
        for _ in 0..20 {
            let before = writes.load(SeqCst);
            assert_eq!(b.getattr(&root(), fid).unwrap().size, (WRITERS * PART) as u64);
            let file = b.open(&root(), fid, READ).unwrap();
            let mut data = [0; STEP];
            assert_eq!(file.read(PART as u64, &mut data).unwrap(), STEP);
            assert!(data.iter().all(|byte| *byte == data[0] && [0, 2].contains(byte)));
            file.release();
            until(|| writes.load(SeqCst) > before);
        }
        stop.store(true, SeqCst);
    });
    let file = b.open(&root(), fid, READ).unwrap();
    let mut data = vec![0; WRITERS * PART + 1];
    assert_eq!(file.read(0, &mut data).unwrap(), WRITERS * PART);
    for (part, data) in data.chunks_exact(PART).enumerate() {
        assert!(data.iter().all(|byte| [0, part as u8 + 1].contains(byte)), "part {part}");
    }
}
