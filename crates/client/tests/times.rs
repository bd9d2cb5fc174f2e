//! Access times among several mounts: told late, in the order things happened.

mod common;

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use common::{READ, WRITE, World, root, until};
use pinstripe_client::{Client, Data, Options, Pauses};
use proto::attr::{S_ATIME, S_MODE};
use proto::{Attr, Fid, FileKind, SetAttr, TimeSpec};

/// That a file was read is told by its reader later; a time that another sets by hand after the read
/// stands, whether it lies in the past or in the future.
#[test]
fn a_time_set_by_hand_is_not_undone_by_an_earlier_read() {
    let world = World::new(1);
    let (a, b) = (world.client(), world.client());
    let mode = FileKind::File.mode_bits() | 0o644;
    for (name, sec) in [("past", 1_000_000_000), ("future", 4_000_000_000)] {
        let name = name.as_bytes();
        let made = a.create(&root(), Fid::ROOT, name, mode, 0, 0, b"", 0, Some(WRITE)).unwrap();
        let (fid, file) = (made.attr.fid, made.file.unwrap());
        file.write(0, Data::Slice(b"data")).unwrap();
        file.release();
        a.sync_all().unwrap();
        let read = b.open(&root(), fid, READ).unwrap();
        assert_eq!(read.read(0, &mut [0; 4]).unwrap(), 4);
        let seen = b.getattr(&root(), fid).unwrap().atime;
        assert!(seen > made.attr.atime, "it was read");
        read.release();
        let atime = TimeSpec { sec, nsec: 7 };
        let set = SetAttr { valid: S_ATIME, atime, ..SetAttr::none() };
        a.setattr(&root(), fid, set, None).unwrap();
        b.sync_all().unwrap();
        for client in [&a, &b] {
            assert_eq!(client.getattr(&root(), fid).unwrap().atime, atime);
        }
    }
}

/// So does one that keeps all it knows of the file, under leases that nobody calls back for that.
#[test]
fn who_keeps_attributes_is_told_when_another_has_read_the_file() {
    let world = World::new(1);
    let (a, b, c) = (world.client(), world.client(), world.client());
    let mode = FileKind::File.mode_bits() | 0o644;
    let made = a.create(&root(), Fid::ROOT, b"f", mode, 0, 0, b"", 0, Some(WRITE)).unwrap();
    let (fid, file) = (made.attr.fid, made.file.unwrap());
    file.write(0, Data::Slice(b"data")).unwrap();
    file.release();
    a.sync_all().unwrap();
    let look = |client: &Client| {
        assert_eq!(client.lookup(&root(), Fid::ROOT, b"f").unwrap().fid, fid);
        client.getattr(&root(), fid).unwrap()
    };
    let (by_a, by_c) = (look(&a), look(&c));
    let unread = TimeSpec::default();
    let plain = |attr: Attr| Attr { version: 0, atime: unread, ..attr };
    assert_eq!(plain(by_a.clone()), plain(by_c.clone()));
    let read = b.open(&root(), fid, READ).unwrap();
    assert_eq!(read.read(0, &mut [0; 4]).unwrap(), 4);
    let seen = b.getattr(&root(), fid).unwrap().atime;
    assert!(seen > by_c.atime);
    read.release();
    // For leases that go, and all else of this, others wait no longer.
    look(&a);
    let messages = [&a, &c].map(|client| client.stats().mds_messages);
    b.sync_all().unwrap();
    until(|| [&a, &c].iter().all(|client| look(client).atime == seen));
    assert_eq!([&a, &c].map(|client| client.stats().mds_messages), messages, "nobody asked");
    assert_eq!((plain(look(&a)), plain(look(&c))), (plain(by_a), plain(by_c)));
    // And what is changed then is seen as ever.
    let set = SetAttr { valid: S_MODE, mode: 0o600, ..SetAttr::none() };
    b.setattr(&root(), fid, set, None).unwrap();
    assert!([&a, &c].iter().all(|client| look(client).mode & 0o777 == 0o600));
}

