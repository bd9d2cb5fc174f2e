//! Files that are this client's alone although others share the file system.
//!
//! Role: under `LS_WRITE` a file is read, written and closed here, and the MDT is told later, many
//! files in one message. When somebody else wants it, this lets everything out first (invariant 3). Who only
//! reads it leaves this client what it has beside `LS_WRITE`: where nothing was left to tell, what is known of the
//! file is believed on.
//! Assumptions: while the MDT lists this client as the only one, what is told of such a file waits
//! for nobody, so a call-back that tells it ends. Never does: take a lease.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use proto::attr::A_SIZE_LAGS;
use proto::mds::{LS_WRITE, Lease, O_WRITE};
use proto::{Errno, Fid};

use crate::core::Core;
use crate::inode::{Inode, Place};
use crate::local::Late;
use crate::worker::{Road, batch, close_batch};

impl Core {
    /// Of files of which only `LS_WRITE` is called back what was done is told before anything is taken from them:
    /// then what is known of them is what the MDT knows. Not of those an OST would have to be waited for.
    pub(crate) fn tell_while_owned(self: &Arc<Core>, leases: &[Lease]) {
        let shared = leases.iter().filter(|lease| lease.bits == LS_WRITE);
        let found = shared.filter_map(|lease| self.registry.find(lease.fid));
        let tells = |inode: &Arc<Inode>| {
            // Whoever is at it may be moving it to OSTs.
            let Some(_io) = inode.io.try_write() else { return false };
            let st = inode.st.lock();
            let inline = matches!(st.place, Place::Inline(_)) && !st.moving;
            inline && self.owns(&st) && (st.late || st.has_changes() || st.talking)
        };
        let files: Vec<Arc<Inode>> = found.filter(tells).collect();
        if !files.is_empty() {
            self.mdt.flush_all();
            self.show_all(files, Instant::now() + self.options.request_timeout);
        }
    }

    /// Whether nothing has to be told of a file of which `LS_WRITE` alone was called back, and what is known of it is what
    /// the MDT would say: then it may be believed as before, under the leases that are left.
    pub(crate) fn stays_known(&self, inode: &Inode) -> bool {
        // Whoever is at it may have begun when it was owned.
        let Some(_io) = inode.io.try_write() else { return false };
        let st = inode.st.lock();
        let told = !st.late && !st.has_changes() && !st.talking && st.sending.is_none();
        let written = st.handles.iter().any(|(_, flags)| flags & O_WRITE != 0);
        let sized = st.attr.flags & A_SIZE_LAGS == 0 && st.size == st.attr.size;
        told && sized
            && !written
            && !st.moving
            && self.knows(&st)
            && self.mdt.wb.is_newest(&st.attr)
    }

    /// These files were this client's alone, and no longer are: when this returns the servers know
    /// what was done to them, and those that are closed are closed there too. Lost OSTs are waited for until then.
    pub(crate) fn disown(self: &Arc<Core>, files: Vec<Arc<Inode>>, until: Instant) {
        for inode in &files {
            self.options.pauses.point();
            // Waits for operations that still believe in the lease.
            drop(inode.io.write());
        }
        self.show_all(files.clone(), until);
        for inode in files {
            // What an OST loses must not be sent again over what another writes from now on.
            let mut st = inode.st.lock();
            if !st.unstable.is_empty() {
                self.want_commit(&inode, &mut st);
            }
        }
    }

    /// The servers know what was done to these files until now. Lost OSTs are waited for until then.
    pub(crate) fn show_all(self: &Arc<Core>, files: Vec<Arc<Inode>>, until: Instant) {
        if files.is_empty() {
            return;
        }
        self.options.pauses.point();
        let fids: HashSet<Fid> = files.iter().map(|inode| inode.fid).collect();
        let mut waiting: VecDeque<Late> = self.take_late_of(&fids).into();
        let closed: HashSet<Fid> = waiting.iter().map(|(inode, _)| inode.fid).collect();
        for inode in files {
            let tells = {
                let st = inode.st.lock();
                st.has_changes() || st.talking
            };
            if tells && !closed.contains(&inode.fid) {
                waiting.push_back((inode, None));
            }
        }
        while !waiting.is_empty() {
            close_batch(self, batch(self, &mut waiting), Road::Past, until);
        }
    }

    /// Bytes written under a lease that is being given back: the servers must have them before
    /// anything is done without it, which begins with what they hold.
    pub(crate) fn let_out(self: &Arc<Core>, inode: &Arc<Inode>) -> Result<(), Errno> {
        let inline = {
            let st = inode.st.lock();
            if !st.is_untold() || self.owns(&st) {
                return Ok(());
            }
            // Also while somebody else tells of them: that is waited for.
            st.has_inline_dirty() || st.sending.is_some()
        };
        if inline {
            return self.tell(inode, false, false);
        }
        // What a lost OST did not take is here still, and must come out before anything else is done.
        self.drain(inode).or_else(|e| if inode.st.lock().is_untold() { Err(e) } else { Ok(()) })
    }
}
