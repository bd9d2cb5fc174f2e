//! Leases, locks, restarts and errors: what happens when somebody or something interferes.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use common::{READ, World, root, until};
use pinstripe_client::{CancelToken, Client, Data, Listener, OpenFile, OpenFlags, Options};
use pinstripe_client::{F_UNLCK, F_WRLCK};
use proto::mds::{L_FLOCK, L_POSIX, Lease, LockDesc};
use proto::{Errno, Fid, FileKind};

const RW: OpenFlags =
    OpenFlags { read: true, write: true, trunc: false, direct: false, sync: false, noatime: true };

fn make(c: &Client, name: &str) -> Arc<OpenFile> {
    let mode = FileKind::File.mode_bits() | 0o644;
    let made = c.create(&root(), Fid::ROOT, name.as_bytes(), mode, 0, 0, b"", 0, Some(RW));
    made.unwrap().file.unwrap()
}

#[derive(Default)]
struct Told {
    ends: AtomicU64,
    begins: AtomicU64,
    resets: AtomicU64,
}

impl Listener for Told {
    fn sole(&self, now: bool) {
        if now { &self.begins } else { &self.ends }.fetch_add(1, SeqCst);
    }
    fn forget(&self, _: Fid) {}
    fn recalled(&self, _: &[Lease]) {}
    fn reset(&self) {
        self.resets.fetch_add(1, SeqCst);
    }
}

/// Invariant 3: what one client wrote, another that comes sees, and the other way round.
#[test]
fn two_clients_see_each_others_bytes() {
    let world = World::new(2);
    let a = world.client();
    let told = Arc::new(Told::default());
    a.set_listener(told.clone());
    let epoch = a.cache_epoch();
    let small = make(&a, "small");
    let big = make(&a, "big");
    small.write(0, Data::Slice(b"from a")).unwrap();
    big.write(0, Data::Slice(&[1; 200_000])).unwrap();
    assert!(a.is_sole());
    let b = world.client();
    let seen = b.open(&root(), small.fid(), RW).unwrap();
    let mut buf = [0; 6];
    assert_eq!((seen.read(0, &mut buf).unwrap(), &buf), (6, b"from a"));
    assert_eq!(told.ends.load(SeqCst), 1);
    assert!(!a.is_sole() && !b.is_sole() && a.cache_epoch() != epoch);
    let theirs = b.open(&root(), big.fid(), RW).unwrap();
    assert_eq!(theirs.append(Data::Slice(&[2; 70_000])).unwrap(), 200_000);
    assert_eq!(a.getattr(&root(), big.fid()).unwrap().size, 270_000);
    let mut buf = vec![0; 300_000];
    assert_eq!(big.read(0, &mut buf).unwrap(), 270_000);
    assert!(buf[199_999] == 1 && buf[200_000] == 2 && buf[269_999] == 2);
    seen.write(3, Data::Slice(b"m b!")).unwrap();
    let mut buf = [0; 16];
    let n = small.read(0, &mut buf).unwrap();
    assert_eq!(&buf[..n], b"from b!");
    seen.truncate(2).unwrap();
    assert_eq!(small.read(0, &mut buf).unwrap(), 2);
    seen.release();
    theirs.release();
    b.shutdown().unwrap();
    until(|| a.is_sole());
    until(|| told.begins.load(SeqCst) == 1);
    assert_eq!(small.attr().unwrap().size, 2);
    assert_eq!(big.attr().unwrap().size, 270_000);
}

fn lock(kind: u8, owner: u64, class: u8) -> LockDesc {
    LockDesc { class, kind, start: 0, end: u64::MAX, owner, pid: 1 }
}

