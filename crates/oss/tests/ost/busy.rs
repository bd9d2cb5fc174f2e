//! Many at once, too little room, and the way over `net` (invariants 5, 7, 8, 12).

use crate::common::*;
use net::{ConnectOptions, Endpoint, Server, ServerOptions, Session};
use pinstripe_oss::check::OstDir;
use pinstripe_oss::{Ost, OstOptions, OstService};
use proto::oss::*;
use proto::wire::{List, Wire};
use proto::{Errno, ops::oss as op};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const RECORD: usize = 47_008;

/// Strided writers of one object, a reader and commits beside them: bytes and checksums agree all
/// the time, and every block ends up with its checksum although no record ends at a block.
#[test]
fn strided_writers_of_one_object() {
    let dir = tempfile::tempdir().unwrap();
    let ost = fresh(dir.path());
    let (records, writers) = (64, 4);
    let done = AtomicBool::new(false);
    std::thread::scope(|s| {
        let work: Vec<_> = (0..writers)
            .map(|t| {
                let ost = &ost;
                s.spawn(move || {
                    for i in (t..records).step_by(writers) {
                        let data = pattern(i as u64, RECORD);
                        write(ost, 1, (i * RECORD) as u64, &data, 0).unwrap();
                    }
                })
            })
            .collect();
        s.spawn(|| {
            while !done.load(Ordering::Acquire) {
                read(&ost, 1, 0, 1 << 20, 0).unwrap();
                commit(&ost, &[1]).unwrap();
            }
        });
        work.into_iter().for_each(|w| w.join().unwrap());
        done.store(true, Ordering::Release);
    });
    for i in 0..records {
        let got = read(&ost, 1, (i * RECORD) as u64, RECORD as u32, 0).unwrap();
        assert!(got == pattern(i as u64, RECORD), "record {i}");
    }
    ost.close().unwrap();
    let found = OstDir::open(dir.path()).unwrap().verify(&id(1)).unwrap();
    let blocks = (records * RECORD).div_ceil(4096) as u64;
    assert_eq!((found.good, found.unknown, found.bad), (blocks, 0, vec![]));
}

/// Writers of the same blocks: whoever comes last, its bytes and its checksum go together.
#[test]
fn writers_of_the_same_blocks() {
    let dir = tempfile::tempdir().unwrap();
    let ost = fresh(dir.path());
    std::thread::scope(|s| {
        for t in 0..4u64 {
            let ost = &ost;
            s.spawn(move || {
                for i in 0..100u64 {
                    let flags = [0, W_DIRECT, W_NO_SUMS, 0][(i % 4) as usize];
                    write(ost, 1, i % 3 * 4096, &pattern(t, 8192), flags).unwrap();
                    write(ost, 1, i * 37 % 9000, &pattern(t, 3000), 0).unwrap();
                    read(ost, 1, 0, 20_000, if i % 2 == 0 { W_DIRECT } else { 0 }).unwrap();
                }
            });
        }
    });
    assert_eq!(ost.stats().blocks_bad, 0);
    ost.close().unwrap();
    assert_eq!(OstDir::open(dir.path()).unwrap().verify(&id(1)).unwrap().bad, vec![]);
}

/// More objects than may stay open: all are written, closed and read again.
#[test]
fn more_objects_than_stay_open() {
    let dir = tempfile::tempdir().unwrap();
    Ost::format(dir.path(), &label()).unwrap();
    let ost = Ost::open(dir.path(), OstOptions { max_open_objects: 32, ..options() }).unwrap();
    for n in 0..400 {
        write(&ost, n, 0, &pattern(n.into(), 5000), 0).unwrap();
        if n % 50 == 49 {
            commit(&ost, &[]).unwrap();
        }
    }
    for n in 0..400 {
        assert_eq!(read(&ost, n, 0, 9000, 0).unwrap(), pattern(n.into(), 5000));
    }
    assert!(ost.stats().open_objects <= 100, "{:?}", ost.stats());
    assert_eq!(ost.statfs().unwrap().objects, 400);
    let all = List((0..500).map(id).collect());
    ost.destroy(&Destroy { objects: all }).unwrap();
    assert_eq!(ost.statfs().unwrap().objects, 0);
    ost.close().unwrap();
    OstDir::open(dir.path()).unwrap().walk(|e| panic!("{e:?}")).unwrap();
}

