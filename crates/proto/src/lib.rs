//! What crosses a wire or lies on a disk in Pinstripe: identifiers, attributes, layouts, errors,
//! the frame and every message.
//!
//! Role: the one place where bytes get their meaning. Assumptions: little-endian, peers may be
//! hostile, so every decoder is total (invariant 12). Never does: I/O, threads, clocks.

pub mod acl;
pub mod attr;
pub mod errno;
pub mod fid;
pub mod frame;
pub mod layout;
pub mod lov;
pub mod mds;
pub mod mgs;
pub mod ops;
pub mod order;
pub mod oss;
pub mod stride;
pub mod wire;

pub use attr::{Attr, FileKind, SetAttr, TimeSpec};
pub use errno::Errno;
pub use fid::{Fid, FidRange};
pub use layout::Layout;
pub use stride::Stride;
pub use wire::{Dec, DecodeError, Enc, Wire};

/// Version of the wire protocol; both sides must speak the same.
pub const WIRE_VERSION: u8 = 3;
/// Longest name of a directory entry, in bytes.
pub const NAME_MAX: usize = 255;
/// Longest path handed to a symlink, in bytes (Linux counts the NUL in 4096).
pub const SYMLINK_MAX: usize = 4095;
/// Longest extended attribute name, in bytes.
pub const XATTR_NAME_MAX: usize = 255;
/// Longest extended attribute value, in bytes.
pub const XATTR_SIZE_MAX: usize = 65536;
/// Largest bulk part of one message, in bytes.
pub const MAX_BULK: u32 = 4 << 20;
/// Largest body of one message, in bytes.
pub const MAX_BODY: u32 = 1 << 20;
/// Files up to this size live inline with their metadata, in bytes.
pub const DEFAULT_DOM_LIMIT: u32 = 64 << 10;
/// Bytes covered by one end-to-end checksum (crc32c), counted from the object's start.
pub const CHECKSUM_BLOCK: usize = 4096;
/// Largest offset a byte of a file may have, plus one (as Linux's `MAX_LFS_FILESIZE`).
pub const MAX_FILE_SIZE: u64 = i64::MAX as u64;
