use super::*;
use crate::leases::Leases;
use crate::mdt::own_cred;
use proto::TimeSpec;
use proto::mds::Res;

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
