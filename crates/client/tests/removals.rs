//! Trees that others have read are removed in few messages, and whoever looks sees what is left.

mod common;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use common::{READ, World, root, until};
use pinstripe_client::{Client, Data, OpenFlags};
use proto::mds::C_EXCL;
use proto::{Errno, Fid, FileKind};

const RW: OpenFlags = OpenFlags { write: true, noatime: true, ..READ };
const FILES: usize = 300;

fn make(c: &Client, dir: Fid, name: &str, kind: FileKind) -> Fid {
    let mode = kind.mode_bits() | 0o755;
    c.create(&root(), dir, name.as_bytes(), mode, 0, 0, b"", C_EXCL, None).unwrap().attr.fid
}

/// Names and inodes, in the order of the listing.
fn list(c: &Client, dir: Fid) -> Vec<(Vec<u8>, Fid)> {
    let (mut found, mut cookie) = (Vec::new(), 0);
    loop {
        let page = c.readdir(&root(), dir, cookie, 64 << 10, true).unwrap();
        found.extend(page.entries.iter().map(|e| (e.name.clone(), e.fid)));
        let Some(last) = page.entries.last().filter(|_| !page.end) else { return found };
        cookie = last.cookie;
    }
}

/// Lists a directory and reads what is in it.
fn read_all(c: &Client, dir: Fid) -> Vec<(Vec<u8>, Fid)> {
    let listed = list(c, dir);
    for (name, _) in &listed {
        let attr = c.lookup(&root(), dir, name).unwrap();
        if attr.kind() == FileKind::File {
            let f = c.open(&root(), attr.fid, READ).unwrap();
            let mut buf = [0; 64];
            assert_eq!(f.read(0, &mut buf).unwrap(), 8);
            f.release();
        }
    }
    listed
}

/// Two clients, and a directory of files both have read.
fn shared(files: usize) -> (World, Client, Client, Fid, Vec<(Vec<u8>, Fid)>) {
    let world = World::new(1);
    let (a, b) = (world.client(), world.client());
    let d = make(&a, Fid::ROOT, "d", FileKind::Dir);
    for i in 0..files {
        let name = format!("f{i}");
        let mode = FileKind::File.mode_bits() | 0o644;
        let made = a.create(&root(), d, name.as_bytes(), mode, 0, 0, b"", 0, Some(RW)).unwrap();
        let f = made.file.unwrap();
        f.write(0, Data::Slice(b"contents")).unwrap();
        f.release();
    }
    a.sync_all().unwrap();
    read_all(&a, d);
    let listed = read_all(&b, d);
    assert_eq!(listed.len(), files);
    (world, a, b, d, listed)
}

fn counted(c: &Client) -> u64 {
    c.stats().mds_messages + c.stats().recalls
}

#[test]
fn a_directory_that_others_have_read_is_removed_in_few_messages() {
    let (_world, a, b, d, listed) = shared(FILES);
    let before = counted(&a) + counted(&b);
    for (name, _) in &listed {
        b.unlink(&root(), d, name).unwrap();
    }
    b.rmdir(&root(), Fid::ROOT, b"d").unwrap();
    b.sync_all().unwrap();
    let after = counted(&a) + counted(&b);
    assert!(after - before <= 24, "{FILES} files: {} messages", after - before);
    assert_eq!(a.lookup(&root(), Fid::ROOT, b"d").unwrap_err(), Errno::ENOENT);
    assert_eq!(a.getattr(&root(), listed[7].1).unwrap_err(), Errno::ESTALE);
    assert_eq!((a.stats().surprises, b.stats().surprises), (0, 0));
}

#[test]
fn a_directory_that_others_work_in_is_left_to_them() {
    let (_world, a, b, d, _) = shared(40);
    let begun = Instant::now();
    make(&a, d, "new", FileKind::File);
    a.unlink(&root(), d, b"new").unwrap();
    let listed = list(&b, d);
    read_all(&a, d);
    let before = a.stats().mds_messages;
    b.unlink(&root(), d, &listed[0].0).unwrap();
    for (_, fid) in &listed[1..] {
        a.open(&root(), *fid, READ).unwrap().release();
    }
    let counted = a.stats().mds_messages - before;
    // On a very slow machine that work is long ago.
    assert!(counted <= 1 || begun.elapsed() > Duration::from_secs(1), "{counted} messages");
}

