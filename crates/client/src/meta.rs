//! The client and its metadata operations.

use std::sync::Arc;

use bytes::Bytes;
use proto::layout::LayoutSpec;
use proto::mds::{Cred, DirEntry};
use proto::{Attr, Errno, Fid, Layout, SetAttr};

use crate::{ClientConfig, ClientError, Listener, OpenFile, OpenFlags, Options, Stats};

/// A mounted file system. Clones are the same client.
#[derive(Clone)]
pub struct Client {}

/// What [`Client::create`] did.
#[derive(Debug)]
pub struct Created {
    /// The inode.
    pub attr: Attr,
    /// Whether it is new.
    pub created: bool,
    /// The open file, when asked for.
    pub file: Option<Arc<OpenFile>>,
}

/// A part of a directory, without `.` and `..`.
#[derive(Clone, Debug)]
pub struct Dir {
    /// Entries in cookie order.
    pub entries: Vec<DirEntry>,
    /// Whether the directory ends here.
    pub end: bool,
}

/// Layout of a file, wish of a file without objects, or default of a directory.
#[derive(Clone, Debug)]
pub struct LayoutInfo {
    /// Where the data lies.
    pub layout: Option<Layout>,
    /// What is wished.
    pub spec: Option<LayoutSpec>,
}

/// Space of the file system; bytes and inodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// Bytes over all OSTs.
    pub total: u64,
    /// Bytes free.
    pub free: u64,
    /// Bytes free for users.
    pub available: u64,
    /// Inodes.
    pub files: u64,
    /// Inodes free.
    pub files_free: u64,
}

const LATER: Errno = Errno::ENOSYS;

