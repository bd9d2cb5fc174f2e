//! fcntl and flock locks of one target.
//!
//! Role: grant, refuse, or park until free; find deadlocks of fcntl locks by following who waits
//! for whom. Semantics: fcntl(2), flock(2). Never does: I/O, waiting; parked requests are kept by
//! their ticket.

use std::collections::HashMap;

use proto::mds::{L_APPEND, L_FLOCK, L_POSIX, LockDesc};
use proto::{Errno, Fid};

/// `F_RDLCK`.
pub const READ: u8 = 0;
/// `F_WRLCK`.
pub const WRITE: u8 = 1;
/// `F_UNLCK`.
pub const UNLOCK: u8 = 2;
/// Requests parked on one file; above it ENOLCK (invariant 8).
pub const MAX_WAITERS: usize = 4096;
/// Locks on one file; above it ENOLCK (invariant 8).
pub const MAX_LOCKS: usize = 65_536;

/// Who holds or wants a lock: session and owner.
pub type Owner = (u64, u64);

#[derive(Clone, Debug)]
struct Held {
    session: u64,
    lock: LockDesc,
}

#[derive(Debug)]
struct Waiting {
    ticket: u64,
    session: u64,
    lock: LockDesc,
}

#[derive(Default, Debug)]
struct File {
    held: Vec<Held>,
    waiting: Vec<Waiting>,
}

/// All locks.
#[derive(Default, Debug)]
pub struct Locks {
    files: HashMap<Fid, File>,
    next: u64,
}

/// What became of a request.
#[derive(Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is held (or given back).
    Done,
    /// It waits under this ticket.
    Parked(u64),
}

impl Held {
    fn owner(&self) -> Owner {
        (self.session, self.lock.owner)
    }
    /// Stands in the way of another owner's request.
    fn blocks(&self, session: u64, want: &LockDesc) -> bool {
        self.lock.class == want.class
            && self.owner() != (session, want.owner)
            && (self.lock.kind == WRITE || want.kind == WRITE)
            && self.lock.start <= want.end
            && want.start <= self.lock.end
    }
}

impl Locks {
    /// Takes or gives back a lock. EAGAIN when it is not free and `wait` is false.
    pub fn request(
        &mut self,
        fid: Fid,
        session: u64,
        lock: &LockDesc,
        wait: bool,
    ) -> Result<Verdict, Errno> {
        check(lock)?;
        let file = self.files.entry(fid).or_default();
        if lock.kind == UNLOCK {
            set(file, session, lock);
            return Ok(Verdict::Done);
        }
        if file.held.len() >= MAX_LOCKS {
            return Err(Errno::ENOLCK);
        }
        let free = !file.held.iter().any(|h| h.blocks(session, lock));
        if free {
            set(file, session, lock);
            return Ok(Verdict::Done);
        }
        // A flock that is converted gives up what it held (flock(2)), even when it then waits.
        if lock.class == L_FLOCK {
            file.held.retain(|h| h.lock.class != L_FLOCK || h.owner() != (session, lock.owner));
        }
        if !wait {
            return Err(Errno::EAGAIN);
        }
        if file.waiting.len() >= MAX_WAITERS {
            return Err(Errno::ENOLCK);
        }
        if lock.class == L_POSIX && self.deadlocks(fid, (session, lock.owner), lock) {
            return Err(Errno::EDEADLK);
        }
        self.next += 1;
        let w = Waiting { ticket: self.next, session, lock: lock.clone() };
        self.files.entry(fid).or_default().waiting.push(w);
        Ok(Verdict::Parked(self.next))
    }

    /// The first lock in the way.
    pub fn test(&self, fid: Fid, session: u64, lock: &LockDesc) -> Result<Option<LockDesc>, Errno> {
        check(lock)?;
        let file = self.files.get(&fid);
        let held = file.and_then(|f| {
            let mut blocking: Vec<_> = f.held.iter().filter(|h| h.blocks(session, lock)).collect();
            blocking.sort_by_key(|h| h.lock.start);
            blocking.first().map(|h| h.lock.clone())
        });
        Ok(held)
    }

