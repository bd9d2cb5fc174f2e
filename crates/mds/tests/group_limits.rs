//! However much comes together, no group is more than the store takes ([`store::MAX_COMMIT_OPS`] writes,
//! [`store::MAX_COMMIT_BYTES`] bytes): a commit that is refused for that ends the target.

mod common;

use std::sync::{Arc, mpsc};
use std::time::Duration;

use common::{Client, FILE, Obliging, Solo};
use net::{Endpoint, Server, ServerOptions};
use oss::{Ost, OstLabel, OstOptions, OstService};
use pinstripe_mds::record::{self, Garbage};
use pinstripe_mds::{MdtOptions, keys};
use proto::mds::*;
use proto::{Fid, Layout};
use store::memory::{self, MemoryDisk};
use store::{Commit, MAX_COMMIT_BYTES, MAX_COMMIT_OPS, Write};

/// Each takes two writes to remove; some groups are on their way before the store stands still.
const FILES: usize = MAX_COMMIT_OPS * 3 / 4;
/// Files made with one message.
const AT_ONCE: usize = MAX_OPS / 2;

/// Files that are open and have no name any more.
fn open_and_unlinked(c: &Client, files: usize) {
    for from in (0..files).step_by(AT_ONCE) {
        let names = (from..(from + AT_ONCE).min(files)).map(|i| format!("f{i}").into_bytes());
        let both = names.flat_map(|name| {
            let create = Op::Create {
                dir: Fid::ROOT,
                name: name.clone(),
                fid: c.fid(),
                mode: FILE,
                umask: 0,
                rdev: 0,
                target: vec![],
                flags: C_EXCL | C_OPEN,
                open: O_WRITE,
            };
            [create, Op::Unlink { dir: Fid::ROOT, name, rmdir: false }]
        });
        let results = c.run(both.collect());
        assert!(!results.iter().any(|r| matches!(r, Res::Failed { .. })), "{:?}", results.last());
    }
}

fn inodes(c: &Client) -> u64 {
    let Ok(Res::Statfs { files, files_free, .. }) = c.one(Op::Statfs {}) else { panic!() };
    files - files_free
}

/// It goes on, and its clients with it.
fn serves(c: &Client) {
    c.make(Fid::ROOT, "new", FILE).unwrap();
    c.sync();
    assert_eq!(c.status()["failed"], false);
}

#[test]
fn a_client_ends_with_more_unlinked_files_than_a_group_removes() {
    let disk = MemoryDisk::new();
    let s = Solo::new(&disk);
    // Of two, the other would become the only one, which waits for the store.
    let (c, other, third) = (s.listener(Arc::new(Obliging)), s.client(), s.client());
    open_and_unlinked(&c, FILES);
    c.sync();
    assert_eq!(inodes(&other), FILES as u64 + 1);
    // What it leaves comes to the target at once, while the store stands still.
    other.make(Fid::ROOT, "held", FILE).unwrap();
    disk.hold();
    c.session.close();
    common::until(|| other.status()["remove_waiting"].as_u64() > Some(0));
    disk.release();
    common::until(|| inodes(&other) == 2);
    serves(&other);
    assert_eq!(other.status()["remove_waiting"], 0);
    common::check(&disk, s, &[other, third]);
}

#[test]
fn a_target_opens_with_more_orphans_than_a_group_removes() {
    let disk = MemoryDisk::new();
    let s = Solo::new(&disk);
    let c = s.client();
    open_and_unlinked(&c, FILES);
    c.sync();
    let crashed = disk.durable_copy();
    drop((c, s));
    let s = Solo::new(&crashed);
    let c = s.client();
    common::until(|| inodes(&c) == 1);
    serves(&c);
    common::check(&crashed, s, &[c]);
}

#[test]
fn a_target_closes_before_it_has_removed_them_all_and_goes_on() {
    let disk = MemoryDisk::new();
    let s = Solo::new(&disk);
    let c = s.client();
    open_and_unlinked(&c, FILES);
    c.session.close();
    common::check(&disk, s, &[]);
    let s = Solo::new(&disk);
    let c = s.client();
    common::until(|| inodes(&c) == 1);
    serves(&c);
    common::check(&disk, s, &[c]);
}

/// Records of objects to destroy, written as an unlink leaves them.
fn garbage(disk: &MemoryDisk, files: usize) {
    let store = memory::acquire(disk, "test", 0).unwrap();
    let all: Vec<_> = (1..=files as u32).map(|i| Fid::new(1 << 40, i)).collect();
    for (last, part) in (store.info().last..).zip(all.chunks(1000)) {
        let layout = Layout { generation: 1, stripe_size: 65536, osts: vec![0] };
        let value = record::encode(&Garbage { layout });
        let put = |f: &Fid| Write::Put(keys::garbage(*f, 1), value.clone());
        let writes: Vec<_> = part.iter().map(put).collect();
        let commit = Commit { prev_last: last, last: last + 1, writes: writes.into() };
        let (tx, rx) = mpsc::channel();
        store.submit(commit, Box::new(move |r| tx.send(r).unwrap()));
        rx.recv().unwrap().unwrap();
    }
    store.close().unwrap();
}

