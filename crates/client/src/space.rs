//! Space of the file system.

use std::collections::BTreeMap;
use std::sync::Arc;

use proto::{Attr, Errno, MAX_FILE_SIZE};

use crate::core::Core;
use crate::gather::Gather;
use crate::inode::{Inode, Place};
use crate::types::Space;

impl Core {
    /// Fills in what the OSTs say now, where they all answer; OSTs on one local file system
    /// count once.
    pub(crate) fn with_space(self: &Arc<Core>, mut space: Space) -> Result<Space, Errno> {
        self.find_new_osts();
        let osts: Vec<_> = self.osts.read().values().cloned().collect();
        let gather = Gather::new();
        for ost in &osts {
            if !ost.session.is_connected() {
                return Ok(space);
            }
            let ticket = gather.ticket();
            ost.statfs(move |r| ticket.put(r));
        }
        let mut by_fs = BTreeMap::new();
        for answer in gather.wait() {
            let Ok(s) = answer else { return Ok(space) };
            by_fs.insert(s.fsid, (s.total, s.free));
        }
        if !by_fs.is_empty() {
            space.total = by_fs.values().map(|s| s.0).sum();
            space.free = by_fs.values().map(|s| s.1).sum();
            space.available = space.free;
        }
        Ok(space)
    }

    /// The last name of a file is gone: when nobody has it open, its data is worth nothing.
    pub(crate) fn unlinked(&self, inode: &Arc<Inode>, attr: &Attr) {
        let mut guard = inode.st.lock();
        let st = &mut *guard;
        st.learn(attr, self.epoch());
        if st.opens > 0 {
            return;
        }
        st.dirty.remove(0, MAX_FILE_SIZE);
        st.unstable.remove(0, MAX_FILE_SIZE);
        if let Place::Inline(inline) = &mut st.place {
            inline.dirty = None;
        }
        (st.mtime, st.atime, st.unreported) = (None, None, false);
        st.ahead.clear();
        st.account(&self.budget);
    }
}
