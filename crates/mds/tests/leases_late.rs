//! Writers of one file that tell late what they did to it ([`LS_LATE`]).

mod common;
#[path = "common/holder.rs"]
mod holder;

use std::time::Duration;

use common::{FILE, Solo};
use holder::{Holder, Way};
use pinstripe_mds::MdtOptions;
use proto::attr::S_MTIME;
use proto::mds::*;
use proto::{Fid, SetAttr, TimeSpec};
use store::memory::MemoryDisk;

const WANTS_LATE: u8 = CF_LEASES | CF_SHARED_LEASES | CF_FILE_WRITES | CF_LATE;

fn wishing(ops: Vec<Op>) -> Compound {
    Compound { flags: WANTS_LATE, ..Compound::new(holder::cred(), ops) }
}

fn report(fid: Fid, size: u64, mtime: TimeSpec) -> Op {
    let mtime = Some(mtime);
    let report = SizeReport { size, exact: false, blocks: None, mtime, atime: None };
    Op::Report { fid, report }
}

/// Milliseconds after a time.
fn after(t: TimeSpec, ms: u32) -> TimeSpec {
    let nsec = t.nsec + ms * 1_000_000;
    TimeSpec { sec: t.sec + i64::from(nsec / 1_000_000_000), nsec: nsec % 1_000_000_000 }
}

/// Two sessions that write one file may both tell late; whoever is told its attributes, or sets them, waits
/// until they have told, and they do not wait for each other.
#[test]
fn who_writes_beside_others_tells_before_anybody_is_told() {
    let options = MdtOptions { orphan_grace: Duration::ZERO, ..MdtOptions::default() };
    let s = Solo::with(&MemoryDisk::new(), options);
    let (a, b, c) = (Holder::new(&s), Holder::new(&s), Holder::new(&s));
    let file = a.plain().make(Fid::ROOT, "file", FILE).unwrap();
    let made = a.client.attr(file).unwrap().mtime;
    // All that is told was some time ago.
    let made = TimeSpec { sec: made.sec - 10, nsec: 0 };
    let set = SetAttr { valid: S_MTIME, mtime: made, ..SetAttr::none() };
    a.plain().run(vec![Op::SetAttr { fid: file, set }]);
    let at = |ms| after(made, ms);
    let mut handles = Vec::new();
    for writer in [&a, &b] {
        let res = writer.plain().run(vec![Op::Open { fid: file, flags: O_WRITE, handle: 0 }]);
        let Res::Opened { open: o, .. } = &res[0] else { panic!("{res:?}") };
        handles.push(o.handle);
    }
    let granted = |h: &Holder, op: Op| {
        let reply = holder::call(&h.client, &wishing(vec![op]));
        reply.leases.0.iter().fold(0, |bits, l| bits | l.bits)
    };
    let give = |h: &Holder| granted(h, report(file, 10, at(1)));
    assert_eq!((give(&a), give(&b)), (LS_LATE, LS_LATE));
    let calls = || (a.calls(), b.calls());
    let before = calls();
    a.plain().run(vec![report(file, 20, at(1))]);
    assert_eq!(calls(), before, "reports wait for nobody");
    // Told in any order, the latest time counts.
    a.set_way(Way::Before(vec![report(file, 90, at(9))]));
    b.set_way(Way::Before(vec![report(file, 50, at(5))]));
    let res = c.run(vec![Op::GetAttr { fid: file }]);
    let Res::Attr { attr } = &res[0] else { panic!("{res:?}") };
    assert_eq!(attr.mtime, at(9));
    assert_eq!(calls(), (before.0 + 1, before.1 + 1));
    c.run(vec![Op::GetAttr { fid: file }]);
    assert_eq!(calls(), (before.0 + 1, before.1 + 1), "it is given back");
    // Nor after the last handle that could write.
    assert_eq!(give(&a), LS_LATE);
    a.plain().run(vec![Op::Close { fid: file, handle: handles[0], report: None }]);
    c.run(vec![Op::GetAttr { fid: file }]);
    assert_eq!(calls(), (before.0 + 1, before.1 + 1));
    assert_eq!(granted(&a, report(file, 10, at(2))), 0);
}
