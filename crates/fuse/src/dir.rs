//! Builders for directory listings that respect the size the kernel asked for.

use crate::abi;
use crate::codec::entry_out;
use crate::types::Entry;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use zerocopy::IntoBytes;

/// Largest listing built for one request, whatever the kernel asks for.
pub const DIR_BUF_MAX: u32 = 1 << 20;

/// Entries of a directory, for readdir.
pub struct DirBuf {
    bytes: Vec<u8>,
    limit: usize,
}

impl DirBuf {
    /// An empty listing of at most `size` bytes (clamped to [`DIR_BUF_MAX`]).
    pub fn new(size: u32) -> DirBuf {
        let limit = size.min(DIR_BUF_MAX) as usize;
        DirBuf { bytes: Vec::with_capacity(limit.min(32 << 10)), limit }
    }

    /// Adds an entry; false, and nothing added, when it does not fit or its name is empty, `next` is the cookie from
    /// which the listing goes on after this entry (never 0), `file_type` are S_IFMT bits of a mode.
    #[must_use]
    pub fn add(&mut self, ino: u64, next: u64, file_type: u32, name: &OsStr) -> bool {
        let size = dirent_size(0, name);
        if self.bytes.len() + size > self.limit || name.is_empty() {
            return false;
        }
        push_dirent(&mut self.bytes, ino, next, file_type, name);
        true
    }

    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// Entries of a directory with their attributes, for readdirplus.
pub struct DirPlusBuf {
    bytes: Vec<u8>,
    limit: usize,
}

impl DirPlusBuf {
    /// An empty listing of at most `size` bytes (clamped to [`DIR_BUF_MAX`]).
    pub fn new(size: u32) -> DirPlusBuf {
        let limit = size.min(DIR_BUF_MAX) as usize;
        DirPlusBuf { bytes: Vec::with_capacity(limit.min(64 << 10)), limit }
    }

    /// Adds an entry, as [`DirBuf::add`]. The file type and inode number come from the attributes. An entry with node
    /// id 0 is listed only, without a lookup; use it for `.` and `..` and where attributes are not at hand.
    /// Every other entry that was added (true) counts as one lookup of its node.
    #[must_use]
    pub fn add(&mut self, entry: &Entry, next: u64, name: &OsStr) -> bool {
        let size = dirent_size(size_of::<abi::EntryOut>(), name);
        if self.bytes.len() + size > self.limit || name.is_empty() {
            return false;
        }
        self.bytes.extend_from_slice(entry_out(entry).as_bytes());
        push_dirent(&mut self.bytes, entry.attr.ino, next, entry.attr.mode, name);
        true
    }

    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

fn dirent_size(prefix: usize, name: &OsStr) -> usize {
    (prefix + size_of::<abi::Dirent>() + name.len()).next_multiple_of(8)
}

fn push_dirent(bytes: &mut Vec<u8>, ino: u64, next: u64, file_type: u32, name: &OsStr) {
    let head = abi::Dirent {
        ino,
        off: next,
        namelen: name.len() as u32,
        typ: (file_type & libc::S_IFMT) >> 12,
    };
    bytes.extend_from_slice(head.as_bytes());
    bytes.extend_from_slice(name.as_bytes());
    bytes.resize(bytes.len().next_multiple_of(8), 0);
}

#[cfg(test)]
mod tests;
