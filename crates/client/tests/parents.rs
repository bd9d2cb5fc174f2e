//! Where a directory is: known without a message, and never believed once somebody has moved it.

mod common;

use common::{World, root};
use pinstripe_client::Client;
use proto::mds::{C_EXCL, RN_EXCHANGE};
use proto::{Fid, FileKind};

fn make(c: &Client, dir: Fid, name: &str) -> Fid {
    let mode = FileKind::Dir.mode_bits() | 0o755;
    c.create(&root(), dir, name.as_bytes(), mode, 0, 0, b"", C_EXCL, None).unwrap().attr.fid
}

fn parent(c: &Client, dir: Fid) -> Fid {
    c.lookup(&root(), dir, b"..").unwrap().fid
}

fn find(c: &Client, dir: Fid, name: &str) -> Fid {
    c.lookup(&root(), dir, name.as_bytes()).unwrap().fid
}

fn mv(c: &Client, from: Fid, to: Fid, flags: u32) {
    c.rename(&root(), from, b"sub", to, b"sub", flags).unwrap();
}

#[test]
fn where_a_directory_is_costs_no_message_until_it_is_moved() {
    let world = World::new(1);
    let (a, b) = (world.client(), world.client());
    let (one, two) = (make(&b, Fid::ROOT, "one"), make(&b, Fid::ROOT, "two"));
    let sub = make(&b, one, "sub");
    find(&a, Fid::ROOT, "one");
    find(&a, one, "sub");
    let before = a.stats().mds_messages;
    for _ in 0..10 {
        assert_eq!(parent(&a, sub), one);
    }
    assert_eq!(a.stats().mds_messages, before);
    // By the other, by itself, and back by the other, who knows it from before.
    for (round, c) in [&b, &a, &b, &a, &a, &b].into_iter().enumerate() {
        let (from, to) = if round % 2 == 0 { (one, two) } else { (two, one) };
        mv(c, from, to, 0);
        assert_eq!((parent(&a, sub), parent(&b, sub)), (to, to), "round {round}");
        if round % 3 == 0 {
            assert_eq!((find(&a, to, "sub"), find(&b, to, "sub")), (sub, sub));
        }
    }
    let other = make(&a, two, "sub");
    for c in [&a, &b, &b, &a] {
        let (at, of_other) = (parent(&a, sub), parent(&a, other));
        mv(c, at, of_other, RN_EXCHANGE);
        assert_eq!((parent(&a, sub), parent(&b, sub)), (of_other, of_other));
        assert_eq!((parent(&a, other), parent(&b, other)), (at, at));
    }
}
