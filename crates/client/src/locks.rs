//! fcntl and flock locks.
//!
//! Role: locks live on the MDT; what is held is noted here, so that it can be taken again when the
//! MDT restarts. Never does: decide a conflict.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::{Condvar, Mutex};
use proto::mds::{Cred, L_APPEND, LockDesc, Op, Res};
use proto::{Errno, Fid};

use crate::client::Client;
use crate::core::Core;
use crate::mdt::own_cred;

/// `F_RDLCK`, as Linux numbers it.
pub const F_RDLCK: u8 = 0;
/// `F_WRLCK`.
pub const F_WRLCK: u8 = 1;
/// `F_UNLCK`.
pub const F_UNLCK: u8 = 2;

/// A file and who holds locks on it: class and owner.
type Key = (Fid, u8, u64);

/// Locks held.
#[derive(Default)]
pub(crate) struct LockTable {
    held: Mutex<BTreeMap<Key, Vec<LockDesc>>>,
    /// Counts when locks begin to be taken again, and when that has ended: odd meanwhile.
    retakes: Mutex<u64>,
    retaken: Condvar,
}

impl LockTable {
    /// A lock was granted, or given back (F_UNLCK).
    pub(crate) fn note(&self, fid: Fid, lock: &LockDesc) {
        let key = (fid, lock.class, lock.owner);
        let mut held = self.held.lock();
        let mut runs = held.remove(&key).unwrap_or_default();
        runs = runs.into_iter().flat_map(|old| without(old, lock.start, lock.end)).collect();
        if lock.kind != F_UNLCK {
            runs.push(lock.clone());
        }
        if !runs.is_empty() {
            held.insert(key, runs);
        }
    }

    /// All that is held is about to be taken again, or has been.
    pub(crate) fn retake(&self) {
        *self.retakes.lock() += 1;
        self.retaken.notify_all();
    }

    /// To be taken before a lock is asked for or given back.
    fn mark(&self) -> u64 {
        *self.retakes.lock()
    }

    /// Whether no lock was taken again since that mark, once none is any more.
    fn undisturbed(&self, mark: u64) -> bool {
        let mut now = self.retakes.lock();
        while *now % 2 == 1 {
            self.retaken.wait(&mut now);
        }
        *now == mark
    }

    pub(crate) fn all(&self) -> Vec<(Fid, LockDesc)> {
        let held = self.held.lock();
        held.iter().flat_map(|((fid, ..), runs)| runs.iter().map(|l| (*fid, l.clone()))).collect()
    }
}

/// What is left of a lock when `[start, end]` goes.
fn without(lock: LockDesc, start: u64, end: u64) -> Vec<LockDesc> {
    if lock.end < start || lock.start > end {
        return vec![lock];
    }
    let mut left = Vec::new();
    if lock.start < start {
        left.push(LockDesc { end: start - 1, ..lock.clone() });
    }
    if lock.end > end {
        left.push(LockDesc { start: end + 1, ..lock });
    }
    left
}

/// Who waits, so that the wait can be ended.
struct Waiting {
    core: Arc<Core>,
    fid: Fid,
    owner: u64,
    class: u8,
}

#[derive(Default)]
struct Token {
    cancelled: bool,
    waiting: Option<Waiting>,
}

/// Ends the wait of a [`Client::setlk`] from another thread.
#[derive(Default)]
pub struct CancelToken {
    inner: Mutex<Token>,
}

impl CancelToken {
    /// A token for one call.
    pub fn new() -> CancelToken {
        CancelToken::default()
    }

    /// The call answers EINTR soon, also when it begins to wait only later; a call that has its
    /// lock already is not harmed.
    pub fn cancel(&self) {
        let mut token = self.inner.lock();
        token.cancelled = true;
        if let Some(w) = &token.waiting {
            w.core.mention(Op::CancelLock { fid: w.fid, owner: w.owner, class: w.class });
        }
    }
}

impl std::fmt::Debug for CancelToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CancelToken").field("cancelled", &self.inner.lock().cancelled).finish()
    }
}

impl Client {
    /// Takes or (F_UNLCK) gives back a lock; with `wait` until it is free: EAGAIN, EDEADLK, EINTR.
    pub fn setlk(
        &self,
        cred: &Cred,
        fid: Fid,
        lock: LockDesc,
        wait: bool,
        cancel: Option<&CancelToken>,
    ) -> Result<(), Errno> {
        let core = self.core();
        if lock.kind == F_UNLCK {
            // What was written under the lock must be seen by who takes it next.
            if let Some(inode) = core.registry.find(fid).filter(|_| !core.caching()) {
                // An error is told by fsync and close.
                let _ = core.drain(&inode);
            }
        }
        let wait = if wait { Wait::IfTaken } else { Wait::Never };
        core.set_lock(cred, fid, &lock, wait, cancel)
    }

    /// Waits for a lock that was taken a moment ago: EDEADLK, EINTR.
    pub fn wait_for_lock(
        &self,
        cred: &Cred,
        fid: Fid,
        lock: &LockDesc,
        cancel: &CancelToken,
    ) -> Result<(), Errno> {
        self.core().set_lock(cred, fid, lock, Wait::AtOnce, Some(cancel))
    }

    /// The first lock in the way of `lock`.
    pub fn getlk(&self, cred: &Cred, fid: Fid, lock: LockDesc) -> Result<Option<LockDesc>, Errno> {
        match self.core().mdt.one(cred, Op::TestLock { fid, lock })? {
            Res::Conflict { lock } => Ok(lock),
            _ => Err(Errno::EPROTO),
        }
    }
}

