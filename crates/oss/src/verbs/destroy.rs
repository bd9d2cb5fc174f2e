//! DESTROY: removes objects with their sidecars.
//!
//! Durable before the answer: the directories touched are synced, or the whole file system when
//! they are many. The metadata target sends some hundred objects at once and forgets them when
//! this is answered, so one sync serves them all.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use proto::Errno;
use proto::oss::Destroy;
use rustix::fs::{fsync, syncfs};

use crate::name::{bucket, object_path, sidecar_path};
use crate::ost::{Ost, errno};
use crate::stats::{Verb, add};

/// From this many directories on the whole file system is synced instead of each.
pub const SYNCFS_FROM_DIRS: usize = 4096;

impl Ost {
    /// Removes objects; absent ones are no error, so a repeated request does no harm.
    pub fn destroy(&self, req: &Destroy) -> Result<(), Errno> {
        self.counted(Verb::Destroy, || {
            let mut touched = BTreeSet::new();
            for id in &req.objects.0 {
                // The sidecar goes last: one without its object is litter that fsck knows.
                let was = self.objects.remove(&object_path(id)).map_err(errno)?;
                self.cache.remove(id);
                let had_sums = self.objects.remove(&sidecar_path(id)).map_err(errno)?;
                if was {
                    self.count.fetch_sub(1, Ordering::Relaxed);
                }
                if was || had_sums {
                    touched.insert(bucket(id));
                }
            }
            self.sync_dirs(&touched)
        })
    }

    fn sync_dirs(&self, dirs: &BTreeSet<String>) -> Result<(), Errno> {
        if dirs.is_empty() {
            return Ok(());
        }
        add(&self.counters.syncs, 1);
        if dirs.len() >= SYNCFS_FROM_DIRS {
            return syncfs(&self.objects).map_err(errno);
        }
        for dir in dirs {
            fsync(self.objects.sub(dir).map_err(errno)?).map_err(errno)?;
        }
        Ok(())
    }
}
