//! Room on the file system of a store, and the reserve that keeps deletes possible.

use std::path::Path;

use crate::{StoreError, Usage, Write};

/// Size and free bytes of the file system that holds `dir`.
pub(super) fn measure(dir: &Path) -> Result<Usage, StoreError> {
    let fs = rustix::fs::statvfs(dir)
        .map_err(|e| StoreError::io(format!("statvfs {}", dir.display()), e))?;
    Ok(Usage {
        used: 0,
        total: fs.f_blocks.saturating_mul(fs.f_frsize),
        free: fs.f_bavail.saturating_mul(fs.f_frsize),
        reserve: 0,
    })
}

/// Refuses a commit with puts when less than `reserve` is free, any commit below a quarter of it.
pub(super) fn check(dir: &Path, reserve: u64, writes: &[Write]) -> Result<(), StoreError> {
    let free = measure(dir)?.free;
    let puts = writes.iter().any(|w| matches!(w, Write::Put(..)));
    let needed = if puts { reserve } else { reserve / 4 };
    match free < needed {
        true => Err(StoreError::NoSpace { free, reserve }),
        false => Ok(()),
    }
}
