//! What a client that is alone does without the MDT: opens and closes of files that are only read,
//! access times, attributes of directories, absent names.

mod common;

use std::sync::Arc;

use common::{World, root, until};
use pinstripe_client::{Client, Data, OpenFile, OpenFlags};
use proto::attr::{S_ATIME, SetAttr};
use proto::{Attr, Errno, Fid, FileKind, TimeSpec};

const RW: OpenFlags =
    OpenFlags { read: true, write: true, trunc: false, direct: false, sync: false, noatime: true };
const RO: OpenFlags = OpenFlags { write: false, noatime: false, ..RW };

/// A file with ten bytes, closed; nothing of it waits.
fn make(c: &Client, dir: Fid, name: &str) -> Attr {
    let mode = FileKind::File.mode_bits() | 0o644;
    let made = c.create(&root(), dir, name.as_bytes(), mode, 0, 0, b"", 0, Some(RW)).unwrap();
    let file = made.file.unwrap();
    file.write(0, Data::Slice(b"0123456789")).unwrap();
    file.release();
    c.sync_all().unwrap();
    made.attr
}

fn mkdir(c: &Client, name: &str) -> Fid {
    let mode = FileKind::Dir.mode_bits() | 0o755;
    c.create(&root(), Fid::ROOT, name.as_bytes(), mode, 0, 0, b"", 0, None).unwrap().attr.fid
}

fn ten(f: &OpenFile) -> Result<(), Errno> {
    let mut buf = [0; 16];
    let n = f.read(0, &mut buf)?;
    assert_eq!(&buf[..n], b"0123456789");
    Ok(())
}

fn messages(c: &Client) -> u64 {
    c.stats().mds_messages
}

/// Open files, as the MDT knows them.
fn handles(c: &Client) -> usize {
    let status = String::from_utf8(c.status_json().unwrap()[0].to_vec()).unwrap();
    let (_, rest) = status.split_once("\"open_files\":").unwrap();
    rest.split([',', '}']).next().unwrap().parse().unwrap()
}

#[test]
fn a_known_file_is_read_without_a_message() {
    let world = World::new(1);
    let c = world.client();
    let fid = make(&c, Fid::ROOT, "f").fid;
    let before = messages(&c);
    for _ in 0..10 {
        let f = c.open(&root(), fid, RO).unwrap();
        ten(&f).unwrap();
        f.release();
        assert_eq!(ten(&f), Err(Errno::EBADF));
    }
    assert_eq!(messages(&c), before);
}

#[test]
fn access_times_are_seen_at_once_and_told_late() {
    let world = World::new(1);
    let c = world.client();
    let fids: Vec<Fid> = (0..40).map(|n| make(&c, Fid::ROOT, &format!("f{n}")).fid).collect();
    let before = messages(&c);
    let mut seen = Vec::new();
    for fid in &fids {
        let f = c.open(&root(), *fid, RO).unwrap();
        ten(&f).unwrap();
        f.release();
        let attr = f.attr().unwrap();
        assert!(attr.atime > attr.mtime);
        seen.push(attr.atime);
    }
    assert!(messages(&c) - before < 20, "only ticks tell some");
    // A time set by hand comes after the reads.
    let old = TimeSpec { sec: 1000, nsec: 5 };
    let set = SetAttr { valid: S_ATIME, atime: old, ..SetAttr::none() };
    c.setattr(&root(), fids[0], set, None).unwrap();
    seen[0] = old;
    let before = messages(&c);
    c.sync_all().unwrap();
    assert!(messages(&c) - before < 20, "many in one message");
    let other = world.client();
    for (fid, atime) in fids.iter().zip(seen) {
        assert_eq!(other.getattr(&root(), *fid).unwrap().atime, atime);
    }
}

