use super::linear::{Entry, Object, Violation, Who, explain};
use super::objects::{Log, LogOp, Names, NamesOp, Register, RegisterOp};

/// (call, return, operation); a return of 0: not known.
fn history<Op: Clone>(all: &[(u64, u64, Op)]) -> Vec<Entry<Op>> {
    let entry = |(call, back, op): &(u64, u64, Op)| Entry {
        who: Who::default(),
        call: *call,
        back: (*back > 0).then_some(*back),
        op: op.clone(),
    };
    all.iter().map(entry).collect()
}

fn fits<O: Object>(object: &O, all: &[(u64, u64, O::Op)]) -> bool
where
    O::Op: Clone,
{
    match explain(object, &history(all)) {
        Ok(_) => true,
        Err(Violation::Unexplained { .. }) => false,
        Err(Violation::TooTangled) => panic!("not decided"),
    }
}

#[test]
fn registers() {
    use RegisterOp::{Get, MaybeSet, Set};
    let r = Register { start: 0 };
    assert!(fits(&r, &[(1, 2, Set(5)), (3, 4, Get(5))]));
    assert!(!fits(&r, &[(1, 2, Set(5)), (3, 4, Get(0))]), "a stale read");
    assert!(fits(&r, &[(1, 9, Set(5)), (2, 3, Get(0)), (4, 5, Get(5))]), "it overlaps");
    assert!(!fits(&r, &[(1, 9, Set(5)), (2, 3, Get(5)), (4, 5, Get(0))]), "seen, then not");
    assert!(!fits(&r, &[(1, 2, Get(7))]), "a value nobody wrote");
    let two = [(1, 10, Set(1)), (2, 10, Set(2)), (3, 4, Get(2)), (5, 6, Get(1)), (7, 8, Get(2))];
    assert!(!fits(&r, &two), "back and forth with one write each");
    assert!(fits(&r, &[(1, 0, MaybeSet(5)), (2, 3, Get(0)), (4, 5, Get(5))]), "late");
    assert!(fits(&r, &[(1, 0, MaybeSet(5)), (2, 3, Get(0)), (4, 5, Get(0))]), "never");
    assert!(!fits(&r, &[(3, 0, MaybeSet(5)), (1, 2, Get(5))]), "before it was called");
}

#[test]
fn names() {
    use NamesOp::{Create, MaybeCreate, MaybeRename, Rename, Stat, Unlink};
    assert!(fits(&Names, &[(1, 2, Create(0, Some(9))), (3, 4, Stat(0, Some(9)))]));
    assert!(!fits(&Names, &[(1, 2, Create(0, Some(9))), (3, 4, Stat(0, None))]), "a stale absence");
    let twice = [(1, 5, Create(0, Some(8))), (2, 6, Create(0, Some(9)))];
    assert!(!fits(&Names, &twice), "made twice");
    assert!(fits(&Names, &[(1, 5, Create(0, Some(8))), (2, 6, Create(0, None))]));
    let moved = [(1, 2, Create(0, Some(8))), (3, 4, Rename(0, true)), (5, 6, Stat(1, Some(8)))];
    assert!(fits(&Names, &moved));
    let both = [(1, 2, Create(0, Some(8))), (3, 4, Rename(0, true)), (5, 6, Stat(0, Some(8)))];
    assert!(!fits(&Names, &both), "a renamed file under its old name");
    let gone = [(1, 2, Create(0, Some(8))), (3, 4, Unlink(0, true)), (5, 6, Unlink(0, true))];
    assert!(!fits(&Names, &gone), "removed twice");
    assert!(fits(&Names, &[(1, 0, MaybeCreate(0)), (2, 3, Stat(0, Some(7)))]));
    let other = [(1, 0, MaybeCreate(0)), (2, 3, Stat(0, Some(7))), (4, 5, Stat(0, Some(6)))];
    assert!(!fits(&Names, &other), "it changed its identity");
    let maybe = [(1, 2, Create(0, Some(8))), (3, 0, MaybeRename(0)), (4, 5, Stat(1, None))];
    assert!(fits(&Names, &maybe));
}

