//! Several clients: the SOLE lease, locks, what a vanished client leaves.

mod common;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use common::{FILE, Solo};
use net::{CallReply, Events};
use parking_lot::Mutex;
use pinstripe_mds::MdtOptions;
use proto::mds::*;
use proto::{Errno, Fid, Wire, ops};
use store::memory::MemoryDisk;

/// Notes recalls; answers them unless it is silent.
#[derive(Default)]
struct Listener {
    heard: Mutex<Vec<u8>>,
    silent: bool,
    kept: Mutex<Vec<CallReply>>,
}

impl Events for Listener {
    fn call(&self, opcode: u16, body: Bytes, reply: CallReply) {
        assert_eq!(opcode, ops::callback::RECALL);
        self.heard.lock().push(Recall::from_bytes(&body).unwrap().what);
        match self.silent {
            true => self.kept.lock().push(reply),
            false => reply.send(0, vec![]),
        }
    }
}

#[test]
fn the_lease_goes_back_and_comes_again() {
    let s = Solo::new(&MemoryDisk::new());
    let ear = Arc::new(Listener::default());
    let a = s.listener(ear.clone());
    assert!(a.grant.sole);
    let f = a.make(Fid::ROOT, "f", FILE).unwrap();
    for round in 1..4 {
        let b = s.listener(Arc::new(Listener::default()));
        assert!(!b.grant.sole);
        assert_eq!(b.lookup(Fid::ROOT, "f").unwrap().fid, f);
        assert_eq!(a.attr(f).unwrap().nlink, 1);
        b.session.close();
        common::until(|| ear.heard.lock().len() == 2 * round);
        assert_eq!(ear.heard.lock()[2 * round - 2..], [R_SOLE_END, R_SOLE_BEGIN]);
    }
}

#[test]
fn a_silent_holder_is_evicted_and_the_other_goes_on() {
    let options = MdtOptions { recall_timeout: Duration::from_millis(50), ..MdtOptions::default() };
    let s = Solo::with(&MemoryDisk::new(), options);
    let ear = Arc::new(Listener { silent: true, ..Listener::default() });
    let a = s.listener(ear.clone());
    let f = a.make(Fid::ROOT, "f", FILE).unwrap();
    let far = Arc::new(Listener::default());
    let b = s.listener(far.clone());
    assert_eq!(b.lookup(Fid::ROOT, "f").unwrap().fid, f);
    assert_eq!(ear.heard.lock()[..], [R_SOLE_END]);
    // Alone now, it gets the lease.
    common::until(|| far.heard.lock()[..] == [R_SOLE_BEGIN]);
}

#[test]
fn observers_take_no_lease() {
    let s = Solo::new(&MemoryDisk::new());
    let watcher = s.client_with(proto::mgs::FEATURE_OBSERVER, [1; 16]);
    assert!(!watcher.grant.sole);
    let ear = Arc::new(Listener::default());
    let a = s.listener(ear.clone());
    assert!(a.grant.sole);
    assert_eq!(watcher.status()["clients"][0]["sole"], true);
    watcher.session.close();
    a.make(Fid::ROOT, "f", FILE).unwrap();
    assert!(ear.heard.lock().is_empty());
}

fn lock(kind: u8, owner: u64, start: u64, end: u64) -> LockDesc {
    LockDesc { class: L_POSIX, kind, start, end, owner, pid: 1 }
}

#[test]
fn locks_wait_and_end() {
    let s = Solo::new(&MemoryDisk::new());
    let a = s.listener(Arc::new(Listener::default()));
    let b = s.listener(Arc::new(Listener::default()));
    let f = a.make(Fid::ROOT, "f", FILE).unwrap();
    let op = |kind, owner, wait| Op::Lock { fid: f, lock: lock(kind, owner, 0, 9), wait };
    a.one(op(1, 1, false)).unwrap();
    assert_eq!(b.one(op(0, 1, false)), Err(Errno::EAGAIN));
    let Ok(Res::Conflict { lock: Some(found) }) =
        b.one(Op::TestLock { fid: f, lock: lock(0, 1, 5, 5) })
    else {
        panic!()
    };
    assert_eq!((found.start, found.end, found.kind), (0, 9, 1));
    std::thread::scope(|t| {
        // Given when it is free.
        let waits = t.spawn(|| b.one(op(1, 1, true)));
        common::until(|| s_waits(&a, f));
        a.one(op(2, 1, false)).unwrap();
        assert_eq!(waits.join().unwrap(), Ok(Res::Done {}));
        // Cancelled.
        let waits = t.spawn(|| a.one(op(1, 1, true)));
        common::until(|| {
            a.one(Op::CancelLock { fid: f, owner: 1, class: L_POSIX }).unwrap();
            waits.is_finished()
        });
        assert_eq!(waits.join().unwrap(), Err(Errno::EINTR));
        // Given because the holder went away.
        let waits = t.spawn(|| a.one(op(1, 1, true)));
        b.session.close();
        assert_eq!(waits.join().unwrap(), Ok(Res::Done {}));
    });
    assert_eq!(a.status()["locks"], 1);
}

/// Whether somebody waits for a lock on the file: a request of a third owner is refused then, too.
fn s_waits(c: &common::Client, f: Fid) -> bool {
    c.status()["lock_waits"].as_u64() > Some(0) && c.attr(f).is_ok()
}

#[test]
fn two_owners_that_wait_for_each_other_are_told() {
    let s = Solo::new(&MemoryDisk::new());
    let c = s.client();
    let (f, g) = (c.make(Fid::ROOT, "f", FILE).unwrap(), c.make(Fid::ROOT, "g", FILE).unwrap());
    let op = |fid, owner, wait| Op::Lock { fid, lock: lock(1, owner, 0, u64::MAX), wait };
    c.one(op(f, 1, false)).unwrap();
    c.one(op(g, 2, false)).unwrap();
    std::thread::scope(|t| {
        let waits = t.spawn(|| c.one(op(g, 1, true)));
        common::until(|| s_waits(&c, f));
        assert_eq!(c.one(op(f, 2, true)), Err(Errno::EDEADLK));
        c.one(Op::Lock { fid: g, lock: lock(2, 2, 0, u64::MAX), wait: false }).unwrap();
        assert_eq!(waits.join().unwrap(), Ok(Res::Done {}));
    });
}