    /// Ends a wait; the ticket it had.
    pub fn cancel(&mut self, fid: Fid, session: u64, owner: u64, class: u8) -> Option<u64> {
        let file = self.files.get_mut(&fid)?;
        let of =
            |w: &Waiting| w.session == session && w.lock.owner == owner && w.lock.class == class;
        let at = file.waiting.iter().position(of)?;
        Some(file.waiting.remove(at).ticket)
    }

    /// After locks were given back: tickets whose locks are held now.
    pub fn wake(&mut self, fid: Fid) -> Vec<u64> {
        let Some(file) = self.files.get_mut(&fid) else { return Vec::new() };
        let (mut granted, mut at) = (Vec::new(), 0);
        while at < file.waiting.len() {
            let w = &file.waiting[at];
            if file.held.iter().any(|h| h.blocks(w.session, &w.lock)) {
                at += 1;
                continue;
            }
            let w = file.waiting.remove(at);
            set(file, w.session, &w.lock);
            granted.push(w.ticket);
        }
        if file.held.is_empty() && file.waiting.is_empty() {
            self.files.remove(&fid);
        }
        granted
    }

    /// A session is gone: its locks and waits go; files where others may now go on, and the
    /// tickets that ended.
    pub fn drop_session(&mut self, session: u64) -> (Vec<Fid>, Vec<u64>) {
        let (mut fids, mut tickets) = (Vec::new(), Vec::new());
        for (fid, file) in &mut self.files {
            let before = file.held.len();
            file.held.retain(|h| h.session != session);
            file.waiting.retain(|w| {
                if w.session == session {
                    tickets.push(w.ticket);
                }
                w.session != session
            });
            if file.held.len() < before {
                fids.push(*fid);
            }
        }
        self.files.retain(|_, f| !f.held.is_empty() || !f.waiting.is_empty());
        (fids, tickets)
    }

    /// How many locks are held.
    pub fn held(&self) -> usize {
        self.files.values().map(|f| f.held.len()).sum()
    }

    /// Whether waiting for `lock` would close a circle of owners that wait for each other.
    fn deadlocks(&self, fid: Fid, me: Owner, lock: &LockDesc) -> bool {
        let blockers = |fid: Fid, owner: Owner, lock: &LockDesc| -> Vec<Owner> {
            let file = self.files.get(&fid);
            let held = file.map(|f| f.held.as_slice()).unwrap_or_default();
            let of = held.iter().filter(|h| h.blocks(owner.0, lock) && h.owner() != owner);
            of.map(Held::owner).collect()
        };
        let mut todo = blockers(fid, me, lock);
        let mut seen = std::collections::HashSet::new();
        while let Some(owner) = todo.pop() {
            if owner == me {
                return true;
            }
            if !seen.insert(owner) {
                continue;
            }
            for (f, file) in &self.files {
                let waits = file.waiting.iter();
                for w in
                    waits.filter(|w| (w.session, w.lock.owner) == owner && w.lock.class == L_POSIX)
                {
                    todo.extend(blockers(*f, owner, &w.lock));
                }
            }
        }
        false
    }
}

fn check(lock: &LockDesc) -> Result<(), Errno> {
    let ok = lock.class <= L_APPEND && lock.kind <= UNLOCK && lock.start <= lock.end;
    if ok { Ok(()) } else { Err(Errno::EINVAL) }
}

