//! What is removed while somebody here may still use it.
//!
//! Role: on a local file system an inode lives as long as anything refers to it. Open regular
//! files are known to the MDT; directories that are listed, and devices, FIFOs and sockets, which
//! the kernel opens by itself, are not. So before such a name goes, its inode is opened at the MDT
//! and stays so until the kernel forgets the node. The same is done for any inode for a while after
//! a use lost the race with a removal (ESTALE): the kernel looks the name up once more, and what
//! that finds must not vanish again. Never does: a message more where nothing of this is the case.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use client::{OpenFile, OpenFlags};
use fuse::Request;
use parking_lot::Mutex;
use proto::{Errno, FileKind};

use crate::convert::cred;
use crate::fs::PinstripeFs;

/// How long removals keep what they remove after a race was lost.
const CAREFUL: Duration = Duration::from_secs(5);
/// Longest wait for removals under way that did not hear of a lost race yet.
const SETTLE: Duration = Duration::from_secs(1);

/// Whether races were lost lately.
pub struct Races {
    start: Instant,
    /// Milliseconds after `start` until which removals are careful.
    until: AtomicU64,
    /// Removals under way that are not.
    careless: AtomicUsize,
}

impl Default for Races {
    fn default() -> Races {
        let (until, careless) = (AtomicU64::new(0), AtomicUsize::new(0));
        Races { start: Instant::now(), until, careless }
    }
}

impl Races {
    fn now(&self) -> u64 {
        self.start.elapsed().as_millis() as u64
    }

    fn lately(&self) -> bool {
        let until = self.until.load(SeqCst);
        until != 0 && self.now() < until
    }

    /// A race was lost: from when this returns removals are careful.
    fn lost(&self) {
        let until = self.now() + CAREFUL.as_millis() as u64;
        if self.until.swap(until, SeqCst) > self.now() {
            return;
        }
        let begun = Instant::now();
        while self.careless.load(SeqCst) > 0 && begun.elapsed() < SETTLE {
            std::thread::sleep(Duration::from_micros(50));
        }
    }
}

/// A removal under way.
pub struct Removal<'a> {
    races: Option<&'a Races>,
    held: Option<Arc<OpenFile>>,
}

impl Drop for Removal<'_> {
    fn drop(&mut self) {
        if let Some(races) = self.races {
            races.careless.fetch_sub(1, SeqCst);
        }
    }
}

/// Directories that are open.
#[derive(Default)]
pub struct OpenDirs(Mutex<std::collections::HashMap<u64, usize>>);

impl OpenDirs {
    pub fn opened(&self, node: u64) {
        *self.0.lock().entry(node).or_default() += 1;
    }

    pub fn closed(&self, node: u64) {
        let mut map = self.0.lock();
        if let Some(count) = map.get_mut(&node) {
            *count -= 1;
            if *count == 0 {
                map.remove(&node);
            }
        }
    }

    fn any(&self) -> bool {
        !self.0.lock().is_empty()
    }

    fn has(&self, node: u64) -> bool {
        self.0.lock().contains_key(&node)
    }
}

impl PinstripeFs {
    /// An error of an operation on a node; a lost race makes removals careful.
    pub(crate) fn lost(&self, e: Errno) -> fuse::Errno {
        if e == Errno::ESTALE {
            self.races.lost();
        }
        crate::convert::errno(e)
    }

    /// Before a name that leads to `what` (a directory, or anything else, or either) is removed or
    /// replaced. The kernel holds the directory's lock: nobody here changes the name meanwhile.
    pub(crate) fn removing(
        &self,
        req: &Request,
        parent: u64,
        name: &OsStr,
        what: What,
    ) -> Removal<'_> {
        // Counted before it looks: who loses a race either is seen here or sees this.
        self.races.careless.fetch_add(1, SeqCst);
        let plain = Removal { races: Some(&self.races), held: None };
        let lately = self.races.lately();
        let dirs = what != What::Other && self.open_dirs.any();
        let special = what != What::Dir && self.caches.nodes.special() > 0;
        if !lately && !dirs && !special {
            return plain;
        }
        let cred = cred(req);
        let found = self.client.lookup(&cred, self.caches.fid(parent), name.as_bytes());
        // Whatever is wrong the removal itself will tell.
        let Ok(attr) = found else { return plain };
        let wanted = match attr.kind() {
            FileKind::Dir => lately || self.open_dirs.has(self.caches.node(attr.fid)),
            FileKind::File | FileKind::Symlink => lately,
            _ => true,
        };
        if !wanted {
            return plain;
        }
        match self.client.open(&cred, attr.fid, OpenFlags::default()) {
            Ok(file) => {
                drop(plain);
                Removal { races: None, held: Some(file) }
            }
            Err(_) => plain,
        }
    }

    /// A name is gone; whoever still holds the inode finds it, or at least sees what it was.
    pub(crate) fn removed(&self, attr: proto::Attr, removal: &mut Removal<'_>) {
        if attr.nlink == 0 {
            let held = removal.held.take().filter(|h| h.fid() == attr.fid);
            self.caches.nodes.removed(self.caches.node(attr.fid), attr, held);
        }
    }
}

/// What a name may lead to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum What {
    Dir,
    Other,
    Any,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_race_makes_removals_careful_once_those_under_way_are_done() {
        let races = Races::default();
        assert!(!races.lately());
        races.careless.fetch_add(1, SeqCst);
        let under_way = Removal { races: Some(&races), held: None };
        std::thread::scope(|s| {
            let waits = s.spawn(|| races.lost());
            while !races.lately() {
                std::thread::yield_now();
            }
            drop(under_way);
            waits.join().expect("ends");
        });
        assert_eq!(races.careless.load(SeqCst), 0);
        assert!(races.lately());
    }

    #[test]
    fn open_directories_are_counted() {
        let dirs = OpenDirs::default();
        dirs.opened(7);
        dirs.opened(7);
        dirs.closed(7);
        assert!(dirs.has(7) && dirs.any());
        dirs.closed(7);
        dirs.closed(7);
        assert!(!dirs.any());
    }
}
