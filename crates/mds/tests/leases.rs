//! Leases per inode, with several sessions that do what they are told, or do not.

mod common;
#[path = "common/holder.rs"]
mod holder;

use std::sync::Arc;
use std::time::Duration;

use common::{DIR, FILE, Solo};
use holder::{Holder, Way};
use pinstripe_mds::MdtOptions;
use pinstripe_mds::leases::hot::HOT_CALLS;
use pinstripe_mds::leases::*;
use proto::mds::*;
use proto::wire::List;
use proto::{Errno, Fid};
use store::memory::MemoryDisk;

fn options() -> MdtOptions {
    MdtOptions { orphan_grace: Duration::ZERO, ..MdtOptions::default() }
}

/// A directory with a file, a directory and a symlink in it.
struct Tree {
    dir: Fid,
    file: Fid,
    sub: Fid,
}

fn tree(c: &Holder) -> Tree {
    let dir = c.make(Fid::ROOT, "dir", DIR).unwrap();
    let file = c.make(dir, "file", FILE).unwrap();
    let sub = c.make(dir, "sub", DIR).unwrap();
    Tree { dir, file, sub }
}

fn set_mode(fid: Fid) -> Op {
    let set =
        proto::attr::SetAttr { valid: proto::attr::S_MODE, mode: 0o600, ..proto::SetAttr::none() };
    Op::SetAttr { fid, set }
}

fn lookup(dir: Fid, name: &str) -> Op {
    Op::Lookup { dir, name: name.into() }
}

fn create(c: &Holder, dir: Fid, name: &str) -> Op {
    c.client.create(dir, name)
}

fn unlink(dir: Fid, name: &str, rmdir: bool) -> Op {
    Op::Unlink { dir, name: name.into(), rmdir }
}

fn rename(dir: Fid, from: &str, to: &str) -> Op {
    Op::Rename { from_dir: dir, from: from.into(), to_dir: dir, to: to.into(), flags: 0 }
}

fn write_inline(fid: Fid) -> Op {
    let data = bytes::Bytes::from_static(b"x");
    Op::WriteInline { fid, offset: 0, data, cut: None, mtime: None }
}

fn open(fid: Fid, flags: u32) -> Op {
    Op::Open { fid, flags, handle: 0 }
}