/// Makes `lock` what its owner holds in its range: what it held there is cut, split or replaced;
/// neighbours of the same kind merge.
fn set(file: &mut File, session: u64, lock: &LockDesc) {
    let me = (session, lock.owner);
    let mut next = Vec::with_capacity(file.held.len() + 2);
    for h in file.held.drain(..) {
        let other = h.owner() != me || h.lock.class != lock.class;
        if other || h.lock.end < lock.start || h.lock.start > lock.end {
            next.push(h);
            continue;
        }
        if h.lock.start < lock.start {
            let mut left = h.clone();
            left.lock.end = lock.start - 1;
            next.push(left);
        }
        if h.lock.end > lock.end {
            let mut right = h;
            right.lock.start = lock.end + 1;
            next.push(right);
        }
    }
    if lock.kind != UNLOCK {
        let mut new = lock.clone();
        next.retain(|h| {
            let same = h.owner() == me && h.lock.class == lock.class && h.lock.kind == new.kind;
            let touches = same
                && h.lock.start <= new.end.saturating_add(1)
                && new.start <= h.lock.end.saturating_add(1);
            if touches {
                new.start = new.start.min(h.lock.start);
                new.end = new.end.max(h.lock.end);
            }
            !touches
        });
        next.push(Held { session, lock: new });
    }
    file.held = next;
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn lock(owner: u64, kind: u8, start: u64, end: u64) -> LockDesc {
        LockDesc { class: L_POSIX, kind, start, end, owner, pid: owner as u32 }
    }
    const F: Fid = Fid::new(1, 1);

    #[test]
    fn waits_wakes_and_finds_deadlocks() {
        let mut l = Locks::default();
        let g = Fid::new(1, 2);
        assert_eq!(l.request(F, 1, &lock(1, WRITE, 0, 9), false), Ok(Verdict::Done));
        assert_eq!(l.request(g, 2, &lock(1, WRITE, 0, 9), false), Ok(Verdict::Done));
        assert_eq!(l.request(F, 2, &lock(1, READ, 5, 5), false), Err(Errno::EAGAIN));
        let Ok(Verdict::Parked(t)) = l.request(F, 2, &lock(1, READ, 5, 5), true) else { panic!() };
        assert_eq!(l.request(g, 1, &lock(1, READ, 0, 0), true), Err(Errno::EDEADLK));
        assert_eq!(l.test(F, 3, &lock(7, WRITE, 0, 99)).unwrap().unwrap().end, 9);
        l.request(F, 1, &lock(1, UNLOCK, 0, 9), false).unwrap();
        assert_eq!(l.wake(F), [t]);
        let (fids, _) = l.drop_session(2);
        assert_eq!(fids.len(), 2);
        assert_eq!(l.held(), 0);
    }

    #[test]
    fn a_cancelled_wait_is_gone() {
        let mut l = Locks::default();
        l.request(F, 1, &lock(1, WRITE, 0, 9), false).unwrap();
        let Ok(Verdict::Parked(t)) = l.request(F, 2, &lock(4, WRITE, 0, 0), true) else { panic!() };
        assert_eq!(l.cancel(F, 2, 4, L_POSIX), Some(t));
        l.request(F, 1, &lock(1, UNLOCK, 0, u64::MAX), false).unwrap();
        assert!(l.wake(F).is_empty());
    }

    proptest! {
        /// Against the obvious model: for each byte, the owners and kinds that hold it.
        #[test]
        fn ranges_equal_a_byte_map(ops in proptest::collection::vec((0u64..3, 0u8..3, 0u64..24, 0u64..8), 1..60)) {
            let mut l = Locks::default();
            let mut model: Vec<HashMap<u64, u8>> = vec![HashMap::new(); 40];
            for (owner, kind, start, len) in ops {
                let want = lock(owner, kind, start, start + len);
                let range = start as usize..=(start + len) as usize;
                let free = kind == UNLOCK || range.clone().all(|b| {
                    model[b].iter().all(|(o, k)| *o == owner || (*k == READ && kind == READ))
                });
                let got = l.request(F, 1, &want, false);
                prop_assert_eq!(got.is_ok(), free);
                if free {
                    for b in range {
                        if kind == UNLOCK { model[b].remove(&owner); } else { model[b].insert(owner, kind); }
                    }
                }
                for (b, m) in model.iter().enumerate() {
                    for who in 0..3u64 {
                        let probe = lock(who, WRITE, b as u64, b as u64);
                        let blocked = l.test(F, 1, &probe).unwrap().is_some();
                        prop_assert_eq!(blocked, m.keys().any(|o| *o != who));
                    }
                }
            }
        }
    }
}
