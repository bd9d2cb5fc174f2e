//! Small writes that lie apart in a file: they share messages, and nothing else.

mod common;

use std::sync::Arc;

use common::{READ, WRITE, World, root};
use pinstripe_client::{Client, Data, OpenFile};
use proto::{Errno, Fid, FileKind};
use rand::prelude::*;

const SIZE: usize = 24 << 20;

/// A file with objects, all of it on the disks of its OSTs.
fn filled(client: &Client) -> (Fid, Arc<OpenFile>) {
    let mode = FileKind::File.mode_bits() | 0o644;
    let made = client.create(&root(), Fid::ROOT, b"f", mode, 0, 0, b"", 0, Some(WRITE)).unwrap();
    let file = made.file.unwrap();
    file.write(0, Data::Owned(vec![1; SIZE].into())).unwrap();
    file.fsync(false).unwrap();
    (made.attr.fid, file)
}

fn writes(client: &Client) -> u64 {
    client.stats().oss_messages["write"]
}

fn content(world: &World, fid: Fid, len: usize) -> Vec<u8> {
    let reader = world.client();
    let file = reader.open(&root(), fid, READ).unwrap();
    let mut bytes = vec![0; len + 1];
    let read = file.read(0, &mut bytes).unwrap();
    bytes.truncate(read);
    bytes
}

/// Against a vector of bytes.
#[test]
fn small_writes_that_lie_apart_share_messages() {
    let mut random = StdRng::seed_from_u64(7);
    let world = World::new(3);
    let client = world.client();
    let (fid, file) = filled(&client);
    let mut expected = vec![1; SIZE];
    let before = writes(&client);
    let mut pieces = 0;
    for round in 2..6u8 {
        for _ in 0..1500 {
            let len = *[1, 100, 4096, 5000].choose(&mut random).unwrap();
            let at = match random.random::<bool>() {
                true => random.random_range(0..(SIZE - len) / 4096) * 4096,
                false => random.random_range(0..SIZE - len),
            };
            file.write(at as u64, Data::Owned(vec![round; len].into())).unwrap();
            expected[at..at + len].fill(round);
            pieces += 1;
        }
        file.fsync(false).unwrap();
    }
    let messages = writes(&client) - before;
    assert!(messages * 6 < pieces, "{messages} messages for {pieces} pieces");
    assert!(content(&world, fid, SIZE) == expected);
}

/// What needs room that is not there goes in one message with what needs none: only the former is lost,
/// and that is told.
#[test]
fn what_there_is_no_room_for_takes_nothing_else_along() {
    let mut world = World::new(1);
    const TMPFS: i64 = 0x0102_1994;
    if rustix::fs::statfs(world.dir.path()).unwrap().f_type == TMPFS {
        eprintln!("this file system does not tell which blocks it has, nothing tested");
        return;
    }
    let client = world.client();
    let (fid, file) = filled(&client);
    file.truncate((2 * SIZE) as u64).unwrap();
    file.fsync(false).unwrap();
    world.reserve = u64::MAX;
    world.restart_ost(0);
    let before = writes(&client);
    let mut expected = vec![1; SIZE];
    expected.resize(2 * SIZE, 0);
    for n in 0..20 {
        let (there, hole) = (n * 300_000, SIZE + n * 300_000);
        file.write(there as u64, Data::Owned(vec![2; 5000].into())).unwrap();
        expected[there..there + 5000].fill(2);
        let wrote = file.write(hole as u64, Data::Owned(vec![3; 5000].into()));
        assert!(matches!(wrote, Ok(5000) | Err(Errno::ENOSPC)));
    }
    assert_eq!(file.fsync(false), Err(Errno::ENOSPC));
    assert!(writes(&client) - before > 1, "there was nothing to take apart");
    assert!(content(&world, fid, 2 * SIZE) == expected);
    // With room again all goes on.
    world.reserve = 0;
    world.restart_ost(0);
    file.write(SIZE as u64, Data::Owned(vec![4; 5000].into())).unwrap();
    file.fsync(false).unwrap();
    expected[SIZE..SIZE + 5000].fill(4);
    assert!(content(&world, fid, 2 * SIZE) == expected);
}