/// Everything an operation of one session takes from another that has all it can have; by inode.
#[test]
fn what_each_operation_calls_back() {
    type Make = fn(&Holder, &Tree) -> Op;
    type Row = (&'static str, Make, [u8; 3]);
    const SHARED_DIR: u8 = LS_LOOKUP | LS_ATTR;
    // What the other has: names and attributes of the directories, READER on the file.
    let rows: Vec<Row> = vec![
        ("lookup", |_, t| lookup(t.dir, "file"), [0, 0, 0]),
        ("getattr", |_, t| Op::GetAttr { fid: t.file }, [0, 0, 0]),
        (
            "readdir",
            |_, t| Op::ReadDir { dir: t.dir, cookie: 0, max_bytes: 9000, flags: RD_PLUS },
            [0, 0, 0],
        ),
        ("open to read", |_, t| open(t.file, O_READ), [0, 0, 0]),
        ("open to write", |_, t| open(t.file, O_READ | O_WRITE), [0, READER, 0]),
        ("open and cut", |_, t| open(t.file, O_WRITE | O_TRUNC), [0, READER, 0]),
        ("read inline", |_, t| Op::ReadInline { fid: t.file }, [0, 0, 0]),
        ("write inline", |_, t| write_inline(t.file), [0, READER, 0]),
        ("begin write", |_, t| Op::Lease { fid: t.file, bits: LS_WRITE }, [0, READER, 0]),
        ("chmod", |_, t| set_mode(t.file), [0, LS_ATTR, 0]),
        ("chmod of a directory", |_, t| set_mode(t.sub), [0, 0, LS_ATTR]),
        (
            "setxattr",
            |_, t| Op::SetXattr {
                fid: t.file,
                name: b"user.a".to_vec(),
                value: bytes::Bytes::from_static(b"v"),
                flags: 0,
            },
            [0, LS_ATTR, 0],
        ),
        ("create", |c, t| create(c, t.dir, "new"), [SHARED_DIR, 0, 0]),
        ("create below", |c, t| create(c, t.sub, "new"), [0, 0, SHARED_DIR]),
        ("create what is there", |c, t| create(c, t.dir, "file"), [0, 0, 0]),
        (
            "link",
            |_, t| Op::Link { fid: t.file, dir: t.dir, name: b"l".to_vec() },
            [SHARED_DIR, LS_ATTR, 0],
        ),
        ("unlink", |_, t| unlink(t.dir, "file", false), [SHARED_DIR, READER, 0]),
        ("rmdir", |_, t| unlink(t.dir, "sub", true), [SHARED_DIR, 0, SHARED_DIR]),
        ("rename", |_, t| rename(t.dir, "file", "other"), [SHARED_DIR, LS_ATTR, 0]),
        (
            "a lock",
            |_, t| Op::TestLock {
                fid: t.file,
                lock: LockDesc { class: L_POSIX, kind: 0, start: 0, end: 9, owner: 1, pid: 1 },
            },
            [0, 0, 0],
        ),
    ];
    for (what, make, [dir, file, sub]) in rows {
        let s = Solo::with(&MemoryDisk::new(), options());
        let (a, b) = (Holder::new(&s), Holder::new(&s));
        let t = tree(&a.plain());
        // Nothing of the making stays in the way.
        a.run(vec![lookup(t.dir, "absent"), Op::GetAttr { fid: t.dir }]);
        a.run(vec![lookup(t.sub, "absent"), Op::GetAttr { fid: t.sub }]);
        a.run(vec![open(t.file, O_READ)]);
        let res = a.run(vec![open(t.file, O_READ)]);
        let Res::Opened { open: o, .. } = &res[0] else { panic!("{res:?}") };
        let handle = o.handle;
        a.run(vec![Op::Close { fid: t.file, handle: handle - 1, report: None }]);
        a.run(vec![Op::Close { fid: t.file, handle, report: None }]);
        assert_eq!((a.has(t.dir), a.has(t.file), a.has(t.sub)), (SHARED_DIR, READER, SHARED_DIR));
        b.run(vec![make(&b, &t)]);
        let lost = a.lost();
        let of = |fid| lost.iter().filter(|l| l.fid == fid).fold(0, |b, l| b | l.bits);
        assert_eq!((of(t.dir), of(t.file), of(t.sub)), (dir, file, sub), "{what}");
        assert!(a.calls() <= 1, "{what}: {} call-backs", a.calls());
        holder::check(&[&a, &b], &s);
    }
}

/// The same with an exclusive lease: whatever looks has it called back.
#[test]
fn what_hides_behind_an_exclusive_lease_is_called_for() {
    type Make = fn(&Holder, &Tree) -> Op;
    let rows: Vec<(&str, Make, u8, u8)> = vec![
        ("lookup", |_, t| lookup(t.dir, "absent"), LS_DIRX, 0),
        ("lookup of the file", |_, t| lookup(t.dir, "file"), LS_DIRX, LS_WRITE),
        ("getattr", |_, t| Op::GetAttr { fid: t.file }, 0, LS_WRITE),
        ("getattr of the directory", |_, t| Op::GetAttr { fid: t.dir }, LS_DIRX, 0),
        (
            "readdir",
            |_, t| Op::ReadDir { dir: t.dir, cookie: 0, max_bytes: 9000, flags: RD_PLUS },
            LS_DIRX,
            LS_WRITE,
        ),
        ("open to read", |_, t| open(t.file, O_READ), 0, LS_WRITE),
        ("open to write", |_, t| open(t.file, O_WRITE), 0, OWNER),
        ("getxattr", |_, t| Op::GetXattr { fid: t.file, name: b"user.a".to_vec() }, 0, LS_WRITE),
        ("layout", |_, t| Op::GetLayout { fid: t.file }, 0, LS_WRITE),
        ("path", |_, t| Op::FidToPath { fid: t.file }, LS_DIRX, LS_WRITE),
        ("create", |c, t| create(c, t.dir, "new"), DIR_OWNER, 0),
        ("create what is there", |c, t| create(c, t.dir, "file"), DIR_OWNER, 0),
        ("unlink", |_, t| unlink(t.dir, "file", false), DIR_OWNER, OWNER),
        ("rename over it", |_, t| rename(t.dir, "sub", "file"), DIR_OWNER, LS_WRITE),
    ];
    for (what, make, dir, file) in rows {
        let s = Solo::with(&MemoryDisk::new(), options());
        let (a, b) = (Holder::new(&s), Holder::new(&s));
        let t = tree(&a);
        assert_eq!((a.has(t.dir), a.has(t.file)), (DIR_OWNER, OWNER), "{what}");
        b.run(vec![make(&b, &t)]);
        let lost = a.lost();
        let of = |fid| lost.iter().filter(|l| l.fid == fid).fold(0, |b, l| b | l.bits);
        assert_eq!((of(t.dir), of(t.file)), (dir, file), "{what}");
        holder::check(&[&a, &b], &s);
    }
}

#[test]
fn a_sessions_own_leases_are_never_in_its_way() {
    let s = Solo::with(&MemoryDisk::new(), options());
    let (a, b) = (Holder::new(&s), Holder::new(&s));
    let t = tree(&a);
    a.run(vec![lookup(t.dir, "file"), open(t.file, O_WRITE), write_inline(t.file)]);
    a.run(vec![rename(t.dir, "file", "g"), unlink(t.dir, "g", false), set_mode(t.dir)]);
    assert_eq!((a.calls(), b.calls()), (0, 0));
}

#[test]
fn nothing_is_granted_to_one_that_is_alone_looks_or_does_not_ask() {
    let s = Solo::with(&MemoryDisk::new(), options());
    let a = Holder::new(&s);
    let t = tree(&a);
    a.run(vec![lookup(t.dir, "file")]);
    assert!(a.sole());
    assert_eq!(a.client.status()["leases"]["count"], 0);
    let watcher = s.client_with(proto::mgs::FEATURE_OBSERVER, [1; 16]);
    let b = Holder::new(&s);
    b.plain().run(vec![lookup(t.dir, "file")]);
    let mut c = Compound::new(holder::cred(), vec![Op::GetAttr { fid: t.dir }]);
    c.flags = CF_LEASES;
    assert_eq!(holder::call(&watcher, &c).leases.0, []);
    assert_eq!(a.client.status()["leases"]["count"], 0);
    b.run(vec![lookup(t.dir, "file")]);
    assert_eq!(a.client.status()["leases"]["count"], 2);
}

#[test]
fn absent_names_are_granted_and_called_back() {
    let s = Solo::with(&MemoryDisk::new(), options());
    let (a, b) = (Holder::new(&s), Holder::new(&s));
    let t = tree(&a.plain());
    assert_eq!(b.run(vec![lookup(t.dir, "no")]), [Res::Failed { errno: Errno::ENOENT.0 as u16 }]);
    assert_eq!(b.has(t.dir), LS_LOOKUP);
    a.run(vec![create(&a, t.dir, "no")]);
    assert_eq!((b.has(t.dir), b.calls()), (0, 1));
    // Who took the names gets the directory with the next change only.
    assert_eq!(a.has(t.dir), LS_LOOKUP);
    a.run(vec![create(&a, t.dir, "no2")]);
    assert_eq!(a.has(t.dir), DIR_OWNER);
}

#[test]
fn a_call_back_of_many_leases_is_one_message() {
    let s = Solo::with(&MemoryDisk::new(), options());
    let (a, b) = (Holder::new(&s), Holder::new(&s));
    let dir = a.make(Fid::ROOT, "dir", DIR).unwrap();
    for i in 0..100 {
        a.make(dir, &format!("f{i}"), FILE).unwrap();
    }
    let op = Op::ReadDir { dir, cookie: 0, max_bytes: 1 << 20, flags: RD_PLUS };
    let res = b.run(vec![op]);
    assert!(matches!(&res[0], Res::Entries { entries, end: true } if entries.0.len() == 100));
    // The directory first, then all files.
    assert_eq!((a.calls(), a.lost().len()), (2, 101));
    assert_eq!(b.held().iter().filter(|l| l.bits & LS_ATTR != 0).count(), 100);
    holder::check(&[&a, &b], &s);
}

#[test]
fn files_that_several_write_are_served_directly_until_one_is_left() {
    let s = Solo::with(&MemoryDisk::new(), options());
    let (a, b) = (Holder::new(&s), Holder::new(&s));
    let t = tree(&a.plain());
    let opened = |c: &Holder, flags| match &c.run(vec![open(t.file, flags)])[0] {
        Res::Opened { open, .. } => (open.handle, open.shared),
        other => panic!("{other:?}"),
    };
    let (h, shared) = opened(&a, O_READ);
    assert_eq!((shared, a.has(t.file)), (false, READER));
    let (w, shared) = opened(&b, O_READ | O_WRITE);
    assert!(shared, "another has it open");
    assert_eq!((a.has(t.file), b.has(t.file)), (0, 0));
    a.run(vec![Op::GetAttr { fid: t.file }, Op::ReadInline { fid: t.file }]);
    b.run(vec![write_inline(t.file), Op::GetAttr { fid: t.file }]);
    assert_eq!((a.has(t.file), b.has(t.file)), (0, 0));
    a.run(vec![Op::Close { fid: t.file, handle: h, report: None }]);
    assert_eq!(a.has(t.file), 0, "another writes it");
    b.run(vec![write_inline(t.file)]);
    assert_eq!(b.has(t.file), OWNER, "only one is left");
    b.run(vec![Op::Close { fid: t.file, handle: w, report: None }]);
    holder::check(&[&a, &b], &s);
}

#[test]
fn a_writer_is_asked_for_size_and_times_and_keeps_its_lease() {
    let s = Solo::with(&MemoryDisk::new(), options());
    let (a, b) = (Holder::new(&s), Holder::new(&s));
    let t = tree(&a.plain());
    a.run(vec![open(t.file, O_READ | O_WRITE)]);
    assert_eq!(a.has(t.file), OWNER);
    b.run(vec![Op::GetAttr { fid: t.file }]);
    assert_eq!((a.has(t.file), b.has(t.file)), (OWNER, 0));
    assert_eq!(a.glimpses(), [t.file]);
    b.run(vec![lookup(t.dir, "file")]);
    assert_eq!(a.glimpses(), [t.file, t.file]);
    holder::check(&[&a, &b], &s);
}

#[test]
fn opens_kept_to_oneself_are_told_before_the_file_goes() {
    let s = Solo::with(&MemoryDisk::new(), options());
    let (a, b) = (Holder::new(&s), Holder::new(&s));
    let t = tree(&a.plain());
    let Res::Opened { open: o, .. } = a.run(vec![open(t.file, O_READ)])[0].clone() else {
        panic!()
    };
    a.run(vec![Op::Close { fid: t.file, handle: o.handle, report: None }]);
    assert_ne!(a.has(t.file) & LS_OPEN, 0);
    a.set_way(Way::Before(vec![open(t.file, O_READ)]));
    b.run(vec![unlink(t.dir, "file", false)]);
    assert_eq!(a.client.attr(t.file).unwrap().nlink, 0, "it lives while it is open");
    assert_eq!(a.has(t.file) & LS_OPEN, 0);
}

#[test]
fn nobody_gets_what_somebody_waits_for() {
    let s = Solo::with(&MemoryDisk::new(), options());
    let (a, b) = (Holder::new(&s), Holder::new(&s));
    let t = tree(&a);
    // While it gives back, it asks again.
    a.set_way(Way::Before(vec![create(&a, t.dir, "last"), lookup(t.dir, "last")]));
    let res = b.run(vec![lookup(t.dir, "last")]);
    assert!(matches!(res[0], Res::Entry { .. }), "what was done before is seen: {res:?}");
    assert_eq!(a.has(t.dir) & LS_DIRX, 0);
    holder::check(&[&a, &b], &s);
}

#[test]
fn two_that_wait_for_the_same_lease_both_go_on() {
    let s = Solo::with(&MemoryDisk::new(), options());
    let (a, b, c) = (Holder::new(&s), Holder::new(&s), Holder::new(&s));
    let t = tree(&a);
    a.set_way(Way::Late);
    std::thread::scope(|scope| {
        let one = scope.spawn(|| b.run(vec![lookup(t.dir, "file")]));
        let two = scope.spawn(|| c.run(vec![unlink(t.dir, "sub", true)]));
        let three = scope.spawn(|| b.run(vec![Op::GetAttr { fid: t.dir }]));
        common::until(|| a.client.status()["leases"]["waiting"] == 3);
        a.set_way(Way::Prompt);
        a.answer_all();
        assert!(matches!(one.join().unwrap()[0], Res::Entry { .. }));
        assert!(matches!(two.join().unwrap()[0], Res::Attr { .. }));
        assert!(matches!(three.join().unwrap()[0], Res::Attr { .. }));
    });
    assert_eq!(a.client.status()["leases"]["waiting"], 0);
    holder::check(&[&a, &b, &c], &s);
}

/// Each waits for what the other has and must send something before it gives that back.
#[test]
fn two_that_call_each_other_back_do_not_wait_in_a_circle() {
    let s = Solo::with(&MemoryDisk::new(), options());
    let (a, b) = (Holder::new(&s), Holder::new(&s));
    let (d, e) = (a.make(Fid::ROOT, "d", DIR).unwrap(), b.make(Fid::ROOT, "e", DIR).unwrap());
    a.set_way(Way::Before(vec![create(&a, d, "from-a")]));
    b.set_way(Way::Before(vec![create(&b, e, "from-b")]));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| a.run(vec![lookup(e, "from-b")]));
            scope.spawn(|| b.run(vec![lookup(d, "from-a")]));
        }
    });
    assert!(a.client.lookup(d, "from-a").is_ok() && a.client.lookup(e, "from-b").is_ok());
    assert_eq!(a.client.status()["leases"]["evictions"], 0);
    holder::check(&[&a, &b], &s);
}

