//! Notifications: telling the kernel to drop what it has cached.
//!
//! Send them from a thread that holds no lock a handler may want, and never from a handler: the kernel may take inode
//! locks whose holders wait for an answer of ours.

use crate::abi::{self, notify};
use crate::channel::Channel;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use zerocopy::IntoBytes;

/// Sends notifications of one session; clones share it.
///
/// `Ok(false)` means that the kernel had nothing cached under that name or number (or the mount is gone).
#[derive(Clone)]
pub struct Notifier {
    channel: Arc<Channel>,
}

impl Notifier {
    pub(crate) fn new(channel: Arc<Channel>) -> Notifier {
        Notifier { channel }
    }

    /// Forgets attributes, and cached data from `off` on: `len` bytes, or up to the end for `len` <= 0. A negative
    /// `off` leaves the data alone. Waits for pages that are being read.
    pub fn inval_inode(&self, nodeid: u64, off: i64, len: i64) -> io::Result<bool> {
        let body = abi::NotifyInvalInodeOut { ino: nodeid, off, len };
        self.send(notify::INVAL_INODE, &[body.as_bytes()])
    }

    /// Puts bytes of a file into the pages that are kept of it, from `offset` on, and makes it end behind them if it ended
    /// before; at once, also while attributes travel that were asked for earlier. Waits for these pages, if they are being
    /// read. A page that was not there is there if all of it was given, or all up to the end.
    pub fn store(&self, nodeid: u64, offset: u64, bytes: &[u8]) -> io::Result<bool> {
        let size = u32::try_from(bytes.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
        let body = abi::NotifyStoreOut { nodeid, offset, size, padding: 0 };
        self.send(notify::STORE, &[body.as_bytes(), bytes])
    }

    /// Forgets a name and, if unused, the tree below it. Takes the parent's inode lock.
    pub fn inval_entry(&self, parent: u64, name: &OsStr) -> io::Result<bool> {
        self.entry(parent, name, 0)
    }

    /// Lets a name expire, so that its next use asks again. Cheaper than forgetting it; needs HAS_EXPIRE_ONLY.
    pub fn expire_entry(&self, parent: u64, name: &OsStr) -> io::Result<bool> {
        self.entry(parent, name, notify::EXPIRE_ONLY)
    }

    /// As inval_entry, and tells watchers (inotify) that the name is deleted, if it still refers to `child`.
    pub fn delete(&self, parent: u64, child: u64, name: &OsStr) -> io::Result<bool> {
        let body = abi::NotifyDeleteOut { parent, child, namelen: name.len() as u32, padding: 0 };
        self.send(notify::DELETE, &[body.as_bytes(), name.as_bytes(), b"\0"])
    }

    /// Lets every name of the mount expire. EINVAL before protocol 7.44.
    pub fn inc_epoch(&self) -> io::Result<bool> {
        self.send(notify::INC_EPOCH, &[])
    }

    fn entry(&self, parent: u64, name: &OsStr, flags: u32) -> io::Result<bool> {
        let body = abi::NotifyInvalEntryOut { parent, namelen: name.len() as u32, flags };
        self.send(notify::INVAL_ENTRY, &[body.as_bytes(), name.as_bytes(), b"\0"])
    }

    fn send(&self, code: i32, parts: &[&[u8]]) -> io::Result<bool> {
        match self.channel.send(0, code, parts) {
            Ok(()) => Ok(true),
            Err(e) => match e.raw_os_error() {
                Some(libc::ENOENT | libc::ENODEV | libc::ENOTCONN) => Ok(false),
                _ => Err(e),
            },
        }
    }
}
