//! Operations done by the client first are those the MDT does: random ones, sent at random times,
//! leave on the MDT exactly what the client said they would: every attribute, version and cookie.

mod common;
#[path = "common/steps.rs"]
mod steps;

use common::{World, root};
use pinstripe_client::{Client, Data, OpenFlags};
use proptest::prelude::*;
use proto::acl;
use proto::mds::C_EXCL;
use proto::{Errno, Fid, FileKind};
use steps::{PLAIN, RW, Run, Step, access, step, tree};

fn cases() -> u32 {
    std::env::var("WRITEBACK_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(40)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), max_shrink_iters: 400, ..ProptestConfig::default() })]
    #[test]
    fn what_was_foreseen_is_what_is(steps in prop::collection::vec(step(), 1..120)) {
        let world = World::new(1);
        let mut run = Run { client: world.client(), open: Vec::new(), dirs: vec![Fid::ROOT] };
        for s in &steps {
            let done = run.step(s);
            if let Err(e) = done {
                prop_assert!(PLAIN.contains(&e), "{s:?}: {e}");
            }
            if matches!(s, Step::Settle) {
                run.open.drain(..).for_each(|f| f.release());
                run.client.sync_all().unwrap();
                let before = tree(&run.client);
                prop_assert_eq!(run.client.stats().surprises, 0);
                run.client.shutdown().unwrap();
                run.client = world.client();
                prop_assert_eq!(&before, &tree(&run.client));
            }
        }
        run.open.drain(..).for_each(|f| f.release());
        run.client.sync_all().unwrap();
        let before = tree(&run.client);
        prop_assert_eq!(run.client.stats().surprises, 0);
        run.client.shutdown().unwrap();
        run.client = world.client();
        prop_assert_eq!(&before, &tree(&run.client));
    }
}

#[test]
fn small_work_is_few_messages() {
    let world = World::new(1);
    let c = world.client();
    let made = |dir, n: &str, kind: FileKind, open| {
        c.create(&root(), dir, n.as_bytes(), kind.mode_bits() | 0o755, 0, 0, b"", 0, open).unwrap()
    };
    // The first one learns how much room there is.
    made(Fid::ROOT, "first", FileKind::File, None);
    let d = made(Fid::ROOT, "d", FileKind::Dir, None).attr.fid;
    c.sync_all().unwrap();
    let before = c.stats().mds_messages;
    for i in 0..20 {
        let f = made(d, &format!("f{i}"), FileKind::File, Some(RW)).file.unwrap();
        f.write(0, Data::Slice(&[7; 8192])).unwrap();
        f.flush().unwrap();
        // As `cp -a` does with each.
        let attr = c.setxattr(&root(), f.fid(), acl::ACCESS, &access(0o640, false), 0).unwrap();
        assert_eq!(attr.mode & 0o7777, 0o640);
        c.removexattr(&root(), f.fid(), acl::ACCESS).unwrap();
        f.release();
    }
    c.sync_all().unwrap();
    let counted = c.stats().mds_messages - before;
    assert!(counted <= 3, "20 files, and a sync: {counted} messages: {:?}", c.stats());
    for i in 0..20 {
        c.unlink(&root(), d, format!("f{i}").as_bytes()).unwrap();
    }
    c.rmdir(&root(), Fid::ROOT, b"d").unwrap();
    c.sync_all().unwrap();
    let counted = c.stats().mds_messages - before;
    assert!(counted <= 5, "and all of it removed: {counted} messages");
    assert_eq!(c.lookup(&root(), Fid::ROOT, b"d").unwrap_err(), Errno::ENOENT);
    assert_eq!(c.stats().surprises, 0);
}

/// Makes `n` small files in a new directory, after one that shows how much room there is.
fn small_files(c: &Client, n: usize) -> Fid {
    let make = |dir, name: &str, kind: FileKind, open| {
        let mode = kind.mode_bits() | 0o755;
        c.create(&root(), dir, name.as_bytes(), mode, 0, 0, b"", 0, open).unwrap()
    };
    make(Fid::ROOT, "first", FileKind::File, None);
    let dir = make(Fid::ROOT, "d", FileKind::Dir, None).attr.fid;
    for i in 0..n {
        let f = make(dir, &format!("f{i}"), FileKind::File, Some(RW)).file.unwrap();
        f.write(0, Data::Slice(&[7; 100])).unwrap();
        f.flush().unwrap();
        f.release();
    }
    dir
}

fn content(c: &Client, dir: Fid, name: &[u8]) -> Vec<u8> {
    let attr = c.lookup(&root(), dir, name).unwrap();
    let f = c.open(&root(), attr.fid, OpenFlags { read: true, ..OpenFlags::default() }).unwrap();
    let mut buf = vec![0; 200];
    let n = f.read(0, &mut buf).unwrap();
    buf.truncate(n);
    buf
}

#[test]
fn what_waits_is_sent_to_a_restarted_mdt() {
    let mut world = World::new(1);
    let c = world.client();
    small_files(&c, 3);
    c.sync_all().unwrap();
    world.stop_mdt();
    // Known here: answered without the server.
    let d = c.lookup(&root(), Fid::ROOT, b"d").unwrap().fid;
    for i in 0..20 {
        let mode = FileKind::File.mode_bits() | 0o600;
        let name = format!("g{i}");
        c.create(&root(), d, name.as_bytes(), mode, 0, 0, b"", C_EXCL, None).unwrap();
    }
    world.start_mdt();
    c.sync_all().unwrap();
    c.shutdown().unwrap();
    let c = world.client();
    for i in 0..20 {
        c.lookup(&root(), d, format!("g{i}").as_bytes()).unwrap();
    }
    assert_eq!(content(&c, d, b"f1"), [7; 100]);
}

#[test]
fn another_client_sees_all_and_open_files_live_on() {
    let world = World::new(1);
    let a = world.client();
    let dir = small_files(&a, 30);
    let fid = a.lookup(&root(), dir, b"f5").unwrap().fid;
    let open = a.open(&root(), fid, RW).unwrap();
    let b = world.client();
    for i in 0..30 {
        assert_eq!(content(&b, dir, format!("f{i}").as_bytes()), [7; 100]);
    }
    b.unlink(&root(), dir, b"f5").unwrap();
    assert_eq!(a.lookup(&root(), dir, b"f5").unwrap_err(), Errno::ENOENT);
    let mut buf = [0; 200];
    assert_eq!(open.read(0, &mut buf).unwrap(), 100);
    open.write(100, Data::Slice(&[8; 50])).unwrap();
    assert_eq!(open.read(0, &mut buf).unwrap(), 150);
    assert_eq!(a.stats().waiting_ops, 0);
}

#[test]
fn what_fails_after_it_was_answered_is_told_once() {
    let mut world = World::new(1);
    let c = world.client();
    let dir = small_files(&c, 1);
    c.sync_all().unwrap();
    world.stop_mdt();
    let mode = FileKind::File.mode_bits() | 0o600;
    let f = c.create(&root(), dir, b"late", mode, 0, 0, b"", 0, Some(RW)).unwrap().file.unwrap();
    // The file system is another one meanwhile: its directory is not there.
    world.disk = store::memory::MemoryDisk::default();
    world.start_mdt();
    assert!(f.fsync(false).is_err());
    assert!(c.sync_all().is_err());
    c.sync_all().unwrap();
    assert_eq!(c.stats().waiting_ops, 0);
}
