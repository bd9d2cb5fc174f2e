//! Failures that only the memory engine can be made to have: syncs that fail or never end, an owner
//! replaced in the middle of one, a full disk.

mod common;

use common::{BOUND, Engine, Memory, commit, del, put, submit};
use pinstripe_store::StoreError;
use pinstripe_store::memory::SyncFault;

#[test]
fn a_failed_sync_is_uncertain_and_the_next_owner_finds_out() {
    for (fault, survives) in [(SyncFault::Lost, false), (SyncFault::Kept, true)] {
        let engine = Memory::new();
        let store = engine.acquire(0).unwrap();
        commit(&*store, 0, 1, vec![put("a", "1")]).unwrap();
        engine.0.fail_next_sync(fault);
        let outcome = commit(&*store, 1, 2, vec![put("a", "2")]);
        assert!(matches!(outcome, Err(StoreError::Uncertain(_))), "{outcome:?}");
        // Whatever follows could build on a commit that is not there.
        let after = commit(&*store, 2, 3, vec![put("b", "3")]);
        assert_eq!(after, outcome);
        let next = engine.acquire(1).unwrap();
        assert_eq!(next.info().last, if survives { 2 } else { 1 });
        let expected = if survives { &b"2"[..] } else { b"1" };
        assert_eq!(next.get(b"a").unwrap().as_deref(), Some(expected));
        assert_eq!(next.get(b"b").unwrap(), None);
    }
}

#[test]
fn nothing_is_done_before_it_is_durable() {
    let engine = Memory::new();
    let store = engine.acquire(0).unwrap();
    engine.0.hold();
    let first = submit(&*store, 0, 1, vec![put("a", "1")]);
    while engine.0.unsynced() == 0 {
        std::thread::yield_now();
    }
    assert!(first.try_recv().is_err());
    // A copy of the medium at this moment does not have it.
    let copy = Memory(engine.0.durable_copy());
    assert_eq!(copy.acquire(0).unwrap().info().last, 0);
    engine.0.release();
    first.recv_timeout(BOUND).unwrap().unwrap();
    let copy = Memory(engine.0.durable_copy());
    assert_eq!(copy.acquire(1).unwrap().info().last, 1);
}

#[test]
fn a_restored_backup_is_refused() {
    let engine = Memory::new();
    let store = engine.acquire(0).unwrap();
    commit(&*store, 0, 4, vec![put("a", "1")]).unwrap();
    let backup = Memory(engine.0.durable_copy());
    commit(&*store, 4, 6, vec![put("a", "2")]).unwrap();
    let refused = backup.acquire(6).err().unwrap();
    assert_eq!(refused, StoreError::RolledBack { known: 6, found: 4 });
}

#[test]
fn an_owner_replaced_during_a_sync_is_told_nothing_certain() {
    let engine = Memory::new();
    let first = engine.acquire(0).unwrap();
    engine.0.hold();
    let pending = submit(&*first, 0, 1, vec![put("a", "1")]);
    while engine.0.unsynced() == 0 {
        std::thread::yield_now();
    }
    let second = engine.acquire(0).unwrap();
    let outcome = pending.recv_timeout(BOUND).unwrap();
    assert!(matches!(outcome, Err(StoreError::Uncertain(_))), "{outcome:?}");
    // The new owner has decided it, and its view is the truth.
    assert_eq!(second.info().last, 1);
    engine.0.release();
    assert!(commit(&*first, 1, 2, vec![put("a", "stale")]).is_err());
    commit(&*second, 1, 2, vec![put("b", "2")]).unwrap();
    assert_eq!(second.get(b"a").unwrap().as_deref(), Some(&b"1"[..]));
}

#[test]
fn a_full_disk_takes_deletes_and_no_puts() {
    let engine = Memory::new();
    let store = engine.acquire(0).unwrap();
    engine.0.set_capacity(Some(200 << 10));
    commit(&*store, 0, 1, vec![put("a", vec![0; 100 << 10])]).unwrap();
    let refused = commit(&*store, 1, 2, vec![put("b", vec![0; 50 << 10])]);
    assert!(matches!(refused, Err(StoreError::NoSpace { .. })), "{refused:?}");
    commit(&*store, 1, 2, vec![del("a")]).unwrap();
    commit(&*store, 2, 3, vec![put("b", vec![0; 50 << 10])]).unwrap();
}
