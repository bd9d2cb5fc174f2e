//! flock and fcntl locks: each wait on a thread of its own, ended by a signal.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use client::CancelToken;
use fuse::{Errno, FileLock, LockIn, Reply, Request};
use parking_lot::Mutex;
use proto::Fid;
use proto::mds::{Cred, L_FLOCK, L_POSIX, LockDesc};

use crate::convert::{cred, errno};
use crate::fs::PinstripeFs;
use crate::handles::Handle;

/// Waits for locks at the same time; above it ENOLCK (invariant 8).
const MAX_WAITS: usize = 1024;
/// The kernel's "to the end of the file".
const TO_END: u64 = i64::MAX as u64;

/// Waits under way.
#[derive(Default)]
pub struct Waits(AtomicUsize);

/// Who has fcntl locks on which file: the close of any descriptor ends them (POSIX).
#[derive(Default)]
pub struct Owners(Mutex<HashMap<Fid, Vec<u64>>>);

impl Owners {
    /// An owner may take a lock.
    pub fn note(&self, fid: Fid, owner: u64) {
        let mut map = self.0.lock();
        let owners = map.entry(fid).or_default();
        if !owners.contains(&owner) {
            owners.push(owner);
        }
    }

    /// An owner closes the file; whether it may have locks.
    pub fn forget(&self, fid: Fid, owner: u64) -> bool {
        let mut map = self.0.lock();
        let Some(owners) = map.get_mut(&fid) else { return false };
        let before = owners.len();
        owners.retain(|o| *o != owner);
        let had = owners.len() < before;
        if owners.is_empty() {
            map.remove(&fid);
        }
        had
    }
}

fn desc(l: &LockIn) -> LockDesc {
    LockDesc {
        class: if l.flock { L_FLOCK } else { L_POSIX },
        kind: l.lock.kind as u8,
        start: l.lock.start,
        end: if l.lock.end >= TO_END { u64::MAX } else { l.lock.end },
        owner: l.owner,
        pid: l.lock.pid,
    }
}

impl PinstripeFs {
    pub(crate) fn get_lock(&self, req: &Request, node: u64, l: LockIn) -> Result<FileLock, Errno> {
        let found = self.client.getlk(&cred(req), self.caches.fid(node), desc(&l));
        let none = FileLock { start: 0, end: 0, kind: libc::F_UNLCK, pid: 0 };
        Ok(found.map_err(errno)?.map_or(none, |f| FileLock {
            start: f.start,
            end: f.end.min(TO_END),
            kind: i32::from(f.kind),
            pid: f.pid,
        }))
    }

    pub(crate) fn set_lock(&self, req: &Request, node: u64, l: LockIn, reply: Reply<()>) {
        let (fid, lock, cred) = (self.caches.fid(node), desc(&l), cred(req));
        if !l.wait {
            return reply.send(self.client.setlk(&cred, fid, lock, false, None).map_err(errno));
        }
        if self.waits.0.fetch_add(1, Ordering::Relaxed) >= MAX_WAITS {
            self.waits.0.fetch_sub(1, Ordering::Relaxed);
            return reply.err(Errno::new(libc::ENOLCK));
        }
        let token = Arc::new(CancelToken::new());
        let hook = Arc::clone(&token);
        if !reply.on_interrupt(move || hook.cancel()) {
            self.waits.0.fetch_sub(1, Ordering::Relaxed);
            return reply.err(Errno::EINTR);
        }
        let (client, waits) = (self.client.clone(), Arc::clone(&self.waits));
        let wait = move || {
            let held = client.setlk(&cred, fid, lock, true, Some(&token));
            waits.0.fetch_sub(1, Ordering::Relaxed);
            reply.send(held.map_err(errno));
        };
        // Without a thread the reply is dropped and answers EIO.
        if let Err(e) = std::thread::Builder::new().name("lock-wait".into()).spawn(wait) {
            self.waits.0.fetch_sub(1, Ordering::Relaxed);
            tracing::warn!(error = %e, "no thread to wait for a lock");
        }
    }

    /// The owner closed the file: its fcntl locks go (POSIX).
    pub(crate) fn drop_posix(&self, cred: &Cred, handle: &Handle, owner: u64) {
        let all = LockDesc {
            class: L_POSIX,
            kind: libc::F_UNLCK as u8,
            start: 0,
            end: u64::MAX,
            owner,
            pid: 0,
        };
        if let Err(e) = self.client.setlk(cred, handle.file.fid(), all, false, None) {
            tracing::debug!(error = %e, "cannot give back locks");
        }
    }

    pub(crate) fn drop_flock(&self, cred: &Cred, handle: &Handle, owner: u64) {
        let all = LockDesc {
            class: L_FLOCK,
            kind: libc::F_UNLCK as u8,
            start: 0,
            end: u64::MAX,
            owner,
            pid: 0,
        };
        if let Err(e) = self.client.setlk(cred, handle.file.fid(), all, false, None) {
            tracing::debug!(error = %e, "cannot give back a flock");
        }
    }
}

/// Remembers who took locks through a handle.
pub(crate) fn note_owner(h: &Handle, owner: u64) {
    let mut owners = h.owners.lock();
    if !owners.contains(&owner) {
        owners.push(owner);
    }
}
