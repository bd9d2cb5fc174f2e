//! This client was evicted: it lost its leases, and every OST refuses it (invariant 5).
//!
//! Role: what was not told to the servers is lost and said so, once per file (invariant 6); then the
//! client comes back as its next incarnation and goes on, without a remount. Order matters: nothing
//! is taken for the old sessions any more, then everything that rests on a lost lease goes, and only
//! then do new sessions open, so that no byte of before is written after.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use net::Session;
use proto::{Errno, MAX_FILE_SIZE};

use crate::core::Core;
use crate::inode::{Inode, Place};

impl Core {
    /// A target said so to the incarnation `client`.
    pub(crate) fn evicted(self: &Arc<Core>, client: [u8; 16]) {
        let Some(next) = self.links.reborn(client) else { return };
        tracing::error!("this client was evicted: it did not give back a lease in time");
        let osts = self.osts.read().values().map(|o| o.session.clone()).collect::<Vec<_>>();
        let sessions: Vec<Arc<Session>> =
            osts.into_iter().chain([self.mdt.session.clone()]).collect();
        sessions.iter().for_each(|s| s.expel());
        self.leases.clear();
        self.announce(|l| l.doubted());
        {
            let _turn = self.sole_turn.lock();
            self.sole.store(false, SeqCst);
        }
        self.new_epoch();
        // What was done here and not told is nobody's business any more.
        self.mdt.wb.lose();
        self.note_lost();
        let mut lost = 0;
        for inode in self.registry.all() {
            lost += u64::from(self.lose(&inode));
        }
        if lost > 0 {
            tracing::error!(files = lost, "what was written to them and not synced is lost");
            *self.failed.lock() = Some(Errno::EIO);
        }
        sessions.iter().for_each(|s| s.renew(next));
    }

    /// Drops what is known of a file; whether written data went with it.
    fn lose(&self, inode: &Arc<Inode>) -> bool {
        // Waits for operations that still believe in the lease.
        let _io = inode.io.write();
        let mut guard = inode.st.lock();
        while !guard.flight.is_empty() {
            inode.landed.wait(&mut guard);
        }
        let st = &mut *guard;
        let mut lost = !st.dirty.is_empty() || !st.unstable.is_empty() || st.has_inline_dirty();
        st.dirty.remove(0, MAX_FILE_SIZE);
        st.unstable.remove(0, MAX_FILE_SIZE);
        // The OSTs know the size; the time of the change is lost with the data.
        lost |= st.unreported && st.mtime.is_some();
        st.cut.clear();
        st.ahead.clear();
        st.place = Place::Unknown;
        st.epoch = 0;
        st.unreported = false;
        st.mtime = None;
        st.unsaid = None;
        st.atime = None;
        st.dirty_since = None;
        st.changes += 1;
        if lost {
            st.fail(Errno::EIO);
        }
        st.account(&self.budget);
        lost
    }
}
