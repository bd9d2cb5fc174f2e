//! COMMIT: unstable writes become durable.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use proto::Errno;
use proto::oss::{CommitReq, Committed};
use rustix::fs::syncfs;

use crate::object::Object;
use crate::ost::{Ost, errno};
use crate::stats::{Verb, add};

/// Most objects synced at the same time for one request.
pub const COMMIT_THREADS: usize = 8;
/// From this many objects on the whole file system is synced instead of each.
pub const SYNCFS_FROM: usize = 256;

impl Ost {
    /// Makes earlier writes of the named objects durable (of all, when none is named). Objects that
    /// do not exist are no error.
    ///
    /// EIO (or what the disk says): something could not be written; the verifier has changed, and
    /// writes since the commit before are to be sent again.
    pub fn commit(&self, req: &CommitReq) -> Result<Committed, Errno> {
        self.counted(Verb::Commit, || {
            self.settle()?;
            if req.objects.0.is_empty() {
                self.commit_all()?;
            } else {
                // An object that is not open has no unstable writes of this process.
                let open = req.objects.0.iter().filter_map(|id| self.cache.peek(id));
                self.commit_each(&open.collect::<Vec<_>>())?;
            }
            Ok(Committed { verifier: self.verifier() })
        })
    }

    /// Commits one object.
    pub(crate) fn commit_object(&self, object: &Object) -> Result<(), Errno> {
        self.settle()?;
        match object.commit(&self.home()) {
            Ok(false) => Ok(()),
            Ok(true) => {
                self.cache.dirty.fetch_sub(1, Ordering::Relaxed);
                add(&self.counters.syncs, 1);
                Ok(())
            }
            Err(e) => {
                self.new_verifier();
                Err(errno(e))
            }
        }
    }

    /// Commits all objects with unstable writes.
    pub(crate) fn commit_all(&self) -> Result<(), Errno> {
        // One at a time: who comes second finds little left to do.
        let _alone = self.committing_all.lock();
        let dirty = self.cache.dirty_objects();
        if dirty.len() >= SYNCFS_FROM {
            self.commit_by_syncfs(&dirty)
        } else {
            self.commit_each(&dirty)
        }
    }

    fn commit_each(&self, objects: &[Arc<Object>]) -> Result<(), Errno> {
        if let [one] = objects {
            return self.commit_object(one);
        }
        let next = AtomicUsize::new(0);
        let failed = Mutex::new(None);
        let work = || {
            while let Some(object) = objects.get(next.fetch_add(1, Ordering::Relaxed)) {
                if let Err(e) = self.commit_object(object) {
                    failed.lock().get_or_insert(e);
                }
            }
        };
        std::thread::scope(|scope| {
            for _ in 1..objects.len().min(COMMIT_THREADS) {
                // Fewer helpers than wanted only take longer.
                if std::thread::Builder::new().spawn_scoped(scope, work).is_err() {
                    break;
                }
            }
            work();
        });
        failed.into_inner().map_or(Ok(()), Err)
    }

    fn commit_by_syncfs(&self, objects: &[Arc<Object>]) -> Result<(), Errno> {
        let home = self.home();
        let started: Vec<_> =
            objects.iter().filter_map(|o| Some((o, o.begin_commit(&home)?))).collect();
        let synced = syncfs(&self.objects);
        add(&self.counters.syncs, 1);
        for (object, started) in started {
            if object.end_commit(&home, started, synced).is_ok() {
                object.entry_synced();
                self.cache.dirty.fetch_sub(1, Ordering::Relaxed);
            }
        }
        synced.map_err(|e| {
            self.new_verifier();
            errno(e)
        })
    }
}
