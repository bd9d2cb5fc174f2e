//! Which small files come along with one that is read.

mod common;

use common::{READ, World, root};
use pinstripe_client::{Client, Data, OpenFlags};
use proto::mds::C_EXCL;
use proto::{Fid, FileKind};

const RW: OpenFlags = OpenFlags { write: true, noatime: true, ..READ };
const DIRS: usize = 8;
const EACH: usize = 15;

fn project(c: &Client) {
    for d in 0..DIRS {
        let mode = FileKind::Dir.mode_bits() | 0o755;
        let name = format!("p{d}");
        let made = c.create(&root(), Fid::ROOT, name.as_bytes(), mode, 0, 0, b"", C_EXCL, None);
        let dir = made.unwrap().attr.fid;
        for (i, suffix) in (0..EACH).flat_map(|i| ["c", "o", "d"].map(|s| (i, s))) {
            let name = format!("s{i}.{suffix}");
            let mode = FileKind::File.mode_bits() | 0o644;
            let made = c.create(&root(), dir, name.as_bytes(), mode, 0, 0, b"", 0, Some(RW));
            let f = made.unwrap().file.unwrap();
            f.write(0, Data::Slice(format!("{d} {name}").as_bytes())).unwrap();
            f.release();
        }
    }
    c.sync_all().unwrap();
}

/// The files of one suffix, by their numbers, in the order of the directories.
fn listed(c: &Client, suffix: &str) -> Vec<Vec<(String, Fid)>> {
    let list = |d: usize| {
        let dir = c.lookup(&root(), Fid::ROOT, format!("p{d}").as_bytes()).unwrap().fid;
        let page = c.readdir(&root(), dir, 0, 64 << 10, true).unwrap();
        assert!(page.end && page.entries.len() == 3 * EACH);
        let by_name = |i: usize| {
            let name = format!("s{i}.{suffix}");
            let entry = page.entries.iter().find(|e| e.name == name.as_bytes()).unwrap();
            (name, entry.fid)
        };
        (0..EACH).map(by_name).collect()
    };
    (0..DIRS).map(list).collect()
}

fn read(c: &Client, fid: Fid, wanted: &str) {
    let f = c.open(&root(), fid, READ).unwrap();
    let mut buf = [0; 64];
    let n = f.read(0, &mut buf).unwrap();
    assert_eq!(buf[..n], *wanted.as_bytes());
    f.release();
}

#[test]
fn files_of_one_kind_come_along_from_directory_to_directory() {
    let world = World::new(1);
    let (a, b) = (world.client(), world.client());
    project(&a);
    let mut messages = 0;
    for d in 0..DIRS {
        let dir = b.lookup(&root(), Fid::ROOT, format!("p{d}").as_bytes()).unwrap().fid;
        let page = b.readdir(&root(), dir, 0, 64 << 10, true).unwrap();
        assert!(page.end && page.entries.len() == 3 * EACH);
        let before = b.stats().mds_messages;
        for i in 0..EACH {
            let name = format!("s{i}.d");
            let fid = b.lookup(&root(), dir, name.as_bytes()).unwrap().fid;
            read(&b, fid, &format!("{d} {name}"));
        }
        messages += b.stats().mds_messages - before;
    }
    // Three of the first directories each, and one of each other.
    assert!(messages <= DIRS as u64 + 8, "{messages} messages");
}

/// As `make` does where the kernel keeps the names: all directories were listed before the first file is read, and
/// no name is looked up.
#[test]
fn files_come_along_wherever_names_were_seen() {
    let world = World::new(1);
    let (a, b) = (world.client(), world.client());
    project(&a);
    let files = listed(&b, "d");
    let before = b.stats().mds_messages;
    for (d, files) in files.into_iter().enumerate() {
        files.into_iter().for_each(|(name, fid)| read(&b, fid, &format!("{d} {name}")));
    }
    let messages = b.stats().mds_messages - before;
    assert!(messages <= DIRS as u64 + 8, "{messages} messages");
}

/// As the nodes of a cluster do that begin a build together, just after its tree was put there: its maker gives up one file
/// after the other meanwhile, and nobody lists anything.
#[test]
fn many_who_read_the_same_new_files_at_once_do_not_ask_for_each() {
    const FILES: usize = 200;
    let world = World::new(1);
    let (a, readers) = (world.client(), [(); 6].map(|()| world.client()));
    let mode = FileKind::Dir.mode_bits() | 0o755;
    let made = a.create(&root(), Fid::ROOT, b"include", mode, 0, 0, b"", C_EXCL, None);
    let dir = made.unwrap().attr.fid;
    let name = |i: usize| format!("h{i}.h").into_bytes();
    for i in 0..FILES {
        let mode = FileKind::File.mode_bits() | 0o644;
        let made = a.create(&root(), dir, &name(i), mode, 0, 0, b"", 0, Some(RW));
        let f = made.unwrap().file.unwrap();
        f.write(0, Data::Slice(&name(i))).unwrap();
        f.release();
    }
    a.sync_all().unwrap();
    std::thread::scope(|scope| {
        for c in &readers {
            scope.spawn(|| {
                for i in 0..FILES {
                    let fid = c.lookup(&root(), dir, &name(i)).unwrap().fid;
                    read(c, fid, std::str::from_utf8(&name(i)).unwrap());
                }
            });
        }
    });
    let messages = readers.each_ref().map(|c| c.stats().mds_messages);
    assert!(messages.iter().all(|n| *n < FILES as u64), "{messages:?}");
}
