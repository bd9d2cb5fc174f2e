//! Exclusive leases wished for many inodes in a row, in front of what they are for.

mod common;
#[path = "common/holder.rs"]
mod holder;

use std::time::Duration;

use common::{DIR, FILE, Solo};
use holder::{Holder, Way, call, check, cred};
use pinstripe_mds::MdtOptions;
use pinstripe_mds::leases::hot::HOT_CALLS;
use pinstripe_mds::leases::{DIR_OWNER, OWNER, READER};
use proto::mds::*;
use proto::{Errno, Fid};
use store::memory::MemoryDisk;

const FILES: usize = 40;

fn solo() -> Solo {
    let options = MdtOptions { orphan_grace: Duration::ZERO, ..MdtOptions::default() };
    Solo::with(&MemoryDisk::new(), options)
}

/// A directory with files, all of which two clients have read.
fn read_by(s: &Solo, readers: &[&Holder]) -> (Fid, Vec<Fid>) {
    let maker = Holder::new(s).plain();
    let dir = maker.make(Fid::ROOT, "dir", DIR).unwrap();
    let files: Vec<Fid> =
        (0..FILES).map(|i| maker.make(dir, &format!("f{i}"), FILE).unwrap()).collect();
    for r in readers {
        r.run(vec![Op::Lookup { dir, name: b"absent".to_vec() }, Op::GetAttr { fid: dir }]);
        for fid in &files {
            r.run(vec![Op::ReadInline { fid: *fid }]);
            assert_eq!(r.has(*fid), READER);
        }
    }
    (dir, files)
}

fn row(dir: Fid, files: &[Fid], last: Op) -> Compound {
    let mut ops = vec![Op::Lease { fid: dir, bits: DIR_OWNER }];
    ops.extend(files.iter().map(|fid| Op::Lease { fid: *fid, bits: OWNER }));
    ops.push(last);
    let flags = CF_CONTINUE | CF_LEASES | CF_SHARED_LEASES | CF_FILE_WRITES | CF_NAME_WRITES;
    Compound { flags, ..Compound::new(cred(), ops) }
}

fn unlink(dir: Fid) -> Op {
    Op::Unlink { dir, name: b"f0".to_vec(), rmdir: false }
}

fn granted(reply: &CompoundReply, fid: Fid) -> u8 {
    reply.leases.0.iter().find(|l| l.fid == fid).map_or(0, |l| l.bits)
}

fn failed(res: &Res) -> Option<Errno> {
    match res {
        Res::Failed { errno } => Some(Errno(i32::from(*errno))),
        _ => None,
    }
}

#[test]
fn a_row_costs_each_holder_one_call_back() {
    let s = solo();
    let (a, b, c) = (Holder::new(&s), Holder::new(&s), Holder::new(&s));
    let (dir, files) = read_by(&s, &[&a, &b]);
    let reply = call(&c.client, &row(dir, &files, unlink(dir)));
    assert!(reply.results.0.iter().all(|r| failed(r).is_none()), "{reply:?}");
    assert_eq!((a.calls(), b.calls()), (1, 1));
    assert_eq!(granted(&reply, dir), DIR_OWNER);
    // The first is gone.
    assert!(files[1..].iter().all(|fid| granted(&reply, *fid) == OWNER), "{reply:?}");
    assert!(files.iter().all(|fid| a.has(*fid) == 0 && b.has(*fid) == 0));
    check(&[&a, &b], &s);
}

#[test]
fn what_is_open_elsewhere_is_not_granted_and_lives() {
    let s = solo();
    let (a, c) = (Holder::new(&s), Holder::new(&s));
    let (dir, files) = read_by(&s, &[&a]);
    a.run(vec![Op::Open { fid: files[3], flags: O_READ, handle: 0 }]);
    a.run(vec![Op::Open { fid: files[4], flags: O_WRITE, handle: 0 }]);
    let reply = call(&c.client, &row(dir, &files, unlink(dir)));
    for fid in [files[3], files[4]] {
        assert_eq!(granted(&reply, fid) & (LS_WRITE | LS_DIRX), 0);
    }
    assert_eq!(granted(&reply, files[5]), OWNER);
    check(&[&a], &s);
}

#[test]
fn what_was_got_meanwhile_is_not_waited_for_again() {
    let s = solo();
    let (a, b, c) = (Holder::new(&s), Holder::new(&s), Holder::new(&s));
    let (dir, files) = read_by(&s, &[&a]);
    // Another asks for a part while the first is being called back for it, too.
    a.set_way(Way::Late);
    let (both, rest) = (row(dir, &files, unlink(dir)), row(dir, &files[20..], unlink(dir)));
    std::thread::scope(|t| {
        let first = t.spawn(|| call(&c.client, &both));
        let second = t.spawn(|| call(&b.client, &rest));
        let asker = s.client();
        common::until(|| asker.status()["leases"]["waiting"] == 2);
        a.answer_all();
        common::until(|| {
            a.answer_all();
            first.is_finished() && second.is_finished()
        });
        let ends = [first.join().unwrap(), second.join().unwrap()];
        let last = ends.each_ref().map(|r| failed(r.results.0.last().unwrap()));
        assert!(last.contains(&None) && last.contains(&Some(Errno::ENOENT)), "{last:?}");
    });
    check(&[&a], &s);
}

#[test]
fn of_a_directory_that_changes_hands_all_the_time_nothing_is_called_back() {
    let s = solo();
    let (a, b, c) = (Holder::new(&s), Holder::new(&s), Holder::new(&s));
    let (dir, files) = read_by(&s, &[&a]);
    for i in 0..=HOT_CALLS {
        a.run(vec![Op::Lookup { dir, name: b"absent".to_vec() }]);
        b.make(dir, &format!("new{i}"), FILE).unwrap();
    }
    let before = a.calls();
    let reply = call(&c.client, &row(dir, &files, Op::GetAttr { fid: dir }));
    assert_eq!(a.calls(), before);
    assert!(files.iter().all(|fid| a.has(*fid) == READER && granted(&reply, *fid) == 0));
    assert!(reply.results.0[1..=FILES].iter().all(|r| failed(r) == Some(Errno::EAGAIN)));
    check(&[&a, &b], &s);
}
