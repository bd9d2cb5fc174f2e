//! A name that is replaced all the time stands for one file or the next, and each is whole.

mod common;
#[path = "common/relay.rs"]
mod relay;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use common::{READ, World, root, until};
use pinstripe_client::{Client, Data, OpenFile, OpenFlags, Options, Pauses};
use proto::mds::C_EXCL;
use proto::{Errno, Fid, FileKind};
use relay::Relay;

const WRITE: OpenFlags = OpenFlags { read: false, write: true, ..READ };
const RW: OpenFlags = OpenFlags { write: true, ..READ };
/// More than the MDT keeps.
const LEN: usize = 100_000;
const ROUNDS: u64 = 300;

fn make(c: &Client, name: &str) -> (Fid, Arc<OpenFile>) {
    let mode = FileKind::File.mode_bits() | 0o644;
    let name = name.as_bytes();
    let made = c.create(&root(), Fid::ROOT, name, mode, 0, 0, b"", C_EXCL, Some(WRITE)).unwrap();
    (made.attr.fid, made.file.unwrap())
}

fn put(c: &Client, fill: u8) {
    let (_, file) = make(c, "new");
    file.write(0, Data::Slice(&[fill; LEN])).unwrap();
    file.release();
    c.rename(&root(), Fid::ROOT, b"new", Fid::ROOT, b"f", 0).unwrap();
}

/// Opens what the name stands for, and reads it when a file that is not open would be destroyed; whether it was
/// still there.
fn read(w: &World, c: &Client, how: OpenFlags) -> bool {
    let found = c.lookup(&root(), Fid::ROOT, b"f").unwrap();
    let file = match c.open(&root(), found.fid, how) {
        Ok(file) => file,
        Err(Errno::ESTALE) => return false,
        Err(e) => panic!("{e}"),
    };
    for _ in 0..10 {
        objects(&w.dir.path().join("ost0/objects"));
    }
    let mut bytes = vec![0; LEN + 1];
    let n = file.read(0, &mut bytes).unwrap();
    file.release();
    let wrong = bytes[..n].iter().position(|b| *b != bytes[0] || *b == 0);
    assert_eq!((n, wrong), (LEN, None), "begins with {}", bytes[0]);
    true
}

fn replaced(w: &World, writer: &Client, readers: &[(&Client, OpenFlags)]) {
    put(writer, 1);
    let (done, reads) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for (reader, how) in readers {
            scope.spawn(|| {
                while !done.load(SeqCst) {
                    reads.fetch_add(u64::from(read(w, reader, *how)), SeqCst);
                }
            });
        }
        for n in 0..ROUNDS {
            put(writer, 1 + (n % 255) as u8);
        }
        done.store(true, SeqCst);
    });
    assert!(reads.load(SeqCst) > 10, "{reads:?} reads");
}

fn paused(w: &World, seed: u64) -> Client {
    let pauses = Pauses::seeded(seed, 3, Duration::from_millis(3));
    w.client_with(Options { pauses, ..Options::default() })
}

#[test]
fn what_is_opened_while_it_is_replaced_here_is_whole() {
    let w = World::new(2);
    let one = paused(&w, 1);
    replaced(&w, &one, &[(&one, READ), (&one, RW), (&one, RW), (&one, RW)]);
}

#[test]
fn what_is_opened_while_it_is_replaced_among_others_is_whole() {
    let w = World::new(2);
    let (one, two) = (paused(&w, 2), paused(&w, 3));
    replaced(&w, &one, &[(&one, READ), (&one, READ), (&one, READ), (&two, READ), (&two, READ)]);
}

/// Objects that are there.
fn objects(dir: &Path) -> usize {
    let below = |e: std::io::Result<std::fs::DirEntry>| {
        let e = e.unwrap();
        // It may be destroyed meanwhile.
        if e.file_type().is_ok_and(|t| t.is_dir()) { objects(&e.path()) } else { 1 }
    };
    std::fs::read_dir(dir).unwrap().map(below).sum()
}

/// Its size is with the OST while it is written.
#[test]
fn a_name_whose_file_is_replaced_while_it_is_measured_stands_for_the_next() {
    let w = World::new(1);
    let one = w.client();
    let (two, relay) = Relay::before(&w, 1, Options { write_through: true, ..Options::default() });
    let (old, writer) = make(&one, "f");
    writer.write(0, Data::Slice(&[7; LEN])).unwrap();
    writer.fsync(false).unwrap();
    assert_eq!(two.lookup(&root(), Fid::ROOT, b"f").unwrap().size, LEN as u64);
    let (new, file) = make(&one, "new");
    file.write(0, Data::Slice(b"new")).unwrap();
    file.release();
    relay.hold();
    let found = std::thread::scope(|scope| {
        let looks = scope.spawn(|| two.lookup(&root(), Fid::ROOT, b"f").unwrap());
        relay.holds();
        one.rename(&root(), Fid::ROOT, b"new", Fid::ROOT, b"f", 0).unwrap();
        writer.release();
        until(|| objects(&w.dir.path().join("ost0/objects")) == 0);
        relay.go_on();
        looks.join().unwrap()
    });
    assert_ne!(found.fid, old);
    assert_eq!((found.fid, found.size), (new, 3));
}

/// As the inode of any local file system, which whoever has looked it up just before may still show.
#[test]
fn what_is_known_last_of_a_removed_file_is_how_long_it_was() {
    let w = World::new(2);
    for alone in [true, false] {
        let (one, two) = (w.client(), (!alone).then(|| w.client()));
        for len in [5, 800, LEN] {
            let (_, file) = make(&one, "f");
            file.write(0, Data::Slice(&vec![7; len])).unwrap();
            file.release();
            let gone = one.unlink(&root(), Fid::ROOT, b"f").unwrap();
            assert_eq!((gone.nlink, gone.size), (0, len as u64), "alone: {alone}");
            let (_, file) = make(&one, "f");
            file.write(0, Data::Slice(&vec![7; len])).unwrap();
            file.release();
            make(&one, "new").1.release();
            let replaced = one.rename(&root(), Fid::ROOT, b"new", Fid::ROOT, b"f", 0).unwrap().1;
            assert_eq!(replaced.map(|r| r.size), Some(len as u64), "alone: {alone}");
            let seen = two.as_ref().map_or(0, |c| c.lookup(&root(), Fid::ROOT, b"f").unwrap().size);
            assert_eq!(seen, 0);
            one.unlink(&root(), Fid::ROOT, b"f").unwrap();
        }
    }
}
