//! The operations of the reference model, as plain data: a run is a list of [`Step`]s that can be
//! printed, stored as JSON, shortened and run again. Nothing here touches a file system.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::ffi::CString;
use std::fmt;

/// A path or attribute name as raw bytes. In JSON it is a string; bytes outside printable ASCII,
/// and `%` itself, are written `%XX`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Raw(pub Vec<u8>);

impl Raw {
    pub fn new(bytes: impl AsRef<[u8]>) -> Self {
        Raw(bytes.as_ref().to_vec())
    }

    /// As a C string; cut at the first NUL, which no generated name contains.
    pub fn c(&self) -> CString {
        let end = self.0.iter().position(|&b| b == 0).unwrap_or(self.0.len());
        CString::new(&self.0[..end]).unwrap_or_default()
    }

    /// The part before the last `/`, or `.`.
    pub fn parent(&self) -> Raw {
        match self.0.iter().rposition(|&b| b == b'/') {
            Some(0) => Raw::new("/"),
            Some(at) => Raw::new(&self.0[..at]),
            None => Raw::new("."),
        }
    }

    fn encode(&self) -> String {
        let mut out = String::new();
        for &b in &self.0 {
            if (0x20..0x7f).contains(&b) && b != b'%' {
                out.push(b as char);
            } else {
                out.push_str(&format!("%{b:02X}"));
            }
        }
        out
    }

    fn decode(text: &str) -> Option<Raw> {
        let mut out = Vec::new();
        let mut bytes = text.bytes();
        while let Some(b) = bytes.next() {
            if b != b'%' {
                out.push(b);
                continue;
            }
            let hex = [bytes.next()?, bytes.next()?];
            out.push(u8::from_str_radix(std::str::from_utf8(&hex).ok()?, 16).ok()?);
        }
        Some(Raw(out))
    }
}

impl fmt::Debug for Raw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0.escape_ascii())
    }
}

impl Serialize for Raw {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(&self.encode())
    }
}

impl<'de> Deserialize<'de> for Raw {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = String::deserialize(d)?;
        Raw::decode(&text).ok_or_else(|| serde::de::Error::custom("bad %XX escape"))
    }
}

/// What an operation is applied to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum At {
    /// A path, following a symlink at its end.
    Name(Raw),
    /// A path, not following a symlink at its end.
    Link(Raw),
    /// An open file.
    Slot(u8),
}

/// A time for utimensat.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum When {
    Set { sec: i64, nsec: i64 },
    Now,
    Omit,
}

/// Byte-range lock and flock requests; never blocking.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LockOp {
    Shared,
    Exclusive,
    Unlock,
}

/// One operation. `slot` numbers name open files ([`SLOTS`] of them); flags are the kernel's own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Op {
    Open {
        slot: u8,
        path: Raw,
        flags: i32,
        mode: u32,
    },
    Close {
        slot: u8,
    },
    Read {
        slot: u8,
        len: u32,
    },
    Write {
        slot: u8,
        len: u32,
        fill: u8,
    },
    Pread {
        slot: u8,
        off: i64,
        len: u32,
    },
    Pwrite {
        slot: u8,
        off: i64,
        len: u32,
        fill: u8,
    },
    Seek {
        slot: u8,
        whence: i32,
        off: i64,
    },
    MapHoles {
        slot: u8,
    },
    MmapRead {
        slot: u8,
        off: u64,
        len: u32,
    },
    MmapWrite {
        slot: u8,
        off: u64,
        len: u32,
        fill: u8,
    },
    Truncate {
        at: At,
        len: i64,
    },
    Fallocate {
        slot: u8,
        mode: i32,
        off: i64,
        len: i64,
    },
    CopyRange {
        from: u8,
        from_off: Option<u64>,
        to: u8,
        to_off: Option<u64>,
        len: u32,
    },
    Sync {
        slot: u8,
        data_only: bool,
    },
    Mkdir {
        path: Raw,
        mode: u32,
    },
    Rmdir {
        path: Raw,
    },
    Unlink {
        path: Raw,
    },
    Rename {
        from: Raw,
        to: Raw,
        flags: u32,
    },
    Hardlink {
        from: Raw,
        to: Raw,
        follow: bool,
    },
    LinkSlot {
        slot: u8,
        to: Raw,
    },
    Symlink {
        target: Raw,
        path: Raw,
    },
    Readlink {
        path: Raw,
    },
    Mknod {
        path: Raw,
        mode: u32,
        major: u32,
        minor: u32,
    },
    /// `len` symlinks `path0 -> path1 -> ...`, then stat of the first.
    Chain {
        path: Raw,
        len: u32,
    },
    Chmod {
        at: At,
        mode: u32,
    },
    Chown {
        at: At,
        uid: Option<u32>,
        gid: Option<u32>,
    },
    Times {
        at: At,
        atime: When,
        mtime: When,
    },
    SetXattr {
        at: At,
        name: Raw,
        value: Raw,
        flags: u32,
    },
    GetXattr {
        at: At,
        name: Raw,
    },
    ListXattr {
        at: At,
    },
    RemoveXattr {
        at: At,
        name: Raw,
    },
    Stat {
        at: At,
    },
    Access {
        path: Raw,
        mode: u32,
    },
    Readdir {
        path: Raw,
    },
    Statfs {
        path: Raw,
    },
    Flock {
        slot: u8,
        op: LockOp,
    },
    RangeLock {
        slot: u8,
        op: LockOp,
        start: i64,
        len: i64,
    },
    TestLock {
        slot: u8,
        op: LockOp,
        start: i64,
        len: i64,
    },
}

