//! Names and links at their limits.

mod common;

use common::{DIR, FILE, Solo};
use proto::mds::*;
use proto::{Errno, Fid};
use store::memory::MemoryDisk;

fn paths(c: &common::Client, fid: Fid) -> Result<Vec<String>, Errno> {
    match c.one(Op::FidToPath { fid })? {
        Res::Paths { paths } => {
            let mut p: Vec<_> =
                paths.0.into_iter().map(|p| String::from_utf8(p).unwrap()).collect();
            p.sort();
            Ok(p)
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn every_link_of_a_file_has_its_path() {
    let s = Solo::new(&MemoryDisk::new());
    let c = s.client();
    let a = c.make(Fid::ROOT, "a", DIR).unwrap();
    let f = c.make(a, "one", FILE).unwrap();
    assert_eq!(paths(&c, Fid::ROOT).unwrap(), ["/"]);
    assert_eq!(paths(&c, f).unwrap(), ["/a/one"]);
    c.link(f, Fid::ROOT, "two").unwrap();
    c.link(f, a, "three").unwrap();
    assert_eq!(paths(&c, f).unwrap(), ["/a/one", "/a/three", "/two"]);
    // The first name goes; what is left has records of its own.
    c.unlink(a, "one", false).unwrap();
    assert_eq!(paths(&c, f).unwrap(), ["/a/three", "/two"]);
    c.rename((Fid::ROOT, "two"), (a, "four"), 0).unwrap();
    c.rename((Fid::ROOT, "a"), (Fid::ROOT, "b"), 0).unwrap();
    assert_eq!(paths(&c, f).unwrap(), ["/b/four", "/b/three"]);
    c.unlink(a, "three", false).unwrap();
    assert_eq!(paths(&c, f).unwrap(), ["/b/four"]);
    c.open(f, O_READ).unwrap();
    c.unlink(a, "four", false).unwrap();
    assert_eq!(paths(&c, f), Err(Errno::ENOENT));
    assert_eq!(paths(&c, Fid::new(1, 1)), Err(Errno::ESTALE));
}

#[test]
fn names_have_any_byte_and_255_of_them() {
    let disk = MemoryDisk::new();
    let s = Solo::new(&disk);
    let c = s.client();
    let long = "x".repeat(255);
    let f = c.make(Fid::ROOT, &long, FILE).unwrap();
    assert_eq!(c.make(Fid::ROOT, &"x".repeat(256), FILE), Err(Errno::ENAMETOOLONG));
    assert_eq!(c.lookup(Fid::ROOT, &long).unwrap().fid, f);
    let all: Vec<u8> = (1..=255u8).filter(|b| *b != b'/').collect();
    let create = |name: Vec<u8>| Op::Create {
        dir: Fid::ROOT,
        name,
        fid: c.fid(),
        mode: FILE,
        umask: 0,
        rdev: 0,
        target: vec![],
        flags: C_EXCL,
        open: 0,
    };
    c.one(create(all.clone())).unwrap();
    for (bad, errno) in [
        (&b""[..], Errno::EINVAL),
        (b"a/b", Errno::EINVAL),
        (b"a\0", Errno::EINVAL),
        (b".", Errno::EEXIST),
        (b"..", Errno::EEXIST),
    ] {
        assert_eq!(c.one(create(bad.to_vec())).unwrap_err(), errno, "{bad:?}");
    }
    s.mdt.close().unwrap();
    drop((c, s));
    let s = Solo::new(&disk);
    let c = s.client();
    let Ok(Res::Entry { attr, .. }) = c.one(Op::Lookup { dir: Fid::ROOT, name: all }) else {
        panic!()
    };
    assert_eq!(attr.nlink, 1);
    assert_eq!(c.lookup(Fid::ROOT, &long).unwrap().fid, f);
}

#[test]
fn links_end_at_their_limit() {
    let disk = MemoryDisk::new();
    let s = Solo::new(&disk);
    let c = s.client();
    let f = c.make(Fid::ROOT, "f", FILE).unwrap();
    let mut n = 1;
    while n < 65_000 {
        let take = (65_000 - n).min(200);
        let ops = (n..n + take).map(|i| Op::Link {
            fid: f,
            dir: Fid::ROOT,
            name: format!("l{i}").into_bytes(),
        });
        let res = c.run(ops.collect());
        assert!(matches!(res.last(), Some(Res::Attr { .. })));
        n += take;
    }
    assert_eq!(c.link(f, Fid::ROOT, "more"), Err(Errno::EMLINK));
    assert_eq!(c.attr(f).unwrap().nlink, 65_000);
    c.unlink(Fid::ROOT, "f", false).unwrap();
    c.link(f, Fid::ROOT, "more").unwrap();
    assert_eq!(paths(&c, f).unwrap().len(), 64);
    c.sync();
    common::check(&disk, s, &[c]);
}