#[test]
fn damaged_writes_change_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let ost = fresh(dir.path());
    let data = bytes::Bytes::from(pattern(1, 9000));
    let good = sums(10, &data);
    let mut wrong = good.clone();
    wrong[1] ^= 1;
    for list in [wrong, good[..2].to_vec(), Vec::new()] {
        let req = WriteReq { object: id(1), offset: 10, flags: 0, sums: List(list) };
        assert_eq!(ost.write(&req, &data), Err(Errno::EBADMSG));
    }
    assert!(!glimpse(&ost, 1).exists);
    assert_eq!(ost.stats().writes_damaged, 3);
}

#[test]
fn a_list_of_which_one_piece_is_damaged_or_out_of_order_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let ost = fresh(dir.path());
    let pieces = [(10, pattern(1, 9000)), (9010, pattern(2, 1)), (40_000, pattern(3, 5000))];
    let (good, data) = list(1, &pieces, 0);
    let sums = good.sums.0.len();
    for n in 0..sums {
        let mut wrong = good.clone();
        wrong.sums.0[n] ^= 1;
        assert_eq!(ost.write_list(&wrong, &data), Err(Errno::EBADMSG), "sum {n}");
        wrong.sums.0.remove(n);
        assert_eq!(ost.write_list(&wrong, &data), Err(Errno::EBADMSG), "without sum {n}");
        assert_eq!(ost.write_list_local(&wrong, &data), Err(Errno::EBADMSG), "without sum {n}");
    }
    let mut more = good.clone();
    more.sums.0.push(0);
    assert_eq!(ost.write_list(&more, &data), Err(Errno::EBADMSG));
    assert_eq!(ost.stats().writes_damaged, 3 * sums as u64 + 1);
    let places = |list: &[(u64, u32)]| {
        let pieces = list.iter().map(|(offset, len)| Piece { offset: *offset, len: *len });
        WriteList { pieces: List(pieces.collect()), flags: W_NO_SUMS, ..good.clone() }
    };
    let len = data.len() as u32;
    for bad in [
        &[][..],
        &[(0, len - 1)],
        &[(0, len + 1)],
        &[(0, len), (50_000, 0)],
        &[(9000, len - 1), (8999, 1)],
        &[(9000, len - 1), (9000 + u64::from(len) - 2, 1)],
        &[(0, u32::MAX), (u64::from(u32::MAX), u32::MAX)],
        &vec![(0, 1); MAX_PIECES + 1],
    ] {
        assert_eq!(ost.write_list(&places(bad), &data), Err(Errno::EINVAL), "{bad:?}");
    }
    let many: Vec<(u64, u32)> = (0..=MAX_PIECES as u64).map(|n| (n * 2, 1)).collect();
    let one_each = data.slice(..many.len());
    assert_eq!(ost.write_list(&places(&many), &one_each), Err(Errno::EINVAL), "too many");
    let far = places(&[(0, len - 1), (u64::MAX - 1, 1)]);
    assert_eq!(ost.write_list(&far, &data), Err(Errno::EFBIG));
    assert!(!glimpse(&ost, 1).exists);
    ost.write_list(&good, &data).unwrap();
    assert_eq!(read(&ost, 1, 10, 9001, 0).unwrap(), data[..9001]);
    assert_eq!(read(&ost, 1, 40_000, 9001, 0).unwrap(), data[9001..]);
    assert_eq!(glimpse(&ost, 1).size, 45_000);
}

