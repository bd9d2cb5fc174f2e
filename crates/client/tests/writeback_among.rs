//! Metadata write-back among others: two clients work in one tree, each does first what it alone has
//! leases on. Whatever they do and in whatever order, each sees what the other did at once, and the MDT
//! ends up with what both were told.

mod common;
#[path = "common/steps.rs"]
mod steps;

use std::sync::Arc;

use common::{World, root};
use pinstripe_client::{Client, Data, OpenFlags};
use proptest::prelude::*;
use proto::attr::{A_INLINE, A_SIZE_LAGS};
use proto::mds::{C_EXCL, RN_NOREPLACE};
use proto::{Attr, Errno, Fid, FileKind};
use steps::{PLAIN, RW, Run, Step, Tree, step, tree};

/// What two clients must agree on: data may be told in the background, which counts as a version; of
/// what is in objects the OSTs' times count until it is told.
fn shown(tree: Tree) -> Tree {
    let whole = |a: &Attr| a.flags & (A_INLINE | A_SIZE_LAGS) == A_INLINE;
    let plain = |a: Attr| match a.kind() {
        FileKind::File if !whole(&a) => {
            Attr { version: 0, flags: 0, blocks: 0, mtime: a.btime, ctime: a.btime, ..a }
        }
        _ => Attr { version: 0, ..a },
    };
    tree.into_iter().map(|(path, (cookie, a))| (path, (cookie, plain(a)))).collect()
}

/// Two views of one tree are the same.
fn same(left: Tree, right: Tree) -> Result<(), TestCaseError> {
    let (left, right) = (shown(left), shown(right));
    for (path, one) in &left {
        prop_assert_eq!(Some(one), right.get(path), "{}", String::from_utf8_lossy(path));
    }
    prop_assert_eq!(left.len(), right.len());
    Ok(())
}

fn cases() -> u32 {
    std::env::var("WRITEBACK_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(40)
}

/// Who does a step: mostly the one who did the last.
fn steps() -> impl Strategy<Value = Vec<(bool, Step)>> {
    prop::collection::vec((prop::bool::weighted(0.15), step()), 1..160)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), max_shrink_iters: 400, ..ProptestConfig::default() })]
    #[test]
    fn two_clients_see_one_tree(steps in steps()) {
        let world = World::new(1);
        let new = || Run { client: world.client(), open: Vec::new(), dirs: vec![Fid::ROOT] };
        let mut runs = [new(), new()];
        let mut who = 0;
        for (other, s) in &steps {
            if *other {
                // Directories are known to both by their numbers.
                runs[1 - who].dirs = runs[who].dirs.clone();
                who = 1 - who;
            }
            if let Err(e) = runs[who].step(s) {
                // A directory may be gone, and known to one of them by its number.
                prop_assert!(PLAIN.contains(&e) || e == Errno::ESTALE, "{s:?}: {e}");
            }
            if matches!(s, Step::Settle) {
                same(tree(&runs[1 - who].client), tree(&runs[who].client))?;
            }
        }
        same(tree(&runs[1 - who].client), tree(&runs[who].client))?;
        for run in &mut runs {
            run.open.drain(..).for_each(|f| f.release());
            run.client.sync_all().unwrap();
            prop_assert_eq!(run.client.stats().surprises, 0);
        }
        let seen = tree(&runs[0].client);
        for run in &runs {
            run.client.shutdown().unwrap();
        }
        same(seen, tree(&world.client()))?;
    }
}

fn make(c: &Client, dir: Fid, name: &str, kind: FileKind) -> Fid {
    let mode = kind.mode_bits() | 0o755;
    let made = c.create(&root(), dir, name.as_bytes(), mode, 0, 0, b"", C_EXCL, None);
    made.unwrap().attr.fid
}

fn write_small(c: &Client, dir: Fid, name: &str) -> Arc<pinstripe_client::OpenFile> {
    let mode = FileKind::File.mode_bits() | 0o644;
    let made = c.create(&root(), dir, name.as_bytes(), mode, 0, 0, b"", 0, Some(RW)).unwrap();
    let f = made.file.unwrap();
    f.write(0, Data::Slice(&[7; 8192])).unwrap();
    f.flush().unwrap();
    f
}

fn size(c: &Client, dir: Fid, name: &str) -> u64 {
    let attr = c.lookup(&root(), dir, name.as_bytes()).unwrap();
    let f = c.open(&root(), attr.fid, OpenFlags { read: true, ..OpenFlags::default() }).unwrap();
    let mut buf = vec![0; 10_000];
    let n = f.read(0, &mut buf).unwrap() as u64;
    assert_eq!(n, attr.size);
    f.release();
    n
}

