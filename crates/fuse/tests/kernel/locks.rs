//! Advisory locks of the file system in memory: a list, and waiters that keep their replies.

use pinstripe_fuse::*;
use std::sync::{Arc, Mutex};

struct Held {
    nodeid: u64,
    lock: LockIn,
}

struct Waiter {
    nodeid: u64,
    lock: LockIn,
    reply: Reply<()>,
}

#[derive(Default)]
struct State {
    held: Vec<Held>,
    waiters: Vec<Waiter>,
}

#[derive(Default)]
pub struct Locks(Mutex<State>);

fn overlaps(a: &FileLock, b: &FileLock) -> bool {
    a.start <= b.end && b.start <= a.end
}

impl State {
    fn conflict(&self, nodeid: u64, want: &LockIn) -> Option<FileLock> {
        let against = |h: &&Held| {
            h.nodeid == nodeid
                && h.lock.flock == want.flock
                && h.lock.owner != want.owner
                && overlaps(&h.lock.lock, &want.lock)
                && (h.lock.lock.kind == libc::F_WRLCK || want.lock.kind == libc::F_WRLCK)
        };
        self.held.iter().find(against).map(|h| h.lock.lock)
    }

    /// Replaces what the owner holds in the range; whole locks only, which is all the tests need.
    fn put(&mut self, nodeid: u64, lock: LockIn) {
        self.held.retain(|h| {
            h.nodeid != nodeid || h.lock.owner != lock.owner || !overlaps(&h.lock.lock, &lock.lock)
        });
        if lock.lock.kind != libc::F_UNLCK {
            self.held.push(Held { nodeid, lock });
        }
    }

    fn wake(&mut self) {
        for waiter in std::mem::take(&mut self.waiters) {
            match self.conflict(waiter.nodeid, &waiter.lock) {
                Some(_) => self.waiters.push(waiter),
                None => {
                    self.put(waiter.nodeid, waiter.lock);
                    waiter.reply.ok(());
                }
            }
        }
    }
}

impl Locks {
    pub fn waiting(&self) -> usize {
        self.0.lock().unwrap().waiters.len()
    }

    pub fn held(&self) -> usize {
        self.0.lock().unwrap().held.len()
    }

    pub fn test(&self, nodeid: u64, want: &LockIn) -> FileLock {
        let free = FileLock { kind: libc::F_UNLCK, ..want.lock };
        self.0.lock().unwrap().conflict(nodeid, want).unwrap_or(free)
    }

    pub fn set(this: &Arc<Locks>, nodeid: u64, lock: LockIn, reply: Reply<()>) {
        let mut state = this.0.lock().unwrap();
        let releases = lock.lock.kind == libc::F_UNLCK;
        if releases || state.conflict(nodeid, &lock).is_none() {
            state.put(nodeid, lock);
            state.wake();
            return reply.ok(());
        }
        if !lock.wait {
            return reply.err(Errno::new(libc::EAGAIN));
        }
        let (unique, locks) = (reply.unique(), this.clone());
        let waits = reply.on_interrupt(move || locks.interrupt(unique));
        if !waits {
            return reply.err(Errno::EINTR);
        }
        state.waiters.push(Waiter { nodeid, lock, reply });
    }

    fn interrupt(&self, unique: u64) {
        let mut state = self.0.lock().unwrap();
        if let Some(at) = state.waiters.iter().position(|w| w.reply.unique() == unique) {
            state.waiters.remove(at).reply.err(Errno::EINTR);
        }
    }

    pub fn close(&self, nodeid: u64, owner: u64) {
        let mut state = self.0.lock().unwrap();
        state.held.retain(|h| h.nodeid != nodeid || h.lock.owner != owner);
        state.wake();
    }
}
