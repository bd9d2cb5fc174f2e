//! What metadata operations answer.

use std::sync::Arc;

use proto::layout::LayoutSpec;
use proto::mds::DirEntry;
use proto::{Attr, Layout};

use crate::OpenFile;

/// Asked for memory in which a read's bytes may come to lie, again only after it was given back; and only where nothing is
/// waited for but a disk.
pub type Offer<'a> = &'a dyn Fn() -> Option<net::place::Place>;

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
