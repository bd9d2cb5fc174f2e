//! What every engine must do, run on each of them.

mod common;

use common::{BOUND, Engine, Fjall, Memory, commit, del, put, submit};
use pinstripe_store::{
    Commit, MAX_COMMIT_BYTES, MAX_COMMIT_OPS, MAX_KEY_BYTES, MAX_QUEUED_COMMITS, StoreError,
};
use std::sync::{Arc, mpsc};
use std::thread::ThreadId;

macro_rules! on_both {
    ($($test:ident),* $(,)?) => {
        mod memory { $(#[test] fn $test() { super::$test::<super::Memory>(); })* }
        mod fjall { $(#[test] fn $test() { super::$test::<super::Fjall>(); })* }
    };
}

on_both!(
    a_new_store_is_empty,
    writes_are_read_back,
    the_last_write_of_a_key_counts,
    scans_are_ordered_and_bounded,
    extreme_keys_and_values,
    a_snapshot_does_not_change,
    the_epoch_rises_and_the_chain_moves,
    a_gap_is_refused_and_nothing_is_written,
    commits_of_no_transaction_are_taken,
    limits_are_refused_by_name,
    many_commits_are_done_in_order,
    done_runs_on_one_thread_that_is_not_the_callers,
    a_full_queue_says_retry,
    a_closed_store_refuses,
    close_finishes_what_is_queued,
    dropping_a_store_in_done_does_not_hang,
    an_older_store_than_known_is_refused,
    there_is_one_owner,
    usage_is_plausible,
);

fn a_new_store_is_empty<E: Engine>() {
    let engine = E::new();
    let store = engine.acquire(0).unwrap();
    assert_eq!((store.info().epoch, store.info().last), (1, 0));
    assert_eq!(store.get(b"x").unwrap(), None);
    assert_eq!(store.scan(b"", None, 10).unwrap(), vec![]);
    store.self_test().unwrap();
}

fn writes_are_read_back<E: Engine>() {
    let engine = E::new();
    let store = engine.acquire(0).unwrap();
    commit(&*store, 0, 2, vec![put("a", "1"), put("b", "2")]).unwrap();
    commit(&*store, 2, 3, vec![del("a"), put("c", "3"), del("absent")]).unwrap();
    let check = |store: &dyn pinstripe_store::Store| {
        let keys = ["c", "a", "b", "zz"].map(|k| k.as_bytes().to_vec());
        let got = store.multi_get(&keys).unwrap();
        let got: Vec<_> = got.iter().map(|v| v.as_deref()).collect();
        assert_eq!(got, [Some(&b"3"[..]), None, Some(&b"2"[..]), None]);
        assert_eq!(store.get(b"b").unwrap().as_deref(), Some(&b"2"[..]));
    };
    check(&*store);
    store.close().unwrap();
    let store = engine.acquire(3).unwrap();
    assert_eq!(store.info().last, 3);
    check(&*store);
}

fn the_last_write_of_a_key_counts<E: Engine>() {
    let engine = E::new();
    let store = engine.acquire(0).unwrap();
    let writes = vec![
        put("k", "1"),
        del("k"),
        put("j", "1"),
        put("k", "2"),
        del("j"),
        put("l", "1"),
        put("l", "2"),
    ];
    commit(&*store, 0, 1, writes).unwrap();
    for round in 0..2 {
        let store = if round == 0 {
            &store
        } else {
            store.close().unwrap();
            &engine.acquire(1).unwrap()
        };
        assert_eq!(store.get(b"k").unwrap().as_deref(), Some(&b"2"[..]));
        assert_eq!(store.get(b"j").unwrap(), None);
        assert_eq!(store.get(b"l").unwrap().as_deref(), Some(&b"2"[..]));
    }
}

fn scans_are_ordered_and_bounded<E: Engine>() {
    let engine = E::new();
    let store = engine.acquire(0).unwrap();
    let keys = [&b"a"[..], b"a\0", b"a\xff", b"ab", b"b", b"\xff", b"\xff\xff"];
    let writes = keys.iter().rev().map(|k| put(k, k)).collect();
    commit(&*store, 0, 1, writes).unwrap();
    let names = |from: &[u8], to: Option<&[u8]>, limit| -> Vec<Vec<u8>> {
        let found = store.scan(from, to, limit).unwrap();
        found.into_iter().map(|(k, _)| k).collect()
    };
    let mut sorted = keys.map(<[u8]>::to_vec).to_vec();
    sorted.sort();
    assert_eq!(names(b"", None, 100), sorted);
    assert_eq!(names(b"", None, 2), sorted[..2]);
    assert_eq!(names(b"", None, 0), Vec::<Vec<u8>>::new());
    assert_eq!(names(b"a\0", Some(b"b"), 100), sorted[1..4]);
    assert_eq!(names(b"b", Some(b"b"), 100), Vec::<Vec<u8>>::new());
    assert_eq!(names(b"c", Some(b"b"), 100), Vec::<Vec<u8>>::new());
    assert_eq!(names(b"\xff", None, 100), sorted[5..]);
}

fn extreme_keys_and_values<E: Engine>() {
    let engine = E::new();
    let store = engine.acquire(0).unwrap();
    let long = vec![0xffu8; MAX_KEY_BYTES];
    let large = vec![7u8; 3 << 20];
    let writes = vec![put("", ""), put(&long, &large), put("empty", "")];
    commit(&*store, 0, 1, writes).unwrap();
    store.close().unwrap();
    let store = engine.acquire(1).unwrap();
    assert_eq!(store.get(b"").unwrap().as_deref(), Some(&b""[..]));
    assert_eq!(store.get(b"empty").unwrap().as_deref(), Some(&b""[..]));
    assert_eq!(store.get(&long).unwrap().as_deref(), Some(&large[..]));
    assert_eq!(store.scan(b"", None, 9).unwrap().len(), 3);
}

fn a_snapshot_does_not_change<E: Engine>() {
    let engine = E::new();
    let store = engine.acquire(0).unwrap();
    commit(&*store, 0, 1, vec![put("a", "old"), put("b", "old")]).unwrap();
    let view = store.snapshot().unwrap();
    let writes = vec![put("a", "new"), del("b"), put("c", "new")];
    commit(&*store, 1, 2, writes).unwrap();
    assert_eq!(view.get(b"a").unwrap().as_deref(), Some(&b"old"[..]));
    assert_eq!(view.get(b"c").unwrap(), None);
    assert_eq!(view.scan(b"", None, 9).unwrap().len(), 2);
    assert_eq!(view.scan(b"b", Some(b"c"), 9).unwrap().len(), 1);
    let now = store.snapshot().unwrap();
    assert_eq!(now.get(b"b").unwrap(), None);
    drop(store);
    assert_eq!(view.get(b"b").unwrap().as_deref(), Some(&b"old"[..]));
}

fn the_epoch_rises_and_the_chain_moves<E: Engine>() {
    let engine = E::new();
    let mut seen = std::collections::HashSet::new();
    for round in 0..70u64 {
        let store = engine.acquire(round).unwrap();
        let info = store.info();
        assert_eq!((info.epoch, info.last), (round + 1, round));
        assert!(seen.insert(info.chain));
        commit(&*store, round, round + 1, vec![put("k", "v")]).unwrap();
        store.self_test().unwrap();
        store.close().unwrap();
    }
}

fn a_gap_is_refused_and_nothing_is_written<E: Engine>() {
    let engine = E::new();
    let store = engine.acquire(0).unwrap();
    commit(&*store, 0, 5, vec![put("a", "1")]).unwrap();
    for prev in [0, 4, 6] {
        let gap = commit(&*store, prev, 9, vec![put("a", "2")]);
        let expected = 5;
        assert_eq!(gap, Err(StoreError::Gap { expected, got: prev }));
    }
    assert_eq!(store.get(b"a").unwrap().as_deref(), Some(&b"1"[..]));
    commit(&*store, 5, 6, vec![put("a", "3")]).unwrap();
}

fn commits_of_no_transaction_are_taken<E: Engine>() {
    let engine = E::new();
    let store = engine.acquire(0).unwrap();
    commit(&*store, 0, 0, vec![put("a", "1")]).unwrap();
    commit(&*store, 0, 0, vec![]).unwrap();
    store.close().unwrap();
    let store = engine.acquire(0).unwrap();
    assert_eq!(store.info().last, 0);
    assert_eq!(store.get(b"a").unwrap().as_deref(), Some(&b"1"[..]));
}

fn limits_are_refused_by_name<E: Engine>() {
    let engine = E::new();
    let store = engine.acquire(0).unwrap();
    let invalid = |outcome: Result<(), StoreError>| match outcome {
        Err(StoreError::Invalid(text)) => text,
        other => panic!("{other:?}"),
    };
    let many = vec![del("x"); MAX_COMMIT_OPS + 1];
    assert!(invalid(commit(&*store, 0, 1, many)).contains("65537 writes"));
    let large = vec![put("x", vec![0; MAX_COMMIT_BYTES])];
    assert!(invalid(commit(&*store, 0, 1, large)).contains("16777217 bytes"));
    let long = vec![del(vec![0; MAX_KEY_BYTES + 1])];
    assert!(invalid(commit(&*store, 0, 1, long)).contains("4097 bytes"));
    assert!(invalid(commit(&*store, 2, 1, vec![])).contains("before its start"));
    commit(&*store, 0, 1, vec![del("x"); MAX_COMMIT_OPS]).unwrap();
}

fn many_commits_are_done_in_order<E: Engine>() {
    let engine = E::new();
    let store = engine.acquire(0).unwrap();
    let (tx, rx) = mpsc::channel();
    let mut order = Vec::new();
    for n in 0..500u64 {
        if n >= 32 {
            order.push(rx.recv_timeout(BOUND).unwrap());
        }
        let commit = Commit {
            prev_last: n,
            last: n + 1,
            writes: vec![put(format!("{n:04}"), "v"), put("newest", n.to_be_bytes())].into(),
        };
        let tx = tx.clone();
        store.submit(
            commit,
            Box::new(move |outcome| {
                outcome.unwrap();
                tx.send(n).unwrap();
            }),
        );
    }
    order.extend((0..32).map(|_| rx.recv_timeout(BOUND).unwrap()));
    assert_eq!(order, (0..500).collect::<Vec<_>>());
    assert_eq!(store.scan(b"0", Some(b"9"), 1000).unwrap().len(), 500);
    let newest = store.get(b"newest").unwrap();
    assert_eq!(newest.as_deref(), Some(&499u64.to_be_bytes()[..]));
}

fn done_runs_on_one_thread_that_is_not_the_callers<E: Engine>() {
    let engine = E::new();
    let store = engine.acquire(0).unwrap();
    let (tx, rx) = mpsc::channel::<ThreadId>();
    for n in 0..3 {
        let tx = tx.clone();
        let commit = Commit { prev_last: n, last: n + 1, writes: Arc::default() };
        let done = Box::new(move |_| tx.send(std::thread::current().id()).unwrap());
        store.submit(commit, done);
    }
    let ids: Vec<_> = (0..3).map(|_| rx.recv_timeout(BOUND).unwrap()).collect();
    assert!(ids.iter().all(|id| *id == ids[0]));
    assert_ne!(ids[0], std::thread::current().id());
}

fn a_full_queue_says_retry<E: Engine>() {
    let engine = E::new();
    let store = engine.acquire(0).unwrap();
    // The commit thread stands still inside the first `done`, so that the queue fills.
    let (resume, stand) = mpsc::channel::<()>();
    let (entered_tx, entered) = mpsc::channel();
    let done = Box::new(move |_| {
        entered_tx.send(()).unwrap();
        stand.recv_timeout(BOUND).unwrap();
    });
    store.submit(Commit::default(), done);
    entered.recv_timeout(BOUND).unwrap();
    let queued: Vec<_> =
        (0..MAX_QUEUED_COMMITS).map(|_| submit(&*store, 0, 0, vec![put("k", "v")])).collect();
    let refused = submit(&*store, 0, 0, vec![]).try_recv().unwrap();
    assert!(matches!(refused, Err(StoreError::Retry(_))), "{refused:?}");
    resume.send(()).unwrap();
    for rx in queued {
        rx.recv_timeout(BOUND).unwrap().unwrap();
    }
    commit(&*store, 0, 1, vec![]).unwrap();
}

fn a_closed_store_refuses<E: Engine>() {
    let engine = E::new();
    let store = engine.acquire(0).unwrap();
    store.close().unwrap();
    store.close().unwrap();
    assert_eq!(commit(&*store, 0, 1, vec![]), Err(StoreError::Closed));
    assert_eq!(store.get(b"x"), Err(StoreError::Closed));
    assert_eq!(store.scan(b"", None, 1), Err(StoreError::Closed));
    assert!(matches!(store.snapshot(), Err(StoreError::Closed)));
}

fn close_finishes_what_is_queued<E: Engine>() {
    let engine = E::new();
    let store = engine.acquire(0).unwrap();
    let waiting: Vec<_> =
        (0..40).map(|n| submit(&*store, n, n + 1, vec![put(n.to_be_bytes(), "v")])).collect();
    store.close().unwrap();
    for rx in waiting {
        rx.try_recv().unwrap().unwrap();
    }
    let store = engine.acquire(40).unwrap();
    assert_eq!(store.scan(b"", None, 100).unwrap().len(), 40);
}

fn dropping_a_store_in_done_does_not_hang<E: Engine>() {
    let engine = E::new();
    let store = std::sync::Arc::new(engine.acquire(0).unwrap());
    let (tx, rx) = mpsc::channel();
    let (go, wait) = mpsc::channel::<()>();
    let own = store.clone();
    let done = Box::new(move |outcome| {
        wait.recv_timeout(BOUND).unwrap();
        drop(own);
        tx.send(outcome).unwrap();
    });
    store.submit(Commit::default(), done);
    drop(store);
    go.send(()).unwrap();
    rx.recv_timeout(BOUND).unwrap().unwrap();
}

fn an_older_store_than_known_is_refused<E: Engine>() {
    let engine = E::new();
    let store = engine.acquire(0).unwrap();
    commit(&*store, 0, 7, vec![put("a", "1")]).unwrap();
    store.close().unwrap();
    let refused = engine.acquire(8).err().unwrap();
    assert_eq!(refused, StoreError::RolledBack { known: 8, found: 7 });
    assert!(refused.to_string().contains("newest copy"), "{refused}");
    // The refusal did not count as an owner.
    assert_eq!(engine.acquire(7).unwrap().info().epoch, 2);
}

fn there_is_one_owner<E: Engine>() {
    let engine = E::new();
    let first = engine.acquire(0).unwrap();
    commit(&*first, 0, 1, vec![put("a", "1")]).unwrap();
    if E::TAKES_OVER {
        let second = engine.acquire(1).unwrap();
        let fenced = StoreError::Fenced { epoch: 1, current: 2 };
        assert_eq!(commit(&*first, 1, 2, vec![put("a", "stale")]), Err(fenced.clone()));
        assert_eq!(first.get(b"a"), Err(fenced.clone()));
        assert_eq!(commit(&*first, 1, 2, vec![]), Err(fenced));
        commit(&*second, 1, 2, vec![put("b", "2")]).unwrap();
        assert_eq!(second.get(b"a").unwrap().as_deref(), Some(&b"1"[..]));
    } else {
        let refused = engine.acquire(1).err().unwrap();
        let StoreError::Busy { path, owner } = &refused else {
            panic!("{refused:?}");
        };
        assert!(path.ends_with("mdt0"), "{path}");
        let pid = format!("test (pid {})", std::process::id());
        assert_eq!(*owner, pid);
        commit(&*first, 1, 2, vec![put("b", "2")]).unwrap();
        first.close().unwrap();
        let second = engine.acquire(2).unwrap();
        assert_eq!(commit(&*first, 2, 3, vec![]), Err(StoreError::Closed));
        assert_eq!(second.get(b"b").unwrap().as_deref(), Some(&b"2"[..]));
    }
}

fn usage_is_plausible<E: Engine>() {
    let engine = E::new();
    let store = engine.acquire(0).unwrap();
    commit(&*store, 0, 1, vec![put("a", vec![1; 100_000])]).unwrap();
    let usage = store.usage().unwrap();
    assert!(usage.used >= 100_000, "{usage:?}");
    assert!(usage.total > usage.free && usage.free > 0, "{usage:?}");
    assert!(usage.reserve > 0);
}
