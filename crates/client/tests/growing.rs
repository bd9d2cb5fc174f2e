//! Files that move from the MDT to objects while others on the same client open them: answers that
//! were overtaken by the move must not bring the old place back (what was written would be lost).

mod common;

use std::sync::Barrier;

use common::{World, root, until};
use pinstripe_client::{Client, Data, OpenFlags};
use proto::{Fid, FileKind};

const READ: OpenFlags =
    OpenFlags { read: true, write: false, trunc: false, direct: false, sync: false, noatime: true };
const BOTH: OpenFlags = OpenFlags { read: true, write: true, ..READ };
const FILES: usize = 100;
const OPENERS: usize = 16;
/// Where they write: beyond what the MDT holds.
const FROM: usize = 65_536;
/// Of each opener.
const PART: usize = 8192;

/// Everybody opens the same new file and writes a part of it beyond what the MDT holds.
fn grow_together(world: &World, client: &Client, prefix: &str, begun: &[u8]) {
    let mode = FileKind::File.mode_bits() | 0o644;
    for n in 0..FILES {
        let name = format!("{prefix}{n}");
        let made =
            client.create(&root(), Fid::ROOT, name.as_bytes(), mode, 0, 0, b"", 0, Some(BOTH));
        let made = made.unwrap();
        let (fid, file) = (made.attr.fid, made.file.unwrap());
        match begun {
            [] => drop(file.truncate((FROM + OPENERS * PART) as u64).unwrap()),
            _ => drop(file.write(0, Data::Slice(begun)).unwrap()),
        }
        drop(file);
        let start = Barrier::new(OPENERS);
        std::thread::scope(|scope| {
            for part in 0..OPENERS {
                let (start, name) = (&start, &name);
                scope.spawn(move || {
                    let at = FROM + part * PART;
                    start.wait();
                    let file = client.open(&root(), fid, BOTH).unwrap();
                    file.write(at as u64, Data::Slice(&[part as u8 + 1; PART])).unwrap();
                    let seen = client.open(&root(), fid, READ).unwrap();
                    let mut data = vec![0; PART];
                    assert_eq!(seen.read(at as u64, &mut data).unwrap(), PART, "{name}");
                    assert!(data.iter().all(|b| *b == part as u8 + 1), "{name}: {part}");
                    seen.release();
                    file.flush().unwrap();
                    file.release();
                });
            }
        });
        let other = world.client();
        let file = other.open(&root(), fid, READ).unwrap();
        let mut all = vec![0; FROM + OPENERS * PART + 1];
        assert_eq!(file.read(0, &mut all).unwrap(), all.len() - 1, "{name}");
        assert_eq!(&all[..begun.len()], begun, "{name}");
        let parts = all[FROM..].chunks_exact(PART).enumerate();
        assert!(parts.into_iter().all(|(i, p)| p.iter().all(|b| *b == i as u8 + 1)), "{name}");
    }
}

#[test]
fn a_file_that_grows_while_it_is_opened_among_several_mounts_loses_nothing() {
    let world = World::new(2);
    let (a, _b) = (world.client(), world.client());
    grow_together(&world, &a, "empty", b"");
    grow_together(&world, &a, "begun", &[99; 50_000]);
}

#[test]
fn a_file_that_grows_while_it_is_opened_by_one_mount_loses_nothing() {
    let world = World::new(2);
    let a = world.client();
    grow_together(&world, &a, "empty", b"");
    grow_together(&world, &a, "begun", &[99; 50_000]);
}

/// Small data that one client holds back under its lease meets objects that another gave the file while
/// the MDT was restarted: both are kept.
#[test]
fn data_that_waited_through_a_restart_goes_where_another_put_the_file() {
    let mut world = World::new(1);
    let (a, b) = (world.client(), world.client());
    let mode = FileKind::File.mode_bits() | 0o644;
    for n in 0..12u8 {
        let name = [b'a' + n];
        let made = a.create(&root(), Fid::ROOT, &name, mode, 0, 0, b"", 0, Some(BOTH)).unwrap();
        let (fid, file) = (made.attr.fid, made.file.unwrap());
        file.fsync(false).unwrap();
        file.write(0, Data::Slice(b"head")).unwrap();
        world.stop_mdt_hard();
        world.start_mdt();
        let other = b.open(&root(), fid, BOTH).unwrap();
        other.write(FROM as u64, Data::Slice(b"tail")).unwrap();
        other.fsync(false).unwrap();
        until(|| a.getattr(&root(), fid).is_ok());
        file.fsync(false).unwrap();
        a.sync_all().unwrap();
        for client in [&a, &b] {
            let file = client.open(&root(), fid, READ).unwrap();
            let mut all = vec![0; FROM + 5];
            assert_eq!(file.read(0, &mut all).unwrap(), FROM + 4);
            assert_eq!((&all[..4], &all[FROM..FROM + 4]), (&b"head"[..], &b"tail"[..]));
        }
    }
}
