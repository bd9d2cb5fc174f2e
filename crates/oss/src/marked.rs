//! Sidecars that were marked in this boot: after a clean end they are believed, so their sums have
//! to be on the disk before the boot is called clean.

use std::collections::HashSet;

use parking_lot::Mutex;
use rustix::fs::{OFlags, fdatasync, syncfs};
use rustix::io::Errno;

use crate::files::Dir;

/// Sidecars remembered one by one; with more the whole file system is synced (invariant 8).
pub const MAX_MARKED: usize = 16_384;

#[derive(Default)]
struct Inner {
    paths: HashSet<String>,
    overflow: bool,
}

/// See the module.
#[derive(Default)]
pub(crate) struct Marked(Mutex<Inner>);

impl Marked {
    /// A sidecar is about to be marked.
    pub(crate) fn add(&self, path: String) {
        let mut m = self.0.lock();
        if m.paths.len() < MAX_MARKED {
            m.paths.insert(path);
        } else {
            m.overflow = true;
        }
    }

    /// Syncs what was marked and still exists.
    pub(crate) fn sync(&self, objects: &Dir) -> Result<(), Errno> {
        let m = std::mem::take(&mut *self.0.lock());
        if m.overflow {
            return syncfs(objects);
        }
        for path in m.paths {
            match objects.file(&path, OFlags::RDWR) {
                Ok(fd) => fdatasync(fd)?,
                Err(Errno::NOENT) => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }
}
