//! Room on the file system of a store, and the reserve that keeps deletes possible.

use std::path::Path;

use super::database::Handle;
use super::room::Waker;
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

/// Room that a compaction may need for its output while its input still stands: four memtables,
/// the four tables of the first level, and as much again for a second one below.
pub const COMPACTION_BYTES: u64 = 48 << 20;

/// What a merge of all that is unflushed, of the first level and of the one below makes beyond
/// [`COMPACTION_BYTES`], while its input still stands: under a load of writes many more tables than
/// four gather there, and the engine merges them all at once.
pub(super) fn backlog(handle: &Handle) -> u64 {
    (handle.unflushed() + handle.upper_levels()).saturating_sub(COMPACTION_BYTES)
}

/// Free bytes above which nothing is done to have more.
const PLENTY: u64 = 512 << 20;

/// Whether the engine should give back what it can.
pub(super) fn is_scarce(handle: &Handle, reserve: u64, free: u64) -> bool {
    free < PLENTY.max(4 * reserve) + backlog(handle)
}

/// Free bytes that a commit with puts must find: the reserve, and what the database needs to
/// flush and compact what it has. fjall gives up for good when that fails.
pub(super) fn needed(handle: &Handle, reserve: u64) -> u64 {
    let unflushed = handle.unflushed();
    let compaction = (handle.tables() + unflushed).min(COMPACTION_BYTES);
    reserve + unflushed + compaction + backlog(handle)
}

/// Refuses a commit with puts when less than `reserve` would stay free, any commit when less than
/// a quarter of it would.
pub(super) fn check(
    handle: &Handle,
    room: &Waker,
    reserve: u64,
    writes: &[Write],
) -> Result<(), StoreError> {
    let free = measure(handle.dir())?.free;
    // Twice: in the journal and in a table.
    let own = 2 * writes.iter().map(|w| w.bytes() as u64).sum::<u64>();
    let ample = reserve + own + handle.unflushed() + COMPACTION_BYTES + backlog(handle);
    if free >= ample {
        return Ok(());
    }
    room.wake();
    let puts = writes.iter().any(|w| matches!(w, Write::Put(..)));
    let reserve = if puts { reserve } else { reserve / 4 };
    let needed = needed(handle, reserve) + own;
    if free < needed {
        handle.works()?;
    }
    match free < needed {
        true => Err(StoreError::NoSpace { free, reserve: needed, busy: handle.busy() }),
        false => Ok(()),
    }
}