/// Listing a directory and reading a symbolic link move their access times as reading a file does: at once here,
/// later for others, and a time that another sets by hand afterwards stands.
#[test]
fn what_is_listed_or_followed_has_an_access_time() {
    let world = World::new(1);
    let (a, b) = (world.client(), world.client());
    let dir = FileKind::Dir.mode_bits() | 0o755;
    let link = FileKind::Symlink.mode_bits() | 0o777;
    let make = |name: &[u8], mode, target: &[u8]| {
        a.create(&root(), Fid::ROOT, name, mode, 0, 0, target, 0, None).unwrap().attr.fid
    };
    let dirs = (0..100).map(|n| make(format!("d{n}").as_bytes(), dir, b""));
    let fids: Vec<Fid> = dirs.chain([make(b"l", link, b"target")]).collect();
    let l = fids[100];
    a.sync_all().unwrap();
    let look = |client: &Client, fid: Fid| client.getattr(&root(), fid).unwrap();
    let before: Vec<Attr> = fids.iter().map(|fid| look(&b, *fid)).collect();
    let messages = b.stats().mds_messages;
    for fid in &fids[..100] {
        assert!(b.readdir(&root(), *fid, 0, 4096, false).unwrap().entries.is_empty());
        b.listed_from_beginning(*fid);
    }
    assert_eq!(&b.readlink(&root(), l).unwrap()[..], b"target");
    let seen: Vec<TimeSpec> = fids.iter().map(|fid| look(&b, *fid).atime).collect();
    assert!(seen.iter().zip(&before).all(|(seen, before)| *seen > before.atime));
    assert!(seen.iter().zip(&before).all(|(seen, before)| *seen > before.mtime));
    // Each was asked for once; its time waits.
    assert!(b.stats().mds_messages - messages <= 110, "{}", b.stats().mds_messages - messages);
    // Once more: nothing has changed since, so the time stands.
    b.listed_from_beginning(fids[0]);
    b.readlink(&root(), l).unwrap();
    assert_eq!((look(&b, fids[0]).atime, look(&b, l).atime), (seen[0], seen[100]));
    for (fid, sec) in [(fids[1], 1_000_000_000), (l, 4_000_000_000)] {
        let atime = TimeSpec { sec, nsec: 7 };
        let set = SetAttr { valid: S_ATIME, atime, ..SetAttr::none() };
        a.setattr(&root(), fid, set, None).unwrap();
    }
    a.rmdir(&root(), Fid::ROOT, b"d2").unwrap();
    let messages = b.stats().mds_messages;
    b.sync_all().unwrap();
    assert!(b.stats().mds_messages - messages < 10, "many in one message");
    for client in [&a, &b] {
        assert_eq!(look(client, fids[1]).atime.sec, 1_000_000_000);
        assert_eq!(look(client, l).atime.sec, 4_000_000_000);
        until(|| (3..100).all(|n| look(client, fids[n]).atime == seen[n]));
        let plain = |a: Attr| Attr { version: 0, atime: TimeSpec::default(), ..a };
        assert_eq!(plain(look(client, fids[50])), plain(before[50].clone()));
    }
}