#[test]
fn logs() {
    use LogOp::{Append, Read};
    assert!(fits(
        &Log::default(),
        &[(1, 4, Append(1)), (2, 5, Append(2)), (6, 7, Read(vec![2, 1]))]
    ));
    assert!(!fits(
        &Log::default(),
        &[(1, 2, Append(1)), (3, 4, Append(2)), (5, 6, Read(vec![2, 1]))]
    ));
    assert!(
        !fits(&Log::default(), &[(1, 4, Append(1)), (2, 5, Append(2)), (6, 7, Read(vec![2]))]),
        "lost"
    );
}

/// Appends under way together, each of which may have been any of the next: decided at once.
#[test]
fn a_log_with_many_appends_at_a_time_is_decided() {
    let mut all: Vec<_> = (0..30).map(|v| (1 + v, 100, LogOp::Append(v))).collect();
    let upside_down: Vec<u64> = (0..30).rev().collect();
    all.push((101, 102, LogOp::Read(upside_down.clone())));
    let log = |all: &[(u64, u64, LogOp)]| Log::of(all.iter().map(|(.., op)| op));
    assert!(fits(&log(&all), &all));
    all.push((103, 104, LogOp::Append(30)));
    all.push((105, 106, LogOp::Read(upside_down[..29].to_vec())));
    assert!(!fits(&log(&all), &all), "one is lost");
}

#[test]
fn what_does_not_fit_is_named() {
    let all = history(&[
        (1, 2, RegisterOp::Set(1)),
        (3, 4, RegisterOp::Set(2)),
        (5, 6, RegisterOp::Get(1)),
    ]);
    let found = explain(&Register { start: 0 }, &all);
    assert_eq!(found, Err(Violation::Unexplained { fits: vec![0, 1], stuck: vec![2] }));
}

/// Histories made by running operations at one instant inside their call and return always fit;
/// with one answer made stale they do not.
#[test]
fn made_histories() {
    use rand::{Rng, SeedableRng};
    let mut random = rand::rngs::StdRng::seed_from_u64(7);
    for round in 0..200 {
        let mut all = Vec::new();
        let mut state = 0;
        for i in 0..40u64 {
            let at = (i + 1) * 10;
            let (call, back) =
                (at - random.random_range(0..30).min(at - 1), at + random.random_range(1..30));
            let op = match random.random_bool(0.5) {
                true => {
                    state = i + 1;
                    RegisterOp::Set(state)
                }
                false => RegisterOp::Get(state),
            };
            all.push((call, back, op));
        }
        all.push((10_000, 10_001, RegisterOp::Get(state)));
        let r = Register { start: 0 };
        assert!(fits(&r, &all), "round {round}");
        let end = all.len() - 1;
        all[end].2 = RegisterOp::Get(1_000_000);
        assert!(!fits(&r, &all), "round {round}");
    }
}

mod kills {
    use super::super::crash::{CrashOp, Mortal, Redo};
    use super::super::drive::{Any, Noted, Thing};
    use super::super::kills::{Window, among_kills, number};
    use super::*;
    use CrashOp::{Done, Killed, Synced};
    use std::hash::Hash;

    fn mortal<O: Redo>(object: &O, all: &[(u64, u64, CrashOp<O::Op>)]) -> bool
    where
        O::Op: Clone + Eq + Hash,
    {
        fits(&Mortal::of(object, all.iter().map(|(.., op)| op)), all)
    }

    /// One after the other.
    fn in_order<O: Redo>(object: &O, ops: &[CrashOp<O::Op>]) -> bool
    where
        O::Op: Clone + Eq + Hash,
    {
        let at = |n: usize| n as u64 * 10;
        let all: Vec<_> =
            ops.iter().enumerate().map(|(n, op)| (at(n) + 1, at(n) + 2, op.clone())).collect();
        mortal(object, &all)
    }

