//! A size that the MDT has not heard of, while the lease under which the file grew is called back: threads of the
//! client that wrote go on reading and appending, and see all that was written.

mod common;
#[path = "common/relay.rs"]
mod relay;

use std::sync::Arc;

use common::{WRITE, World, root, until};
use pinstripe_client::{Client, Data, OpenFile, Options};
use proto::{Fid, FileKind};
use relay::Relay;

/// More than lives with the metadata.
const BEGUN: usize = 70_000;
const RECORD: [u8; 8] = [2; 8];

/// Files open at the MDT, by whomever.
fn open_files(c: &Client) -> u64 {
    let status = c.status_json().unwrap();
    let of_mdt: serde_json::Value = serde_json::from_slice(&status[0]).unwrap();
    of_mdt["open_files"].as_u64().unwrap()
}

/// A file with objects that is longer by a record than the MDT was told, and is open to write.
fn grown(one: &Client, two: &Client, relay: &Relay) -> (Fid, Arc<OpenFile>) {
    let mode = FileKind::File.mode_bits() | 0o644;
    let made = one.create(&root(), Fid::ROOT, b"log", mode, 0, 0, b"", 0, Some(WRITE)).unwrap();
    let (fid, first) = (made.attr.fid, made.file.unwrap());
    until(|| one.stats().waiting_ops == 0);
    let second = one.open(&root(), fid, WRITE).unwrap();
    first.write(0, Data::Owned(vec![1; BEGUN].into())).unwrap();
    first.flush().unwrap();
    relay.hold();
    first.release();
    relay.holds();
    second.append(Data::Slice(&RECORD)).unwrap();
    second.flush().unwrap();
    relay.go_on();
    until(|| open_files(two) == 1);
    (fid, second)
}

/// Does something with the file while it is called back and before the MDT has heard of it.
fn meanwhile<T: Send>(act: impl Fn(&Client, Fid, &OpenFile) -> T + Sync) -> T {
    let w = World::new(1);
    let (one, relay) = Relay::before(&w, 0, Options::default());
    let two = w.client();
    let (fid, file) = grown(&one, &two, &relay);
    relay.hold();
    std::thread::scope(|scope| {
        let theirs = scope.spawn(|| two.open(&root(), fid, WRITE).unwrap().attr().unwrap().size);
        relay.holds();
        until(|| file.known_attr().is_none());
        let before = one.stats().mds_messages;
        let ours = scope.spawn(|| act(&one, fid, &file));
        until(|| one.stats().mds_messages > before);
        relay.go_on();
        assert!(theirs.join().unwrap() >= (BEGUN + RECORD.len()) as u64);
        ours.join().unwrap()
    })
}

#[test]
fn what_was_written_is_read() {
    let n = meanwhile(|_, _, file| file.peek(0, &mut vec![0; BEGUN * 2]).unwrap());
    assert_eq!(n, BEGUN + RECORD.len());
}

#[test]
fn the_size_is_what_was_written() {
    let size = meanwhile(|c, fid, _| c.getattr(&root(), fid).unwrap().size);
    assert_eq!(size, (BEGUN + RECORD.len()) as u64);
}

#[test]
fn what_is_appended_comes_behind_it() {
    let at = meanwhile(|_, _, file| file.append(Data::Slice(&RECORD)).unwrap());
    assert_eq!(at, (BEGUN + RECORD.len()) as u64);
}
