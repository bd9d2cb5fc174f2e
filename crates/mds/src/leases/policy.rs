//! What an operation needs of others' leases, and what it earns.
//!
//! Role: rules, found from the operation, its outcome and its changes; no operation knows of leases
//! itself. Assumptions: the cache still has the values from before the changes. Never does: change
//! anything.

use proto::attr::{A_INLINE, Attr};
use proto::mds::*;
use proto::{Errno, Fid, FileKind};

use super::{ALL, EXCLUSIVE};
use crate::cache::Cache;
use crate::keys;
use crate::namespace::Outcome;
use crate::record::Inode;

/// Bits of a directory that a change of its names touches.
const NAMES: u8 = LS_LOOKUP | LS_ATTR | LS_DIRX;

/// Inodes an operation names, with the bits of others that are in its way before it can run at all:
/// what an exclusive lease hides, the MDT does not know. Where another has one, all that a change
/// will need is asked for at once.
pub fn named(op: &Op, mut f: impl FnMut(Fid, u8)) {
    match op {
        Op::Lookup { dir, .. } | Op::ReadDir { dir, .. } => f(*dir, EXCLUSIVE),
        Op::Create { dir, .. } | Op::Unlink { dir, .. } => f(*dir, NAMES),
        Op::Link { fid, dir, .. } => {
            f(*dir, NAMES);
            f(*fid, LS_ATTR | EXCLUSIVE);
        }
        Op::Rename { from_dir, to_dir, .. } | Op::Whiteout { from_dir, to_dir, .. } => {
            f(*from_dir, NAMES);
            f(*to_dir, NAMES);
        }
        Op::Open { fid, flags, .. } if flags & (O_WRITE | O_TRUNC) != 0 => f(*fid, ALL),
        Op::Lease { fid, bits } if bits & EXCLUSIVE != 0 => f(*fid, ALL),
        Op::BeginWrite { fid, .. } | Op::WriteInline { fid, .. } => f(*fid, ALL),
        Op::SetAttr { fid, .. }
        | Op::SetLayout { fid, .. }
        | Op::SetXattr { fid, .. }
        | Op::RemoveXattr { fid, .. } => f(*fid, LS_ATTR | EXCLUSIVE),
        Op::GetAttr { fid }
        | Op::ReadLink { fid }
        | Op::Open { fid, .. }
        | Op::Close { fid, .. }
        | Op::Report { fid, .. }
        | Op::ReadInline { fid }
        | Op::DropInline { fid, .. }
        | Op::GetLayout { fid }
        | Op::GetXattr { fid, .. }
        | Op::ListXattr { fid }
        | Op::FidToPath { fid }
        | Op::Lease { fid, .. } => f(*fid, EXCLUSIVE),
        Op::Statfs {}
        | Op::Sync {}
        | Op::AllocFids {}
        | Op::Lock { .. }
        | Op::TestLock { .. }
        | Op::CancelLock { .. }
        | Op::Release { .. }
        | Op::PutOff { .. }
        | Op::LockAhead { .. }
        | Op::Status {} => {}
    }
}

/// The inode that an operation asks for alone, by its number.
pub fn asks_alone(op: &Op) -> Option<Fid> {
    match op {
        Op::Lease { fid, bits } if bits & EXCLUSIVE != 0 && *fid != Fid::CURRENT => Some(*fid),
        _ => None,
    }
}

/// Whether an operation names what the one before it named.
pub fn names_current(op: &Op) -> bool {
    let mut found = false;
    named(op, |fid, _| found |= fid == Fid::CURRENT);
    found
}

/// Names an operation resolves to remove or replace: what is behind them decides how it fails.
pub fn targets(op: &Op, mut f: impl FnMut(Fid, &[u8])) {
    match op {
        Op::Unlink { dir, name, .. } => f(*dir, name),
        Op::Rename { from_dir, from, to_dir, to, .. }
        | Op::Whiteout { from_dir, from, to_dir, to, .. } => {
            f(*from_dir, from);
            f(*to_dir, to);
        }
        _ => {}
    }
}