#[test]
fn private_work_is_few_messages_although_there_are_others() {
    let world = World::new(1);
    let (a, b) = (world.client(), world.client());
    make(&b, Fid::ROOT, "of b", FileKind::Dir);
    // The first changes show how much room there is, and earn the directory.
    let d = make(&a, Fid::ROOT, "d", FileKind::Dir);
    write_small(&a, d, "first").release();
    a.sync_all().unwrap();
    let before = a.stats().mds_messages;
    for i in 0..20 {
        write_small(&a, d, &format!("f{i}")).release();
    }
    let sub = make(&a, d, "sub", FileKind::Dir);
    make(&a, sub, "deep", FileKind::File);
    a.sync_all().unwrap();
    let counted = a.stats().mds_messages - before;
    assert!(counted <= 4, "20 files, and a sync: {counted} messages: {:?}", a.stats());
    for i in 0..20 {
        assert_eq!(size(&b, d, &format!("f{i}")), 8192);
    }
    b.lookup(&root(), sub, b"deep").unwrap();
    assert_eq!((a.stats().surprises, b.stats().surprises), (0, 0));
}

#[test]
fn what_is_removed_where_it_was_made_costs_no_message_each() {
    let world = World::new(1);
    let (a, _b) = (world.client(), world.client());
    let d = make(&a, Fid::ROOT, "d", FileKind::Dir);
    write_small(&a, d, "first").release();
    for i in 0..20 {
        write_small(&a, d, &format!("f{i}")).release();
    }
    a.sync_all().unwrap();
    let before = a.stats().mds_messages;
    for i in 0..20 {
        a.rename(&root(), d, format!("f{i}").as_bytes(), d, format!("g{i}").as_bytes(), 0).unwrap();
        a.unlink(&root(), d, format!("g{i}").as_bytes()).unwrap();
    }
    a.sync_all().unwrap();
    let counted = a.stats().mds_messages - before;
    assert!(counted <= 4, "20 files renamed and removed: {counted} messages");
    assert_eq!(a.stats().surprises, 0);
}

/// As git writes an object: under another name first, which goes while the file may still be open.
#[test]
fn a_name_less_of_an_open_file_that_keeps_one_costs_no_message() {
    for others in [false, true] {
        let world = World::new(1);
        let (a, b) = (world.client(), others.then(|| world.client()));
        let d = make(&a, Fid::ROOT, "d", FileKind::Dir);
        write_small(&a, d, "first").release();
        a.sync_all().unwrap();
        let before = a.stats().mds_messages;
        let mut open = Vec::new();
        for i in 0..20 {
            let (tmp, name) = (format!("tmp{i}"), format!("f{i}"));
            let f = write_small(&a, d, &tmp);
            a.link(&root(), f.fid(), d, name.as_bytes()).unwrap();
            assert_eq!(a.unlink(&root(), d, tmp.as_bytes()).unwrap().nlink, 1);
            open.push(f);
        }
        let counted = a.stats().mds_messages - before;
        assert!(counted <= 1, "20 names gone: {counted} messages");
        // The last name of an open file: it stays until it is closed.
        let last = open.pop().unwrap();
        assert_eq!(a.unlink(&root(), d, b"f19").unwrap().nlink, 0);
        last.write(0, Data::Slice(&[1; 10])).unwrap();
        let seen = b.unwrap_or_else(|| world.client());
        for i in 0..19 {
            assert_eq!(size(&seen, d, &format!("f{i}")), 8192);
            assert_eq!(seen.lookup(&root(), d, format!("f{i}").as_bytes()).unwrap().nlink, 1);
            assert!(seen.lookup(&root(), d, format!("tmp{i}").as_bytes()).is_err());
        }
        assert!(seen.lookup(&root(), d, b"f19").is_err());
        let mut buf = [0; 10];
        assert_eq!((last.read(0, &mut buf).unwrap(), buf), (10, [1; 10]));
        last.release();
        open.iter().for_each(|f| f.release());
        assert_eq!((a.stats().surprises, seen.stats().surprises), (0, 0));
    }
}

#[test]
fn files_move_between_directories_of_one_client_without_a_message_each() {
    let world = World::new(1);
    let (a, b) = (world.client(), world.client());
    let (from, to) =
        (make(&a, Fid::ROOT, "from", FileKind::Dir), make(&a, Fid::ROOT, "to", FileKind::Dir));
    for i in 0..20 {
        write_small(&a, from, &format!("f{i}")).release();
    }
    make(&a, to, "g0", FileKind::File);
    let sub = make(&a, from, "sub", FileKind::Dir);
    make(&a, sub, "deep", FileKind::File);
    a.sync_all().unwrap();
    let before = a.stats().mds_messages;
    for i in 0..20 {
        let (old, new) = (format!("f{i}"), format!("g{i}"));
        a.rename(&root(), from, old.as_bytes(), to, new.as_bytes(), 0).unwrap();
    }
    a.rename(&root(), to, b"g1", from, b"g2", RN_NOREPLACE).unwrap();
    let over = a.rename(&root(), from, b"g2", to, b"g2", RN_NOREPLACE);
    assert_eq!(over.err(), Some(Errno::EEXIST));
    let counted = a.stats().mds_messages - before;
    assert!(counted <= 1, "21 files moved: {counted} messages");
    // One of the two directories is asked for first: what was done to both is told.
    assert!(b.lookup(&root(), to, b"g1").is_err());
    for i in (0..20).filter(|i| *i != 1) {
        assert_eq!(size(&b, to, &format!("g{i}")), 8192);
        assert!(b.lookup(&root(), from, format!("f{i}").as_bytes()).is_err());
    }
    assert_eq!(size(&b, from, "g2"), 8192);
    // A directory takes what is above it along: that is asked for.
    a.rename(&root(), from, b"sub", to, b"sub", 0).unwrap();
    let moved = b.lookup(&root(), to, b"sub").unwrap();
    assert_eq!(moved.fid, sub);
    assert_eq!(b.lookup(&root(), sub, b"deep").unwrap().size, 0);
    assert_eq!((a.stats().surprises, b.stats().surprises), (0, 0));
}

