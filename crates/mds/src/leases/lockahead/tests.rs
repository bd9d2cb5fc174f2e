//! Promises and grants against plain sets of bytes.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use proto::mds::MAX_STRIDES;
use proto::{Fid, Stride};

use super::{LockAhead, MAX_KEEPERS};

const F: Fid = Fid { seq: 9, oid: 1, ver: 0 };

#[derive(Clone, Debug)]
enum Act {
    Promise(u64, Vec<(u64, u64)>, bool),
    Revoke(u64),
    End(u64),
    Drop(u64),
}

fn act() -> impl Strategy<Value = Act> {
    let ranges = proptest::collection::vec((0u64..40, 1u64..12), 1..4);
    prop_oneof![
        6 => (0u64..4, ranges, any::<bool>()).prop_map(|(s, r, g)| Act::Promise(s, r, g)),
        1 => (0u64..4).prop_map(Act::Revoke),
        1 => (0u64..4).prop_map(Act::End),
        1 => (0u64..4).prop_map(Act::Drop),
    ]
}

proptest! {
    /// What was granted nobody else has promised to touch, whatever is asked for in which order; what could be granted is.
    #[test]
    fn what_is_granted_is_nobody_elses(acts in proptest::collection::vec(act(), 0..60)) {
        let mut ahead = LockAhead::default();
        let mut model: BTreeMap<u64, (BTreeSet<u64>, bool)> = BTreeMap::new();
        for act in acts {
            match act {
                Act::Promise(s, ranges, grants) => {
                    let bytes: BTreeSet<u64> = ranges.iter().flat_map(|(at, n)| *at..at + n).collect();
                    let strides = ranges.iter().map(|(at, n)| Stride::range(*at, *n)).collect();
                    let others = || model.iter().filter(|(o, _)| **o != s).map(|(_, k)| k);
                    let free = others().all(|k| k.0.is_disjoint(&bytes));
                    let granted = grants && free;
                    let barred = others().any(|k| k.1 && !k.0.is_disjoint(&bytes));
                    let rests = model.get(&s).is_some_and(|k| k.1) && !granted;
                    let kept = !barred && !rests;
                    let got = ahead.promise(F, s, strides, grants);
                    prop_assert_eq!(got, (kept, kept && granted));
                    if kept {
                        model.insert(s, (bytes, granted));
                    }
                }
                Act::Revoke(s) => {
                    ahead.revoke(F, s);
                    model.entry(s).and_modify(|k| k.1 = false);
                }
                Act::End(s) => {
                    ahead.end(F, s);
                    model.remove(&s);
                }
                Act::Drop(s) => {
                    ahead.drop_session(s);
                    model.remove(&s);
                }
            }
            for (s, (bytes, granted)) in &model {
                prop_assert!(ahead.keeps(F, *s));
                let others = model.iter().filter(|(o, _)| *o != s);
                prop_assert!(!granted || others.clone().all(|(_, k)| k.0.is_disjoint(bytes)));
                let rest: BTreeSet<u64> = others.filter(|(_, k)| k.1).map(|(o, _)| *o).collect();
                prop_assert_eq!(ahead.granted_elsewhere(F, *s).collect::<BTreeSet<_>>(), rest);
            }
            let granted = model.values().filter(|k| k.1).count();
            prop_assert_eq!(ahead.count(), (model.len(), granted));
        }
    }
}

#[test]
fn who_keeps_to_what_is_bounded_and_asked_for_sense() {
    let mut ahead = LockAhead::default();
    let one = |n: u64| vec![Stride::range(n, 1)];
    for n in 0..MAX_KEEPERS as u64 {
        assert!(ahead.promise(F, n, one(n), true).0);
    }
    assert_eq!(ahead.promise(F, 1 << 40, one(1 << 40), true), (false, false), "no room");
    assert!(ahead.promise(F, 3, one(1 << 41), true).1, "who is there already may move");
    ahead.forget(F);
    assert_eq!(ahead.count(), (0, 0));
    assert_eq!(ahead.promise(F, 1, vec![], true), (false, false));
    assert_eq!(ahead.promise(F, 1, vec![Stride::range(0, 0)], true), (false, false));
    let many = (0..=MAX_STRIDES as u64).flat_map(one).collect();
    assert_eq!(ahead.promise(F, 1, many, true), (false, false));
}
