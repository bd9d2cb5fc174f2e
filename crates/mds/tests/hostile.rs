//! Requests no client of ours sends, and a target that holds nothing: errors, nothing else.

mod common;

use std::sync::Arc;

use common::{DIR, FILE, Solo};
use net::{ConnectOptions, Endpoint, Server, ServerOptions, Session};
use pinstripe_mds::{Mdt, MdtLabel, MdtOptions};
use proptest::prelude::*;
use proto::mds::*;
use proto::wire::List;
use proto::{Errno, Fid, SetAttr, Wire, ops};
use store::memory::{self, MemoryDisk};

fn status(session: &Session, opcode: u16, body: Vec<u8>) -> Result<(), Errno> {
    session.call(opcode, body, vec![]).unwrap().status()
}

#[test]
fn malformed_requests_get_an_error() {
    let disk = MemoryDisk::new();
    let s = Solo::new(&disk);
    let c = s.client();
    let f = c.make(Fid::ROOT, "f", FILE).unwrap();
    let compound = ops::mds::COMPOUND;
    assert_eq!(status(&c.session, compound, vec![1, 2, 3]), Err(Errno::EBADMSG));
    assert_eq!(status(&c.session, ops::oss::READ, vec![]), Err(Errno::EOPNOTSUPP));
    let many = common::body(vec![Op::Statfs {}; MAX_OPS + 1]);
    assert_eq!(status(&c.session, compound, many), Err(Errno::E2BIG));
    assert!(c.run(vec![]).is_empty());
    // No operation before it named a file.
    assert_eq!(c.one(Op::GetAttr { fid: Fid::CURRENT }), Err(Errno::EINVAL));
    // The first failure ends a compound.
    let res = c.run(vec![
        Op::GetAttr { fid: Fid::NONE },
        Op::Unlink { dir: Fid::ROOT, name: b"f".to_vec(), rmdir: false },
    ]);
    assert_eq!(res, [Res::Failed { errno: Errno::ESTALE.0 as u16 }]);
    // Identifiers of nobody, of others, used ones.
    for (fid, errno) in [
        (Fid::new(1, 1), Errno::ESTALE),
        (Fid { ver: 1, ..f }, Errno::EINVAL),
        (Fid::new(f.seq, u32::MAX), Errno::EINVAL),
        (f, Errno::EEXIST),
    ] {
        let mut op = c.create(Fid::ROOT, "g");
        if let Op::Create { fid: of, .. } = &mut op {
            *of = fid;
        }
        assert_eq!(c.one(op).unwrap_err(), errno, "{fid}");
    }
    // A handle of another file, of nobody.
    let open = c.open(f, O_READ).unwrap();
    let g = c.make(Fid::ROOT, "g", FILE).unwrap();
    let again = Op::Open { fid: g, flags: O_READ, handle: open.handle };
    assert_eq!(c.one(again), Err(Errno::EBADF));
    let close = Op::Close { fid: g, handle: open.handle, report: None };
    assert_eq!(c.one(close), Err(Errno::EBADF));
    // A report cannot change what a directory counts.
    let d = c.make(Fid::ROOT, "d", DIR).unwrap();
    c.make(d, "in", FILE).unwrap();
    let report = SizeReport { size: 0, exact: true, blocks: Some(0), mtime: None, atime: None };
    c.one(Op::Report { fid: d, report }).unwrap();
    assert_eq!(c.unlink(Fid::ROOT, "d", true), Err(Errno::ENOTEMPTY));
    // Nothing to take away, nothing changed.
    let before = c.attr(f).unwrap();
    let set = SetAttr { valid: proto::attr::S_KILL_SUID, ..SetAttr::none() };
    c.one(Op::SetAttr { fid: f, set }).unwrap();
    assert_eq!(c.attr(f).unwrap(), before);
    assert_eq!(c.one(Op::SetAttr { fid: f, set: SetAttr::size(u64::MAX) }), Err(Errno::EFBIG));
    common::check(&disk, s, &[c]);
}

