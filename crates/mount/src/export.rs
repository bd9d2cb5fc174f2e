//! Files that the kernel finds by number: open_by_handle_at(2), and a server that exports the mount over NFS.
//!
//! Role: a file handle holds the node's number, which gives its FID, so that it is good as long as the file lives,
//! whatever was forgotten, also after a restart and on other mounts of the same directory. The kernel asks for what it has forgotten by
//! the name `.` of the node, and for the way from a directory to the root by `..`. Assumptions: who uses a handle has
//! passed the kernel's check (CAP_DAC_READ_SEARCH), so no directory on the way is asked. Never does: note a name that the
//! kernel may keep.

use std::ffi::OsStr;

use fuse::{Entry, Request, Result};
use proto::{Attr, Errno};

use crate::convert::{cred, entry, errno};
use crate::fs::PinstripeFs;

/// Whether the name is of the kind that is asked about a node, not in a directory.
pub(crate) fn is_asked_of_node(name: &OsStr) -> bool {
    name == "." || name == ".."
}

impl PinstripeFs {
    /// The node itself, or the directory a directory is in; ESTALE: there is no such file any more, or never was.
    pub(crate) fn find_by_node(&self, req: &Request, node: u64, name: &OsStr) -> Result<Entry> {
        let mark = self.caches.mark();
        let attr = self.attr_by_node(req, node, name).map_err(|e| match e {
            // The number in a handle may be any.
            Errno::ENOENT | Errno::EINVAL => errno(Errno::ESTALE),
            e => errno(e),
        })?;
        Ok(entry(&self.caches, &attr, mark, None))
    }

    fn attr_by_node(
        &self,
        req: &Request,
        node: u64,
        name: &OsStr,
    ) -> std::result::Result<Attr, Errno> {
        let fid = self.caches.fid(node);
        let attr = match name == ".." {
            true => self.client.lookup(&cred(req), fid, b"..")?,
            false => self.client.getattr(&cred(req), fid)?,
        };
        // What has no name any more is not found again, as on a local file system; nor has a mount of a part
        // a number for what is above it.
        let above = self.caches.fid(self.caches.node(attr.fid)) != attr.fid;
        if attr.nlink == 0 || above { Err(Errno::ESTALE) } else { Ok(attr) }
    }
}
