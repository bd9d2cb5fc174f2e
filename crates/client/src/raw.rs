//! A bare session to a metadata target: no caches, no data; for measuring an MDT with thousands of
//! sessions in one process.

use proto::{Attr, Errno, Fid};

/// One session.
#[derive(Debug)]
pub struct MdsSession {}

impl MdsSession {
    /// Creates (mknod) a regular file.
    pub fn create(&self, _dir: Fid, _name: &[u8]) -> Result<Attr, Errno> {
        Err(Errno::ENOSYS)
    }
    /// Creates a directory.
    pub fn mkdir(&self, _dir: Fid, _name: &[u8]) -> Result<Attr, Errno> {
        Err(Errno::ENOSYS)
    }
    /// Looks a name up, with attributes.
    pub fn stat(&self, _dir: Fid, _name: &[u8]) -> Result<Attr, Errno> {
        Err(Errno::ENOSYS)
    }
    /// Removes a name.
    pub fn unlink(&self, _dir: Fid, _name: &[u8]) -> Result<Attr, Errno> {
        Err(Errno::ENOSYS)
    }
}