/// Alone, that goes the way of all other changes, and none of these is lost by it.
#[test]
fn a_look_that_is_told_undoes_no_change() {
    let world = World::new(1);
    let pauses = Pauses::seeded(1, 8, Duration::from_millis(3));
    let a = world.client_with(Options { pauses, ..Options::default() });
    let dir = FileKind::Dir.mode_bits() | 0o755;
    let file = FileKind::File.mode_bits() | 0o644;
    let make = |parent, name: &str, mode| {
        a.create(&root(), parent, name.as_bytes(), mode, 0, 0, b"", 0, None).unwrap().attr.fid
    };
    let dirs: Vec<Fid> = (0..50).map(|n| make(Fid::ROOT, &format!("d{n}"), dir)).collect();
    a.sync_all().unwrap();
    let messages = a.stats().mds_messages;
    let look = |client: &Client, fid: Fid| client.getattr(&root(), fid).unwrap();
    let mut seen = Vec::new();
    for d in &dirs {
        a.listed_from_beginning(*d);
        seen.push(look(&a, *d).atime);
    }
    assert_eq!(a.stats().mds_messages, messages, "nobody was asked, or told");
    // Changed after it was looked at, in every way: told with it, before it, and after it.
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for n in 0..200 {
                dirs.iter().for_each(|d| assert_ne!(make(*d, &format!("f{n}"), file), *d));
            }
            stop.store(true, SeqCst);
        });
        let mut last: Vec<Attr> = dirs.iter().map(|d| look(&a, *d)).collect();
        while !stop.load(SeqCst) {
            dirs.iter().for_each(|d| a.listed_from_beginning(*d));
            a.sync_all().unwrap();
            for (d, last) in dirs.iter().zip(&mut last) {
                let now = look(&a, *d);
                assert!(now.version >= last.version, "{last:?} became {now:?}");
                assert!(
                    now.mtime >= last.mtime && now.atime >= last.atime,
                    "{last:?} became {now:?}"
                );
                *last = now;
            }
        }
    });
    let shown: Vec<Attr> = dirs.iter().map(|d| look(&a, *d)).collect();
    a.shutdown().unwrap();
    let b = world.client();
    for (d, shown) in dirs.iter().zip(shown) {
        assert_eq!(look(&b, *d), shown);
        let entries = b.readdir(&root(), *d, 0, 1 << 20, false).unwrap().entries;
        assert_eq!(entries.len(), 200);
    }
}

/// What was listed and is removed then, as by `rm -r`, takes no message to say when.
#[test]
fn when_what_is_gone_was_looked_at_is_told_to_nobody() {
    let world = World::new(1);
    let a = world.client();
    let mode = FileKind::Dir.mode_bits() | 0o755;
    let names: Vec<Vec<u8>> = (0..50).map(|n| format!("d{n}").into_bytes()).collect();
    for name in &names {
        a.create(&root(), Fid::ROOT, name, mode, 0, 0, b"", 0, None).unwrap();
    }
    a.sync_all().unwrap();
    let messages = a.stats().mds_messages;
    for name in &names {
        let dir = a.lookup(&root(), Fid::ROOT, name).unwrap();
        a.listed_from_beginning(dir.fid);
        let shown = a.getattr(&root(), dir.fid).unwrap().atime;
        assert!(shown > dir.atime);
        assert_eq!(
            a.rmdir(&root(), Fid::ROOT, name).unwrap().atime,
            shown,
            "who holds it sees that"
        );
    }
    a.sync_all().unwrap();
    assert!(a.stats().mds_messages - messages < 10, "{}", a.stats().mds_messages - messages);
}

/// Another sees when a file was read, if not at once.
#[test]
fn another_mount_sees_when_a_file_was_read() {
    let world = World::new(1);
    let (a, b) = (world.client(), world.client());
    let mode = FileKind::File.mode_bits() | 0o644;
    let made = a.create(&root(), Fid::ROOT, b"f", mode, 0, 0, b"", 0, Some(WRITE)).unwrap();
    let (fid, file) = (made.attr.fid, made.file.unwrap());
    file.write(0, Data::Slice(b"data")).unwrap();
    file.release();
    let read = b.open(&root(), fid, READ).unwrap();
    assert_eq!(read.read(0, &mut [0; 4]).unwrap(), 4);
    let seen = b.getattr(&root(), fid).unwrap().atime;
    read.release();
    b.sync_all().unwrap();
    until(|| a.getattr(&root(), fid).unwrap().atime == seen);
}
