//! Space of the file system.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use proto::{Attr, Errno, MAX_FILE_SIZE};

use crate::core::{Asked, Core};
use crate::gather::Gather;
use crate::inode::{Inode, Place};
use crate::types::Space;

/// Ticks of the client after which the MDT, which asks the OSTs once a second, has heard of what
/// this client wrote.
const HEARD_TICKS: u64 = 3;

/// Whether the MDT may not know yet what is free.
#[derive(Default)]
pub(crate) struct SpaceWatch {
    changes: AtomicU64,
    /// When they moved last, in ticks; at first: the start.
    since: AtomicU64,
}

impl SpaceWatch {
    /// Once a tick, and whenever somebody wants to know; `changes`: messages so far that may have
    /// changed what is free.
    pub(crate) fn look(&self, changes: u64, tick: u64) -> bool {
        if self.changes.swap(changes, SeqCst) != changes {
            self.since.store(tick, SeqCst);
        }
        tick < self.since.load(SeqCst) + HEARD_TICKS
    }

    /// The MDT started anew and has to ask the OSTs first.
    pub(crate) fn renew(&self, tick: u64) {
        self.since.store(tick, SeqCst);
    }
}

impl Core {
    /// Fills in what the OSTs say now, where they all answer; OSTs on one local file system
    /// count once. Where this client wrote nothing lately the MDT's sum is as good.
    pub(crate) fn with_space(self: &Arc<Core>, mut space: Space) -> Result<Space, Errno> {
        if !self.space.look(self.counters.space_changes(), self.tick_now()) && space.total > 0 {
            return Ok(space);
        }
        self.find_new_osts();
        let osts: Vec<_> = self.osts.read().values().cloned().collect();
        let gather = Gather::new();
        for ost in &osts {
            if ost.is_lost() {
                return Ok(space);
            }
            let ticket = gather.ticket();
            ost.statfs(move |r| ticket.put(r));
        }
        let mut by_fs = BTreeMap::new();
        if !gather.come_unless(|| osts.iter().any(|ost| ost.is_lost())) {
            return Ok(space);
        }
        for answer in gather.so_far() {
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

    /// Bytes free on each OST by its index; none of one that does not answer.
    pub(crate) fn ost_space(self: &Arc<Core>) -> BTreeMap<u32, Option<u64>> {
        self.find_new_osts();
        let osts: Vec<_> = self.osts.read().iter().map(|(i, ost)| (*i, ost.clone())).collect();
        let gather = Gather::new();
        let asked: Vec<_> = osts.iter().filter(|(_, ost)| !ost.is_lost()).collect();
        for (index, ost) in &asked {
            let (index, ticket) = (*index, gather.ticket());
            ost.statfs(move |r| ticket.put((index, r)));
        }
        let mut all: BTreeMap<_, _> = osts.iter().map(|(index, _)| (*index, None)).collect();
        // The others have answered long before one is seen to hang.
        gather.come_unless(|| asked.iter().any(|(_, ost)| ost.is_lost()));
        all.extend(gather.so_far().into_iter().map(|(index, r)| (index, r.ok().map(|s| s.free))));
        all
    }

    /// The last name of a file is gone: when nobody has it open, its data is worth nothing.
    pub(crate) fn unlinked(&self, inode: &Arc<Inode>, attr: &Attr, asked: Asked) {
        inode.st.lock().removed(attr, Asked { epoch: self.epoch(), ..asked });
        self.drop_removed(inode);
    }

    /// Attributes of a removed file, which nobody can ask for any more, with what the MDT had not been told of its data.
    pub(crate) fn last_seen(&self, inode: &Arc<Inode>, attr: &mut Attr) {
        let st = inode.st.lock();
        if !matches!(st.place, Place::Unknown) && (self.owns(&st) || st.is_telling()) {
            let shown = st.show();
            (attr.size, attr.blocks, attr.mtime) = (shown.size, shown.blocks, shown.mtime);
        }
    }

    /// Data of a file without a name is dropped, unless somebody has it open, or may have soon.
    pub(crate) fn drop_removed(&self, inode: &Arc<Inode>) {
        let mut guard = inode.st.lock();
        let st = &mut *guard;
        if st.opens > 0 || self.openings.leaves(inode, st.is_empty_handed()) {
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