/// A look-up brings the layout along: the first open of a striped file needs no further message. What
/// it brought is no more believed once the file has changed.
#[test]
fn a_striped_file_that_was_looked_up_is_opened_without_a_message() {
    let world = World::new(2);
    let big: Vec<u8> = (0..1u32 << 20).map(|i| (i % 253) as u8).collect();
    let read = |c: &Client, fid| {
        let f = c.open(&root(), fid, RO).unwrap();
        let mut buf = vec![0; big.len() + 1];
        let n = f.read(0, &mut buf).unwrap();
        f.release();
        buf.truncate(n);
        buf
    };
    {
        let c = world.client();
        let fid = make(&c, Fid::ROOT, "f").fid;
        let f = c.open(&root(), fid, RW).unwrap();
        f.write(0, Data::Slice(&big)).unwrap();
        f.release();
        c.sync_all().unwrap();
    }
    let c = world.client();
    let fid = c.lookup(&root(), Fid::ROOT, b"f").unwrap().fid;
    let before = messages(&c);
    assert!(read(&c, fid) == big);
    assert_eq!(messages(&c), before);
    drop(c);

    let c = world.client();
    c.lookup(&root(), Fid::ROOT, b"f").unwrap();
    c.setattr(&root(), fid, SetAttr::size(0), None).unwrap();
    let f = c.open(&root(), fid, RW).unwrap();
    f.write(0, Data::Slice(b"0123456789")).unwrap();
    f.release();
    c.sync_all().unwrap();
    assert_eq!(read(&c, fid), b"0123456789");
    drop(c);
    let c = world.client();
    c.lookup(&root(), Fid::ROOT, b"f").unwrap();
    assert_eq!(read(&c, fid), b"0123456789");
}

/// Invariant: an unlinked file lives until its last close, also one that was opened without the MDT.
#[test]
fn a_file_opened_here_outlives_its_name() {
    let world = World::new(1);
    let c = world.client();
    let (d, e) = (mkdir(&c, "d"), mkdir(&c, "e"));
    let open = |fid| -> Arc<OpenFile> { c.open(&root(), fid, RO).unwrap() };
    let unlinked = open(make(&c, d, "a").fid);
    let replaced = open(make(&c, e, "b").fid);
    make(&c, d, "c");
    let before = handles(&c);
    c.unlink(&root(), d, b"a").unwrap();
    c.rename(&root(), d, b"c", e, b"b", 0).unwrap();
    assert_eq!(handles(&c), before + 2);
    // Another client: what was cached is gone, the files are not.
    let other = world.client();
    other.getattr(&root(), Fid::ROOT).unwrap();
    until(|| !c.is_sole());
    ten(&unlinked).unwrap();
    ten(&replaced).unwrap();
    let fid = unlinked.fid();
    unlinked.release();
    replaced.release();
    until(|| handles(&c) == 0);
    assert_eq!(other.getattr(&root(), fid).unwrap_err(), Errno::ESTALE);
    assert_eq!(c.open(&root(), fid, RO).unwrap_err(), Errno::ESTALE);
}

#[test]
fn a_file_open_here_is_kept_when_another_client_removes_it() {
    let world = World::new(1);
    let c = world.client();
    let f = c.open(&root(), make(&c, Fid::ROOT, "a").fid, RO).unwrap();
    let again = c.open(&root(), f.fid(), RO).unwrap();
    let other = world.client();
    other.unlink(&root(), Fid::ROOT, b"a").unwrap();
    ten(&f).unwrap();
    f.release();
    ten(&again).unwrap();
    again.release();
    until(|| handles(&c) == 0);
}

#[test]
fn a_file_that_stays_open_becomes_known_to_the_mdt() {
    let world = World::new(1);
    let c = world.client();
    let f = c.open(&root(), make(&c, Fid::ROOT, "a").fid, RO).unwrap();
    until(|| handles(&c) == 1);
    let g = c.open(&root(), f.fid(), RO).unwrap();
    f.release();
    ten(&g).unwrap();
    assert_eq!(handles(&c), 1);
    g.release();
    until(|| handles(&c) == 0);
}

#[test]
fn a_change_of_names_tells_of_its_directory() {
    let world = World::new(1);
    let c = world.client();
    let d = mkdir(&c, "d");
    make(&c, d, "a");
    let mode = FileKind::Dir.mode_bits() | 0o755;
    c.create(&root(), d, b"sub", mode, 0, 0, b"", 0, None).unwrap();
    let before = messages(&c);
    let here = c.getattr(&root(), d).unwrap();
    assert_eq!(c.lookup(&root(), d, b"absent").unwrap_err(), Errno::ENOENT);
    assert_eq!(messages(&c), before, "both known");
    assert_eq!(here.nlink, 3);
    let set = SetAttr { valid: proto::attr::S_MODE, mode: 0o700, ..SetAttr::none() };
    c.setattr(&root(), d, set, None).unwrap();
    assert_eq!(c.getattr(&root(), d).unwrap().mode & 0o7777, 0o700);
    c.link(&root(), c.lookup(&root(), d, b"a").unwrap().fid, d, b"b").unwrap();
    c.rename(&root(), d, b"a", Fid::ROOT, b"moved", 0).unwrap();
    let here = c.getattr(&root(), d).unwrap();
    let other = world.client();
    assert_eq!(other.getattr(&root(), d).unwrap(), here);
    assert!(other.lookup(&root(), d, b"b").is_ok());
    drop(other);
    c.unlink(&root(), d, b"b").unwrap();
    c.rmdir(&root(), d, b"sub").unwrap();
    c.rmdir(&root(), Fid::ROOT, b"d").unwrap();
    assert_eq!(c.getattr(&root(), d).unwrap_err(), Errno::ESTALE);
}