/// Open files an executor keeps.
pub const SLOTS: u8 = 8;

/// One operation with who does it ([`super::posix::IDENTITIES`]) and the umask in force. A watched
/// step also compares which times of the files it names have changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    pub who: u8,
    pub umask: u32,
    pub watch: bool,
    pub op: Op,
}

impl Op {
    /// The paths whose inodes (and parents) the operation may change.
    pub fn paths(&self) -> Vec<&Raw> {
        match self {
            Op::Open { path, .. }
            | Op::Mkdir { path, .. }
            | Op::Rmdir { path }
            | Op::Unlink { path }
            | Op::Symlink { path, .. }
            | Op::Readlink { path }
            | Op::Mknod { path, .. }
            | Op::Chain { path, .. }
            | Op::Access { path, .. }
            | Op::Readdir { path }
            | Op::Statfs { path } => vec![path],
            Op::Rename { from, to, .. } | Op::Hardlink { from, to, .. } => vec![from, to],
            Op::LinkSlot { to, .. } => vec![to],
            Op::Truncate { at, .. }
            | Op::Chmod { at, .. }
            | Op::Chown { at, .. }
            | Op::Times { at, .. }
            | Op::SetXattr { at, .. }
            | Op::GetXattr { at, .. }
            | Op::ListXattr { at }
            | Op::RemoveXattr { at, .. }
            | Op::Stat { at } => match at {
                At::Name(path) | At::Link(path) => vec![path],
                At::Slot(_) => vec![],
            },
            _ => vec![],
        }
    }

    /// The open files the operation uses.
    pub fn slots(&self) -> Vec<u8> {
        match self {
            Op::Open { slot, .. }
            | Op::Close { slot }
            | Op::Read { slot, .. }
            | Op::Write { slot, .. }
            | Op::Pread { slot, .. }
            | Op::Pwrite { slot, .. }
            | Op::Seek { slot, .. }
            | Op::MapHoles { slot }
            | Op::MmapRead { slot, .. }
            | Op::MmapWrite { slot, .. }
            | Op::Fallocate { slot, .. }
            | Op::Sync { slot, .. }
            | Op::LinkSlot { slot, .. }
            | Op::Flock { slot, .. }
            | Op::RangeLock { slot, .. }
            | Op::TestLock { slot, .. } => vec![*slot],
            Op::CopyRange { from, to, .. } => vec![*from, *to],
            Op::Truncate { at: At::Slot(slot), .. }
            | Op::Chmod { at: At::Slot(slot), .. }
            | Op::Chown { at: At::Slot(slot), .. }
            | Op::Times { at: At::Slot(slot), .. }
            | Op::SetXattr { at: At::Slot(slot), .. }
            | Op::GetXattr { at: At::Slot(slot), .. }
            | Op::ListXattr { at: At::Slot(slot) }
            | Op::RemoveXattr { at: At::Slot(slot), .. }
            | Op::Stat { at: At::Slot(slot) } => vec![*slot],
            _ => vec![],
        }
    }

    /// True if the answer depends on locks that others hold, and asking again changes nothing.
    pub fn asks_for_lock(&self) -> bool {
        match self {
            Op::Flock { op, .. } | Op::RangeLock { op, .. } => *op != LockOp::Unlock,
            Op::TestLock { .. } => true,
            _ => false,
        }
    }

    /// True if the operation can change no mtime or ctime even when it succeeds.
    pub fn reads_only(&self) -> bool {
        matches!(
            self,
            Op::Close { .. }
                | Op::Read { .. }
                | Op::Pread { .. }
                | Op::Seek { .. }
                | Op::MapHoles { .. }
                | Op::MmapRead { .. }
                | Op::Sync { .. }
                | Op::Readlink { .. }
                | Op::GetXattr { .. }
                | Op::ListXattr { .. }
                | Op::Stat { .. }
                | Op::Access { .. }
                | Op::Readdir { .. }
                | Op::Statfs { .. }
                | Op::Flock { .. }
                | Op::RangeLock { .. }
                | Op::TestLock { .. }
        )
    }
}

/// What an operation gave back, in the terms that two file systems must agree on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum Value {
    Unit,
    Number(i64),
    Bytes {
        len: usize,
        crc: u32,
    },
    Raw(Raw),
    Stat(StatView),
    /// Sorted names with their `d_type`.
    Names(Vec<(Raw, u8)>),
    Times(Vec<(i64, i64)>),
    /// A promise of the interface is broken whatever the other side says.
    Broken(String),
}

/// A value, or the errno.
pub type Outcome = Result<Value, i32>;

/// The comparable part of stat: directory sizes and link counts, block counts and inode numbers
/// are each file system's own business.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StatView {
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub nlink: Option<u32>,
    pub size: Option<u64>,
    pub rdev: Option<(u32, u32)>,
    pub btime: bool,
}
