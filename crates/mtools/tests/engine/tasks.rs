//! Order, waiting and panics of tasks.

use crate::tools::{Random, copy, sides};
use mtools::engine::{Engine, Reflink, Settings, Sparse, TASKS_WAITING};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};

fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").unwrap().count()
}

fn engine(threads: usize) -> Engine {
    Engine::new(Settings { threads, ..Settings::default() }).unwrap()
}

/// Each waits for the one before it: were any started before an earlier one, nothing would end.
#[test]
fn tasks_start_in_order_and_all_end() {
    for count in [1, 2, 7] {
        let engine = engine(count);
        let turn = Arc::new((Mutex::new(0), Condvar::new()));
        for n in 0..TASKS_WAITING * 3 {
            let turn = turn.clone();
            engine.submit(
                None,
                Box::new(move |_| {
                    let mut ended = turn.0.lock().unwrap();
                    while *ended < n {
                        ended = turn.1.wait(ended).unwrap();
                    }
                    *ended += 1;
                    turn.1.notify_all();
                }),
            );
        }
        engine.drain();
        assert_eq!((*turn.0.lock().unwrap(), engine.panics()), (TASKS_WAITING * 3, 0));
    }
}

#[test]
fn a_task_may_wait_for_the_bytes_of_an_earlier_one() {
    let dir = tempfile::tempdir().unwrap();
    let src = dir.path().join("src");
    std::fs::write(&src, Random::new().bytes(5 << 20)).unwrap();
    for count in [1, 2, 3] {
        let set = Settings { threads: count, split_size: 64 << 10, ..Settings::default() };
        let engine = Engine::new(set).unwrap();
        for round in 0..20 {
            let gate = Arc::new((Mutex::new(false), Condvar::new()));
            let (opener, dst) = (gate.clone(), dir.path().join(format!("{round}")));
            let one = sides(&src, &dst, Sparse::Auto, Reflink::Auto);
            engine.submit(
                None,
                Box::new(move |engine| {
                    let done = move |_, result: Result<_, _>| {
                        result.unwrap();
                        *opener.0.lock().unwrap() = true;
                        opener.1.notify_all();
                    };
                    engine.copy(one, Box::new(done));
                }),
            );
            engine.submit(
                None,
                Box::new(move |_| {
                    let mut open = gate.0.lock().unwrap();
                    while !*open {
                        open = gate.1.wait(open).unwrap();
                    }
                }),
            );
        }
        engine.drain();
        assert_eq!(engine.panics(), 0);
    }
}

#[test]
fn a_panic_is_counted_and_hangs_nothing() {
    for count in [1, 2] {
        let engine = engine(count);
        let after = Arc::new(AtomicBool::new(false));
        for _ in 0..3 {
            engine.submit(None, Box::new(|_| panic!("meant to")));
        }
        let seen = after.clone();
        engine.submit(None, Box::new(move |_| seen.store(true, Ordering::Relaxed)));
        engine.drain();
        assert!(after.load(Ordering::Relaxed));
        assert_eq!(engine.panics(), 3);
    }
}

#[test]
fn a_panic_of_who_is_told_of_a_large_file_hangs_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (src, dst) = (dir.path().join("src"), dir.path().join("dst"));
    std::fs::write(&src, vec![1; 3 << 20]).unwrap();
    let set = Settings { threads: 2, split_size: 64 << 10, ..Settings::default() };
    let engine = Engine::new(set).unwrap();
    let one = sides(&src, &dst, Sparse::Auto, Reflink::Auto);
    engine.submit(
        None,
        Box::new(move |engine| {
            engine.copy(one, Box::new(|_, _| panic!("meant to")));
        }),
    );
    engine.drain();
    assert_eq!(engine.panics(), 1);
}

/// In a process of its own: other tests have threads, too.
#[test]
fn one_small_file_starts_no_thread() {
    const INNER: &str = "ENGINE_TEST_ALONE";
    if std::env::var_os(INNER).is_none() {
        let exe = std::env::current_exe().unwrap();
        let mut alone = std::process::Command::new(exe);
        alone.args(["--exact", "tasks::one_small_file_starts_no_thread"]).env(INNER, "1");
        assert!(alone.output().unwrap().status.success());
        return;
    }
    let before = threads();
    let dir = tempfile::tempdir().unwrap();
    let (src, dst) = (dir.path().join("src"), dir.path().join("dst"));
    std::fs::write(&src, "small").unwrap();
    let engine = engine(8);
    copy(&engine, sides(&src, &dst, Sparse::Auto, Reflink::Auto)).unwrap();
    assert_eq!(threads(), before);
}