/// Whether the size and times of a file that another writes can be asked for instead of its lease.
pub fn glimpses(op: &Op) -> bool {
    matches!(op, Op::Lookup { .. } | Op::GetAttr { .. } | Op::ReadDir { .. })
}

/// Whether it tells that bytes of a file were written, which whoever reads them from now on finds there.
pub fn tells_of_writes(op: &Op) -> bool {
    matches!(op, Op::Report { report, .. } if report.mtime.is_some())
}

/// Whether an answer to this may lack what others' writes of the same file did: it sets nothing that
/// they could undo, and who asked is told again when he looks.
pub fn tells_late(op: &Op) -> bool {
    matches!(op, Op::Report { .. } | Op::Close { .. })
}

/// Whether it tells that a file was read, which calls nothing back.
pub fn tells_access(op: &Op) -> bool {
    let report = match op {
        Op::Report { report, .. } => Some(report),
        Op::Close { report, .. } => report.as_ref(),
        _ => None,
    };
    report.is_some_and(|report| report.atime.is_some())
}

/// Bits that others must not have any more when an operation is to be applied.
pub fn touched(op: &Op, outcome: &Outcome, cache: &Cache, mut f: impl FnMut(Fid, u8)) {
    let changes = &outcome.changes;
    for (dir, _, _) in &changes.entries {
        f(*dir, LS_LOOKUP | LS_DIRX);
    }
    for (fid, new) in &changes.inodes {
        if let Some(old) = cache.inode(*fid).flatten() {
            f(*fid, new.as_ref().map_or(ALL, |new| changed(&old, new)));
        }
    }
    for (key, _) in &changes.blobs {
        if key.first() == Some(&keys::INLINE)
            && let Some(fid) = keys::fid_of(key)
        {
            f(fid, LS_READ | LS_WRITE);
        }
    }
    match (op, &outcome.res) {
        // From now on it writes without telling.
        (Op::Open { flags, .. }, Res::Opened { attr, .. }) if flags & O_WRITE != 0 => {
            f(attr.fid, ALL);
        }
        (Op::Create { open, .. }, Res::Entry { attr, created: false, open: Some(_) })
            if open & O_WRITE != 0 =>
        {
            f(attr.fid, ALL);
        }
        (Op::BeginWrite { .. }, Res::Layout { attr, .. })
        | (Op::WriteInline { .. }, Res::Attr { attr }) => f(attr.fid, ALL),
        (Op::Lease { bits, .. }, Res::Attr { attr }) if bits & EXCLUSIVE != 0 => f(attr.fid, ALL),
        // Also where its time is no later than another's that is known already: bytes were written.
        (Op::Report { .. }, Res::Attr { attr }) if tells_of_writes(op) => f(attr.fid, LS_READ),
        _ => {}
    }
}

/// Bits that a change of an inode touches.
fn changed(old: &Inode, new: &Inode) -> u8 {
    let file = old.kind() == FileKind::File;
    let data = file
        && (old.size != new.size
            || old.blocks != new.blocks
            || old.mtime != new.mtime
            || old.layout != new.layout
            || (old.flags ^ new.flags) & A_INLINE != 0);
    let attrs = data
        || (old.mode, old.nlink, old.uid, old.gid) != (new.mode, new.nlink, new.uid, new.gid)
        || (old.size, old.blocks, old.flags) != (new.size, new.blocks, new.flags)
        || (old.mtime, old.ctime) != (new.mtime, new.ctime)
        || old.spec != new.spec
        || old.home != new.home;
    let mut bits = EXCLUSIVE;
    bits |= if attrs { LS_ATTR } else { 0 };
    bits |= if data { LS_READ | LS_LAYOUT } else { 0 };
    bits |= if new.nlink == 0 { LS_OPEN } else { 0 };
    bits
}