#[test]
fn locks_exclude_wait_and_can_be_cancelled() {
    let world = World::new(1);
    let c = world.client();
    let f = make(&c, "l").fid();
    for class in [L_POSIX, L_FLOCK] {
        c.setlk(&root(), f, lock(F_WRLCK, 1, class), false, None).unwrap();
        let again = c.setlk(&root(), f, lock(F_WRLCK, 2, class), false, None);
        assert_eq!(again.unwrap_err(), Errno::EAGAIN);
        let token = CancelToken::new();
        std::thread::scope(|s| {
            let waiting =
                s.spawn(|| c.setlk(&root(), f, lock(F_WRLCK, 2, class), true, Some(&token)));
            std::thread::sleep(Duration::from_millis(20));
            token.cancel();
            assert_eq!(waiting.join().unwrap(), Err(Errno::EINTR));
        });
        std::thread::scope(|s| {
            let waiting = s.spawn(|| c.setlk(&root(), f, lock(F_WRLCK, 3, class), true, None));
            std::thread::sleep(Duration::from_millis(20));
            c.setlk(&root(), f, lock(F_UNLCK, 1, class), false, None).unwrap();
            assert_eq!(waiting.join().unwrap(), Ok(()));
        });
        // One that was taken when it was asked for is waited for at once: with one message, as the two that let it go.
        let (before, token) = (c.stats().mds_messages, CancelToken::new());
        let wanted = lock(F_WRLCK, 4, class);
        std::thread::scope(|s| {
            let waiting = s.spawn(|| c.wait_for_lock(&root(), f, &wanted, &token));
            until(|| c.stats().mds_messages > before);
            c.setlk(&root(), f, lock(F_UNLCK, 3, class), false, None).unwrap();
            assert_eq!(waiting.join().unwrap(), Ok(()));
            c.setlk(&root(), f, lock(F_UNLCK, 4, class), false, None).unwrap();
        });
        assert_eq!(c.stats().mds_messages - before, 3);
        c.setlk(&root(), f, lock(F_WRLCK, 3, class), false, None).unwrap();
    }
    let conflict = c.getlk(&root(), f, lock(F_WRLCK, 9, L_POSIX)).unwrap().unwrap();
    assert_eq!(conflict.kind, F_WRLCK);
}

/// A lock outlives the time a request may take.
#[test]
fn a_wait_for_a_lock_is_not_a_request_that_took_too_long() {
    let world = World::new(1);
    let short = Options { request_timeout: Duration::from_millis(300), ..Options::default() };
    let c = world.client_with(short);
    let f = make(&c, "l").fid();
    c.setlk(&root(), f, lock(F_WRLCK, 1, L_POSIX), false, None).unwrap();
    std::thread::scope(|s| {
        let waiting = s.spawn(|| c.setlk(&root(), f, lock(F_WRLCK, 2, L_POSIX), true, None));
        std::thread::sleep(Duration::from_millis(1000));
        c.setlk(&root(), f, lock(F_UNLCK, 1, L_POSIX), false, None).unwrap();
        assert_eq!(waiting.join().unwrap(), Ok(()));
    });
}

/// The MDT restarts under an idle client with open files: they go on, locks are still held.
#[test]
fn open_files_and_locks_survive_a_restart_of_the_mdt() {
    let mut world = World::new(2);
    let c = world.client();
    let told = Arc::new(Told::default());
    c.set_listener(told.clone());
    let f = make(&c, "f");
    f.write(0, Data::Slice(&[5; 100_000])).unwrap();
    let gone = make(&c, "gone");
    gone.write(0, Data::Slice(b"unlinked")).unwrap();
    c.unlink(&root(), Fid::ROOT, b"gone").unwrap();
    c.setlk(&root(), f.fid(), lock(F_WRLCK, 1, L_POSIX), false, None).unwrap();
    c.sync_all().unwrap();
    world.restart_mdt();
    assert_eq!(c.lookup(&root(), Fid::ROOT, b"f").unwrap().size, 100_000);
    until(|| told.resets.load(SeqCst) == 1);
    f.append(Data::Slice(&[6; 1000])).unwrap();
    let mut buf = [0; 20];
    assert_eq!(gone.read(0, &mut buf).unwrap(), 8);
    let held = c.getlk(&root(), f.fid(), lock(F_WRLCK, 2, L_POSIX)).unwrap();
    assert!(held.is_some());
    f.fsync(false).unwrap();
    f.release();
    gone.release();
    c.sync_all().unwrap();
    assert_eq!(c.lookup(&root(), Fid::ROOT, b"f").unwrap().size, 101_000);
    assert_eq!(c.lookup(&root(), Fid::ROOT, b"gone").unwrap_err(), Errno::ENOENT);
}

/// Invariant 6: an OST without room fails the writes, and each open file is told: by close(2) of any of its
/// descriptors, until fsync(2) has told it, once.
#[test]
fn a_write_error_is_told_until_fsync_has_told_it() {
    let mut world = World::new(1);
    let c = world.client();
    let f = make(&c, "f");
    f.write(0, Data::Slice(&[5; 100_000])).unwrap();
    f.fsync(false).unwrap();
    let g = c.open(&root(), f.fid(), RW).unwrap();
    world.reserve = u64::MAX / 2;
    world.restart_ost(0);
    f.write(1 << 20, Data::Slice(&[6; 100_000])).unwrap();
    assert_eq!(f.flush().unwrap_err(), Errno::ENOSPC);
    assert_eq!(f.flush().unwrap_err(), Errno::ENOSPC);
    assert_eq!(f.fsync(false).unwrap_err(), Errno::ENOSPC);
    f.fsync(false).unwrap();
    f.flush().unwrap();
    assert_eq!(g.flush().unwrap_err(), Errno::ENOSPC);
    assert_eq!(g.fsync(true).unwrap_err(), Errno::ENOSPC);
    g.fsync(true).unwrap();
    g.flush().unwrap();
    world.reserve = 0;
    world.restart_ost(0);
    let mut buf = vec![0; 100_000];
    until(|| f.read(0, &mut buf).is_ok());
    assert!(buf.iter().all(|b| *b == 5));
    f.write(0, Data::Slice(&[7; 100_000])).unwrap();
    f.fsync(false).unwrap();
    g.fsync(false).unwrap();
}

