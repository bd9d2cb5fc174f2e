//! flock and fcntl locks: what is free is taken at once; each wait is on a thread of its own, ended by a signal.
//! Mapped pages that others may change are written before a lock is given back or shared, and dropped once one is
//! held ([`crate::pages`]; invariant 3 for who uses locks). What a close gives back the kernel has written before.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use client::{CancelToken, Client};
use fuse::{Errno, FileLock, LockIn, Reply, Request};
use parking_lot::{Condvar, Mutex};
use proto::Fid;
use proto::mds::{Cred, L_FLOCK, L_POSIX, LockDesc};

use crate::convert::{cred, errno};
use crate::fs::PinstripeFs;
use crate::handles::{Handle, Handles};
use crate::pages::Pages;

/// Waits for locks at the same time; above it ENOLCK (invariant 8).
const MAX_WAITS: usize = 1024;
/// The kernel's "to the end of the file".
const TO_END: u64 = i64::MAX as u64;

/// Waits under way.
#[derive(Default)]
pub struct Waits(AtomicUsize);

/// One of them; ends when dropped.
struct Waiting(Arc<Waits>);

impl Waits {
    /// None: there are too many.
    fn begin(waits: &Arc<Waits>) -> Option<Waiting> {
        let waiting = Waiting(Arc::clone(waits));
        (waits.0.fetch_add(1, Ordering::Relaxed) < MAX_WAITS).then_some(waiting)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// An owner of fcntl locks on a file.
struct Owner {
    id: u64,
    /// The open file it took one through last.
    through: u64,
    /// Its locks are being given back.
    ending: bool,
}

/// Who has fcntl locks on which file: the close of any descriptor ends them (POSIX); those of an open file
/// (`F_OFD_SETLK`) end with it. The kernel does not tell these two apart, and the owner of the second kind is the
/// address of the open file: an open file whose RELEASE is on its way, and one that was opened since, may have
/// the same. So an end takes nothing that was taken through a later open file, and nothing is taken while an end
/// is under way.
#[derive(Default)]
pub struct Owners {
    map: Mutex<HashMap<Fid, Vec<Owner>>>,
    ended: Condvar,
}

impl Owners {
    /// An owner may take a lock through an open file. Waits while locks of the same owner are given back.
    pub fn note(&self, fid: Fid, id: u64, through: u64) {
        let mut map = self.map.lock();
        loop {
            let owners = map.entry(fid).or_default();
            match owners.iter_mut().find(|o| o.id == id) {
                Some(owner) if owner.ending => {}
                Some(owner) => return owner.through = through,
                None => return owners.push(Owner { id, through, ending: false }),
            }
            self.ended.wait(&mut map);
        }
    }

    /// Through which open file an owner took a lock last.
    fn last(&self, fid: Fid, id: u64) -> Option<u64> {
        let map = self.map.lock();
        map.get(&fid)?.iter().find(|o| o.id == id).map(|o| o.through)
    }

    /// An owner's locks are to be given back (`through`: only if it took the last one through this open file), by
    /// this. Not where it has none.
    fn end(&self, fid: Fid, id: u64, through: Option<u64>, give_back: impl FnOnce()) {
        {
            let mut map = self.map.lock();
            let owner = map.get_mut(&fid).and_then(|all| all.iter_mut().find(|o| o.id == id));
            match owner.filter(|o| !o.ending && through.is_none_or(|t| t == o.through)) {
                Some(owner) => owner.ending = true,
                None => return,
            }
        }
        give_back();
        let mut map = self.map.lock();
        if let Some(owners) = map.get_mut(&fid) {
            owners.retain(|o| o.id != id);
            if owners.is_empty() {
                map.remove(&fid);
            }
        }
        drop(map);
        self.ended.notify_all();
    }
}

fn desc(l: &LockIn, owner: u64) -> LockDesc {
    LockDesc {
        class: if l.flock { L_FLOCK } else { L_POSIX },
        kind: l.lock.kind as u8,
        start: l.lock.start,
        end: if l.lock.end >= TO_END { u64::MAX } else { l.lock.end },
        owner,
        pid: l.lock.pid,
    }
}

/// A lock that is to be taken, changed or given back.
struct Taking {
    client: Client,
    handles: Arc<Handles>,
    pages: Arc<Pages>,
    waits: Arc<Waits>,
    cred: Cred,
    node: u64,
    fid: Fid,
    lock: LockDesc,
    wait: bool,
    reply: Reply<()>,
}

impl Taking {
    /// Asks the MDT; where somebody else has it, the wait is on a thread of its own.
    fn run(self) {
        let Taking { client, handles, pages, waits, cred, node, fid, lock, wait, reply } = self;
        let try_it = || client.setlk(&cred, fid, lock.clone(), false, None);
        let mut done = try_it();
        // Of one who closed the file just now, perhaps.
        if done == Err(proto::Errno::EAGAIN)
            && !wait
            && handles.settled(|h| h.file.fid() == fid && h.locked.load(Ordering::Relaxed))
        {
            done = try_it();
        }
        if !wait || done != Err(proto::Errno::EAGAIN) {
            return pages.settle(node, done.map_err(errno), reply);
        }
        let Some(place) = Waits::begin(&waits) else {
            return reply.err(Errno::new(libc::ENOLCK));
        };
        let token = Arc::new(CancelToken::new());
        let hook = Arc::clone(&token);
        if !reply.on_interrupt(move || hook.cancel()) {
            return reply.err(Errno::EINTR);
        }
        on_a_thread(place, move || {
            let held = client.wait_for_lock(&cred, fid, &lock, &token);
            // Who holds a lock sees what others did under it, in mapped pages, too.
            pages.settle(node, held.map_err(errno), reply);
        });
    }

    /// As [`Taking::run`], for one who must not wait for the MDT.
    fn run_elsewhere(self) {
        match Waits::begin(&self.waits) {
            Some(place) => on_a_thread(place, move || self.run()),
            // Rather late than not given back.
            None => self.run(),
        }
    }
}

/// Without a thread the reply is dropped and answers EIO.
fn on_a_thread(place: Waiting, run: impl FnOnce() + Send + 'static) {
    let named = std::thread::Builder::new().name("lock-wait".into());
    let spawned = named.spawn(move || {
        let _place = place;
        run();
    });
    if let Err(e) = spawned {
        tracing::warn!(error = %e, "no thread to wait for a lock");
    }
}

impl PinstripeFs {
    pub(crate) fn get_lock(&self, req: &Request, node: u64, l: LockIn) -> Result<FileLock, Errno> {
        let found = self.client.getlk(&cred(req), self.caches.fid(node), desc(&l, l.owner));
        let none = FileLock { start: 0, end: 0, kind: libc::F_UNLCK, pid: 0 };
        Ok(found.map_err(errno)?.map_or(none, |f| FileLock {
            start: f.start,
            end: f.end.min(TO_END),
            kind: i32::from(f.kind),
            pid: f.pid,
        }))
    }

    /// The owner of a lock about to be taken: of flock(2) the open file by our own number, which is never used
    /// again, of fcntl(2) the kernel's.
    fn owner(&self, fid: Fid, l: &LockIn) -> Result<u64, Errno> {
        let handle = self.handles.get(l.fh)?;
        handle.locked.store(true, Ordering::Relaxed);
        if l.flock {
            return Ok(handle.serial);
        }
        self.posix_locks.store(true, Ordering::Relaxed);
        // What an open file held that was closed just now ends with its RELEASE.
        if let Some(before) = self.owners.last(fid, l.owner).filter(|last| *last != handle.serial) {
            self.handles.settled(|h| h.serial == before);
        }
        self.owners.note(fid, l.owner, handle.serial);
        let mut owners = handle.owners.lock();
        if !owners.contains(&l.owner) {
            owners.push(l.owner);
        }
        Ok(l.owner)
    }

    pub(crate) fn set_lock(&self, req: &Request, node: u64, l: LockIn, reply: Reply<()>) {
        let fid = self.caches.fid(node);
        let lock = match self.owner(fid, &l) {
            Ok(owner) => desc(&l, owner),
            Err(e) => return reply.err(e),
        };
        let taking = Taking {
            client: self.client.clone(),
            handles: Arc::clone(&self.handles),
            pages: Arc::clone(&self.pages),
            waits: Arc::clone(&self.waits),
            cred: cred(req),
            node,
            fid,
            lock,
            wait: l.wait,
            reply,
        };
        // What was stored in mapped pages under a lock is seen by who takes it next.
        if l.lock.kind != libc::F_WRLCK && self.pages.may_be_old(node) {
            return self.pages.when_settled(node, move || taking.run_elsewhere());
        }
        taking.run();
    }

    /// The owner closed the file, or (`last`) this was the last descriptor of the open file it took locks through:
    /// its fcntl locks go.
    pub(crate) fn drop_posix(&self, cred: &Cred, handle: &Handle, owner: u64, last: bool) {
        let fid = handle.file.fid();
        self.owners.end(fid, owner, last.then_some(handle.serial), || {
            self.give_back(cred, handle, L_POSIX, owner);
        });
    }

    pub(crate) fn drop_flock(&self, cred: &Cred, handle: &Handle) {
        self.give_back(cred, handle, L_FLOCK, handle.serial);
    }

    fn give_back(&self, cred: &Cred, handle: &Handle, class: u8, owner: u64) {
        let kind = libc::F_UNLCK as u8;
        let all = LockDesc { class, kind, start: 0, end: u64::MAX, owner, pid: 0 };
        if let Err(e) = self.client.setlk(cred, handle.file.fid(), all, false, None) {
            tracing::debug!(error = %e, class, "cannot give back locks");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::time::Duration;

    const F: Fid = Fid { seq: 3, oid: 1, ver: 0 };

    fn ends(owners: &Owners, id: u64, through: Option<u64>) -> bool {
        let ended = Cell::new(false);
        owners.end(F, id, through, || ended.set(true));
        ended.get()
    }

    /// The RELEASE of an open file comes after another was opened at the same address.
    #[test]
    fn a_late_end_takes_nothing_from_a_later_open_file() {
        let owners = Owners::default();
        owners.note(F, 7, 1);
        assert_eq!(owners.last(F, 7), Some(1));
        owners.note(F, 7, 2);
        assert!(!ends(&owners, 7, Some(1)), "the later one has it");
        assert!(ends(&owners, 7, Some(2)) && !ends(&owners, 7, Some(2)));
        assert_eq!(owners.last(F, 7), None);
    }

    /// The close of any descriptor ends what a process has (POSIX).
    #[test]
    fn a_close_ends_what_was_taken_through_other_open_files() {
        let owners = Owners::default();
        owners.note(F, 7, 1);
        owners.note(F, 7, 2);
        owners.note(F, 8, 2);
        assert!(ends(&owners, 7, None) && !ends(&owners, 7, None));
        assert!(ends(&owners, 8, Some(2)), "another owner's are left");
    }

    #[test]
    fn nothing_is_taken_while_an_end_is_under_way() {
        let owners = Arc::new(Owners::default());
        owners.note(F, 7, 1);
        let other = owners.clone();
        let mut taker = None;
        owners.end(F, 7, Some(1), || {
            let thread = std::thread::spawn(move || other.note(F, 7, 2));
            std::thread::sleep(Duration::from_millis(20));
            assert!(!thread.is_finished(), "it waits");
            taker = Some(thread);
        });
        taker.unwrap().join().unwrap();
        assert_eq!(owners.last(F, 7), Some(2));
    }
}