#[test]
fn objects_are_destroyed_while_the_store_stands_still() {
    let disk = MemoryDisk::new();
    let s = Solo::new(&disk);
    common::check(&disk, s, &[]);
    garbage(&disk, MAX_COMMIT_OPS + 2000);
    let dir = tempfile::tempdir().unwrap();
    let label = OstLabel { fs: [7; 16], fs_name: "test".into(), index: 0, uuid: [0; 16] };
    Ost::format(dir.path(), &label).unwrap();
    let ost = Ost::open(dir.path(), OstOptions { reserve_bytes: Some(0), ..OstOptions::default() });
    let ost = ost.unwrap();
    let server = Server::new(ServerOptions::default());
    server.add(Arc::new(OstService::new(ost.clone()).unwrap()));
    let options = MdtOptions { poll_interval: Duration::from_millis(10), ..MdtOptions::default() };
    let s = Solo::with(&disk, options);
    let c = s.client();
    common::until(|| s.mdt.backlog() == MAX_COMMIT_OPS + 2000);
    c.make(Fid::ROOT, "held", FILE).unwrap();
    disk.hold();
    s.mdt.set_osts(vec![(0, Endpoint::Local(server.local()))], None);
    common::until(|| s.mdt.backlog() == 0);
    disk.release();
    serves(&c);
    common::check(&disk, s, &[c]);
    let store = memory::acquire(&disk, "check", 0).unwrap();
    let from = [keys::GARBAGE];
    assert_eq!(store.scan(&from, keys::after(&from).as_deref(), 1).unwrap(), []);
    server.shutdown();
    ost.close().unwrap();
}

#[test]
fn many_answers_of_one_moment_are_long() {
    const DATA: usize = 60_000;
    const READS: usize = 16;
    const CLIENTS: usize = 2 * MAX_COMMIT_BYTES / (DATA * READS);
    let disk = MemoryDisk::new();
    let s = Solo::with(&disk, MdtOptions { group_delay: Duration::ZERO, ..MdtOptions::default() });
    let c = s.listener(Arc::new(Obliging));
    let large = c.make(Fid::ROOT, "large", FILE).unwrap();
    c.write(large, 0, &vec![7; DATA]).unwrap();
    c.sync();
    let clients: Vec<_> = (0..CLIENTS).map(|_| s.client()).collect();
    c.make(Fid::ROOT, "held", FILE).unwrap();
    disk.hold();
    std::thread::scope(|t| {
        for (i, c) in clients.iter().enumerate() {
            t.spawn(move || {
                let mut all = vec![c.create(Fid::ROOT, &format!("g{i}")), Op::Sync {}];
                all.extend((0..READS).map(|_| Op::ReadInline { fid: large }));
                let results = c.run(all);
                let read =
                    |r: &&Res| matches!(r, Res::Inline { data: Some(d), .. } if d.len() == DATA);
                assert_eq!(results.iter().filter(read).count(), READS, "{:?}", results.last());
            });
        }
        // All of them are durable with the same group, and answered with the next.
        common::until(|| c.list(Fid::ROOT).len() == CLIENTS + 2);
        disk.release();
    });
    serves(&c);
    common::check(&disk, s, &[c]);
}

#[test]
fn what_is_made_while_the_store_stands_still_is_long() {
    let disk = MemoryDisk::new();
    let s = Solo::new(&disk);
    let c = s.client();
    c.make(Fid::ROOT, "held", FILE).unwrap();
    disk.hold();
    let (link, each) = (vec![b't'; 4095], 64);
    let symlink = |i: usize| Op::Create {
        dir: Fid::ROOT,
        name: format!("s{i}").into_bytes(),
        fid: c.fid(),
        mode: 0o120777,
        umask: 0,
        rdev: 0,
        target: link.clone(),
        flags: C_EXCL,
        open: 0,
    };
    let total = 3 * MAX_COMMIT_BYTES / link.len();
    std::thread::scope(|t| {
        let writer = t.spawn(|| {
            for from in (0..total).step_by(each) {
                let results = c.run((from..from + each).map(symlink).collect());
                assert!(results.iter().all(|r| matches!(r, Res::Entry { created: true, .. })));
            }
        });
        let stalls = || c.status()["stalled"].as_u64() > Some(0);
        common::until(|| stalls() || writer.is_finished());
        disk.release();
        writer.join().unwrap();
    });
    serves(&c);
    assert_eq!(inodes(&c), total.next_multiple_of(each) as u64 + 3);
    common::check(&disk, s, &[c]);
}
