//! The verbs of a target, one file each; semantics are told in [`proto::oss`].

mod allocate;
mod commit;
mod copy;
mod destroy;
mod glimpse;
mod punch;
mod read;
mod seek;
mod statfs;
mod write;
mod write_list;

use proto::oss::Written;
use proto::{CHECKSUM_BLOCK, Errno};

use crate::object::Object;
use crate::ost::{Ost, errno};

const BLOCK: u64 = CHECKSUM_BLOCK as u64;

/// One past the largest offset asked for; beyond it EFBIG.
fn end_of(offset: u64, len: u64) -> Result<u64, Errno> {
    let end = offset.checked_add(len).ok_or(Errno::EFBIG)?;
    if end > proto::MAX_FILE_SIZE { Err(Errno::EFBIG) } else { Ok(end) }
}

/// The blocks that `[start, end)` touches, as a range of bytes.
fn block_range(start: u64, end: u64) -> (u64, u64) {
    (start / BLOCK * BLOCK, end.div_ceil(BLOCK).saturating_mul(BLOCK))
}

impl Object {
    /// Holds the blocks that `[start, end)` touches.
    fn lock_blocks(&self, start: u64, end: u64) -> crate::range::RangeGuard<'_> {
        let (start, end) = block_range(start, end);
        self.ranges.lock(start, end)
    }
}

impl Ost {
    fn written(&self, object: &Object) -> Result<Written, Errno> {
        let stat = rustix::fs::fstat(object.fd()).map_err(errno)?;
        Ok(Written {
            verifier: self.verifier(),
            size: stat.st_size as u64,
            blocks: stat.st_blocks as u64,
        })
    }

    /// What is answered for a change of an object that does not exist and need not.
    fn nothing_written(&self) -> Written {
        Written { verifier: self.verifier(), size: 0, blocks: 0 }
    }
}
