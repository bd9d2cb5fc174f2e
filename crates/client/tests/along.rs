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

#[test]
fn files_of_one_kind_come_along_from_directory_to_directory() {
    let world = World::new(1);
    let (a, b) = (world.client(), world.client());
    project(&a);
    let dirs: Vec<Fid> = (0..DIRS)
        .map(|d| b.lookup(&root(), Fid::ROOT, format!("p{d}").as_bytes()).unwrap().fid)
        .collect();
    let mut messages = 0;
    for (d, dir) in dirs.into_iter().enumerate() {
        let page = b.readdir(&root(), dir, 0, 64 << 10, true).unwrap();
        assert!(page.end && page.entries.len() == 3 * EACH);
        let before = b.stats().mds_messages;
        for i in 0..EACH {
            let name = format!("s{i}.d");
            let fid = b.lookup(&root(), dir, name.as_bytes()).unwrap().fid;
            let f = b.open(&root(), fid, READ).unwrap();
            let mut buf = [0; 64];
            let n = f.read(0, &mut buf).unwrap();
            assert_eq!(buf[..n], *format!("{d} {name}").as_bytes());
            f.release();
        }
        messages += b.stats().mds_messages - before;
    }
    // Three of the first directories each, and one of each other.
    assert!(messages <= DIRS as u64 + 8, "{messages} messages");
}
