//! Random operations on each engine against a `BTreeMap`, with snapshots, reopening, and (in memory) power cuts.
//!
//! Defends invariants 2 (after a crash: a prefix of the order, with all that was acknowledged) and 11.

mod common;

use std::collections::BTreeMap;

use common::{BOUND, Engine, Fjall, Memory, commit, dump, submit};
use pinstripe_store::{Snapshot, Store, Write};
use proptest::prelude::*;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

#[derive(Clone, Debug)]
enum Op {
    Commit(Vec<Write>),
    Get(Vec<u8>),
    Scan(Vec<u8>, Option<Vec<u8>>, usize),
    TakeSnapshot,
    CheckSnapshot,
    Reopen,
    /// In memory: holds syncs back, submits these, and cuts the power. Elsewhere as `Reopen`.
    PowerCut(Vec<Vec<Write>>),
}

fn key() -> impl Strategy<Value = Vec<u8>> {
    // Few and short, so that they meet; all bytes that could be taken for prefixes or ends.
    prop::collection::vec(prop::sample::select(vec![0u8, 1, 2, 0x61, 0xff]), 0..4)
}

fn writes() -> impl Strategy<Value = Vec<Write>> {
    let value = prop_oneof![
        4 => prop::collection::vec(any::<u8>(), 0..40),
        1 => (any::<u8>(), 4_000usize..60_000).prop_map(|(b, n)| vec![b; n]),
    ];
    let write = prop_oneof![
        2 => (key(), value).prop_map(|(k, v)| Write::Put(k, v)),
        1 => key().prop_map(Write::Del),
    ];
    prop::collection::vec(write, 0..30)
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => writes().prop_map(Op::Commit),
        2 => key().prop_map(Op::Get),
        3 => (key(), prop::option::of(key()), 0usize..40).prop_map(|(f, t, n)| Op::Scan(f, t, n)),
        1 => Just(Op::TakeSnapshot),
        2 => Just(Op::CheckSnapshot),
        1 => Just(Op::Reopen),
        1 => prop::collection::vec(writes(), 0..4).prop_map(Op::PowerCut),
    ]
}

fn apply(model: &mut Model, writes: &[Write]) {
    for write in writes {
        match write {
            Write::Put(k, v) => drop(model.insert(k.clone(), v.clone())),
            Write::Del(k) => drop(model.remove(k)),
        }
    }
}

fn entries(model: &Model) -> Vec<(Vec<u8>, Vec<u8>)> {
    model.iter().map(|(k, v)| (k.clone(), v.clone())).collect()
}

fn expected_scan(
    model: &Model,
    from: &[u8],
    to: Option<&[u8]>,
    n: usize,
) -> Vec<(Vec<u8>, Vec<u8>)> {
    let inside = |(k, _): &(Vec<u8>, Vec<u8>)| &k[..] >= from && to.is_none_or(|to| &k[..] < to);
    entries(model).into_iter().filter(inside).take(n).collect()
}

trait Crash: Engine {
    /// Submits the groups so that some may be lost, crashes, and gives up the store.
    fn crash(&self, store: Box<dyn Store>, last: u64, groups: &[Vec<Write>]);
}

impl Crash for Memory {
    fn crash(&self, store: Box<dyn Store>, last: u64, groups: &[Vec<Write>]) {
        self.0.hold();
        let waiting: Vec<_> = (last..)
            .zip(groups)
            .map(|(n, writes)| submit(&*store, n, n + 1, writes.clone()))
            .collect();
        self.0.power_cut();
        for outcome in waiting {
            assert!(outcome.recv_timeout(BOUND).unwrap().is_err());
        }
    }
}

impl Crash for Fjall {
    fn crash(&self, store: Box<dyn Store>, last: u64, groups: &[Vec<Write>]) {
        for (n, writes) in (last..).zip(groups) {
            drop(submit(&*store, n, n + 1, writes.clone()));
        }
    }
}

fn run<E: Crash>(ops: Vec<Op>) {
    let engine = E::new();
    // The state at every transno, so that any prefix can be recognised.
    let mut history = vec![Model::new()];
    let mut store = engine.acquire(0).unwrap();
    let mut snapshot: Option<(Box<dyn Snapshot>, Model)> = None;
    for op in ops {
        let last = history.len() as u64 - 1;
        let model = history.last().unwrap();
        match op {
            Op::Commit(writes) => {
                let mut next = model.clone();
                apply(&mut next, &writes);
                commit(&*store, last, last + 1, writes).unwrap();
                history.push(next);
            }
            Op::Get(key) => {
                let got = store.get(&key).unwrap();
                assert_eq!(got.as_deref(), model.get(&key).map(|v| &v[..]));
            }
            Op::Scan(from, to, n) => {
                let got = store.scan(&from, to.as_deref(), n).unwrap();
                let got: Vec<_> = got.into_iter().map(|(k, v)| (k, v.to_vec())).collect();
                assert_eq!(got, expected_scan(model, &from, to.as_deref(), n));
            }
            Op::TakeSnapshot => snapshot = Some((store.snapshot().unwrap(), model.clone())),
            Op::CheckSnapshot => {
                if let Some((view, then)) = &snapshot {
                    assert_eq!(dump(|from| view.scan(from, None, 7).unwrap()), entries(then));
                }
            }
            Op::Reopen => {
                snapshot = None;
                store.close().unwrap();
                store = engine.acquire(last).unwrap();
            }
            Op::PowerCut(groups) => {
                snapshot = None;
                let mut state = model.clone();
                for writes in &groups {
                    apply(&mut state, writes);
                    history.push(state.clone());
                }
                engine.crash(store, last, &groups);
                store = engine.acquire(last).unwrap();
                history.truncate(store.info().last as usize + 1);
                assert!(history.len() as u64 > last);
            }
        }
        let model = history.last().unwrap();
        assert!(store.info().last < history.len() as u64);
        store.self_test().unwrap();
        assert_eq!(dump(|from| store.scan(from, None, 50).unwrap()), entries(model));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn memory_is_a_map(ops in prop::collection::vec(op(), 1..60)) {
        run::<Memory>(ops);
    }

    #[test]
    fn fjall_is_a_map(ops in prop::collection::vec(op(), 1..60)) {
        run::<Fjall>(ops);
    }
}