/// The answer to a change must not wait for others' leases: it may be what they wait for.
#[test]
fn a_change_with_a_conflict_behind_it_is_answered_at_once() {
    let s = Solo::with(&MemoryDisk::new(), options());
    let (a, b) = (Holder::new(&s), Holder::new(&s));
    let (d, e) = (a.make(Fid::ROOT, "d", DIR).unwrap(), b.make(Fid::ROOT, "e", DIR).unwrap());
    b.set_way(Way::Late);
    let mut c =
        Compound::new(holder::cred(), vec![create(&a, d, "x"), lookup(e, "y"), lookup(d, "x")]);
    c.flags = CF_LEASES | CF_CONTINUE;
    let reply = holder::call(&a.client, &c);
    assert!(matches!(reply.results.0[0], Res::Entry { created: true, .. }));
    assert_eq!(reply.results.0[1..], [Res::Failed { errno: Errno::ERESTART.0 as u16 }]);
    b.set_way(Way::Prompt);
    assert_eq!(b.calls(), 0);
    assert_eq!(a.run(vec![lookup(e, "y")]), [Res::Failed { errno: Errno::ENOENT.0 as u16 }]);
}

/// All credits of a session wait for others' leases, and it is called back itself.
#[test]
fn a_session_that_is_called_back_gets_its_credits_back() {
    let s = Solo::with(&MemoryDisk::new(), options());
    let (a, b) = (Holder::new(&s), Holder::new(&s));
    let (d, e) = (a.make(Fid::ROOT, "d", DIR).unwrap(), b.make(Fid::ROOT, "e", DIR).unwrap());
    b.set_way(Way::Late);
    a.set_way(Way::Before(vec![create(&a, d, "x")]));
    std::thread::scope(|scope| {
        let many: Vec<_> = (0..100)
            .map(|i| {
                let op = lookup(e, &format!("n{i}"));
                let a = &a;
                scope.spawn(move || a.run(vec![op]))
            })
            .collect();
        common::until(|| b.client.status()["leases"]["waiting"].as_u64() > Some(30));
        assert!(
            matches!(b.run(vec![lookup(d, "x")])[0], Res::Entry { .. }),
            "it was flushed first"
        );
        b.set_way(Way::Prompt);
        b.answer_all();
        for t in many {
            assert_eq!(t.join().unwrap().len(), 1);
        }
    });
    assert_eq!(a.client.status()["leases"]["evictions"], 0);
}