/// Who read a file that another cut meanwhile tells its access time and no size.
#[test]
fn a_reader_among_others_tells_no_size() {
    let world = World::new(1);
    let (c, other) = (world.client(), world.client());
    let mode = FileKind::File.mode_bits() | 0o644;
    let made = c.create(&root(), Fid::ROOT, b"f", mode, 0, 0, b"", 0, Some(RW)).unwrap();
    let file = made.file.unwrap();
    file.write(0, Data::Slice(&[1; 200_000])).unwrap();
    file.flush().unwrap();
    let f = other.open(&root(), made.attr.fid, RO).unwrap();
    assert_eq!(f.read(0, &mut [0; 10]).unwrap(), 10);
    let shorter = SetAttr::size(50);
    c.setattr(&root(), made.attr.fid, shorter, None).unwrap();
    file.release();
    until(|| handles(&c) == 1);
    f.release();
    until(|| handles(&c) == 0);
    assert_eq!(c.getattr(&root(), made.attr.fid).unwrap().size, 50);
    assert_eq!(other.getattr(&root(), made.attr.fid).unwrap().size, 50);
}

/// Twenty small files in a directory, each with its number; told to the MDT.
fn numbered(c: &Client) -> Fid {
    let dir = mkdir(c, "d");
    let mode = FileKind::File.mode_bits() | 0o644;
    for n in 0..20 {
        let name = format!("f{n}");
        let made = c.create(&root(), dir, name.as_bytes(), mode, 0, 0, b"", 0, Some(RW)).unwrap();
        let file = made.file.unwrap();
        file.write(0, Data::Slice(name.as_bytes())).unwrap();
        file.release();
    }
    c.sync_all().unwrap();
    dir
}

fn text(c: &Client, dir: Fid, name: &str) -> Result<Vec<u8>, Errno> {
    let fid = c.lookup(&root(), dir, name.as_bytes())?.fid;
    let f = c.open(&root(), fid, RO)?;
    let mut buf = [0; 64];
    let n = f.read(0, &mut buf)?;
    Ok(buf[..n].to_vec())
}

#[test]
fn small_files_of_a_directory_are_read_together() {
    let world = World::new(1);
    let c = world.client();
    let dir = numbered(&c);
    c.shutdown().unwrap();
    let c = world.client();
    let before = messages(&c);
    for n in 0..20 {
        assert_eq!(text(&c, dir, &format!("f{n}")).unwrap(), format!("f{n}").as_bytes());
    }
    let cold = messages(&c) - before;
    assert!(cold <= 10, "{cold} messages");
    c.sync_all().unwrap();
    assert_eq!(c.stats().surprises, 0);
}

