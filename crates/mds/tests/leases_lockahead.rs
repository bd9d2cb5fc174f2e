//! Writers of one file that keep to bytes of their own ([`Op::LockAhead`]).

mod common;
#[path = "common/holder.rs"]
mod holder;

use std::time::Duration;

use common::{FILE, Solo};
use holder::Holder;
use pinstripe_mds::MdtOptions;
use proto::mds::*;
use proto::wire::List;
use proto::{Fid, Stride, TimeSpec};
use store::memory::MemoryDisk;

const WANTS_LATE: u8 = CF_LEASES | CF_SHARED_LEASES | CF_FILE_WRITES | CF_LATE;
/// What came of a promise.
const REFUSED: (bool, bool) = (false, false);
const KEPT: (bool, bool) = (true, false);
const GRANTED: (bool, bool) = (true, true);

fn solo() -> Solo {
    let options = MdtOptions { orphan_grace: Duration::ZERO, ..MdtOptions::default() };
    Solo::with(&MemoryDisk::new(), options)
}

fn open(h: &Holder, fid: Fid, flags: u32) -> u64 {
    match &h.plain().run(vec![Op::Open { fid, flags, handle: 0 }])[0] {
        Res::Opened { open, .. } => open.handle,
        other => panic!("{other:?}"),
    }
}

fn close(h: &Holder, fid: Fid, handle: u64) {
    let res = h.plain().run(vec![Op::Close { fid, handle, report: None }]);
    assert!(matches!(res[0], Res::Attr { .. }), "{res:?}");
}

/// Takes the right to tell late, which everything rests on.
fn late(h: &Holder, fid: Fid) {
    let mtime = Some(TimeSpec { sec: 5, nsec: 0 });
    let report = SizeReport { size: 9, exact: false, blocks: None, mtime, atime: None };
    let ops = vec![Op::Report { fid, report }];
    let wish = Compound { flags: WANTS_LATE, ..Compound::new(holder::cred(), ops) };
    let bits = holder::call(&h.client, &wish).leases.0.iter().fold(0, |bits, l| bits | l.bits);
    assert_eq!(bits, LS_LATE);
}

fn says(h: &Holder, fid: Fid, strides: Vec<Stride>) -> (bool, bool) {
    match h.plain().run(vec![Op::LockAhead { fid, strides: List(strides) }])[0] {
        Res::LockAhead { kept, granted } => (kept, granted),
        ref other => panic!("{other:?}"),
    }
}

/// Every third block of 10 bytes, from this one on.
fn third(n: u64) -> Vec<Stride> {
    vec![Stride { start: 10 * n, len: 10, step: 30 }]
}

/// Two who write one file.
struct Pair {
    a: Holder,
    b: Holder,
    c: Holder,
    file: Fid,
    handles: [u64; 2],
}

impl Pair {
    fn new(s: &Solo) -> Pair {
        let (a, b, c) = (Holder::new(s), Holder::new(s), Holder::new(s));
        let file = a.plain().make(Fid::ROOT, "file", FILE).unwrap();
        let handles = [open(&a, file, O_WRITE), open(&b, file, O_WRITE)];
        let pair = Pair { a, b, c, file, handles };
        pair.late();
        pair
    }

    fn late(&self) {
        late(&self.a, self.file);
        late(&self.b, self.file);
    }

    /// Both are granted what they promise.
    fn grant(&self) {
        says(&self.a, self.file, third(0));
        assert_eq!(says(&self.b, self.file, third(1)), GRANTED);
        assert_eq!(says(&self.a, self.file, third(0)), GRANTED);
    }

    fn calls(&self) -> (usize, usize) {
        (self.a.calls(), self.b.calls())
    }

    /// How often each is called back while something is done.
    fn called(&self, what: impl FnOnce()) -> (usize, usize) {
        let before = self.calls();
        what();
        (self.a.calls() - before.0, self.b.calls() - before.1)
    }
}

