//! Operations of a target as a client sees them.

mod common;

use common::{DIR, FILE, Solo, check};
use proto::attr::{S_MTIME, SetAttr};
use proto::mds::*;
use proto::{Errno, Fid, TimeSpec};
use store::memory::MemoryDisk;

#[test]
fn names_come_go_and_survive_a_restart() {
    let disk = MemoryDisk::new();
    let s = Solo::new(&disk);
    let c = s.client();
    assert!(c.grant.sole);
    let d = c.make(Fid::ROOT, "dir", DIR).unwrap();
    let f = c.make(d, "file", FILE).unwrap();
    assert_eq!(c.make(d, "file", FILE), Err(Errno::EEXIST));
    c.write(f, 0, b"hello").unwrap();
    c.write(f, 10, b"!").unwrap();
    assert_eq!(c.read(f).unwrap(), b"hello\0\0\0\0\0!");
    let a = c.attr(f).unwrap();
    assert_eq!((a.size, a.nlink, a.uid, a.gid, a.mode), (11, 1, 10, 20, 0o100644));
    assert_eq!(c.attr(Fid::ROOT).unwrap().nlink, 3);
    c.one(Op::Link { fid: f, dir: Fid::ROOT, name: b"hard".to_vec() }).unwrap();
    assert_eq!(c.unlink(Fid::ROOT, "dir", true), Err(Errno::ENOTEMPTY));
    assert_eq!(c.unlink(Fid::ROOT, "dir", false), Err(Errno::EISDIR));
    assert_eq!(c.list(Fid::ROOT), ["dir", "hard"]);
    c.sync();
    s.mdt.close().unwrap();
    drop((c, s));

    let s = Solo::new(&disk);
    let c = s.client();
    assert_eq!(c.lookup(Fid::ROOT, "hard").unwrap().fid, f);
    assert_eq!(c.lookup(Fid::ROOT, "none").unwrap_err(), Errno::ENOENT);
    assert_eq!(c.read(f).unwrap(), b"hello\0\0\0\0\0!");
    assert_eq!(c.attr(f).unwrap().nlink, 2);
    c.unlink(d, "file", false).unwrap();
    c.unlink(Fid::ROOT, "dir", true).unwrap();
    c.unlink(Fid::ROOT, "hard", false).unwrap();
    assert_eq!(c.attr(f), Err(Errno::ESTALE));
    assert!(c.list(Fid::ROOT).is_empty());
    s.mdt.close().unwrap();
    drop((c, s));
    let store = store::memory::acquire(&disk, "check", 0).unwrap();
    let report = pinstripe_mds::check::check(&*store.snapshot().unwrap()).unwrap();
    assert_eq!(report.problems, []);
    assert_eq!((report.inodes, report.entries), (1, 0));
}

#[test]
fn a_rename_with_a_whiteout_leaves_one_or_nothing() {
    let disk = MemoryDisk::new();
    let s = Solo::new(&disk);
    let c = s.client();
    let r = Fid::ROOT;
    let (a, b) = (c.make(r, "a", DIR).unwrap(), c.make(r, "b", DIR).unwrap());
    let (f, d) = (c.make(a, "f", FILE).unwrap(), c.make(a, "d", DIR).unwrap());
    let whiteout = |from: (Fid, &str), to: (Fid, &str), flags| {
        let (from_dir, to_dir) = (from.0, to.0);
        let (from, to, fid) = (from.1.into(), to.1.into(), c.fid());
        c.one(Op::Whiteout { from_dir, from, to_dir, to, flags, fid }).map(drop)
    };
    let is_whiteout = |dir, name| {
        let attr = c.lookup(dir, name).unwrap();
        (attr.mode, attr.rdev, attr.nlink, attr.size) == (0o020_000, 0, 1, 0)
    };
    whiteout((a, "f"), (b, "f"), 0).unwrap();
    assert_eq!(c.lookup(b, "f").unwrap().fid, f);
    assert!(is_whiteout(a, "f"));
    // Of a directory, in place of another, whose link goes with it.
    c.make(b, "d", DIR).unwrap();
    whiteout((a, "d"), (b, "d"), 0).unwrap();
    assert_eq!(c.lookup(b, "d").unwrap().fid, d);
    assert!(is_whiteout(a, "d"));
    assert_eq!((c.attr(a).unwrap().nlink, c.attr(b).unwrap().nlink), (2, 3));
    assert_eq!(
        (c.list(a), c.list(b)),
        (vec!["d".into(), "f".into()], vec!["d".into(), "f".into()])
    );
    // Where nothing is renamed none is left.
    c.link(f, b, "g").unwrap();
    assert_eq!(whiteout((b, "f"), (b, "g"), 0), Ok(()));
    assert_eq!(whiteout((b, "f"), (b, "g"), RN_NOREPLACE), Err(Errno::EEXIST));
    assert_eq!(whiteout((b, "f"), (b, "d"), RN_EXCHANGE), Err(Errno::EINVAL));
    assert_eq!(whiteout((b, "absent"), (b, "h"), 0), Err(Errno::ENOENT));
    assert_eq!(c.lookup(b, "f").unwrap().fid, f);
    assert_eq!(c.list(b), ["d", "f", "g"]);
    c.unlink(a, "f", false).unwrap();
    c.sync();
    common::check(&disk, s, &[c]);
}

