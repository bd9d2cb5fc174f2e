//! For how long attributes that were told to somebody else stay the truth unless a call-back says
//! otherwise.
//!
//! Role: a cache above (the kernel's) may keep what was told while the lease that stands for it is held: until
//! [`crate::Listener::recalled`], and no longer than this client itself would believe it. What changes
//! behind the back of whoever is above is not vouched for: files that are written here, until all of it
//! has been told, and access times about to move. Assumptions: changes that are asked for through this
//! client while the answer travels are the caller's to know of. Never does: I/O, waiting.

use std::time::Duration;

use proto::attr::A_SIZE_LAGS;
use proto::mds::O_WRITE;
use proto::{Attr, Fid};

use crate::client::Client;
use crate::core::Core;
use crate::inode::State;

impl Client {
    /// For how long these attributes, which this client has just told, may be believed among others;
    /// None: not at all. Whoever believes them is told by the listener when that ends early.
    pub fn vouches(&self, attr: &Attr) -> Option<Duration> {
        let core = self.core();
        if core.caching() {
            return None;
        }
        let left = core.leases.left()?;
        core.stands(attr).then_some(left)
    }

    /// For how long a name in a directory, which this client has just told, may be believed among others to lead to this
    /// inode, or nowhere; None: not at all. Whoever believes it is told by the listener when that ends early.
    pub fn vouches_for_name(&self, dir: Fid, name: &[u8], to: Option<Fid>) -> Option<Duration> {
        let core = self.core();
        if core.caching() {
            return None;
        }
        let left = core.leases.left()?;
        core.mdt.wb.leads(dir, name, to).then_some(left)
    }
}

impl Core {
    /// Whether this client would answer the same again, and nothing waits here that changes it.
    fn stands(&self, attr: &Attr) -> bool {
        if attr.flags & A_SIZE_LAGS != 0 || attr.nlink == 0 {
            return false;
        }
        if let Some(inode) = self.registry.find(attr.fid) {
            let st = inode.st.lock();
            if !st.is_quiet() || (st.opens > 0 && self.moves_atime(&st)) {
                return false;
            }
            if self.knows(&st) {
                let same = st.show() == *attr;
                drop(st);
                return same && !self.mdt.wb.is_changing(attr.fid);
            }
            // What is known here came later, or shows what the MDT does not know yet.
            if st.attr.version > attr.version || st.atime.is_some() {
                return false;
            }
        }
        self.mdt.wb.stands(attr)
    }
}

impl State {
    /// Whether nothing that was written here is still to be told, and nothing can be written.
    fn is_quiet(&self) -> bool {
        let written = self.handles.iter().any(|(_, flags)| flags & O_WRITE != 0);
        !written
            && !self.has_untold()
            && !self.blocks_due
            && !self.moving
            && !self.talking
            && self.sending.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proto::{FileKind, TimeSpec};

    #[test]
    fn a_file_that_is_written_is_not_vouched_for_until_all_is_told() {
        let fid = Fid { seq: 1, oid: 1, ver: 0 };
        let (mode, t) = (FileKind::File.mode_bits() | 0o644, TimeSpec::default());
        let (atime, mtime, ctime, btime) = (t, t, t, t);
        let (nlink, uid, gid, rdev, size, blocks, flags, version) = (1, 0, 0, 0, 0, 0, 0, 1);
        let attr = Attr {
            fid,
            mode,
            nlink,
            uid,
            gid,
            rdev,
            size,
            blocks,
            atime,
            mtime,
            ctime,
            btime,
            flags,
            version,
        };
        let inode = crate::inode::Inode::new(attr);
        let mut st = inode.st.lock();
        assert!(st.is_quiet());
        st.handles.push((1, proto::mds::O_READ));
        assert!(st.is_quiet(), "it is read");
        st.handles.push((2, O_WRITE));
        assert!(!st.is_quiet(), "it can be written");
        st.handles.clear();
        st.touched(TimeSpec::default(), 1);
        assert!(!st.is_quiet(), "its time is not told");
        st.mtime = None;
        st.talking = true;
        assert!(!st.is_quiet(), "it is being told");
        st.talking = false;
        assert!(st.is_quiet());
    }
}
