//! Statfs: the space of all OSTs, the inodes the store can still hold.

use proto::mds::Res;

use crate::namespace::Run;
use crate::txn::Step;

/// Bytes of store an inode takes, about; free space over this is the number of free inodes.
const INODE_BYTES: u64 = 1024;

pub(super) fn run(r: &mut Run<'_>) -> Step<Res> {
    let space = r.osts.space();
    let (_, _, free) = r.store_space;
    let files_free = free / INODE_BYTES;
    Ok(Res::Statfs {
        total: space.total,
        free: space.free,
        available: space.free,
        files: files_free + r.inodes,
        files_free,
    })
}
