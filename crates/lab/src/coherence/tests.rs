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
