use super::*;
use crate::leases::Leases;
use crate::mdt::own_cred;
use proto::TimeSpec;
use proto::mds::{LS_ATTR, LS_LOOKUP, Lease, O_WRITE, OpenInfo, Res};

const DIR: Fid = Fid { seq: 1, oid: 1, ver: 0 };
const FILE: Fid = Fid { seq: 1, oid: 2, ver: 0 };

/// What a client that is alone learned by looking a name up.
fn looked_up(wb: &Wb, op: &Op) {
    let attr = Attr { fid: FILE, ..crate::filling::tests::attr() };
    let mut tree = wb.tree.lock();
    let note = tree.note(op);
    tree.learn(op, &Res::Entry { attr, created: false, open: None }, &note);
}

#[test]
fn a_name_whose_inode_could_not_be_opened_is_asked_for() {
    let trust = Trust::new(Arc::new(true.into()), Arc::new(Leases::new(true)), false);
    let wb = Wb::new(trust, 65536, 1000, std::time::Duration::ZERO);
    let lookup = Op::Lookup { dir: DIR, name: b"f".to_vec() };
    looked_up(&wb, &lookup);
    let mut tree = wb.tree.lock();
    let here = tree.apply(&own_cred(), &lookup, TimeSpec::default());
    assert!(matches!(here, apply::Local::Known(_)), "it is known");
    let open = Op::Open { fid: FILE, flags: 0, handle: 0 };
    let note = tree.note(&open);
    tree.learn(&open, &Res::Failed { errno: Errno::ESTALE.0 as u16 }, &note);
    let here = tree.apply(&own_cred(), &lookup, TimeSpec::default());
    assert!(matches!(here, apply::Local::Ask), "it may have been removed");
}

/// What an MDT that is full would refuse is not answered here.
#[test]
fn an_acl_that_is_a_mode_is_set_here_while_there_is_room() {
    const MINIMAL: [u8; 28] = [
        2, 0, 0, 0, 1, 0, 6, 0, 255, 255, 255, 255, 4, 0, 4, 0, 255, 255, 255, 255, 32, 0, 0, 0,
        255, 255, 255, 255,
    ];
    let trust = Trust::new(Arc::new(true.into()), Arc::new(Leases::new(true)), false);
    let wb = Wb::new(trust, 65536, 1000, std::time::Duration::ZERO);
    looked_up(&wb, &Op::Lookup { dir: DIR, name: b"f".to_vec() });
    let (name, value) = (proto::acl::ACCESS.to_vec(), bytes::Bytes::from_static(&MINIMAL));
    let set = Op::SetXattr { fid: FILE, name, value, flags: 0 };
    let mut tree = wb.tree.lock();
    tree.room = 0;
    let full = tree.apply(&own_cred(), &set, TimeSpec::default());
    assert!(matches!(full, apply::Local::Ask), "{full:?}");
    tree.room = 1 << 20;
    match tree.apply(&own_cred(), &set, TimeSpec::default()) {
        apply::Local::Changed(Res::Attr { attr }) => assert_eq!(attr.mode & 0o7777, 0o640),
        other => panic!("{other:?}"),
    }
}

/// Two threads: one asks for a directory, the other one removes a name from it, and is told the directory behind that. The
/// MDT answered the first one first, and granted with that all there is; its answer comes last, and tells what was before.
#[test]
fn an_answer_of_before_a_change_is_not_believed_when_it_comes_behind() {
    let leases = Arc::new(Leases::new(true));
    let trust = Trust::new(Arc::new(false.into()), leases.clone(), false);
    let wb = Wb::new(trust, 65536, 1000, std::time::Duration::ZERO);
    let attr = |fid, version| Attr { fid, version, ..crate::filling::tests::attr() };
    let unlink = Op::Unlink { dir: DIR, name: b"f".to_vec(), rmdir: false };
    let look = Op::GetAttr { fid: DIR };
    let mut tree = wb.tree.lock();
    let before = leases.mark();
    leases.changing(DIR);
    let mut sent = sent::Sent {
        notes: vec![tree.note(&unlink)],
        asks: vec![(look.clone(), tree.note(&look))],
        ops: vec![unlink],
        doubtful: vec![DIR],
        ..sent::Sent::default()
    };
    let (mut looking, asked) = (tree.note(&look), leases.mark());
    let (got, mut told) = (leases.granted(Vec::new(), before, &[DIR]), Vec::new());
    let answers = vec![Res::Attr { attr: attr(FILE, 2) }, Res::Attr { attr: attr(DIR, 8) }];
    sent.answered(&mut tree, answers, got, &mut told);
    tree.changes_ended(&sent.doubtful, &told);
    let lease = Lease { fid: DIR, bits: LS_ATTR | LS_LOOKUP };
    looking.got = Arc::new(leases.granted(vec![lease], asked, &[]));
    tree.learn(&look, &Res::Attr { attr: attr(DIR, 7) }, &looking);
    let here = tree.apply(&own_cred(), &look, TimeSpec::default());
    assert!(matches!(here, apply::Local::Ask), "{here:?}");
}

/// A call-back, and a message that needs it, tell the same open; it is closed by whoever opened it only.
#[test]
fn an_open_that_two_tell_is_open_until_it_is_closed() {
    let trust = Trust::new(Arc::new(true.into()), Arc::new(Leases::new(false)), false);
    let wb = Wb::new(trust, 65536, 1000, std::time::Duration::ZERO);
    let attr = Attr { fid: FILE, ..crate::filling::tests::attr() };
    let open = OpenInfo { handle: 0, inline: None, layout: None, shared: false };
    let opened = || vec![Res::Opened { attr: attr.clone(), open: open.clone() }];
    let mut tree = wb.tree.lock();
    let handle = tree.opens.begin(FILE, O_WRITE);
    let (one, other) = (tree.opens_of(FILE), tree.opens_of(FILE));
    assert_eq!((one.len(), other.len()), (1, 1));
    let mut told = Vec::new();
    let mut answered = |tree: &mut Tree, opens| {
        let mut sent = sent::Sent { opens, ..sent::Sent::default() };
        sent.answered(
            tree,
            opened(),
            Leases::new(false).granted(Vec::new(), Default::default(), &[]),
            &mut told,
        );
        sent.closed
    };
    assert_eq!(answered(&mut tree, one.clone()), []);
    assert_eq!(tree.opens_answered(other, opened()), [], "it is open still");
    assert!(tree.opens.is_open(FILE) && !tree.opens.is_own(FILE, handle));
    tree.opens.end(FILE, handle);
    let close = Op::Close { fid: FILE, handle, report: None };
    assert_eq!(tree.opens_answered(one.clone(), opened()), [close], "it was closed meanwhile");
    assert_eq!(answered(&mut tree, one), [(FILE, handle)]);
    assert!(!tree.opens.is_open(FILE));
}