#[test]
fn bytes_are_granted_once_all_who_have_the_file_open_keep_out_of_them() {
    let s = solo();
    let p = Pair::new(&s);
    assert_eq!(says(&p.a, p.file, third(0)), KEPT, "the other may go anywhere");
    assert_eq!(says(&p.b, p.file, third(0)), KEPT, "both would write the same");
    assert_eq!(says(&p.a, p.file, third(0)), KEPT);
    assert_eq!(says(&p.b, p.file, third(1)), GRANTED);
    assert_eq!(says(&p.a, p.file, third(0)), GRANTED);
    // What was granted nobody else may promise to touch, and who has it does not give it up unasked.
    assert_eq!(says(&p.b, p.file, third(0)), REFUSED);
    assert_eq!(says(&p.b, p.file, [third(1), third(2)].concat()), GRANTED);
    assert_eq!(says(&p.a, p.file, third(2)), REFUSED);
    assert_eq!(says(&p.a, p.file, vec![Stride::range(0, 0)]), REFUSED);
    // Who has no file open for writing promises nothing.
    assert_eq!(says(&p.c, p.file, third(2)), REFUSED);
    let status = p.c.client.status();
    assert_eq!(
        (&status["leases"]["kept_ahead"], &status["leases"]["granted_ahead"]),
        (&2.into(), &2.into())
    );
}

#[test]
fn whoever_looks_or_comes_has_it_called_back() {
    let s = solo();
    let p = Pair::new(&s);
    p.grant();
    assert_eq!(p.called(|| drop(p.c.run(vec![Op::GetAttr { fid: p.file }]))), (1, 1));
    assert_eq!(says(&p.a, p.file, third(0)), KEPT, "what it rests on was given back");
    p.late();
    p.grant();
    // Its own looks at it call back the other only.
    assert_eq!(p.called(|| drop(p.a.run(vec![Op::GetAttr { fid: p.file }]))), (0, 1));
    p.late();
    p.grant();
    for flags in [O_READ, O_WRITE] {
        let mut handle = 0;
        assert_eq!(p.called(|| handle = open(&p.c, p.file, flags)), (1, 1));
        p.late();
        assert_eq!(says(&p.a, p.file, third(0)), KEPT, "the third promised nothing");
        close(&p.c, p.file, handle);
        p.grant();
    }
}

#[test]
fn who_goes_back_on_a_promise_waits_for_all_that_rests_on_it() {
    let s = solo();
    let p = Pair::new(&s);
    p.grant();
    assert_eq!(p.called(|| assert_eq!(says(&p.a, p.file, vec![]), REFUSED)), (0, 1));
    assert_eq!(says(&p.b, p.file, third(1)), KEPT, "the first may go anywhere");
    p.late();
    assert_eq!(
        p.called(|| assert_eq!(says(&p.b, p.file, vec![]), REFUSED)),
        (0, 0),
        "nothing rests on it"
    );
    p.grant();
    // Nobody waits in a circle: both go back on it at once.
    std::thread::scope(|scope| {
        for h in [&p.a, &p.b] {
            scope.spawn(|| assert_eq!(says(h, p.file, vec![]), REFUSED));
        }
    });
    p.late();
    p.grant();
}

#[test]
fn a_promise_ends_with_the_last_open_of_who_gave_it() {
    let s = solo();
    let p = Pair::new(&s);
    let reads = open(&p.a, p.file, O_READ);
    p.late();
    p.grant();
    close(&p.a, p.file, p.handles[0]);
    // It could read what the other holds back, but for its promise.
    assert_eq!(says(&p.b, p.file, [third(1), third(0)].concat()), REFUSED);
    assert_eq!(p.called(|| assert_eq!(says(&p.a, p.file, vec![]), REFUSED)), (0, 1));
    late(&p.b, p.file);
    assert_eq!(says(&p.b, p.file, third(1)), KEPT);
    close(&p.a, p.file, reads);
    let writes = open(&p.a, p.file, O_WRITE);
    p.late();
    assert_eq!(says(&p.b, p.file, third(1)), KEPT);
    p.grant();
    close(&p.a, p.file, writes);
    let again = open(&p.a, p.file, O_WRITE);
    p.late();
    assert_eq!(says(&p.b, p.file, third(1)), KEPT, "a new open promised nothing");
    close(&p.a, p.file, again);
    close(&p.b, p.file, p.handles[1]);
    assert_eq!(p.c.client.status()["leases"]["kept_ahead"], 0);
}
