//! The operations of a compound, one file each.
//!
//! Rule of every operation: first everything that can fail or miss, then the effects; effects on
//! inodes, entries and blobs go through the transaction and vanish with it.

mod begin_write;
mod close;
mod create;
mod drop_inline;
mod fid_to_path;
mod getattr;
mod inline;
mod layout;
mod link;
mod lookup;
mod open;
mod readdir;
mod rename;
mod report;
mod setattr;
mod statfs;
mod unlink;
mod xattr;

pub(crate) use close::closed;

use proto::mds::{Op, Res};
use proto::{Errno, NAME_MAX};

use crate::namespace::Run;
use crate::txn::Step;

/// Runs one operation.
pub fn run(r: &mut Run<'_>, op: &Op) -> Step<Res> {
    match op {
        Op::Lookup { dir, name } => lookup::run(r, *dir, name),
        // The lease itself is the server's to grant.
        Op::GetAttr { fid } | Op::Lease { fid, .. } => getattr::run(r, *fid),
        Op::SetAttr { fid, set } => setattr::run(r, *fid, set),
        Op::Create { .. } => create::run(r, op),
        Op::Link { fid, dir, name } => link::run(r, *fid, *dir, name),
        Op::Unlink { dir, name, rmdir } => unlink::run(r, *dir, name, *rmdir),
        Op::Rename { from_dir, from, to_dir, to, flags } => {
            rename::run(r, (*from_dir, from), (*to_dir, to), *flags)
        }
        Op::Whiteout { from_dir, from, to_dir, to, flags, fid } => {
            rename::whiteout(r, (*from_dir, from), (*to_dir, to), *flags, *fid)
        }
        Op::ReadDir { dir, cookie, max_bytes, flags } => {
            readdir::run(r, *dir, *cookie, *max_bytes, *flags)
        }
        Op::ReadLink { fid } => getattr::readlink(r, *fid),
        Op::Open { fid, flags, handle } => open::run(r, *fid, *flags, *handle),
        Op::Close { fid, handle, report } => close::run(r, *fid, *handle, report.as_ref()),
        Op::Report { fid, report } => report::run(r, *fid, report),
        Op::ReadInline { fid } => inline::read(r, *fid),
        Op::WriteInline { fid, offset, data, cut, mtime } => {
            inline::write(r, *fid, *offset, data, *cut, *mtime)
        }
        Op::BeginWrite { fid, size_hint } => begin_write::run(r, *fid, *size_hint),
        Op::DropInline { fid, report } => drop_inline::run(r, *fid, report),
        Op::SetLayout { fid, spec } => layout::set(r, *fid, spec),
        Op::GetLayout { fid } => layout::get(r, *fid),
        Op::GetXattr { fid, name } => xattr::get(r, *fid, name),
        Op::SetXattr { fid, name, value, flags } => xattr::set(r, *fid, name, value, *flags),
        Op::RemoveXattr { fid, name } => xattr::remove(r, *fid, name),
        Op::ListXattr { fid } => xattr::list(r, *fid),
        Op::Statfs {} => statfs::run(r),
        Op::FidToPath { fid } => fid_to_path::run(r, *fid),
        // The server answers these itself: they wait, or concern the session.
        Op::Sync {}
        | Op::AllocFids {}
        | Op::Lock { .. }
        | Op::TestLock { .. }
        | Op::CancelLock { .. }
        | Op::Release { .. }
        | Op::PutOff { .. }
        | Op::LockAhead { .. }
        | Op::Status {} => Err(Errno::EOPNOTSUPP.into()),
    }
}

/// Whether an operation adds to the store: refused first when it is nearly full.
pub fn needs_space(op: &Op) -> bool {
    match op {
        // A create that finds the name adds nothing: it looks for itself.
        Op::Link { .. }
        | Op::SetLayout { .. }
        | Op::SetXattr { .. }
        | Op::BeginWrite { .. }
        | Op::Whiteout { .. } => true,
        Op::WriteInline { data, .. } => !data.is_empty(),
        _ => false,
    }
}

/// Whether an operation may add to what is to be committed (a close frees; it always passes).
pub fn changes(op: &Op) -> bool {
    !matches!(
        op,
        Op::Lookup { .. }
            | Op::GetAttr { .. }
            | Op::ReadDir { .. }
            | Op::ReadLink { .. }
            | Op::Close { .. }
            | Op::ReadInline { .. }
            | Op::GetLayout { .. }
            | Op::GetXattr { .. }
            | Op::ListXattr { .. }
            | Op::Statfs {}
            | Op::Sync {}
            | Op::AllocFids {}
            | Op::Lock { .. }
            | Op::TestLock { .. }
            | Op::CancelLock { .. }
            | Op::FidToPath { .. }
            | Op::Release { .. }
            | Op::PutOff { .. }
            | Op::LockAhead { .. }
            | Op::Lease { .. }
            | Op::Status {}
    )
}

/// Refuses names no directory can hold.
pub(crate) fn check_name(name: &[u8]) -> Result<(), Errno> {
    if name.len() > NAME_MAX {
        return Err(Errno::ENAMETOOLONG);
    }
    if name.is_empty() || name.contains(&b'/') || name.contains(&0) {
        return Err(Errno::EINVAL);
    }
    Ok(())
}

/// Refuses `.` and `..`, which cannot be made or removed.
pub(crate) fn check_new_name(name: &[u8]) -> Result<(), Errno> {
    check_name(name)?;
    if name == b"." || name == b".." { Err(Errno::EEXIST) } else { Ok(()) }
}
