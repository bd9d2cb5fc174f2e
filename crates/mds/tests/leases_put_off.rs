//! Call-backs of which a client gives back some at once and the rest later.

#[path = "common/mod.rs"]
mod common;
#[path = "common/holder.rs"]
mod holder;

use std::collections::BTreeSet;
use std::time::Duration;

use common::{DIR, FILE, Solo};
use holder::{Holder, Way};
use pinstripe_mds::MdtOptions;
use pinstripe_mds::leases::MAX_CALLS;
use pinstripe_mds::leases::calls::{Calls, Conflict};
use proto::Fid;
use proto::mds::{LS_WRITE, Lease, Op, RD_PLUS, Res};
use store::memory::MemoryDisk;

/// Long enough to try all the rest meanwhile.
fn patient() -> MdtOptions {
    MdtOptions { recall_timeout: Duration::from_secs(60), ..MdtOptions::default() }
}

fn getattr(fid: Fid) -> Vec<Op> {
    vec![Op::GetAttr { fid }]
}

fn told(res: &[Res]) -> bool {
    matches!(res[0], Res::Attr { .. })
}

#[test]
fn what_takes_long_keeps_only_those_who_want_it() {
    const SLOW: u32 = MAX_CALLS as u32 + 3;
    let s = Solo::with(&MemoryDisk::new(), patient());
    let (a, b) = (Holder::new(&s), Holder::new(&s));
    let dir = a.make(Fid::ROOT, "d", DIR).unwrap();
    let make = |name: String| a.make(dir, &name, FILE).unwrap();
    let slow: Vec<Fid> = (0..SLOW).map(|n| make(format!("slow{n}"))).collect();
    let quick: Vec<Fid> = (0..SLOW).map(|n| make(format!("quick{n}"))).collect();
    a.set_way(Way::PutsOff(slow.clone()));
    std::thread::scope(|scope| {
        let b = &b;
        let waits: Vec<_> =
            slow.iter().map(|fid| scope.spawn(move || b.run(getattr(*fid)))).collect();
        // More of them than one client may have under way.
        common::until(|| b.client.status()["leases"]["waiting"] == SLOW);
        for fid in &quick {
            assert!(told(&b.run(getattr(*fid))));
        }
        assert!(waits.iter().all(|w| !w.is_finished()), "nobody has given these back");
        assert!(slow.iter().all(|fid| a.has(*fid) & LS_WRITE != 0));
        a.set_way(Way::Prompt);
        a.answer_all();
        assert!(waits.into_iter().all(|w| told(&w.join().unwrap())));
    });
    let status = b.client.status();
    assert_eq!(status["leases"]["calls_under_way"], 0);
    assert_eq!(status["leases"]["evictions"], 0);
    holder::check(&[&a, &b], &s);
}

#[test]
fn who_lists_does_not_wait_for_what_is_put_off() {
    let s = Solo::with(&MemoryDisk::new(), patient());
    let (a, b, c) = (Holder::new(&s), Holder::new(&s), Holder::new(&s));
    let dir = a.make(Fid::ROOT, "d", DIR).unwrap();
    let (slow, quick) = (a.make(dir, "slow", FILE).unwrap(), a.make(dir, "quick", FILE).unwrap());
    a.set_way(Way::PutsOff(vec![slow]));
    let list = |holder: &Holder| {
        let op = Op::ReadDir { dir, cookie: 0, max_bytes: 65536, flags: RD_PLUS };
        let Some(Res::Entries { entries, end: true }) = holder.run(vec![op]).pop() else {
            panic!("no listing")
        };
        entries.0.into_iter().map(|e| (e.fid, e.attr.is_some())).collect::<BTreeSet<_>>()
    };
    let without = BTreeSet::from([(slow, false), (quick, true)]);
    // The first finds the lease and has it called back, the next find that it is put off.
    assert_eq!(list(&b), without);
    std::thread::scope(|scope| {
        let looks = scope.spawn(|| told(&c.run(getattr(slow))));
        common::until(|| c.client.status()["leases"]["waiting"] == 1);
        assert_eq!(list(&b), without);
        assert!(!looks.is_finished(), "nobody has given it back");
        let own = list(&a);
        assert_eq!(own, BTreeSet::from([(slow, true), (quick, true)]), "it is its own");
        a.set_way(Way::Prompt);
        a.answer_all();
        assert!(looks.join().unwrap());
    });
    assert_eq!(list(&b), BTreeSet::from([(slow, true), (quick, true)]));
    holder::check(&[&a, &b, &c], &s);
}