#[test]
fn sums_of_local_writes_are_stored_and_compared_when_read() {
    let dir = tempfile::tempdir().unwrap();
    let ost = fresh(dir.path());
    let data = bytes::Bytes::from(pattern(1, 9000));
    let good = sums(10, &data);
    let write = |n, list: Vec<u32>| {
        let req = WriteReq { object: id(n), offset: 10, flags: 0, sums: List(list) };
        ost.write_local(&req, &data)
    };
    assert_eq!(write(1, good[..2].to_vec()), Err(Errno::EBADMSG), "a piece without a sum");
    assert!(!glimpse(&ost, 1).exists);
    write(1, good.clone()).unwrap();
    assert_eq!(read(&ost, 1, 10, 9000, 0).unwrap(), data);
    // As if memory had changed between the client's sum and the disk.
    let mut wrong = good;
    wrong[1] ^= 1;
    write(2, wrong).unwrap();
    assert_eq!(read(&ost, 2, 10, 9000, 0), Err(Errno::EIO));
}

/// A file system of its own, unmounted at the end.
struct Mount<'a>(&'a Path);
impl Drop for Mount<'_> {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(self.0, rustix::mount::UnmountFlags::DETACH);
    }
}

/// A small tmpfs; `None` without the right to mount.
fn small_fs(dir: &Path, mib: u64) -> Option<Mount<'_>> {
    use rustix::mount::{MountFlags, mount};
    let options = std::ffi::CString::new(format!("size={mib}m")).unwrap();
    let none = MountFlags::empty();
    mount("none", dir, "tmpfs", none, options.as_c_str()).ok().map(|()| Mount(dir))
}

#[test]
fn a_full_target_still_destroys() {
    let dir = tempfile::tempdir().unwrap();
    let Some(_mount) = small_fs(dir.path(), 24) else {
        eprintln!("no right to mount, nothing tested");
        return;
    };
    let target = dir.path().join("ost");
    Ost::format(&target, &label()).unwrap();
    let ost = Ost::open(&target, OstOptions::default()).unwrap();
    let before = ost.statfs().unwrap();
    assert!(before.free <= before.total * 3 / 4, "a quarter is kept");
    let data = pattern(1, 1 << 20);
    let mut at = 0;
    let full = loop {
        match write(&ost, 1, at, &data, 0) {
            Ok(_) => at += data.len() as u64,
            Err(e) => break e,
        }
    };
    assert_eq!(full, Errno::ENOSPC);
    assert!(ost.statfs().unwrap().free < data.len() as u64);
    let big = Allocate { object: id(2), offset: 0, end: 8 << 20, keep_size: false };
    assert_eq!(ost.allocate(&big), Err(Errno::ENOSPC));
    let more = CopyReq { from: id(1), to: id(3), from_offset: 0, to_offset: 0, len: at };
    assert_eq!(ost.copy(&more), Err(Errno::ENOSPC));
    // What was taken is there; commits, holes and destroys work.
    commit(&ost, &[]).unwrap();
    assert_eq!(read(&ost, 1, at - data.len() as u64, 1 << 20, 0).unwrap(), data);
    // What is there is written over, in one message with nothing that is not.
    let last = at - (1 << 20);
    let over = |n: u64| (last + n * 8192, pattern(n, 4096));
    let (fits, bytes) = list(1, &[over(0), over(1)], 0);
    ost.write_list(&fits, &bytes).unwrap();
    let (mixed, bytes) = list(1, &[over(2), (at + (8 << 20), data.clone())], 0);
    assert_eq!(ost.write_list(&mixed, &bytes), Err(Errno::ENOSPC));
    punch(&ost, 1, 0, 4 << 20, P_HOLE).unwrap();
    write(&ost, 2, 0, &data, 0).unwrap();
    ost.destroy(&Destroy { objects: List(vec![id(1), id(2)]) }).unwrap();
    write(&ost, 4, 0, &data, 0).unwrap();
    ost.close().unwrap();
}

