//! The same ground for all systems before large data is written or read.
//!
//! Two things that belong to no system fall on whichever is measured next. What was removed is freed,
//! and discarded on the disk, a moment after the call that removed it: a second later where a journal
//! commits, or where objects are destroyed behind. And a virtual machine gets memory from its host page
//! by page as it is touched (9 us each where it was measured, more than writing the page to the disk), so
//! that who runs after another has filled the page cache pays for what that one used. So all wait, and
//! begin with memory that was touched and is free.

use std::time::Duration;

/// Journals commit after at most 5 seconds, at once when asked; discards follow within this time.
const SETTLE: Duration = Duration::from_secs(2);
/// Bytes of memory made ready for each byte of the large file: page cache of two layers, and buffers.
const TIMES: usize = 3;

/// Waits until what was removed is gone, and makes memory for `large` MiB of data ready.
pub fn ground(large: usize) {
    rustix::fs::sync();
    std::thread::sleep(SETTLE);
    // Not zeros: those would come as a mapping nobody has touched.
    let touched = vec![1u8; (large * TIMES) << 20];
    drop(std::hint::black_box(touched));
}
