//! A disk that is full: creates are refused, deletes pass, nothing is lost.

mod common;

use std::time::Duration;

use common::{Client, FILE, Solo};
use pinstripe_mds::MdtOptions;
use proto::mds::*;
use proto::{Errno, Fid};
use store::memory::MemoryDisk;

const XATTR: usize = 8000;

/// Makes files, numbered from `first`, until there is no room; how many.
fn fill(c: &Client, first: usize) -> usize {
    for i in first.. {
        let set = Op::SetXattr {
            fid: Fid::CURRENT,
            name: b"user.x".to_vec(),
            value: vec![1; XATTR].into(),
            flags: 0,
        };
        let res = c.run(vec![c.create(Fid::ROOT, &format!("f{i}")), set, Op::Sync {}]);
        if let Some(Res::Failed { errno }) = res.last() {
            assert_eq!(*errno, Errno::ENOSPC.0 as u16);
            return i - first;
        }
    }
    unreachable!()
}

#[test]
fn a_full_disk_can_be_emptied_and_filled_again() {
    let disk = MemoryDisk::new();
    disk.set_capacity(Some(6 << 20));
    let s = Solo::new(&disk);
    let c = s.client();
    let n = fill(&c, 0);
    assert!(n > 100, "{n}");
    common::until(|| c.status()["full"] == true);
    // The engine may give some room back meanwhile: then a few more are made.
    let mut more = 0;
    common::until(|| {
        more += 1;
        match c.make(Fid::ROOT, &format!("more{more}"), FILE) {
            Err(e) => e == Errno::ENOSPC,
            Ok(_) => false,
        }
    });
    assert!(more < n, "{more} after {n}");
    for name in c.list(Fid::ROOT) {
        c.unlink(Fid::ROOT, &name, false).unwrap();
    }
    c.sync();
    common::until(|| c.status()["full"] == false);
    // The engine gives the room back piece by piece.
    let mut again = 0;
    common::until(|| {
        again += fill(&c, again);
        again > 100
    });
    common::check(&disk, s, &[c]);
}

#[test]
fn what_the_store_refuses_waits_for_room_in_order() {
    let disk = MemoryDisk::new();
    // Groups are cut only for those who wait.
    let options = MdtOptions { group_delay: Duration::from_secs(3600), ..MdtOptions::default() };
    let s = Solo::with(&disk, options);
    let c = s.client();
    for i in 0..20 {
        c.make(Fid::ROOT, &format!("f{i}"), FILE).unwrap();
    }
    c.sync();
    // Somebody else fills the disk at once.
    c.make(Fid::ROOT, "late", FILE).unwrap();
    disk.set_capacity(Some(1000));
    assert_eq!(c.one(Op::Sync {}), Err(Errno::ENOSPC));
    assert_eq!(c.make(Fid::ROOT, "more", FILE), Err(Errno::ENOSPC));
    let before = c.list(Fid::ROOT);
    c.unlink(Fid::ROOT, "f0", false).unwrap();
    c.unlink(Fid::ROOT, "f1", false).unwrap();
    disk.set_capacity(Some(64 << 20));
    common::until(|| c.one(Op::Sync {}).is_ok());
    common::until(|| c.make(Fid::ROOT, "more", FILE).is_ok());
    c.sync();
    let expect = c.list(Fid::ROOT);
    assert_eq!(expect.len(), before.len() - 1);
    disk.power_cut();
    s.server.shutdown();
    drop((c, s));
    let s = Solo::new(&disk);
    let c = s.client();
    assert_eq!(c.list(Fid::ROOT), expect);
    common::check(&disk, s, &[c]);
}

#[test]
fn requests_wait_while_the_store_is_behind() {
    let disk = MemoryDisk::new();
    let s = Solo::with(&disk, MdtOptions { group_delay: Duration::ZERO, ..MdtOptions::default() });
    let c = s.client();
    disk.hold();
    let f = c.make(Fid::ROOT, "f", FILE).unwrap();
    std::thread::scope(|t| {
        let writer = t.spawn(|| {
            for i in 0..300 {
                let mut data = vec![i as u8; 60_000];
                data[0] = 7;
                let g = c.make(Fid::ROOT, &format!("g{i}"), FILE).unwrap();
                c.write(g, 0, &data).unwrap();
            }
        });
        common::until(|| c.status()["stalled"].as_u64() > Some(0));
        // Reads go on.
        assert_eq!(c.attr(f).unwrap().nlink, 1);
        disk.release();
        writer.join().unwrap();
    });
    c.sync();
    assert_eq!(c.list(Fid::ROOT).len(), 301);
    common::check(&disk, s, &[c]);
}
