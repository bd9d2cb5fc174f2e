//! Access times among several mounts: told late, in the order things happened.

mod common;

use common::{READ, WRITE, World, root, until};
use pinstripe_client::Data;
use proto::attr::S_ATIME;
use proto::{Fid, FileKind, SetAttr, TimeSpec};

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
