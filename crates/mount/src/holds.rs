//! What is removed while somebody here may still use it.
//!
//! Role: on a local file system an inode lives as long as anything refers to it. Open regular
//! files are known to the MDT; directories that are listed, and devices, FIFOs and sockets, which
//! the kernel opens by itself, are not. So before such a name goes, its inode is opened at the MDT
//! and stays so until the kernel forgets the node. Never does: a message more where nothing of this
//! is the case.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use client::{OpenFile, OpenFlags};
use fuse::Request;
use parking_lot::Mutex;
use proto::FileKind;

use crate::convert::cred;
use crate::fs::PinstripeFs;

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
    /// Before a name that leads to `what` (a directory, or anything else, or either) is removed or
    /// replaced: what must outlive it, opened. The kernel holds the directory's lock: nobody here
    /// changes the name meanwhile.
    pub(crate) fn removing(
        &self,
        req: &Request,
        parent: u64,
        name: &OsStr,
        what: What,
    ) -> Option<Arc<OpenFile>> {
        let dirs = what != What::Other && self.open_dirs.any();
        let special = what != What::Dir && self.caches.nodes.special() > 0;
        if !dirs && !special {
            return None;
        }
        let cred = cred(req);
        // Whatever is wrong the removal itself will tell.
        let attr = self.client.lookup(&cred, self.caches.fid(parent), name.as_bytes()).ok()?;
        let wanted = match attr.kind() {
            FileKind::Dir => self.open_dirs.has(self.caches.node(attr.fid)),
            FileKind::File | FileKind::Symlink => false,
            _ => true,
        };
        if !wanted {
            return None;
        }
        self.client.open(&cred, attr.fid, OpenFlags::default()).ok()
    }

    /// A name is gone; whoever still holds the inode finds it, or at least sees what it was.
    pub(crate) fn removed(&self, attr: proto::Attr, held: Option<Arc<OpenFile>>) {
        if attr.nlink == 0 {
            let held = held.filter(|h| h.fid() == attr.fid);
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
