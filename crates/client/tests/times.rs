//! Access times among several mounts: told late, in the order things happened.

mod common;

use common::{READ, WRITE, World, root, until};
use pinstripe_client::{Client, Data};
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