#[test]
fn renames_follow_rename_2() {
    let s = Solo::new(&MemoryDisk::new());
    let c = s.client();
    let r = Fid::ROOT;
    let a = c.make(r, "a", DIR).unwrap();
    let b = c.make(a, "b", DIR).unwrap();
    let f = c.make(b, "f", FILE).unwrap();
    assert_eq!(c.rename((r, "a"), (b, "x"), 0), Err(Errno::EINVAL));
    assert_eq!(c.rename((r, "a"), (r, "a"), 0), Ok(()));
    assert_eq!(c.rename((b, "f"), (r, "a"), 0), Err(Errno::EISDIR));
    assert_eq!(c.rename((b, "f"), (r, "a"), RN_NOREPLACE), Err(Errno::EEXIST));
    assert_eq!(c.rename((b, "f"), (r, "a"), RN_EXCHANGE), Err(Errno::EINVAL));
    let d = c.make(r, "d", DIR).unwrap();
    c.rename((b, "f"), (r, "d"), RN_EXCHANGE).unwrap();
    assert_eq!(c.lookup(r, "d").unwrap().fid, f);
    assert_eq!(c.lookup(b, "f").unwrap().fid, d);
    assert_eq!(c.attr(b).unwrap().nlink, 3);
    c.rename((r, "d"), (r, "a2"), 0).unwrap();
    assert_eq!(c.list(r), ["a", "a2"]);
}

#[test]
fn unlinked_but_open_files_live_until_the_last_close() {
    let disk = MemoryDisk::new();
    let s = Solo::new(&disk);
    let c = s.client();
    let f = c.make(Fid::ROOT, "f", FILE).unwrap();
    let open = c.open(f, O_READ | O_WRITE).unwrap();
    c.unlink(Fid::ROOT, "f", false).unwrap();
    c.write(f, 0, b"still here").unwrap();
    assert_eq!(c.attr(f).unwrap().nlink, 0);
    assert_eq!(c.read(f).unwrap(), b"still here");
    c.one(Op::Close { fid: f, handle: open.handle, report: None }).unwrap();
    assert_eq!(c.attr(f), Err(Errno::ESTALE));
    // A client that vanishes closes what it had open.
    let g = c.make(Fid::ROOT, "g", FILE).unwrap();
    c.open(g, O_READ).unwrap();
    c.unlink(Fid::ROOT, "g", false).unwrap();
    c.session.close();
    let c = s.client();
    while c.attr(g).is_ok() {
        std::thread::yield_now();
    }
}

#[test]
fn a_big_directory_is_listed_once_each_while_it_changes() {
    let s = Solo::new(&MemoryDisk::new());
    let c = s.client();
    for i in 0..3000 {
        c.make(Fid::ROOT, &format!("keep{i}"), FILE).unwrap();
    }
    let (mut cookie, mut names, mut n) = (0, vec![], 0);
    loop {
        let op = Op::ReadDir { dir: Fid::ROOT, cookie, max_bytes: 4096, flags: 0 };
        let Ok(Res::Entries { entries, end }) = c.one(op) else { panic!() };
        for e in entries.0 {
            cookie = e.cookie;
            names.push(String::from_utf8(e.name).unwrap());
        }
        n += 1;
        c.make(Fid::ROOT, &format!("new{n}"), FILE).unwrap();
        if n > 3 {
            c.unlink(Fid::ROOT, &format!("new{}", n - 3), false).unwrap();
        }
        if end {
            break;
        }
    }
    names.retain(|n| n.starts_with("keep"));
    let count = names.len();
    names.sort();
    names.dedup();
    assert_eq!((count, names.len()), (3000, 3000));
}

#[test]
fn two_clients_share_only_after_the_lease_is_back() {
    let s = Solo::new(&MemoryDisk::new());
    let a = s.client();
    assert!(a.grant.sole);
    let f = a.make(Fid::ROOT, "f", FILE).unwrap();
    // `a` answers call-backs with an error (no listener): it is evicted, its session ends.
    let b = s.client();
    assert!(!b.grant.sole);
    assert_eq!(b.lookup(Fid::ROOT, "f").unwrap().fid, f);
}

#[test]
fn data_that_comes_after_a_time_was_set_by_hand_does_not_move_ctime() {
    let disk = MemoryDisk::new();
    let solo = Solo::new(&disk);
    let c = solo.client();
    // In the future: the past could not move ctime anyway.
    let mtime = TimeSpec { sec: 4_294_967_296, nsec: 5 };
    let f = c.make(Fid::ROOT, "f", FILE).unwrap();
    let set = SetAttr { valid: S_MTIME, mtime, ..SetAttr::none() };
    c.one(Op::SetAttr { fid: f, set }).unwrap();
    let before = c.attr(f).unwrap();
    let data = bytes::Bytes::from_static(b"123456789");
    let mtime = Some(mtime);
    c.one(Op::WriteInline { fid: f, offset: 0, data, cut: None, mtime }).unwrap();
    let after = c.attr(f).unwrap();
    assert_eq!((after.size, Some(after.mtime), after.ctime), (9, mtime, before.ctime));
    check(&disk, solo, &[c]);
}