/// Invariants 1 and 6: an OST that stays away fails whoever syncs or closes, for as long as it does; what was written is
/// kept, and stored when it is back.
#[test]
fn what_an_ost_does_not_answer_in_time_is_told_and_kept() {
    let mut world = World::new(1);
    let short = Options { request_timeout: Duration::from_millis(400), ..Options::default() };
    let c = world.client_with(short);
    let f = make(&c, "f");
    f.write(0, Data::Slice(&[5; 100_000])).unwrap();
    f.fsync(false).unwrap();
    let g = c.open(&root(), f.fid(), RW).unwrap();
    world.stop_ost(0);
    f.write(0, Data::Slice(&[6; 100_000])).unwrap();
    for _ in 0..2 {
        assert_eq!(f.flush().unwrap_err(), Errno::EIO);
        assert_eq!(f.fsync(false).unwrap_err(), Errno::EIO);
        assert_eq!(g.flush().unwrap_err(), Errno::EIO);
        assert_eq!(g.fsync(true).unwrap_err(), Errno::EIO);
    }
    world.start_ost(0);
    until(|| f.fsync(false).is_ok());
    until(|| g.fsync(false).is_ok());
    let (other, mut buf) = (world.client(), vec![0; 100_000]);
    let reads = other.open(&root(), f.fid(), READ).unwrap();
    assert_eq!(reads.read(0, &mut buf).unwrap(), 100_000);
    assert!(buf.iter().all(|b| *b == 6), "what was answered is lost");
}

/// Unmounting while servers are dead ends, and says what was lost.
#[test]
fn the_end_does_not_wait_for_ever_for_servers_that_are_gone() {
    let mut world = World::new(1);
    let short = Options { request_timeout: Duration::from_millis(300), ..Options::default() };
    let c = world.client_with(short);
    let files: Vec<_> = (0..200).map(|i| make(&c, &format!("f{i}"))).collect();
    for f in &files {
        f.write(0, Data::Slice(&[1; 100])).unwrap();
    }
    world.stop_mdt();
    files.iter().for_each(|f| f.release());
    assert!(c.shutdown().is_err());
    assert!(c.shutdown().is_ok());
}

/// 16 threads on files of their own and on one shared file.
#[test]
fn many_threads_do_not_disturb_each_other() {
    let world = World::new(4);
    let c = world.client_with(Options { max_dirty_mb: 4, ..Options::default() });
    let shared = make(&c, "shared");
    std::thread::scope(|s| {
        for t in 0..16u64 {
            let (c, shared) = (c.clone(), shared.clone());
            s.spawn(move || {
                for i in 0..20u64 {
                    let f = make(&c, &format!("t{t}-{i}"));
                    let len = if i % 4 == 0 { 150_000 } else { 3000 } + t as usize;
                    f.write(0, Data::Slice(&vec![t as u8 + 1; len])).unwrap();
                    let at = (i * 16 + t) * 47_008;
                    shared.write(at, Data::Slice(&vec![t as u8 + 1; 47_008])).unwrap();
                    f.flush().unwrap();
                    f.release();
                    let back = c.open(&root(), f.fid(), RW).unwrap();
                    let mut buf = vec![0; len + 1];
                    assert_eq!(back.read(0, &mut buf).unwrap(), len);
                    assert!(buf[..len].iter().all(|b| *b == t as u8 + 1));
                }
            });
        }
    });
    shared.fsync(false).unwrap();
    let mut buf = vec![0; 320 * 47_008];
    assert_eq!(shared.read(0, &mut buf).unwrap(), buf.len());
    for (i, block) in buf.chunks(47_008).enumerate() {
        assert!(block.iter().all(|b| *b == (i % 16) as u8 + 1), "block {i}");
    }
    assert_eq!(c.stats().dirty_bytes, 0);
}
