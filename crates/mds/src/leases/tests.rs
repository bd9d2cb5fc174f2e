//! The table against a plain map, and what is hot.

use std::collections::BTreeMap;

use proptest::prelude::*;
use proto::mds::*;
use proto::{Fid, TimeSpec};

use super::hot::{HOT_CALLS, HOT_MS, Hot, MAX_WATCHED, WINDOW_MS};
use super::table::Table;
use super::{ALL, EXCLUSIVE};

#[derive(Debug, Clone)]
enum Act {
    Grant(u32, u64, u8),
    Take(u32, u64, u8),
    Forget(u32),
    Drop(u64),
    Oldest(u64, usize),
}

fn act() -> impl Strategy<Value = Act> {
    let (fid, session, bits) = (0..6u32, 0..4u64, 0..=ALL);
    prop_oneof![
        6 => (fid.clone(), session.clone(), bits.clone()).prop_map(|(f, s, b)| Act::Grant(f, s, b)),
        3 => (fid.clone(), session.clone(), bits).prop_map(|(f, s, b)| Act::Take(f, s, b)),
        1 => fid.prop_map(Act::Forget),
        1 => session.clone().prop_map(Act::Drop),
        1 => (session, 0..5usize).prop_map(|(s, n)| Act::Oldest(s, n)),
    ]
}

fn fid(n: u32) -> Fid {
    Fid::new(9, n)
}

proptest! {
    #[test]
    fn the_table_is_a_map(acts in proptest::collection::vec(act(), 0..200)) {
        let mut table = Table::default();
        let mut model: BTreeMap<(Fid, u64), u8> = BTreeMap::new();
        for act in acts {
            match act {
                Act::Grant(f, s, bits) => {
                    let f = fid(f);
                    let others: Vec<u8> =
                        model.iter().filter(|(k, _)| k.0 == f && k.1 != s).map(|(_, b)| *b).collect();
                    let room = match others.iter().any(|b| b & EXCLUSIVE != 0) {
                        true => 0,
                        false if !others.is_empty() => bits & !EXCLUSIVE,
                        false => bits,
                    };
                    prop_assert_eq!(table.grant(f, s, bits), room);
                    if room != 0 {
                        *model.entry((f, s)).or_default() |= room;
                    }
                }
                Act::Take(f, s, bits) => {
                    table.take(fid(f), s, bits);
                    if let Some(b) = model.get_mut(&(fid(f), s)) {
                        *b &= !bits;
                    }
                }
                Act::Forget(f) => {
                    table.forget(fid(f));
                    model.retain(|k, _| k.0 != fid(f));
                }
                Act::Drop(s) => {
                    let mut dropped = table.drop_session(s);
                    dropped.sort();
                    let mine: Vec<Fid> = model.keys().filter(|k| k.1 == s).map(|k| k.0).collect();
                    prop_assert_eq!(dropped, mine);
                    model.retain(|k, _| k.1 != s);
                }
                Act::Oldest(s, n) => {
                    for (f, bits) in table.oldest(s, n) {
                        prop_assert_eq!(model.get(&(f, s)), Some(&bits));
                    }
                }
            }
            model.retain(|_, b| *b != 0);
            let all: BTreeMap<(Fid, u64), u8> = table.all().map(|(f, s, b)| ((f, s), b)).collect();
            prop_assert_eq!(&all, &model);
            prop_assert_eq!(table.len(), model.len());
            for s in 0..4 {
                prop_assert_eq!(table.count(s), model.keys().filter(|k| k.1 == s).count());
            }
        }
    }
}

#[test]
fn the_oldest_are_those_granted_longest_ago() {
    let mut table = Table::default();
    for n in 0..10 {
        table.grant(fid(n), 1, LS_ATTR);
    }
    table.grant(fid(0), 1, LS_ATTR);
    let names: Vec<u32> = table.oldest(1, 3).iter().map(|o| o.0.oid).collect();
    assert_eq!(names, [1, 2, 3]);
    let names: Vec<u32> = table.oldest(1, 3).iter().map(|o| o.0.oid).collect();
    assert_eq!(names, [4, 5, 6]);
}

fn at(ms: i64) -> TimeSpec {
    TimeSpec { sec: ms / 1000, nsec: (ms % 1000) as u32 * 1_000_000 }
}

#[test]
fn a_directory_is_hot_for_a_while() {
    let mut hot = Hot::default();
    for i in 0..HOT_CALLS {
        assert!(!hot.is(fid(1), at(5000)));
        hot.called(fid(1), at(5000 + i64::from(i)));
    }
    assert!(hot.is(fid(1), at(5500)) && !hot.is(fid(2), at(5500)));
    assert_eq!(hot.all(at(5500)), [fid(1)]);
    assert!(!hot.is(fid(1), at(5100 + HOT_MS)));
    // A clock set back does not keep it hot for ever.
    assert!(!hot.is(fid(1), at(1)));
    // Slowly is not often.
    for i in 0..5 * i64::from(HOT_CALLS) {
        hot.called(fid(3), at(i * WINDOW_MS / 8));
    }
    assert!(!hot.is(fid(3), at(5 * i64::from(HOT_CALLS) * WINDOW_MS / 8)));
}

#[test]
fn what_is_watched_is_bounded() {
    let mut hot = Hot::default();
    for n in 0..3 * MAX_WATCHED as u32 {
        hot.called(fid(n), at(1000));
    }
    for _ in 0..HOT_CALLS {
        hot.called(fid(7_000_000), at(1000));
    }
    assert!(!hot.is(fid(7_000_000), at(1000)), "there was no room");
    for _ in 0..HOT_CALLS {
        hot.called(fid(7_000_000), at(9000));
    }
    assert!(hot.is(fid(7_000_000), at(9000)));
}
