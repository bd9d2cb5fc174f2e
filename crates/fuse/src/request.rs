//! Who asks: identity and extensions of a request, and whether it was interrupted.

use crate::channel::Shared;
use std::sync::Arc;

/// A request's circumstances. Its arguments are the handler's parameters.
#[derive(Clone)]
pub struct Request {
    pub(crate) unique: u64,
    pub(crate) nodeid: u64,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) pid: u32,
    pub(crate) supp_groups: Vec<u32>,
    pub(crate) security: Vec<(Vec<u8>, Vec<u8>)>,
    pub(crate) shared: Arc<Shared>,
}

impl Request {
    /// Number of this request, unique in its session.
    pub fn unique(&self) -> u64 {
        self.unique
    }

    /// The node it is about.
    pub fn nodeid(&self) -> u64 {
        self.nodeid
    }

    /// The file-system user id of the caller.
    pub fn uid(&self) -> u32 {
        self.uid
    }

    /// The file-system group id of the caller.
    pub fn gid(&self) -> u32 {
        self.gid
    }

    /// The caller's thread id; 0 when it is in another pid namespace or the kernel itself asks.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// With CREATE_SUPP_GROUP, on create, mkdir, mknod, symlink and tmpfile: the parent directory's group if the caller is
    /// a member of it by its supplementary groups. Otherwise empty; it is not the caller's whole list.
    pub fn supp_groups(&self) -> &[u32] {
        &self.supp_groups
    }

    /// With SECURITY_CTX, on create, mkdir, mknod, symlink and tmpfile: extended attributes (name without NUL, value) that
    /// the new inode must carry from the beginning.
    pub fn security_contexts(&self) -> &[(Vec<u8>, Vec<u8>)] {
        &self.security
    }

    /// Has the calling process been signalled since? Then the answer should be EINTR, soon.
    pub fn is_interrupted(&self) -> bool {
        self.shared.interrupts.is_interrupted(self.unique)
    }
}

impl std::fmt::Debug for Request {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "Request({} node {} uid {} gid {} pid {})",
            self.unique, self.nodeid, self.uid, self.gid, self.pid
        )
    }
}
