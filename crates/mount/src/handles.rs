//! Open files by handle number.

use std::sync::Arc;

use client::OpenFile;
use fuse::Errno;
use parking_lot::{Mutex, RwLock};
use proto::Fid;

/// Most files one mount holds open; above it ENFILE (invariant 8).
pub const MAX_HANDLES: usize = 1 << 20;

/// An open file.
pub struct Handle {
    /// The client's side.
    pub file: Arc<OpenFile>,
    /// Owners of range locks taken through it. Those of open file descriptions are not announced
    /// when they end; they go with the last close.
    pub owners: Mutex<Vec<u64>>,
}

#[derive(Default)]
struct Table {
    slots: Vec<Option<Arc<Handle>>>,
    free: Vec<usize>,
}

/// All open files of a mount.
#[derive(Default)]
pub struct Handles(RwLock<Table>);

impl Handles {
    /// Keeps an open file; its number.
    pub fn add(&self, file: Arc<OpenFile>) -> Result<u64, Errno> {
        let handle = Some(Arc::new(Handle { file, owners: Mutex::default() }));
        let mut t = self.0.write();
        match t.free.pop() {
            Some(at) => {
                t.slots[at] = handle;
                Ok(at as u64)
            }
            None if t.slots.len() >= MAX_HANDLES => Err(Errno::new(libc::ENFILE)),
            None => {
                t.slots.push(handle);
                Ok(t.slots.len() as u64 - 1)
            }
        }
    }

    /// An open file.
    pub fn get(&self, fh: u64) -> Result<Arc<Handle>, Errno> {
        let t = self.0.read();
        t.slots.get(fh as usize).cloned().flatten().ok_or(Errno::new(libc::EBADF))
    }

    /// Whether a file is open for writing here. Looks at all that is open.
    pub fn written(&self, fid: Fid) -> bool {
        let t = self.0.read();
        t.slots.iter().flatten().any(|h| h.file.fid() == fid && h.file.flags().write)
    }

    /// Lets go of an open file.
    pub fn remove(&self, fh: u64) -> Option<Arc<Handle>> {
        let mut t = self.0.write();
        let handle = t.slots.get_mut(fh as usize)?.take();
        if handle.is_some() {
            t.free.push(fh as usize);
        }
        handle
    }
}