/// What who asks for a lock does if it is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wait {
    Never,
    IfTaken,
    /// It was a moment ago: it is not asked first whether it is.
    AtOnce,
}

/// The end of a file is this operation's until it is dropped.
pub(crate) struct End {
    core: Arc<Core>,
    fid: Fid,
    owner: u64,
}

impl End {
    fn lock(owner: u64, kind: u8) -> LockDesc {
        LockDesc { class: L_APPEND, kind, start: 0, end: u64::MAX, owner, pid: 0 }
    }
}

impl Drop for End {
    fn drop(&mut self) {
        let lock = End::lock(self.owner, F_UNLCK);
        if let Err(e) = self.core.set_lock(&own_cred(), self.fid, &lock, Wait::Never, None) {
            // It ends with the session at the latest.
            tracing::warn!(fid = %self.fid, error = %e, "the end of a file stays locked");
        }
    }
}

impl Core {
    /// Waits until nobody else who asks for it appends to a file.
    pub(crate) fn lock_end(self: &Arc<Core>, fid: Fid) -> Result<End, Errno> {
        static OWNERS: AtomicU64 = AtomicU64::new(1);
        let owner = OWNERS.fetch_add(1, Relaxed);
        self.set_lock(&own_cred(), fid, &End::lock(owner, F_WRLCK), Wait::IfTaken, None)?;
        Ok(End { core: self.clone(), fid, owner })
    }

    fn set_lock(
        self: &Arc<Core>,
        cred: &Cred,
        fid: Fid,
        lock: &LockDesc,
        wait: Wait,
        cancel: Option<&CancelToken>,
    ) -> Result<(), Errno> {
        let mut taken = wait == Wait::AtOnce;
        loop {
            let mark = self.locks.mark();
            let ask = || self.mdt.one(cred, Op::Lock { fid, lock: lock.clone(), wait: false });
            match if std::mem::take(&mut taken) { Err(Errno::EAGAIN) } else { ask() } {
                Ok(Res::Done {}) => {}
                Ok(_) => return Err(Errno::EPROTO),
                Err(Errno::EAGAIN) if wait != Wait::Never => {
                    self.wait_lock(cred, fid, lock, cancel)?;
                }
                Err(e) => return Err(e),
            }
            self.options.pauses.point();
            self.locks.note(fid, lock);
            // A restarted MDT may have been told of the lock after it was given back, for ever then, or not of
            // one that the MDT before it had granted.
            if self.locks.undisturbed(mark) {
                return Ok(());
            }
            if lock.kind != F_UNLCK {
                // Noted again when it is granted again.
                self.locks.note(fid, &LockDesc { kind: F_UNLCK, ..lock.clone() });
            }
        }
    }

    /// Waits at the MDT, as long as it takes.
    fn wait_lock(
        self: &Arc<Core>,
        cred: &Cred,
        fid: Fid,
        lock: &LockDesc,
        cancel: Option<&CancelToken>,
    ) -> Result<(), Errno> {
        loop {
            if let Some(token) = cancel {
                let mut token = token.inner.lock();
                if token.cancelled {
                    return Err(Errno::EINTR);
                }
                let (owner, class) = (lock.owner, lock.class);
                token.waiting = Some(Waiting { core: self.clone(), fid, owner, class });
            }
            let op = Op::Lock { fid, lock: lock.clone(), wait: true };
            let answer = self.mdt.wait_one(cred, op);
            if let Some(token) = cancel {
                token.inner.lock().waiting = None;
            }
            match answer {
                Ok(Some(Res::Done {})) => return Ok(()),
                Ok(Some(_)) => return Err(Errno::EPROTO),
                Err(e) => return Err(e),
                // The request's time ran out, the lock's did not: the old wait ends, a new begins.
                Ok(None) => {
                    let (owner, class) = (lock.owner, lock.class);
                    self.mdt.one(&own_cred(), Op::CancelLock { fid, owner, class })?;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use proto::mds::L_POSIX;

    #[test]
    fn what_is_taken_again_meanwhile_disturbs_who_asks_or_gives_back() {
        let table = Arc::new(LockTable::default());
        let mark = table.mark();
        assert!(table.undisturbed(mark));
        table.retake();
        let (before, during) = (mark, table.mark());
        let waits = [before, during].map(|mark| {
            let table = table.clone();
            std::thread::spawn(move || table.undisturbed(mark))
        });
        std::thread::sleep(std::time::Duration::from_millis(20));
        assert!(waits.iter().all(|w| !w.is_finished()), "it is not over");
        table.retake();
        assert!(waits.into_iter().all(|w| !w.join().unwrap()));
        assert!(table.undisturbed(table.mark()));
    }

    proptest! {
        /// Against an array of bytes, each with its lock.
        #[test]
        fn held_locks_are_what_was_granted(
            steps in proptest::collection::vec((0u64..40, 0u64..12, 0u8..3), 0..30),
        ) {
            let table = LockTable::default();
            let mut model = vec![F_UNLCK; 64];
            for (start, len, kind) in steps {
                let end = start + len;
                let lock = LockDesc { class: L_POSIX, kind, start, end, owner: 1, pid: 1 };
                table.note(Fid::ROOT, &lock);
                model[start as usize..=end as usize].fill(kind);
            }
            let mut found = vec![F_UNLCK; 64];
            for (_, l) in table.all() {
                for b in &mut found[l.start as usize..=l.end as usize] {
                    prop_assert_eq!(*b, F_UNLCK);
                    *b = l.kind;
                }
            }
            prop_assert_eq!(found, model);
        }
    }
}