#[test]
fn who_looks_while_a_directory_is_emptied_sees_what_is_left() {
    let (_world, a, b, d, listed) = shared(120);
    let mut left: BTreeSet<Vec<u8>> = listed.iter().map(|(n, _)| n.clone()).collect();
    for (n, (name, fid)) in listed.iter().enumerate() {
        b.unlink(&root(), d, name).unwrap();
        left.remove(name);
        if n % 13 == 5 {
            assert_eq!(a.lookup(&root(), d, name).unwrap_err(), Errno::ENOENT);
            assert_eq!(a.getattr(&root(), *fid).unwrap_err(), Errno::ESTALE);
            let seen: BTreeSet<Vec<u8>> = read_all(&a, d).into_iter().map(|(n, _)| n).collect();
            assert_eq!(seen, left);
        }
        if n % 29 == 7 {
            // Written by the other in between, it goes all the same.
            let (name, fid) = &listed[n + 1];
            let f = a.open(&root(), *fid, OpenFlags { read: false, ..RW }).unwrap();
            f.write(0, Data::Slice(b"replaced")).unwrap();
            f.release();
            assert_eq!(b.lookup(&root(), d, name).unwrap().size, 8);
        }
    }
    assert!(list(&a, d).is_empty());
    assert_eq!((a.stats().surprises, b.stats().surprises), (0, 0));
}

#[test]
fn what_the_other_has_open_lives_until_it_is_closed() {
    let (_world, a, b, d, listed) = shared(50);
    let held: Vec<_> =
        [3, 20, 41].map(|n: usize| a.open(&root(), listed[n].1, READ).unwrap()).into();
    let written = a.open(&root(), listed[30].1, RW).unwrap();
    written.write(8, Data::Slice(b" and more")).unwrap();
    for (name, _) in &listed {
        b.unlink(&root(), d, name).unwrap();
    }
    b.rmdir(&root(), Fid::ROOT, b"d").unwrap();
    b.sync_all().unwrap();
    let mut buf = [0; 64];
    for f in &held {
        assert_eq!(f.read(0, &mut buf).unwrap(), 8);
        assert_eq!(&buf[..8], b"contents");
    }
    assert_eq!(written.read(0, &mut buf).unwrap(), 17);
    written.write(17, Data::Slice(b"!")).unwrap();
    assert_eq!(written.read(0, &mut buf).unwrap(), 18);
    held.into_iter().for_each(|f| f.release());
    written.release();
    a.sync_all().unwrap();
    assert_eq!((a.stats().surprises, b.stats().surprises), (0, 0));
}

#[test]
fn both_may_remove_the_same() {
    let (_world, a, b, d, listed) = shared(200);
    let remove = |c: &Client| {
        let gone = listed.iter().filter(|(name, _)| match c.unlink(&root(), d, name) {
            Ok(_) => true,
            Err(e) => {
                assert_eq!(e, Errno::ENOENT);
                false
            }
        });
        gone.count()
    };
    let (mine, others) = std::thread::scope(|t| {
        let others = t.spawn(|| remove(&a));
        (remove(&b), others.join().unwrap())
    });
    assert_eq!(mine + others, listed.len());
    assert!(list(&a, d).is_empty() && list(&b, d).is_empty());
    b.rmdir(&root(), Fid::ROOT, b"d").unwrap();
    assert_eq!((a.stats().surprises, b.stats().surprises), (0, 0));
}

/// A file with its contents, made or made anew.
fn write_file(c: &Client, d: Fid, name: &str, data: &[u8]) {
    let mode = FileKind::File.mode_bits() | 0o644;
    let made = c.create(&root(), d, name.as_bytes(), mode, 0, 0, b"", 0, Some(RW)).unwrap();
    let f = made.file.unwrap();
    f.write(0, Data::Slice(data)).unwrap();
    f.release();
}

