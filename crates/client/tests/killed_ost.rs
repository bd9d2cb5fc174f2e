//! OSTs whose process is killed while several clients write the same file (invariants 1 and 3).

mod common;

use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::Duration;

use common::{READ, WRITE, World, root};
use pinstripe_client::Data;
use proto::{Fid, FileKind};

/// A process of an OST that is killed loses nothing, so nobody sends again what another has written over
/// since.
#[test]
fn old_bytes_are_not_sent_again_when_an_ost_was_only_killed() {
    let mut world = World::new(1);
    world.machine = Some([1; 16]);
    world.restart_ost(0);
    let (a, b) = (world.client(), world.client());
    let mode = FileKind::File.mode_bits() | 0o644;
    let made = a.create(&root(), Fid::ROOT, b"f", mode, 0, 0, b"", 0, Some(WRITE)).unwrap();
    let (fid, old) = (made.attr.fid, made.file.unwrap());
    old.write(0, Data::Owned(vec![1; 200_000].into())).unwrap();
    old.fsync(false).unwrap();
    let new = b.open(&root(), fid, WRITE).unwrap();
    for round in 0..20u8 {
        old.write(0, Data::Owned(vec![100; 100_000].into())).unwrap();
        new.write(0, Data::Owned(vec![round; 100_000].into())).unwrap();
        world.restart_ost(0);
        old.fsync(false).unwrap();
        new.fsync(false).unwrap();
        let mut bytes = vec![0; 200_000];
        let reads = b.open(&root(), fid, READ).unwrap();
        assert_eq!(reads.read(0, &mut bytes).unwrap(), bytes.len());
        assert!(bytes[..100_000].iter().all(|x| *x == round), "round {round}: {}", bytes[0]);
        assert!(bytes[100_000..].iter().all(|x| *x == 1), "round {round}");
    }
}

/// A commit under way is not yet one: who syncs at the same time waits for the cut to be durable, too.
#[test]
fn who_syncs_beside_another_waits_for_what_was_cut() {
    let mut world = World::new(1);
    let client = world.client();
    let mode = FileKind::File.mode_bits() | 0o644;
    let made = client.create(&root(), Fid::ROOT, b"f", mode, 0, 0, b"", 0, Some(WRITE)).unwrap();
    let file = made.file.unwrap();
    file.write(0, Data::Owned(vec![1; 300_000].into())).unwrap();
    client.sync_all().unwrap();
    file.truncate(100_000).unwrap();
    world.stop_ost(0);
    let done = AtomicU32::new(0);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                client.sync_all().unwrap();
                done.fetch_add(1, SeqCst);
            });
            std::thread::sleep(Duration::from_millis(300));
        }
        assert_eq!(done.load(SeqCst), 0, "the OST has not answered");
        world.start_ost(0);
    });
}
