//! Pages that nobody must be shown any more once an answer is sent.
//!
//! Role: through a descriptor of before other mounts came the kernel keeps what is written and listed, and others
//! write over it without asking this mount. So it is dropped before it can be older than what they wrote (invariant 3).
//! Of what is written whole pages only, and before it is sent: the kernel holds none of these locked, and shows them
//! from then on; and again before the answer if it has read any meanwhile. Of a page that it was told in part it may hold
//! the lock until the very answer, and reads that one again in any case. Of what was listed all, with the answer that ends it: the kernel believes a
//! list from its end on, and starts again where a page of it is missing.
//! Limits (invariant 8): [`HELD`], as a page may be held by who reads it, or in ways this does not know of.
//! Never does: wait without an end.

use std::sync::Arc;
use std::sync::mpsc;

use crate::caches::Caches;
use crate::pages::HELD;

/// Bytes of a page of the kernel.
const PAGE: u64 = 4096;

/// The whole pages within some bytes: offset and length.
fn whole(offset: u64, length: u64) -> Option<(i64, i64)> {
    let from = offset.checked_next_multiple_of(PAGE)?;
    let to = offset.checked_add(length)? / PAGE * PAGE;
    let length = i64::try_from(to.checked_sub(from)?).ok().filter(|l| *l > 0)?;
    Some((from.try_into().ok()?, length))
}

/// Whether some bytes are whole pages, and nothing else.
pub fn are_whole(offset: u64, length: u64) -> bool {
    whole(offset, length).is_some_and(|(_, pages)| pages as u64 == length)
}

impl Caches {
    /// Drops the whole pages of what is written; whether they are dropped.
    pub fn drop_written(self: &Arc<Caches>, node: u64, offset: u64, length: u64) -> bool {
        whole(offset, length).is_none_or(|(from, pages)| self.drop_range(node, from, pages))
    }

    /// Drops what was listed of a directory; whether it is dropped.
    pub fn drop_listed(self: &Arc<Caches>, node: u64) -> bool {
        self.drop_range(node, 0, 0)
    }

    /// By another thread, as a page may be held.
    fn drop_range(self: &Arc<Caches>, node: u64, from: i64, length: i64) -> bool {
        let Some(notifier) = self.notifier().cloned() else { return false };
        let ((tell, told), caches) = (mpsc::channel(), Arc::clone(self));
        self.pages.ends.dropping.run(move || {
            caches.pages.ends.dropping(node);
            let dropped = notifier.inval_inode(node, from, length);
            // Whoever asked may have waited long enough.
            let _ = tell.send(dropped.is_ok());
        });
        let dropped = told.recv_timeout(HELD).unwrap_or(false);
        if !dropped {
            tracing::debug!(node, "pages that are to be dropped are held: they are dropped later");
        }
        dropped
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_pages_are_dropped() {
        assert_eq!(whole(0, 4095), None);
        assert_eq!(whole(1, 8190), None);
        assert_eq!(whole(1, 8191), Some((4096, 4096)));
        assert_eq!(whole(4096, 4096), Some((4096, 4096)));
        assert_eq!(whole(5000, 47_008), Some((8192, 40_960)));
        assert_eq!(whole(u64::MAX - 1, 1), None);
        assert_eq!(whole(0, u64::MAX), None);
        assert!(are_whole(8192, 4096) && !are_whole(1, 8191) && !are_whole(4096, 0));
    }
}
