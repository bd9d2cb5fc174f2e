//! What a client made it goes on believing when others come to read it, and no longer than that.

mod common;

use common::{READ, WRITE, World, root};
use pinstripe_client::{Client, Data, OpenFlags};
use proto::attr::S_MODE;
use proto::mds::C_EXCL;
use proto::{Fid, FileKind, SetAttr};

const RW: OpenFlags = OpenFlags { write: true, ..READ };
const FILES: u32 = 30;

/// A directory, and small files in it that were made one after the other.
fn project(c: &Client, name: &str) -> (Fid, Vec<Fid>) {
    let mode = FileKind::Dir.mode_bits() | 0o755;
    let made = c.create(&root(), Fid::ROOT, name.as_bytes(), mode, 0, 0, b"", C_EXCL, None);
    let dir = made.unwrap().attr.fid;
    let make = |i: u32| {
        let name = format!("f{i}");
        let mode = FileKind::File.mode_bits() | 0o644;
        let made = c.create(&root(), dir, name.as_bytes(), mode, 0, 0, b"", 0, Some(RW)).unwrap();
        let f = made.file.unwrap();
        f.write(0, Data::Slice(format!("first of {i}").as_bytes())).unwrap();
        f.release();
        made.attr.fid
    };
    (dir, (0..FILES).map(make).collect())
}

fn read(c: &Client, fid: Fid) -> String {
    let f = c.open(&root(), fid, READ).unwrap();
    let mut buf = [0; 64];
    let n = f.read(0, &mut buf).unwrap();
    let shown = c.getattr(&root(), fid).unwrap();
    assert_eq!(shown.size, n as u64);
    f.release();
    String::from_utf8(buf[..n].to_vec()).unwrap()
}

fn write(c: &Client, fid: Fid, text: &str) {
    let f = c.open(&root(), fid, OpenFlags { trunc: true, ..WRITE }).unwrap();
    f.write(0, Data::Slice(text.as_bytes())).unwrap();
    f.flush().unwrap();
    f.release();
}

/// Messages of reading and looking at all these files.
fn messages_of_reading(c: &Client, files: &[Fid], text: &str) -> u64 {
    let before = c.stats().mds_messages;
    for (i, fid) in files.iter().enumerate() {
        assert_eq!(read(c, *fid), format!("{text} of {i}"));
    }
    c.stats().mds_messages - before
}

fn who_made_them_reads_on_without_a_message(told_before: bool) {
    let world = World::new(1);
    let (a, b) = (world.client(), world.client());
    // The first changes show how much room there is, and earn the directory.
    project(&a, "warm");
    let (dir, files) = project(&a, "d");
    if told_before {
        a.sync_all().unwrap();
    }
    assert_eq!(messages_of_reading(&a, &files, "first"), 0, "they are its alone");
    for (i, fid) in files.iter().enumerate() {
        let seen = b.lookup(&root(), dir, format!("f{i}").as_bytes()).unwrap();
        assert_eq!(seen.fid, *fid);
        assert_eq!(read(&b, *fid), format!("first of {i}"));
    }
    assert_eq!(messages_of_reading(&a, &files, "first"), 0, "another has only read them");
    let looked = |c: &Client| -> Vec<_> {
        let look = |fid: &Fid| {
            let a = c.getattr(&root(), *fid).unwrap();
            (a.size, a.mode, a.mtime, a.ctime, a.nlink, a.blocks)
        };
        files.iter().map(look).collect()
    };
    assert_eq!(looked(&a), looked(&b));
    // What comes then is seen, whoever does it.
    files.iter().enumerate().for_each(|(i, fid)| write(&b, *fid, &format!("second of {i}")));
    messages_of_reading(&a, &files, "second");
    files.iter().enumerate().for_each(|(i, fid)| write(&a, *fid, &format!("third of {i}")));
    messages_of_reading(&b, &files, "third");
    let chmod = |c: &Client, fid: Fid, mode: u32| {
        c.setattr(&root(), fid, SetAttr { valid: S_MODE, mode, ..SetAttr::none() }, None).unwrap();
    };
    for fid in &files {
        chmod(&b, *fid, 0o600);
        assert_eq!(a.getattr(&root(), *fid).unwrap().mode & 0o777, 0o600);
        chmod(&a, *fid, 0o640);
        assert_eq!(b.getattr(&root(), *fid).unwrap().mode & 0o777, 0o640);
    }
    messages_of_reading(&a, &files, "third");
    assert_eq!((a.stats().surprises, b.stats().surprises), (0, 0));
}

#[test]
fn what_was_told_is_believed_on_when_others_read_it() {
    who_made_them_reads_on_without_a_message(true);
}

#[test]
fn what_was_not_told_yet_is_told_first_and_believed_on() {
    who_made_them_reads_on_without_a_message(false);
}