impl Client {
    /// Connects to all targets.
    pub fn connect(_config: ClientConfig) -> Result<Client, ClientError> {
        Err(ClientError::Request { what: "connecting", errno: LATER })
    }
    /// The root (or the sub-directory mounted as such), as it was at connect.
    pub fn root(&self) -> Attr {
        unreachable!()
    }
    /// Flushes everything, gives back handles and says goodbye. Errors are those of the flush.
    pub fn shutdown(&self) -> Result<(), Errno> {
        Err(LATER)
    }
    /// Who is told about leases; set before the first call that fills a cache above.
    pub fn set_listener(&self, _listener: Arc<dyn Listener>) {}
    /// Whether this client is alone and may cache everything.
    pub fn is_sole(&self) -> bool {
        false
    }
    /// Changes whenever caches must be dropped: what was learned before a change must not be
    /// cached after it.
    pub fn cache_epoch(&self) -> u64 {
        0
    }
    /// Counters.
    pub fn stats(&self) -> Stats {
        Stats::default()
    }
    /// The settings in force.
    pub fn options(&self) -> &Options {
        unreachable!()
    }
    /// Resolves a name (`.` and `..` too).
    pub fn lookup(&self, _cred: &Cred, _dir: Fid, _name: &[u8]) -> Result<Attr, Errno> {
        Err(LATER)
    }
    /// Attributes; size and times include what this client wrote and did not report yet.
    pub fn getattr(&self, _cred: &Cred, _fid: Fid) -> Result<Attr, Errno> {
        Err(LATER)
    }
    /// Changes attributes. With S_SIZE the data is cut too. `file`: an open file of the caller
    /// (ftruncate: no permission check on the size, when it is open for writing).
    pub fn setattr(
        &self,
        _cred: &Cred,
        _fid: Fid,
        _set: SetAttr,
        _file: Option<&OpenFile>,
    ) -> Result<Attr, Errno> {
        Err(LATER)
    }
    /// Makes an inode of any kind (`mode` carries the type; `target` for symlinks), or with
    /// `open` creates and opens a regular file. `flags`: `C_EXCL`, `C_TRUNC` of [`proto::mds`]
    /// (C_OPEN is set by `open`).
    pub fn create(
        &self,
        _cred: &Cred,
        _dir: Fid,
        _name: &[u8],
        _mode: u32,
        _umask: u32,
        _rdev: u64,
        _target: &[u8],
        _flags: u8,
        _open: Option<OpenFlags>,
    ) -> Result<Created, Errno> {
        Err(LATER)
    }
    /// An open file without a name (O_TMPFILE).
    pub fn tmpfile(
        &self,
        _cred: &Cred,
        _dir: Fid,
        _mode: u32,
        _umask: u32,
        _open: OpenFlags,
    ) -> Result<Created, Errno> {
        Err(LATER)
    }
    /// Gives a file another name.
    pub fn link(&self, _cred: &Cred, _fid: Fid, _dir: Fid, _name: &[u8]) -> Result<Attr, Errno> {
        Err(LATER)
    }
    /// Removes a name; attributes of what lost it.
    pub fn unlink(&self, _cred: &Cred, _dir: Fid, _name: &[u8]) -> Result<Attr, Errno> {
        Err(LATER)
    }
    /// Removes an empty directory.
    pub fn rmdir(&self, _cred: &Cred, _dir: Fid, _name: &[u8]) -> Result<Attr, Errno> {
        Err(LATER)
    }
    /// Renames; `flags`: `RN_*`. Attributes of what moved, and of what was replaced (or exchanged).
    pub fn rename(
        &self,
        _cred: &Cred,
        _from_dir: Fid,
        _from: &[u8],
        _to_dir: Fid,
        _to: &[u8],
        _flags: u32,
    ) -> Result<(Attr, Option<Attr>), Errno> {
        Err(LATER)
    }
    /// Entries after `cookie` (0: from the start), about `max_bytes` of them; `plus`: with attributes.
    pub fn readdir(
        &self,
        _cred: &Cred,
        _dir: Fid,
        _cookie: u64,
        _max_bytes: u32,
        _plus: bool,
    ) -> Result<Dir, Errno> {
        Err(LATER)
    }
    /// Target of a symlink.
    pub fn readlink(&self, _cred: &Cred, _fid: Fid) -> Result<Bytes, Errno> {
        Err(LATER)
    }
    /// Opens a regular file.
    pub fn open(&self, _cred: &Cred, _fid: Fid, _flags: OpenFlags) -> Result<Arc<OpenFile>, Errno> {
        Err(LATER)
    }
    /// Value of an extended attribute; ENODATA.
    pub fn getxattr(&self, _cred: &Cred, _fid: Fid, _name: &[u8]) -> Result<Bytes, Errno> {
        Err(LATER)
    }
    /// Sets an extended attribute; `flags` as in setxattr(2).
    pub fn setxattr(
        &self,
        _cred: &Cred,
        _fid: Fid,
        _name: &[u8],
        _value: &[u8],
        _flags: u32,
    ) -> Result<Attr, Errno> {
        Err(LATER)
    }
    /// NUL-separated names of extended attributes.
    pub fn listxattr(&self, _cred: &Cred, _fid: Fid) -> Result<Bytes, Errno> {
        Err(LATER)
    }
    /// Removes an extended attribute.
    pub fn removexattr(&self, _cred: &Cred, _fid: Fid, _name: &[u8]) -> Result<Attr, Errno> {
        Err(LATER)
    }
    /// Layout of a file or default of a directory.
    pub fn get_layout(&self, _cred: &Cred, _fid: Fid) -> Result<LayoutInfo, Errno> {
        Err(LATER)
    }
    /// Wishes a layout: of a file without data, or a directory's default.
    pub fn set_layout(&self, _cred: &Cred, _fid: Fid, _spec: LayoutSpec) -> Result<Attr, Errno> {
        Err(LATER)
    }
    /// Space of the file system.
    pub fn statfs(&self) -> Result<Space, Errno> {
        Err(LATER)
    }
    /// syncfs(2): all this client wrote and changed is durable.
    pub fn sync_all(&self) -> Result<(), Errno> {
        Err(LATER)
    }
    /// fsync(2) of a directory (or of an inode that is not open): earlier changes are durable.
    pub fn fsync_dir(&self, _fid: Fid) -> Result<(), Errno> {
        Err(LATER)
    }
    /// Paths of a file from the file system's root, one per link.
    pub fn fid_to_path(&self, _cred: &Cred, _fid: Fid) -> Result<Vec<Vec<u8>>, Errno> {
        Err(LATER)
    }
    /// State of the metadata targets, one JSON text each, for `status`.
    pub fn status_json(&self) -> Result<Vec<Bytes>, Errno> {
        Err(LATER)
    }
}