/// As a compiler does it: a list of what it read is written over the old one, the object is removed and made.
fn build(c: &Client, d: Fid, which: impl Iterator<Item = usize>, data: &[u8]) {
    for n in which {
        let list = c.lookup(&root(), d, format!("s{n}.d").as_bytes()).unwrap().fid;
        let f = c.open(&root(), list, OpenFlags { read: false, trunc: true, ..RW }).unwrap();
        f.write(0, Data::Slice(data)).unwrap();
        f.release();
        c.unlink(&root(), d, format!("s{n}.o").as_bytes()).unwrap();
        write_file(c, d, &format!("s{n}.o"), data);
    }
}

/// What is there, by name; `s` files only.
fn contents(c: &Client, d: Fid) -> Vec<(Vec<u8>, Vec<u8>)> {
    let read = |(name, _): (Vec<u8>, Fid)| {
        let attr = c.lookup(&root(), d, &name).unwrap();
        let f = c.open(&root(), attr.fid, READ).unwrap();
        let mut buf = [0; 64];
        let n = f.read(0, &mut buf).unwrap();
        assert_eq!(n as u64, attr.size);
        f.release();
        (name, buf[..n].to_vec())
    };
    list(c, d).into_iter().map(read).collect()
}

#[test]
fn what_another_has_built_is_built_again_in_few_messages() {
    const SOURCES: usize = 60;
    let world = World::new(1);
    let (a, b) = (world.client(), world.client());
    let d = make(&a, Fid::ROOT, "d", FileKind::Dir);
    for n in 0..SOURCES {
        for suffix in ["c", "d", "o"] {
            write_file(&a, d, &format!("s{n}.{suffix}"), b"first");
        }
    }
    a.sync_all().unwrap();
    contents(&a, d);
    let rebuilt = || (0..SOURCES).filter(|n| n % 3 == 1);
    for (round, (one, other)) in [(&b, &a), (&a, &b), (&b, &a)].into_iter().enumerate() {
        contents(one, d);
        let before = counted(&a) + counted(&b);
        let data = [b'0' + round as u8; 7];
        build(one, d, rebuilt(), &data);
        one.sync_all().unwrap();
        let spent = counted(&a) + counted(&b) - before;
        assert!(spent <= 30, "round {round}: {} rebuilt, {spent} messages", rebuilt().count());
        for (name, found) in contents(other, d) {
            let text = String::from_utf8(name).unwrap();
            let n: usize = text[1..text.len() - 2].parse().unwrap();
            let new = n % 3 == 1 && !text.ends_with('c');
            let wanted: &[u8] = if new { &data } else { b"first" };
            assert_eq!(found, wanted, "{text}");
        }
    }
    assert_eq!((a.stats().surprises, b.stats().surprises), (0, 0));
}

#[test]
fn what_is_opened_for_writing_alone_takes_nothing_from_others() {
    let (_world, a, b, d, listed) = shared(40);
    read_all(&a, d);
    let fid = listed[7].1;
    b.open(&root(), fid, OpenFlags { read: false, ..RW }).unwrap().release();
    let before = a.stats().mds_messages;
    for (_, fid) in listed.iter().filter(|(_, f)| *f != fid) {
        a.open(&root(), *fid, READ).unwrap().release();
    }
    assert_eq!(a.stats().mds_messages, before);
    assert_eq!(a.lookup(&root(), d, &listed[7].0).unwrap().fid, fid);
}

#[test]
fn who_removed_files_keeps_nothing_of_them() {
    let (_world, a, _b, d, files) = shared(100);
    let open = a.open(&root(), files[0].1, READ).unwrap();
    let (inodes, leases) = (a.stats().inodes, a.stats().leases);
    assert!(inodes >= 100 && leases >= 100, "{inodes} inodes, {leases} leases");
    for (name, _) in &files {
        a.unlink(&root(), d, name).unwrap();
    }
    a.rmdir(&root(), Fid::ROOT, b"d").unwrap();
    // Of the open one all is there, and of the root.
    until(|| a.stats().inodes <= inodes - 99 && a.stats().leases <= leases - 100);
    let mut buf = [0; 8];
    assert_eq!((open.read(0, &mut buf).unwrap(), &buf), (8, b"contents"));
    assert_eq!(open.attr().unwrap().nlink, 0);
    open.release();
    drop(open);
    until(|| a.stats().inodes <= inodes - 100);
}
