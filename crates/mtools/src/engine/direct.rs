//! The same file once more, without the page cache.

use rustix::fs::{Mode, OFlags, open};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::sync::OnceLock;

/// What offsets, lengths and addresses must be multiples of: enough for every disk.
pub const ALIGN: u64 = 4096;
/// Files shorter than this are not worth a second open.
pub const DIRECT_MIN: u64 = 16 << 20;

/// A second handle, made when it is first wanted.
#[derive(Default)]
pub struct Direct(OnceLock<Option<File>>);

impl Direct {
    /// Of a file that is read, or written.
    pub fn of(&self, file: &File, write: bool) -> Option<&File> {
        self.0.get_or_init(|| again(file, write)).as_ref()
    }
}

fn again(file: &File, write: bool) -> Option<File> {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let access = if write { OFlags::WRONLY } else { OFlags::RDONLY };
    let flags = access | OFlags::DIRECT | OFlags::CLOEXEC;
    open(path, flags, Mode::empty()).ok().map(File::from)
}