/// Attributes a result tells.
pub fn told(res: &Res, mut f: impl FnMut(&Attr)) {
    match res {
        Res::Attr { attr }
        | Res::Entry { attr, .. }
        | Res::Opened { attr, .. }
        | Res::Inline { attr, .. }
        | Res::Layout { attr, .. } => f(attr),
        Res::Renamed { moved, replaced } => {
            f(moved);
            replaced.iter().for_each(f);
        }
        Res::Entries { entries, .. } => {
            entries.0.iter().filter_map(|e| e.attr.as_ref()).for_each(f);
        }
        _ => {}
    }
}

/// What a session may get on an inode if others leave room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// The names of a directory.
    Names,
    /// The attributes it was told.
    Attr(FileKind),
    /// Extended attributes, or the target of a symlink.
    Xattrs,
    /// A file it reads.
    Read,
    /// A file it writes.
    Write,
    /// An inode it made.
    New(FileKind),
    /// A directory whose names it changes.
    DirOwner,
    /// What it asked for by name.
    Asked(FileKind, u8),
    /// To hear of it before a write of another to this file has returned, whoever has it open.
    Watch,
}

/// What an operation earns.
pub fn wants(op: &Op, res: Result<&Res, Errno>, mut f: impl FnMut(Fid, Want)) {
    let res = match (op, res) {
        (Op::Lookup { dir, .. }, Err(Errno::ENOENT)) => return f(*dir, Want::Names),
        (_, Err(_)) => return,
        (_, Ok(res)) => res,
    };
    let kind = |a: &Attr| FileKind::from_mode(a.mode).unwrap_or(FileKind::File);
    match (op, res) {
        (Op::Lookup { dir, .. } | Op::ReadDir { dir, .. }, _) => f(*dir, Want::Names),
        (Op::Create { dir, flags, .. }, Res::Entry { attr, created: true, .. }) => {
            if flags & C_TMPFILE == 0 {
                f(*dir, Want::DirOwner);
            }
            return f(attr.fid, Want::New(kind(attr)));
        }
        (Op::Create { open, .. }, Res::Entry { attr, open: Some(_), .. })
        | (Op::Open { flags: open, .. }, Res::Opened { attr, .. })
            if kind(attr) == FileKind::File =>
        {
            let write = open & O_WRITE != 0;
            return f(attr.fid, if write { Want::Write } else { Want::Read });
        }
        (Op::Create { dir, .. }, _) => f(*dir, Want::Names),
        (Op::Link { dir, .. } | Op::Unlink { dir, .. }, _) => f(*dir, Want::DirOwner),
        (Op::Rename { from_dir, to_dir, .. } | Op::Whiteout { from_dir, to_dir, .. }, _) => {
            f(*from_dir, Want::DirOwner);
            f(*to_dir, Want::DirOwner);
        }
        (Op::BeginWrite { .. }, Res::Layout { attr, .. })
        | (Op::WriteInline { .. } | Op::Report { .. }, Res::Attr { attr }) => {
            return f(attr.fid, Want::Write);
        }
        (Op::ReadInline { .. }, Res::Inline { attr, .. }) => return f(attr.fid, Want::Read),
        (Op::Lease { bits, .. }, Res::Attr { attr }) => {
            let watches = kind(attr) == FileKind::File && *bits == LS_READ;
            let want = if watches { Want::Watch } else { Want::Asked(kind(attr), *bits) };
            return f(attr.fid, want);
        }
        (Op::GetXattr { fid, .. } | Op::ListXattr { fid } | Op::ReadLink { fid }, _) => {
            return f(*fid, Want::Xattrs);
        }
        _ => {}
    }
    told(res, |a| {
        if a.nlink > 0 {
            f(a.fid, Want::Attr(kind(a)));
        }
    });
}
