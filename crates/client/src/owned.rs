//! Files that are this client's alone although others share the file system.
//!
//! Role: under `LS_WRITE` a file is read, written and closed here, and the MDT is told later, many
//! files in one message. When somebody else wants it, this lets everything out first (invariant 3).
//! Assumptions: while the MDT lists this client as the only one, what is told of such a file waits
//! for nobody, so a call-back that tells it ends. Never does: take a lease.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use proto::{Errno, Fid};

use crate::core::Core;
use crate::inode::Inode;
use crate::local::Late;
use crate::worker::{Road, batch, close_batch};

impl Core {
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
