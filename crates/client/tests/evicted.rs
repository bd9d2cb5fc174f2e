//! A client that is evicted: shut out of the OSTs before another gets what it had (invariant 5), told
//! what it lost once per file (invariant 6), and back without a remount.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use common::{World, root, until};
use net::{ConnectOptions, NetError, Session};
use pinstripe_client::{Client, Data, Listener, OpenFile, OpenFlags};
use proto::mds::Lease;
use proto::oss::{W_NO_SUMS, WriteReq};
use proto::wire::List;
use proto::{Errno, Fid, FileKind, Wire, mgs, ops};

const RW: OpenFlags =
    OpenFlags { read: true, write: true, trunc: false, direct: false, sync: false, noatime: true };

fn make(c: &Client, name: &str) -> Arc<OpenFile> {
    let mode = FileKind::File.mode_bits() | 0o644;
    let made = c.create(&root(), Fid::ROOT, name.as_bytes(), mode, 0, 0, b"", 0, Some(RW));
    made.unwrap().file.unwrap()
}

#[derive(Default)]
struct Told(AtomicU64);

impl Listener for Told {
    fn sole(&self, _: bool) {}
    fn forget(&self, _: Fid) {}
    fn recalled(&self, _: &[Lease]) {}
    fn reset(&self) {
        self.0.fetch_add(1, SeqCst);
    }
}

/// Ends the MDT's session of the only client; who that was.
fn evict(world: &World) -> [u8; 16] {
    let server = &world.mdt.as_ref().unwrap().1;
    let session = server.sessions().pop().unwrap();
    session.evict();
    session.client()
}

#[test]
fn it_learns_so_reports_what_it_lost_once_and_carries_on() {
    let world = World::new(2);
    let a = world.client();
    let told = Arc::new(Told::default());
    a.set_listener(told.clone());
    let (big, other, small) = (make(&a, "big"), make(&a, "other"), make(&a, "small"));
    let empty = make(&a, "empty");
    big.write(0, Data::Slice(&[1; 200_000])).unwrap();
    big.fsync(false).unwrap();
    small.write(0, Data::Slice(b"kept")).unwrap();
    small.fsync(false).unwrap();
    // None of this has left the client when it is evicted.
    big.write(0, Data::Slice(&[2; 100_000])).unwrap();
    other.write(0, Data::Slice(&[3; 200_000])).unwrap();
    small.write(0, Data::Slice(b"lost")).unwrap();
    let before = evict(&world);
    let b = world.client();
    let theirs = b.open(&root(), big.fid(), RW).unwrap();
    let mut buf = vec![0; 200_000];
    assert_eq!(theirs.read(0, &mut buf).unwrap(), 200_000);
    assert!(buf.iter().all(|x| *x == 1), "what was synced is there, and nothing else");
    theirs.write(0, Data::Slice(&[4; 200_000])).unwrap();
    theirs.fsync(false).unwrap();
    for ost in &world.osts {
        assert!(ost.as_ref().unwrap().ost.is_fenced(&before));
    }
    until(|| told.0.load(SeqCst) > 0);
    assert_eq!(big.fsync(false), Err(Errno::EIO));
    assert_eq!(big.fsync(false), Ok(()));
    assert_eq!(other.fsync(false), Err(Errno::EIO));
    assert_eq!(small.fsync(false), Err(Errno::EIO));
    assert_eq!((small.fsync(false), empty.fsync(false)), (Ok(()), Ok(())));
    assert_eq!(big.read(0, &mut buf).unwrap(), 200_000);
    assert!(buf.iter().all(|x| *x == 4), "it sees what the other wrote");
    let n = small.read(0, &mut buf).unwrap();
    assert_eq!(&buf[..n], b"kept");
    // And it can write again, under its new name.
    big.write(0, Data::Slice(&[5; 10])).unwrap();
    big.fsync(false).unwrap();
    assert_eq!(theirs.read(0, &mut buf).unwrap(), 200_000);
    assert!(buf[..10].iter().all(|x| *x == 5) && buf[10] == 4);
    make(&a, "after").release();
    assert!(b.lookup(&root(), Fid::ROOT, b"after").is_ok());
    // Twice is no different.
    let now = server_ids(&world);
    assert!(now.contains(&mgs::reborn(&before)), "{now:?}");
}

fn server_ids(world: &World) -> Vec<[u8; 16]> {
    world.mdt.as_ref().unwrap().1.sessions().iter().map(|s| s.client()).collect()
}

/// As one that was stopped, or heard nothing: its sessions with the OSTs are as they were.
#[test]
fn its_old_sessions_write_nothing_after_the_fence_also_when_an_ost_restarts() {
    let mut world = World::new(1);
    let old = |world: &World, client| {
        let options = ConnectOptions {
            target: "OST0000".into(),
            fs: common::FS,
            client,
            reconnect: false,
            ..ConnectOptions::default()
        };
        Session::connect(&world.ost_at(0), options)
    };
    let a = world.client();
    let file = make(&a, "f");
    file.write(0, Data::Slice(&[1; 200_000])).unwrap();
    file.fsync(false).unwrap();
    let id = server_ids(&world)[0];
    let stopped = old(&world, id).unwrap();
    let write = |s: &Session| {
        let object = proto::layout::ObjectId { fid: file.fid(), comp: 0, stripe: 0 };
        let w = WriteReq { object, offset: 0, flags: W_NO_SUMS, sums: List(vec![]) };
        s.call(ops::oss::WRITE, w.to_bytes(), vec![vec![9u8; 100].into()])
    };
    assert_eq!(evict(&world), id);
    let b = world.client();
    // Whoever gets an answer now is behind the fence.
    let theirs = b.open(&root(), file.fid(), RW).unwrap();
    assert!(write(&stopped).is_err());
    assert_eq!(old(&world, id).err(), Some(NetError::Evicted { client: id }));
    world.restart_ost(0);
    assert_eq!(old(&world, id).err(), Some(NetError::Evicted { client: id }));
    assert!(old(&world, mgs::reborn(&id)).is_ok());
    let mut buf = vec![0; 100];
    theirs.read(0, &mut buf).unwrap();
    assert!(buf.iter().all(|x| *x == 1));
}

#[test]
fn nobody_gets_what_it_had_before_every_ost_has_answered() {
    let mut world = World::new(2);
    let a = world.client();
    let file = make(&a, "f");
    file.write(0, Data::Slice(&[1; 200_000])).unwrap();
    file.fsync(false).unwrap();
    let fid = file.fid();
    world.stop_ost(1);
    evict(&world);
    let server = world.mdt.as_ref().unwrap().1.clone();
    let options =
        ConnectOptions { target: "MDT0000".into(), fs: common::FS, ..ConnectOptions::default() };
    let b = Session::connect(&world.mdt_at(), options).unwrap();
    let (tx, rx) = crossbeam_channel::bounded(1);
    let op = proto::mds::Op::GetAttr { fid };
    let body = proto::mds::Compound::new(root(), vec![op]).to_bytes();
    b.submit(
        ops::mds::COMPOUND,
        body,
        vec![],
        Box::new(move |r| {
            let _ = tx.send(r.is_ok());
        }),
    );
    // The other OST knows, which takes as long as the answer would.
    until(|| fenced(&world, 0));
    assert!(rx.try_recv().is_err(), "an OST was not told yet");
    world.start_ost(1);
    assert_eq!(rx.recv(), Ok(true));
    assert!(fenced(&world, 1));
    drop((a, server));
}

/// Whether an OST keeps a record of fences.
fn fenced(world: &World, i: usize) -> bool {
    world.dir.path().join(format!("ost{i}/fences")).exists()
}
