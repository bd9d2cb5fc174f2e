//! Files whose bytes are kept above this client where nobody looks before they are shown again.
//!
//! Role: of a file that several have open, one of them for writing, nothing is granted that stands for its bytes. Who
//! keeps some all the same (the kernel, for a descriptor that was opened while this client was alone) has
//! the file *watched*: the MDT has every writer tell of each write before it returns, and tells of it
//! here, where all that was read before is dropped before that is answered (invariant 3). What is read from then on
//! is what was written. A watch that stands for nothing is given up with the next answer: while there is
//! one, writers may not tell late. Never does: believe anything itself because of it.

use proto::Fid;
use proto::mds::{LS_READ, Op};

use crate::core::Core;
use crate::mdt::own_cred;

impl Core {
    /// Asks for a watch; whether there is one. Not while the MDT is away.
    pub(crate) fn watch(&self, fid: Fid) -> bool {
        self.leases.left().is_some()
            && self.mdt.one(&own_cred(), Op::Lease { fid, bits: LS_READ }).is_ok()
            && self.leases.watches(fid)
    }

    /// Others have written watched files; those that nobody watches any more.
    pub(crate) fn written(&self, fids: &[Fid]) -> Vec<Fid> {
        let mut idle = Vec::new();
        for fid in fids {
            let mut shows = false;
            self.announce(|l| shows = l.shows(*fid));
            if !shows {
                // In this order: what is read meanwhile, because it was watched still, is dropped below.
                self.leases.unwatch(*fid);
                idle.push(*fid);
            }
            self.announce(|l| l.written(*fid));
        }
        idle
    }
}