#[test]
fn a_grant_in_an_answer_is_known_before_the_answer_is() {
    let s = Solo::with(&MemoryDisk::new(), options());
    let (a, b) = (Holder::new(&s), Holder::new(&s));
    let t = tree(&a.plain());
    // The answers to one meet the call-backs of the other, over and over.
    std::thread::scope(|scope| {
        scope.spawn(|| (0..200).for_each(|_| drop(a.run(vec![lookup(t.dir, "no")]))));
        scope.spawn(|| {
            for i in 0..100 {
                b.run(vec![create(&b, t.dir, &format!("n{i}"))]);
            }
        });
    });
    holder::check(&[&a, &b], &s);
}

#[test]
fn the_oldest_go_when_a_client_has_too_many() {
    let options = MdtOptions { leases_per_client: 50, ..options() };
    let s = Solo::with(&MemoryDisk::new(), options);
    let (a, b) = (Holder::new(&s), Holder::new(&s));
    let mut fids = vec![];
    for i in 0..200 {
        fids.push(a.make(Fid::ROOT, &format!("f{i}"), FILE).unwrap());
    }
    common::until(|| a.held().len() <= 51);
    assert_eq!(a.has(fids[0]), 0);
    common::until(|| a.client.status()["leases"]["calls_under_way"] == 0);
    holder::check(&[&a, &b], &s);
}

