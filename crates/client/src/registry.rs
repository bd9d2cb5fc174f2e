//! The files that have state in memory.
//!
//! Role: one [`Inode`] per FID as long as anybody needs it, and for a while after, so that late
//! answers meet what is known. Never does: I/O; a shard is locked for a look-up only.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use parking_lot::Mutex;
use proto::{Attr, Fid};

use crate::inode::Inode;

const SHARDS: usize = 16;
/// Closed and clean files that are kept.
pub(crate) const IDLE_MAX: usize = 4096;

#[derive(Default)]
pub(crate) struct Registry {
    shards: [Mutex<HashMap<Fid, Arc<Inode>>>; SHARDS],
    idle: Mutex<VecDeque<Fid>>,
    count: AtomicUsize,
}

impl Registry {
    fn shard(&self, fid: Fid) -> &Mutex<HashMap<Fid, Arc<Inode>>> {
        let mixed = (u64::from(fid.oid) ^ fid.seq).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        &self.shards[(mixed >> 60) as usize % SHARDS]
    }

    pub(crate) fn find(&self, fid: Fid) -> Option<Arc<Inode>> {
        self.shard(fid).lock().get(&fid).cloned()
    }

    /// The state of a file; made from `attr` when there is none.
    pub(crate) fn get(&self, attr: &Attr) -> Arc<Inode> {
        let mut shard = self.shard(attr.fid).lock();
        let entry = shard.entry(attr.fid);
        entry
            .or_insert_with(|| {
                self.count.fetch_add(1, Relaxed);
                Arc::new(Inode::new(attr.clone()))
            })
            .clone()
    }

    pub(crate) fn len(&self) -> usize {
        self.count.load(Relaxed)
    }

    /// All files with state.
    pub(crate) fn all(&self) -> Vec<Arc<Inode>> {
        self.shards.iter().flat_map(|s| s.lock().values().cloned().collect::<Vec<_>>()).collect()
    }

    /// A file may not be needed any more: the longest idle ones go.
    pub(crate) fn rest(&self, inode: &Arc<Inode>) {
        {
            let mut st = inode.st.lock();
            if st.opens == 0 {
                // Whoever read ahead is gone; the room is others'.
                st.ahead.clear();
            }
            if st.opens > 0 || st.idle || !st.is_clean() {
                return;
            }
            st.idle = true;
        }
        let old = {
            let mut idle = self.idle.lock();
            idle.push_back(inode.fid);
            if idle.len() > IDLE_MAX { idle.pop_front() } else { None }
        };
        if let Some(fid) = old {
            self.drop_idle(fid);
        }
    }

    /// Forgets a file nobody holds; a busy one loses its place among the idle.
    fn drop_idle(&self, fid: Fid) {
        let mut shard = self.shard(fid).lock();
        let Some(inode) = shard.get(&fid) else { return };
        let mut st = inode.st.lock();
        let unused = st.opens == 0 && st.is_clean() && Arc::strong_count(inode) == 1;
        let again = !unused && st.opens == 0 && st.is_clean();
        st.idle = again;
        drop(st);
        if unused {
            shard.remove(&fid);
            self.count.fetch_sub(1, Relaxed);
        } else if again {
            self.idle.lock().push_back(fid);
        }
    }
}