#[test]
fn an_answer_too_long_for_a_message_ends_the_compound() {
    let s = Solo::new(&MemoryDisk::new());
    let c = s.client();
    let f = c.make(Fid::ROOT, "f", FILE).unwrap();
    c.write(f, 0, &vec![1; 60_000]).unwrap();
    let res = c.run(vec![Op::ReadInline { fid: f }; 100]);
    assert!(res.len() > 10 && res.len() < 20, "{}", res.len());
    assert_eq!(res.last(), Some(&Res::Failed { errno: Errno::E2BIG.0 as u16 }));
}

#[test]
fn a_target_without_a_root_serves_and_holds_nothing() {
    let label = MdtLabel { index: 1, ..common::label() };
    let disk = MemoryDisk::new();
    let store = memory::acquire(&disk, "test", 0).unwrap();
    let mdt = Mdt::with_store(label, Arc::from(store), MdtOptions::default(), "memory").unwrap();
    let server = Server::new(ServerOptions::default());
    server.add(mdt.clone());
    let options = ConnectOptions { target: "MDT0001".into(), ..common::connect() };
    let c = common::Client::at(&Endpoint::Local(server.local()), options);
    c.sync();
    assert_eq!(c.status()["failed"], false);
    assert!(matches!(c.one(Op::Statfs {}), Ok(Res::Statfs { .. })));
    assert!(matches!(c.one(Op::AllocFids {}), Ok(Res::Fids { .. })));
    // FIDs of two MDTs never meet.
    assert_eq!(c.grant.fids.seq, proto::fid::SEQ_FIRST + (1 << 32));
    assert_eq!(c.make(Fid::ROOT, "f", FILE), Err(Errno::ESTALE));
    assert_eq!(c.lookup(Fid::ROOT, "f").unwrap_err(), Errno::ESTALE);
    assert_eq!(c.attr(Fid::ROOT), Err(Errno::ESTALE));
    assert_eq!(c.one(Op::FidToPath { fid: Fid::ROOT }), Err(Errno::ESTALE));
    c.session.close();
    mdt.close().unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// A good message with bytes changed: an answer or an error, and the target goes on.
    #[test]
    fn damaged_compounds_do_no_harm(at in proptest::collection::vec((0usize..400, any::<u8>()), 1..6)) {
        let disk = MemoryDisk::new();
        let s = Solo::new(&disk);
        let c = s.client();
        let report = SizeReport { size: 1, exact: false, blocks: None, mtime: None, atime: None };
        let ops = vec![
            c.create(Fid::ROOT, "f"),
            Op::Open { fid: Fid::CURRENT, flags: O_READ | O_WRITE, handle: 0 },
            Op::SetXattr { fid: Fid::CURRENT, name: b"user.a".to_vec(), value: vec![1; 9].into(), flags: 0 },
            Op::Link { fid: Fid::CURRENT, dir: Fid::ROOT, name: b"g".to_vec() },
            Op::Report { fid: Fid::CURRENT, report },
            Op::Rename { from_dir: Fid::ROOT, from: b"f".to_vec(), to_dir: Fid::ROOT, to: b"h".to_vec(), flags: 0 },
            Op::Whiteout { from_dir: Fid::ROOT, from: b"h".to_vec(), to_dir: Fid::ROOT, to: b"i".to_vec(), flags: 0, fid: Fid::CURRENT },
            Op::ReadDir { dir: Fid::ROOT, cookie: 0, max_bytes: 9000, flags: 1 },
            Op::Unlink { dir: Fid::ROOT, name: b"g".to_vec(), rmdir: false },
        ];
        let cred = Cred { uid: 1, gid: 1, groups: List(vec![]) };
        let mut body = Compound::new(cred, ops).to_bytes();
        for (at, v) in at {
            let at = at % body.len();
            body[at] = v;
        }
        let _ = status(&c.session, ops::mds::COMPOUND, body);
        c.sync();
        common::check(&disk, s, &[c]);
    }
}