#[test]
fn what_only_one_has_is_written_again_without_a_message_each() {
    let world = World::new(1);
    let (a, b) = (world.client(), world.client());
    let d = make(&a, Fid::ROOT, "d", FileKind::Dir);
    for i in 0..20 {
        write_small(&a, d, &format!("f{i}")).release();
    }
    a.sync_all().unwrap();
    let before = a.stats().mds_messages;
    for i in 0..20 {
        let fid = a.lookup(&root(), d, format!("f{i}").as_bytes()).unwrap().fid;
        let f = a.open(&root(), fid, OpenFlags { trunc: true, ..RW }).unwrap();
        f.write(0, Data::Slice(&[9; 100])).unwrap();
        f.release();
    }
    a.sync_all().unwrap();
    let counted = a.stats().mds_messages - before;
    assert!(counted <= 4, "20 files written again: {counted} messages: {:?}", a.stats());
    for i in 0..20 {
        assert_eq!(size(&b, d, &format!("f{i}")), 100);
    }
    assert_eq!((a.stats().surprises, b.stats().surprises), (0, 0));
}

#[test]
fn what_is_open_again_here_is_told_before_another_gets_it() {
    let world = World::new(1);
    let (a, b) = (world.client(), world.client());
    let d = make(&a, Fid::ROOT, "d", FileKind::Dir);
    for round in 0..30 {
        let name = format!("f{round}");
        write_small(&a, d, &name).release();
        let fid = a.lookup(&root(), d, name.as_bytes()).unwrap().fid;
        let f = a.open(&root(), fid, RW).unwrap();
        f.write(8192, Data::Slice(&[8; 100])).unwrap();
        match round % 3 {
            // It is written by both, one of them only looks, or it goes while it is open.
            0 => {
                assert_eq!(b.lookup(&root(), d, name.as_bytes()).unwrap().fid, fid);
                let g = b.open(&root(), fid, RW).unwrap();
                g.write(8292, Data::Slice(&[9; 8])).unwrap();
                f.write(8300, Data::Slice(&[8; 100])).unwrap();
                g.release();
                assert_eq!((size(&a, d, &name), size(&b, d, &name)), (8400, 8400));
            }
            1 => assert_eq!(size(&b, d, &name), 8292),
            _ => {
                b.unlink(&root(), d, name.as_bytes()).unwrap();
                let mut buf = [0; 10_000];
                assert_eq!(f.read(0, &mut buf).unwrap(), 8292, "it lives until it is closed");
                f.write(8292, Data::Slice(&[8; 8])).unwrap();
                assert_eq!(f.read(0, &mut buf).unwrap(), 8300);
            }
        }
        f.release();
    }
    a.sync_all().unwrap();
    b.sync_all().unwrap();
    assert_eq!((a.stats().surprises, b.stats().surprises), (0, 0));
}

#[test]
fn what_was_done_here_is_there_when_another_looks() {
    let world = World::new(1);
    let (a, b) = (world.client(), world.client());
    for round in 0..30 {
        let d = make(&a, Fid::ROOT, &format!("d{round}"), FileKind::Dir);
        // Still open, and not told, when the other one looks.
        let f = write_small(&a, d, "f");
        assert_eq!(size(&b, d, "f"), 8192);
        f.write(8192, Data::Slice(&[8; 100])).unwrap();
        assert_eq!(size(&b, d, "f"), 8292);
        b.unlink(&root(), d, b"f").unwrap();
        assert_eq!(a.lookup(&root(), d, b"f").unwrap_err(), Errno::ENOENT);
        let mut buf = [0; 10_000];
        assert_eq!(f.read(0, &mut buf).unwrap(), 8292, "it lives until it is closed");
        f.release();
        b.rmdir(&root(), Fid::ROOT, format!("d{round}").as_bytes()).unwrap();
    }
    a.sync_all().unwrap();
    b.sync_all().unwrap();
}

#[test]
fn what_waits_among_others_is_sent_to_a_restarted_mdt() {
    let mut world = World::new(1);
    let (a, b) = (world.client(), world.client());
    let d = make(&a, Fid::ROOT, "d", FileKind::Dir);
    write_small(&a, d, "first").release();
    a.sync_all().unwrap();
    for i in 0..20 {
        make(&a, d, &format!("g{i}"), FileKind::File);
    }
    let waited = a.stats().waiting_ops;
    world.stop_mdt();
    world.start_mdt();
    a.sync_all().unwrap();
    assert!(waited > 0, "nothing waited");
    for i in 0..20 {
        b.lookup(&root(), d, format!("g{i}").as_bytes()).unwrap();
    }
}