#[test]
fn all_leases_together_are_bounded_too() {
    let options = MdtOptions { leases_total: 60, ..options() };
    let s = Solo::with(&MemoryDisk::new(), options);
    let (a, b) = (Holder::new(&s), Holder::new(&s));
    for i in 0..100 {
        let who = if i % 3 == 0 { &a } else { &b };
        who.make(Fid::ROOT, &format!("f{i}"), FILE).unwrap();
    }
    common::until(|| a.held().len() + b.held().len() <= 61);
    common::until(|| a.client.status()["leases"]["calls_under_way"] == 0);
    holder::check(&[&a, &b], &s);
}

#[test]
fn released_leases_are_not_called_back() {
    let s = Solo::with(&MemoryDisk::new(), options());
    let (a, b) = (Holder::new(&s), Holder::new(&s));
    let t = tree(&a);
    a.release(vec![Lease { fid: t.dir, bits: ALL }, Lease { fid: t.file, bits: LS_WRITE }]);
    b.run(vec![lookup(t.dir, "file")]);
    assert_eq!(a.calls(), 0);
    assert_eq!(b.has(t.file), LS_ATTR | LS_LAYOUT);
    // Twice, or what one never had, does no harm.
    a.client.run(vec![Op::Release { leases: List(vec![Lease { fid: t.dir, bits: 255 }]) }]);
    holder::check(&[&a, &b], &s);
}

