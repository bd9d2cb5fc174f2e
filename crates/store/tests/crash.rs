//! kill -9 of a process that commits to a fjall store: what it acknowledged is there, as a prefix
//! (invariants 2 and 11), and the lock and the epoch pass on.

mod common;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;

use common::{Engine, Fjall, commit, dump};
use pinstripe_store::fjall_engine::{FjallOptions, acquire};
use pinstripe_store::{Commit, StoreError, Write};
use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};

const CHILD_DIR: &str = "STORE_CRASH_CHILD_DIR";
const ROUNDS: u64 = 12;

/// The writes of a transno: the same in every process.
fn writes_of(n: u64) -> Vec<Write> {
    let mut x = n.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        x
    };
    (0..40)
        .map(|i| {
            let key = (next() % 3000).to_be_bytes().to_vec();
            match next() % 4 {
                0 => Write::Del(key),
                _ => Write::Put(key, vec![(n + i) as u8; (next() % 300) as usize]),
            }
        })
        .collect()
}

/// Not a test of its own: the process that is killed. Does nothing unless it is told a directory.
#[test]
fn child_that_commits_until_killed() {
    let Some(dir) = std::env::var_os(CHILD_DIR) else {
        return;
    };
    let store = acquire(Path::new(&dir), "child", 0, &FjallOptions::default()).unwrap();
    let (tx, rx) = mpsc::channel();
    let mut out = std::io::stdout();
    for n in store.info().last.. {
        let commit = Commit { prev_last: n, last: n + 1, writes: writes_of(n + 1).into() };
        let tx = tx.clone();
        store.submit(commit, Box::new(move |outcome| tx.send((n + 1, outcome)).unwrap()));
        if n >= store.info().last + 8 {
            let (done, outcome) = rx.recv().unwrap();
            outcome.unwrap();
            writeln!(out, "done {done}").unwrap();
            out.flush().unwrap();
        }
    }
}

fn start_child(dir: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["child_that_commits_until_killed", "--exact", "--nocapture"])
        .env(CHILD_DIR, dir)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

fn done_in(line: &str) -> Option<u64> {
    line.rsplit_once("done ")?.1.parse().ok()
}

/// Kills the child after `commits` acknowledgements; returns the last transno it acknowledged.
fn run_and_kill(dir: &Path, commits: u64) -> u64 {
    let mut child = start_child(dir);
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut acknowledged = None;
    let mut seen = 0;
    while seen < commits {
        let line = lines.next().expect("the child ended early").unwrap();
        if let Some(n) = done_in(&line) {
            acknowledged = Some(n);
            seen += 1;
        }
    }
    child.kill().unwrap();
    for line in lines.map_while(Result::ok) {
        acknowledged = done_in(&line).or(acknowledged);
    }
    assert!(!child.wait().unwrap().success());
    acknowledged.unwrap()
}

#[test]
fn acknowledged_commits_survive_kill_nine() {
    let engine = Fjall::new();
    let mut model = BTreeMap::new();
    let mut applied = 0;
    for round in 0..ROUNDS {
        let acknowledged = run_and_kill(&engine.dir(), 20 + round * 37);
        let store = engine.acquire(acknowledged).unwrap();
        let info = store.info();
        assert_eq!(info.epoch, 2 * (round + 1));
        assert!(info.last >= acknowledged);
        for n in applied + 1..=info.last {
            for write in writes_of(n) {
                match write {
                    Write::Put(k, v) => drop(model.insert(k, v)),
                    Write::Del(k) => drop(model.remove(&k)),
                }
            }
        }
        applied = info.last;
        store.self_test().unwrap();
        let found: BTreeMap<_, _> =
            dump(|from| store.scan(from, None, 500).unwrap()).into_iter().collect();
        assert!(found == model, "round {round}: contents differ at {applied}");
        // The next owner may write at once.
        commit(&*store, applied, applied + 1, writes_of(applied + 1)).unwrap();
        store.close().unwrap();
        for write in writes_of(applied + 1) {
            match write {
                Write::Put(k, v) => drop(model.insert(k, v)),
                Write::Del(k) => drop(model.remove(&k)),
            }
        }
        applied += 1;
    }
}

#[test]
fn a_store_in_use_by_another_process_is_busy() {
    let engine = Fjall::new();
    let mut child = start_child(&engine.dir());
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    while done_in(&lines.next().unwrap().unwrap()).is_none() {}
    let refused = engine.acquire(0).err().unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    let owner = format!("child (pid {})", child.id());
    let path = engine.dir().display().to_string();
    assert_eq!(refused, StoreError::Busy { path, owner });
    engine.acquire(1).unwrap();
}

#[test]
fn what_a_forked_process_still_has_does_not_keep_a_closed_store_locked() {
    let engine = Fjall::new();
    let store = engine.acquire(0).unwrap();
    let path = engine.dir().join("STORE");
    let entries = std::fs::read_dir("/proc/self/fd").unwrap();
    let locked = entries
        .filter_map(Result::ok)
        .find(|fd| std::fs::read_link(fd.path()).is_ok_and(|to| to == path))
        .expect("a locked store has its file open");
    let fd = locked.file_name().to_str().unwrap().parse().unwrap();
    // The same open file, as a process has it between fork(2) and execve(2).
    let own = pidfd_open(getpid(), PidfdFlags::empty()).unwrap();
    let _forked = pidfd_getfd(own, fd, PidfdGetfdFlags::empty()).unwrap();
    assert!(matches!(engine.acquire(0), Err(StoreError::Busy { .. })));
    store.close().unwrap();
    drop(store);
    engine.acquire(0).unwrap();
}