#[test]
fn one_that_puts_off_and_never_answers_is_evicted() {
    let options =
        MdtOptions { recall_timeout: Duration::from_millis(200), ..MdtOptions::default() };
    let s = Solo::with(&MemoryDisk::new(), options);
    let (a, b) = (Holder::new(&s), Holder::new(&s));
    let file = a.make(Fid::ROOT, "file", FILE).unwrap();
    a.set_way(Way::PutsOff(vec![file]));
    assert!(told(&b.run(getattr(file))));
    assert_eq!(b.client.status()["leases"]["evictions"], 1);
}

#[test]
fn to_put_off_what_is_answered_or_was_never_asked_changes_nothing() {
    let s = Solo::with(&MemoryDisk::new(), patient());
    let (a, b) = (Holder::new(&s), Holder::new(&s));
    let file = a.make(Fid::ROOT, "file", FILE).unwrap();
    b.run(getattr(file));
    for call in [0, 1, u64::MAX] {
        let list = || proto::wire::List(vec![file]);
        let op = Op::PutOff { call, left: list(), unwatched: list() };
        assert_eq!(a.client.run(vec![op]), [Res::Done {}]);
    }
    holder::check(&[&a, &b], &s);
    assert!(told(&b.run(getattr(file))));
}

const F: Fid = Fid { seq: 9, oid: 1, ver: 0 };

#[test]
fn what_is_put_off_keeps_nobody_else_and_is_answered_later() {
    let other = |n: u32| Fid { oid: n, ..F };
    let conflict = |fid| Conflict { fid, session: 1, bits: LS_WRITE, written: false };
    let mut calls = Calls::default();
    assert!(calls.ask(conflict(F)));
    assert!(calls.ask(conflict(other(2))));
    calls.wait(F, 1);
    calls.wait(other(2), 2);
    let turn = calls.turn();
    let (session, slow, body) = calls.message().unwrap();
    assert_eq!((body.call, body.back.0.len()), (slow, 2));
    let (given, tickets) = calls.put_off(session, slow, &[F].into_iter().collect()).unwrap();
    assert_eq!(given.back.0, [Lease { fid: other(2), bits: LS_WRITE }]);
    assert_eq!(tickets, BTreeSet::from([2]));
    assert!(calls.is_put_off(F, 2) && !calls.is_put_off(F, 1) && !calls.is_put_off(other(2), 2));
    assert_eq!(calls.waiting(&[F, other(2)]), BTreeSet::from([1, 2]));
    assert!(calls.answered(other(2), turn, 2) && !calls.answered(F, turn, 2));
    // As many others as ever are under way beside it, and no more.
    for n in 0..MAX_CALLS as u32 {
        assert!(calls.ask(conflict(other(10 + n))));
        assert!(calls.message().is_some());
    }
    assert!(calls.ask(conflict(other(9))));
    assert!(calls.message().is_none(), "the last one is gathered");
    let (body, tickets) = calls.answer(session, slow).unwrap();
    assert_eq!(body.back.0, [Lease { fid: F, bits: LS_WRITE }]);
    assert_eq!(tickets, BTreeSet::from([1]));
    assert!(calls.put_off(session, slow, &Default::default()).is_none(), "it is answered");
}