    const R: Register = Register { start: 0 };

    fn set(v: u64) -> CrashOp<RegisterOp> {
        Done(v, RegisterOp::Set(v))
    }

    fn get(v: u64) -> CrashOp<RegisterOp> {
        Done(1000 + v, RegisterOp::Get(v))
    }

    #[test]
    fn what_was_not_synced_may_be_lost_and_what_was_may_not() {
        assert!(in_order(&R, &[set(1), get(1), Killed, get(1)]));
        assert!(in_order(&R, &[set(1), get(1), Killed, get(0)]), "others had seen it");
        assert!(in_order(&R, &[set(1), Synced(1), Killed, get(1)]));
        assert!(!in_order(&R, &[set(1), Synced(1), Killed, get(0)]), "a lost synced write");
        assert!(
            !in_order(&R, &[set(1), set(2), Synced(2), Killed, get(1)]),
            "also of those in front"
        );
        assert!(!in_order(&R, &[set(1), get(0)]), "nothing is lost without a kill");
        assert!(!in_order(&R, &[set(1), Killed, get(7)]), "a value nobody wrote");
    }

    #[test]
    fn what_was_lost_stays_lost() {
        assert!(!in_order(&R, &[set(1), Killed, get(0), get(1)]), "a resurrected value");
        assert!(!in_order(&R, &[set(1), Killed, get(0), Killed, get(1)]), "nor by another kill");
        assert!(!in_order(&R, &[set(1), Killed, get(1), get(0)]), "nor is it lost later");
        assert!(
            in_order(&R, &[set(1), Killed, get(1), Killed, get(0)]),
            "kept by who had not sent it"
        );
    }

    /// As when one client has heard of the loss and the other goes on believing.
    #[test]
    fn clients_agree_from_the_moment_they_are_back() {
        let seen = |b: u64| [(1, 2, set(1)), (3, 4, Killed), (5, 9, get(1)), (10, 12, get(b))];
        assert!(mortal(&R, &seen(1)));
        assert!(!mortal(&R, &seen(0)), "they disagree");
    }

    #[test]
    fn a_sync_that_returns_after_a_loss_must_tell_of_it() {
        let all = [(1, 2, set(1)), (3, 20, Synced(1)), (4, 5, Killed), (21, 22, get(0))];
        assert!(!mortal(&R, &all), "it returned, and the write is lost");
        let told = [(1, 2, set(1)), (4, 5, Killed), (21, 22, get(0))];
        assert!(mortal(&R, &told), "it failed");
        let kept = [(1, 2, set(1)), (3, 20, Synced(1)), (4, 5, Killed), (21, 22, get(1))];
        assert!(mortal(&R, &kept));
    }

    #[test]
    fn a_beginning_is_left_and_perhaps_an_end_done_again() {
        let append = |v| Done(v, LogOp::Append(v));
        let read = |all: &[u64]| Done(99, LogOp::Read(all.to_vec()));
        let after = |ops: &[CrashOp<LogOp>], all: &[u64]| {
            let ops: Vec<_> = ops.iter().cloned().chain([Killed, read(all)]).collect();
            in_order(&Log::default(), &ops)
        };
        let three = [append(1), append(2), append(3)];
        for left in [&[1, 2, 3][..], &[1, 2], &[1], &[], &[1, 3], &[2, 3], &[3]] {
            assert!(after(&three, left), "{left:?}");
        }
        assert!(!after(&three, &[2]), "neither a beginning nor an end");
        assert!(!after(&three, &[2, 1, 3]) && !after(&three, &[1, 3, 2]), "another order");
        let synced = [append(1), append(2), Synced(1), append(3)];
        assert!(after(&synced, &[1]) && after(&synced, &[1, 3]) && !after(&synced, &[2, 3]));
    }

