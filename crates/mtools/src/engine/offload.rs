//! Lets the file system copy: FICLONE for whole files, copy_file_range for parts.

use super::plan::Plan;
use super::range::{Range, Reached};
use super::{Copied, Data, Fault, Reflink, Sparse, Tried};
use rustix::fs::{copy_file_range, ioctl_ficlone};
use rustix::io::Errno;

/// Bytes of one copy_file_range: a signal or an error elsewhere waits for at most this.
const STEP: u64 = 128 << 20;

/// Has the destination share the source's blocks; `true` when it does.
pub fn clone(data: &Data, plan: &Plan, copied: &mut Copied) -> Result<bool, Fault> {
    let wanted = data.reflink == Reflink::Always
        // What is to have no holes, or more of them, cannot share.
        || data.reflink == Reflink::Auto && data.sparse == Sparse::Auto;
    if !wanted || !data.fresh || plan.closed {
        copied.reflink = Tried::Avoided;
        return Ok(false);
    }
    copied.reflink = Tried::Unsupported;
    if !plan.pair.clones(data.reflink) {
        return Ok(false);
    }
    match ioctl_ficlone(&data.dst, &data.src) {
        Ok(()) => {
            copied.reflink = Tried::Yes;
            Ok(true)
        }
        Err(e) if data.reflink == Reflink::Always => Err(Fault::Clone(e.into())),
        Err(e) => {
            // Others may concern this file alone: immutable, too long, sealed.
            let never = [Errno::NOTSUP, Errno::NOTTY, Errno::XDEV, Errno::NOSYS, Errno::INVAL];
            if never.contains(&e) {
                plan.pair.never_clones();
            }
            Ok(false)
        }
    }
}

/// Copies data up to `end` within the file system; `false`: the rest must be read and written.
pub fn copy(range: &Range<'_>, end: u64, reached: &mut Reached) -> Result<bool, Fault> {
    while reached.at < end && !reached.ended && !range.stopped() {
        let (mut from, mut to) = (reached.at, reached.at);
        let step = (end - reached.at).min(STEP) as usize;
        let (src, dst) = (&range.data.src, &range.data.dst);
        match copy_file_range(src, Some(&mut from), dst, Some(&mut to), step) {
            // Some file systems answer so instead of refusing.
            Ok(0) if reached.moved == 0 => return Ok(false),
            Ok(0) => reached.ended = true,
            Ok(n) => {
                reached.at += n as u64;
                reached.moved += n as u64;
                range.engine.count(n);
                reached.written = reached.at;
            }
            Err(Errno::INTR) => {}
            // It cannot be told which side failed: reading and writing will tell.
            Err(e) => {
                if e != Errno::NOSPC && e != Errno::DQUOT && e != Errno::IO {
                    range.plan.pair.never_offloads();
                }
                return Ok(false);
            }
        }
    }
    reached.offloaded = true;
    Ok(true)
}