/// Without a reserve the local file system itself is full half-way into a write.
#[test]
fn a_write_that_fails_half_way_leaves_no_wrong_checksum() {
    let dir = tempfile::tempdir().unwrap();
    let Some(_mount) = small_fs(dir.path(), 16) else {
        eprintln!("no right to mount, nothing tested");
        return;
    };
    let target = dir.path().join("ost");
    let ost = fresh(&target);
    let data = pattern(1, 3 << 20);
    let mut at = 0;
    while write(&ost, 1, at, &data, 0).is_ok() {
        at += data.len() as u64;
    }
    let size = glimpse(&ost, 1).size;
    let mut back = 0;
    while back < size {
        back += read(&ost, 1, back, 1 << 20, 0).unwrap().len() as u64;
    }
    ost.close().unwrap();
    assert_eq!(OstDir::open(&target).unwrap().verify(&id(1)).unwrap().bad, vec![]);
}

fn session(server: &Server) -> Arc<Session> {
    let options = ConnectOptions { target: "OST0003".into(), fs: [7; 16], ..Default::default() };
    Session::connect(&Endpoint::Local(server.local()), options).unwrap()
}

#[test]
fn every_verb_over_net() {
    let dir = tempfile::tempdir().unwrap();
    let ost = fresh(dir.path());
    let server = Server::new(ServerOptions::default());
    server.add(Arc::new(OstService::new(ost.clone()).unwrap()));
    let s = session(&server);
    let call = |opcode: u16, body: Vec<u8>, bulk: Vec<bytes::Bytes>| {
        let reply = s.call(opcode, body, bulk).unwrap();
        reply.status().map(|()| reply)
    };
    let data = bytes::Bytes::from(pattern(1, 100_000));
    let w = WriteReq { object: id(1), offset: 5, flags: 0, sums: List(sums(5, &data)) };
    let reply = call(op::WRITE, w.to_bytes(), vec![data.clone()]).unwrap();
    assert_eq!(Written::from_bytes(&reply.body).unwrap().size, 100_005);
    let (l, bytes) = list(1, &[(5, pattern(2, 10)), (90_000, pattern(3, 5000))], 0);
    let reply = call(op::WRITE_LIST, l.to_bytes(), vec![bytes]).unwrap();
    assert_eq!(Written::from_bytes(&reply.body).unwrap().size, 100_005);
    let mut data = data.to_vec();
    data[..10].copy_from_slice(&pattern(2, 10));
    data[89_995..94_995].copy_from_slice(&pattern(3, 5000));
    let commit = CommitReq { objects: List(vec![id(1)]) };
    let reply = call(op::COMMIT, commit.to_bytes(), vec![]).unwrap();
    assert_eq!(Committed::from_bytes(&reply.body).unwrap().verifier, ost.verifier());
    let r = Read { object: id(1), offset: 5, len: 1 << 20, flags: 0 };
    let reply = call(op::READ, r.to_bytes(), vec![]).unwrap();
    assert_eq!(reply.bulk, data);
    let got = ReadReply::from_bytes(&reply.body).unwrap();
    assert_eq!(check_sums(5, &reply.bulk, &got.sums.0), Ok(()));
    let p = Punch { object: id(1), offset: 50_000, end: 0, how: P_TRUNCATE };
    call(op::PUNCH, p.to_bytes(), vec![]).unwrap();
    let c = CopyReq { from: id(1), to: id(2), from_offset: 0, to_offset: 0, len: 50_000 };
    call(op::COPY, c.to_bytes(), vec![]).unwrap();
    let a = Allocate { object: id(2), offset: 0, end: 60_000, keep_size: false };
    call(op::ALLOCATE, a.to_bytes(), vec![]).unwrap();
    let g = Glimpse { objects: List(vec![id(1), id(2), id(3)]) };
    let reply = call(op::GLIMPSE, g.to_bytes(), vec![]).unwrap();
    let sizes: Vec<_> = Glimpsed::from_bytes(&reply.body).unwrap().objects.0;
    assert_eq!(sizes.iter().map(|o| o.size).collect::<Vec<_>>(), [50_000, 60_000, 0]);
    let k = Seek { object: id(3), offset: 0, hole: true };
    assert_eq!(call(op::SEEK, k.to_bytes(), vec![]).unwrap_err(), Errno::ENXIO);
    let reply = call(op::STATFS, vec![], vec![]).unwrap();
    assert_eq!(Statfs::from_bytes(&reply.body).unwrap().objects, 2);
    let d = Destroy { objects: List(vec![id(1), id(2)]) };
    call(op::DESTROY, d.to_bytes(), vec![]).unwrap();
    // Garbage and unknown requests are answered, not obeyed.
    assert_eq!(call(op::WRITE, vec![1, 2, 3], vec![]).unwrap_err(), Errno::EPROTO);
    assert_eq!(call(0x03ff, vec![], vec![]).unwrap_err(), Errno::EOPNOTSUPP);
    assert_eq!(ost.stats().requests, [1, 2, 1, 1, 1, 1, 1, 1, 1, 1]);
    s.close();
    server.shutdown();
    ost.close().unwrap();
}

