//! STATFS: space of the target.

use std::sync::atomic::Ordering;

use proto::Errno;
use proto::oss::Statfs;
use rustix::fs::fstatvfs;

use crate::ost::{Ost, errno};
use crate::stats::Verb;

impl Ost {
    /// Space and inodes; `free` is what writes may take, without the reserve. The number of
    /// objects is exact after a clean close, and counted in the background after a crash.
    pub fn statfs(&self) -> Result<Statfs, Errno> {
        self.counted(Verb::Statfs, || {
            let vfs = fstatvfs(&self.objects).map_err(errno)?;
            Ok(Statfs {
                total: vfs.f_blocks.saturating_mul(vfs.f_frsize),
                free: self.space.free(&vfs),
                files: vfs.f_files,
                files_free: vfs.f_favail,
                objects: self.count.load(Ordering::Relaxed).max(0) as u64,
                fsid: self.space.fsid(),
            })
        })
    }
}