#[test]
fn a_session_that_ends_during_a_call_back_gives_everything_back() {
    let s = Solo::with(&MemoryDisk::new(), options());
    let (a, b, _c) = (Holder::new(&s), Holder::new(&s), Holder::new(&s));
    let t = tree(&a);
    a.set_way(Way::Late);
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| b.run(vec![lookup(t.dir, "file")]));
        common::until(|| b.client.status()["leases"]["waiting"] == 1);
        a.client.session.close();
        assert!(matches!(waits.join().unwrap()[0], Res::Entry { .. }));
    });
    let status = b.client.status();
    assert_eq!(status["leases"]["calls_under_way"], 0);
    assert_eq!(status["leases"]["evictions"], 0, "it was not silent");
}

#[test]
fn one_that_waits_and_ends_leaves_nothing_behind() {
    let s = Solo::with(&MemoryDisk::new(), options());
    let (a, b, _c) = (Holder::new(&s), Holder::new(&s), Holder::new(&s));
    let t = tree(&a);
    a.set_way(Way::Late);
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| b.try_run(vec![lookup(t.dir, "file")]));
        common::until(|| a.client.status()["leases"]["waiting"] == 1);
        b.client.session.close();
        assert!(waits.join().unwrap().is_err());
    });
    common::until(|| a.client.status()["leases"]["waiting"] == 0);
    a.set_way(Way::Prompt);
    a.answer_all();
    common::until(|| a.client.status()["leases"]["calls_under_way"] == 0);
    a.run(vec![create(&a, t.dir, "x")]);
    assert_eq!(a.has(t.dir), DIR_OWNER, "it is granted again");
}

#[test]
fn one_that_never_answers_is_evicted_and_the_others_go_on() {
    let options = MdtOptions { recall_timeout: Duration::from_millis(50), ..options() };
    let s = Solo::with(&MemoryDisk::new(), options);
    let (a, b, c) = (Holder::new(&s), Holder::new(&s), Holder::new(&s));
    let t = tree(&a);
    a.set_way(Way::Late);
    assert!(matches!(b.run(vec![lookup(t.dir, "file")])[0], Res::Entry { .. }));
    let status = c.client.status();
    assert_eq!(status["leases"]["evictions"], 1);
    assert_eq!(status["clients"].as_array().map(Vec::len), Some(2));
}