#[test]
fn small_writes_that_nothing_else_is_waited_for_with_are_done_where_they_arrive() {
    let dir = tempfile::tempdir().unwrap();
    let ost = fresh(&dir.path().join("ost"));
    let server = Server::new(ServerOptions::default());
    server.add(Arc::new(OstService::new(ost.clone()).unwrap()));
    let place = dir.path().join("sockets");
    std::fs::DirBuilder::new().mode(0o700).create(&place).unwrap();
    let endpoint = server.listen(&Endpoint::Unix(place.join("ost"))).unwrap();
    let options = ConnectOptions { target: "OST0003".into(), fs: [7; 16], ..Default::default() };
    let s = Session::connect(&endpoint, options).unwrap();
    let body = |at: u64, data: &[u8], flags: u8| {
        WriteReq { object: id(1), offset: at, flags, sums: List(sums(at, data)) }.to_bytes()
    };
    let write = |at: u64, data: &[u8], flags: u8| {
        let bulk = vec![bytes::Bytes::copy_from_slice(data)];
        s.call(op::WRITE, body(at, data, flags), bulk).unwrap().status()
    };
    let (small, large) = (pattern(1, 47_008), pattern(2, 200 << 10));
    for n in 0..10 {
        write(n * 47_008, &small, 0).unwrap();
    }
    // Not all of them where one took long, as it does on a machine that is busy.
    let there = ost.stats().writes_at_once;
    assert!((1..=10).contains(&there), "{there}");
    write(0, &small, W_SYNC).unwrap();
    write(0, &small, W_DIRECT).unwrap();
    write(500_000, &large, 0).unwrap();
    assert_eq!(ost.stats().writes_at_once, there, "these may wait for the disk");
    let wrong = body(0, &small, 0);
    let reply = s.call(op::WRITE, wrong, vec![bytes::Bytes::from(pattern(3, 47_008))]).unwrap();
    assert_eq!(reply.status(), Err(Errno::EBADMSG));
    // Sent without waiting: some are done here, some by others.
    let (say, said) = std::sync::mpsc::channel();
    for n in 0..64 {
        let at = (1 << 20) + n * 47_008;
        let (say, bulk) = (say.clone(), vec![bytes::Bytes::from(small.clone())]);
        let done = move |r: Result<net::Reply, _>| say.send(r.unwrap().status()).unwrap();
        s.submit(op::WRITE, body(at, &small, 0), bulk, Box::new(done));
    }
    for _ in 0..64 {
        said.recv_timeout(std::time::Duration::from_secs(20)).unwrap().unwrap();
    }
    for n in 0..64 {
        assert_eq!(read(&ost, 1, (1 << 20) + n * 47_008, 47_008, 0).unwrap(), small);
    }
    s.close();
    server.shutdown();
    ost.close().unwrap();
}