    #[test]
    fn what_lies_behind_lost_bytes_stays_where_it_was() {
        let append = |v| Done(v, LogOp::Append(v));
        let after = |ops: &[CrashOp<LogOp>], all: &[u64]| {
            let read = Done(99, LogOp::Read(all.to_vec()));
            let ops: Vec<_> = ops.iter().cloned().chain([Killed, read]).collect();
            in_order(&Log::default(), &ops)
        };
        let four = [append(1), append(2), append(3), append(4)];
        for left in [&[1, 0, 3, 4][..], &[1, 0, 0, 4], &[0, 0, 0, 4], &[0, 2, 3, 4]] {
            assert!(after(&four, left), "{left:?}");
        }
        for left in [&[1, 0, 3][..], &[1, 0, 4], &[1, 2, 0], &[1, 0, 3, 0], &[1, 0, 0, 3]] {
            assert!(!after(&four, left), "{left:?}");
        }
        let synced = [append(1), append(2), Synced(2), append(3)];
        assert!(after(&synced, &[1, 2, 3]) && !after(&synced, &[0, 2, 3]), "a synced record");
    }

    #[test]
    fn names_go_back_together() {
        use NamesOp::{Create, Rename, Stat};
        let ops = |a: Option<u64>, b: Option<u64>| {
            [
                Done(1, Create(0, Some(8))),
                Synced(1),
                Done(2, Rename(0, true)),
                Killed,
                Done(3, Stat(0, a)),
                Done(4, Stat(1, b)),
            ]
        };
        assert!(in_order(&Names, &ops(Some(8), None)) && in_order(&Names, &ops(None, Some(8))));
        assert!(!in_order(&Names, &ops(None, None)), "between the two names");
        assert!(!in_order(&Names, &ops(Some(8), Some(8))), "under both");
    }

    /// What is made of what the workers noted: (call, return, known, operation).
    fn made(noted: &[(u64, u64, bool, Any)]) -> Vec<Entry<CrashOp<RegisterOp>>> {
        let who = Who::default();
        let noted = noted.iter().map(|(call, returned, known, op)| Noted {
            entry: Entry { who, call: *call, back: known.then_some(*returned), op: op.clone() },
            number: number(who, *call),
            returned: *returned,
        });
        let of = |any: &Any| match any {
            Any::Register(_, op) => Some(op.clone()),
            _ => None,
        };
        let windows = [Window { start: 100, end: 200 }];
        among_kills(&noted.collect(), &windows, Thing::Register(0), of)
    }

    #[test]
    fn what_met_a_kill_is_in_doubt_until_all_are_back() {
        use RegisterOp::{Get, MaybeSet, Set};
        let register = |op| Any::Register(0, op);
        let synced = |call| Any::Synced(Thing::Register(0), number(Who::default(), call));
        let all = made(&[
            (10, 20, true, register(Set(1))),
            (30, 110, true, synced(10)),
            (90, 120, true, register(Set(2))),
            (130, 140, true, synced(90)),
            (150, 160, true, register(Get(7))),
            (170, 250, false, register(MaybeSet(3))),
            (260, 270, true, register(Get(1))),
        ]);
        let told: Vec<_> = all.iter().map(|e| (e.call, e.back, e.op.clone())).collect();
        let n = |call| number(Who::default(), call);
        let wanted = [
            (100, Some(200), format!("{:?}", CrashOp::<RegisterOp>::Killed)),
            (10, Some(20), format!("{:?}", Done(n(10), Set(1)))),
            (30, Some(110), format!("{:?}", CrashOp::<RegisterOp>::Synced(n(10)))),
            (90, Some(200), format!("{:?}", Done(n(90), MaybeSet(2)))),
            (170, Some(250), format!("{:?}", Done(n(170), MaybeSet(3)))),
            (260, Some(270), format!("{:?}", Done(n(260), Get(1)))),
        ];
        let told: Vec<_> = told.into_iter().map(|(c, b, op)| (c, b, format!("{op:?}"))).collect();
        assert_eq!(told, wanted);
    }
}