#[test]
fn directories_that_change_hands_all_the_time_get_no_leases() {
    let s = Solo::with(&MemoryDisk::new(), options());
    let (a, b) = (Holder::new(&s), Holder::new(&s));
    let dir = a.make(Fid::ROOT, "dir", DIR).unwrap();
    for i in 0..4 * HOT_CALLS {
        a.run(vec![create(&a, dir, &format!("a{i}"))]);
        b.run(vec![create(&b, dir, &format!("b{i}"))]);
    }
    let status = a.client.status();
    if a.calls() + b.calls() < HOT_CALLS as usize {
        // The machine was too slow for anything to be hot.
        return;
    }
    assert_eq!(status["leases"]["hot"], serde_json::json!([dir.to_string()]));
    assert!(a.calls() + b.calls() < 4 * HOT_CALLS as usize);
    assert_eq!((a.has(dir), b.has(dir)), (0, 0));
    holder::check(&[&a, &b], &s);
}

#[test]
fn an_empty_directory_is_one_that_its_owner_has_emptied() {
    let s = Solo::with(&MemoryDisk::new(), options());
    let (a, b) = (Holder::new(&s), Holder::new(&s));
    let d = a.make(Fid::ROOT, "d", DIR).unwrap();
    a.make(d, "x", FILE).unwrap();
    a.set_way(Way::Before(vec![unlink(d, "x", false)]));
    b.run(vec![lookup(Fid::ROOT, "absent")]);
    let res = b.run(vec![unlink(Fid::ROOT, "d", true)]);
    assert!(matches!(res[0], Res::Attr { .. }), "{res:?}");
}

#[test]
fn holders_are_told_apart() {
    let s = Solo::with(&MemoryDisk::new(), options());
    let a = Holder::new(&s);
    let all: Vec<Arc<Holder>> = (0..5).map(|_| Arc::new(Holder::new(&s))).collect();
    let t = tree(&a.plain());
    all.iter().for_each(|h| drop(h.run(vec![lookup(t.dir, "file")])));
    a.run(vec![set_mode(t.file)]);
    for h in &all {
        assert_eq!((h.has(t.dir), h.has(t.file), h.calls()), (LS_LOOKUP, LS_LAYOUT, 1));
    }
}

/// Who wants only what goes together with others gets nothing else, and nothing of what it writes.
#[test]
fn shared_leases_exclude_nobody() {
    let s = Solo::with(&MemoryDisk::new(), options());
    let (a, _b) = (Holder::new(&s), Holder::new(&s));
    let t = tree(&a.plain());
    let ask_more = |ops: Vec<Op>, more: u8| {
        let mut c = Compound::new(holder::cred(), ops);
        c.flags = CF_LEASES | CF_SHARED_LEASES | more;
        holder::call(&a.client, &c)
    };
    let ask = |ops: Vec<Op>| ask_more(ops, 0);
    let dir = ask(vec![create(&a, t.dir, "x")]);
    assert!(dir.leases.0.iter().all(|l| l.bits & EXCLUSIVE == 0), "{:?}", dir.leases);
    assert!(dir.leases.0.iter().any(|l| l.fid == t.dir && l.bits & LS_LOOKUP != 0));
    let read = ask(vec![Op::ReadInline { fid: t.file }]);
    assert_eq!(read.leases.0, [Lease { fid: t.file, bits: READER }]);
    let opened = ask(vec![open(t.file, O_WRITE)]);
    assert_eq!(opened.leases.0, []);
    assert_eq!(ask(vec![Op::ReadInline { fid: t.file }]).leases.0, []);
    // Unless it asks for those of files.
    let small = ask_more(vec![Op::ReadInline { fid: t.file }], CF_FILE_WRITES);
    assert_eq!(small.leases.0, [Lease { fid: t.file, bits: OWNER }]);
    let dir = ask_more(vec![create(&a, t.dir, "y")], CF_FILE_WRITES);
    assert!(dir.leases.0.iter().all(|l| l.bits & EXCLUSIVE == 0), "{:?}", dir.leases);
}