#[test]
fn what_was_read_along_is_never_older_than_what_came_after() {
    let world = World::new(1);
    let c = world.client();
    let dir = numbered(&c);
    c.shutdown().unwrap();
    let c = world.client();
    for n in 0..4 {
        text(&c, dir, &format!("f{n}")).unwrap();
    }
    // All others are here now, and nobody opened them.
    let before = messages(&c);
    assert_eq!(text(&c, dir, "f4").unwrap(), b"f4");
    assert_eq!(messages(&c), before);
    let fid = |name: &str| c.lookup(&root(), dir, name.as_bytes()).unwrap().fid;
    let f = c.open(&root(), fid("f5"), RW).unwrap();
    f.write(1, Data::Slice(b"IVE")).unwrap();
    f.release();
    let cut = SetAttr::size(1);
    c.setattr(&root(), fid("f6"), cut, None).unwrap();
    c.unlink(&root(), dir, b"f7").unwrap();
    c.rename(&root(), dir, b"f8", dir, b"f9", 0).unwrap();
    let time = TimeSpec { sec: 99, nsec: 1 };
    let old = SetAttr { valid: S_ATIME, atime: time, ..SetAttr::none() };
    c.setattr(&root(), fid("f10"), old, None).unwrap();
    let check = |c: &Client| {
        assert_eq!(text(c, dir, "f5").unwrap(), b"fIVE");
        assert_eq!(text(c, dir, "f6").unwrap(), b"f");
        assert_eq!(text(c, dir, "f7"), Err(Errno::ENOENT));
        assert_eq!(text(c, dir, "f8"), Err(Errno::ENOENT));
        assert_eq!(text(c, dir, "f9").unwrap(), b"f8");
    };
    assert_eq!(c.getattr(&root(), fid("f10")).unwrap().atime, time);
    check(&c);
    c.sync_all().unwrap();
    check(&c);
    let other = world.client();
    check(&other);
    let f = other.open(&root(), fid("f12"), RW).unwrap();
    f.write(0, Data::Slice(b"else")).unwrap();
    f.flush().unwrap();
    f.release();
    other.sync_all().unwrap();
    assert_eq!(text(&c, dir, "f12").unwrap(), b"else");
}

#[test]
fn files_read_along_are_right_whatever_is_done_to_them_meanwhile() {
    let world = World::new(1);
    for round in 0..8u8 {
        let c = world.client();
        let name = format!("r{round}");
        let dir = mkdir(&c, &name);
        let mode = FileKind::File.mode_bits() | 0o644;
        let names: Vec<String> = (0..60).map(|n| format!("f{n}")).collect();
        for name in &names {
            let made =
                c.create(&root(), dir, name.as_bytes(), mode, 0, 0, b"", 0, Some(RW)).unwrap();
            made.file.unwrap().write(0, Data::Slice(b"old")).unwrap();
        }
        c.shutdown().unwrap();
        let c = world.client();
        c.readdir(&root(), dir, 0, 65_536, true).unwrap();
        std::thread::scope(|s| {
            s.spawn(|| names.iter().for_each(|n| drop(text(&c, dir, n).unwrap())));
            for name in names.iter().rev() {
                let fid = c.lookup(&root(), dir, name.as_bytes()).unwrap().fid;
                let set = SetAttr { valid: proto::attr::S_MODE, mode: 0o600, ..SetAttr::none() };
                c.setattr(&root(), fid, set, None).unwrap();
                let f = c.open(&root(), fid, RW).unwrap();
                f.write(0, Data::Slice(b"new")).unwrap();
                f.truncate(2 + u64::from(round % 2)).unwrap();
                f.release();
                assert_eq!(c.getattr(&root(), fid).unwrap().mode & 0o777, 0o600);
            }
        });
        let want = if round % 2 == 0 { &b"ne"[..] } else { b"new" };
        for name in &names {
            let attr = c.lookup(&root(), dir, name.as_bytes()).unwrap();
            assert_eq!((attr.mode & 0o777, attr.size), (0o600, want.len() as u64));
            assert_eq!(text(&c, dir, name).unwrap(), want);
        }
        c.sync_all().unwrap();
        assert_eq!(c.stats().surprises, 0);
        c.shutdown().unwrap();
    }
}

#[test]
fn space_is_asked_of_the_osts_only_after_a_change() {
    let world = World::new(2);
    let tick = std::time::Duration::from_millis(5);
    let options = pinstripe_client::Options { dirty_expire: tick, ..Default::default() };
    let c = world.client_with(options);
    let asked = || c.stats().oss_messages["statfs"];
    let quiet = || {
        let before = asked();
        c.statfs().unwrap();
        asked() == before
    };
    until(quiet);
    let fid = make(&c, Fid::ROOT, "f").fid;
    let f = c.open(&root(), fid, RW).unwrap();
    // Both are asked, unless the three ticks are over already.
    until(|| {
        f.write(0, Data::Slice(&[3; 300_000])).unwrap();
        f.fsync(false).unwrap();
        let before = asked();
        c.statfs().unwrap();
        asked() == before + 2
    });
    f.release();
    until(quiet);
    let (total, free) = c.statfs().map(|s| (s.total, s.free)).unwrap();
    assert!(free > 0 && free < total);
}
