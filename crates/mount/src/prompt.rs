//! Pages that nobody must be shown any more once an answer is sent.
//!
//! Role: through a descriptor of before other mounts came the kernel keeps what is written and listed, and others
//! write over it without asking this mount. So it is dropped before it can be older than what they wrote (invariant 3).
//! Of what is written whole pages only, and before it is sent: the kernel holds none of these locked, and shows them
//! from then on; and again before the answer if it has read any meanwhile. Of a page that it was told in part it may hold
//! the lock until the very answer, and reads that one again then; if it has read that meanwhile, it does not hold it, and
//! it is dropped before the answer. Of what was listed all, with the answer that ends it: the kernel believes a
//! list from its end on, and starts again where a page of it is missing.
//! Limits (invariant 8): [`HELD`], as a page may be held by who reads it, or in ways this does not know of.
//! Never does: wait without an end.

use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use crate::caches::Caches;
use crate::pages::HELD;

/// Bytes of a page of the kernel.
const PAGE: u64 = 4096;

/// How long is waited for a page that was written in part and read at the same time. The kernel may hold it for another
/// such write by now, until that is answered.
const MET: Duration = Duration::from_millis(200);

/// From where to where; within the largest file.
type Bytes = (u64, u64);

/// The whole pages within some bytes.
fn whole((from, to): Bytes) -> Option<Bytes> {
    let pages = (from.checked_next_multiple_of(PAGE)?, to / PAGE * PAGE);
    (pages.0 < pages.1).then_some(pages)
}

/// The pages that some bytes lie in.
pub fn around((from, to): Bytes) -> Bytes {
    (from / PAGE * PAGE, to.checked_next_multiple_of(PAGE).unwrap_or(u64::MAX))
}

/// Whether some bytes are whole pages, and nothing else.
pub fn are_whole(bytes: Bytes) -> bool {
    whole(bytes) == Some(bytes)
}

/// The pages that some bytes fill in part.
fn edges(bytes: Bytes) -> impl Iterator<Item = Bytes> {
    let page = |at: u64| (at / PAGE * PAGE, (at / PAGE + 1).saturating_mul(PAGE));
    let first = (!bytes.0.is_multiple_of(PAGE)).then(|| page(bytes.0));
    let last = (!bytes.1.is_multiple_of(PAGE)).then(|| page(bytes.1));
    first.into_iter().chain(last.filter(|last| first != Some(*last)))
}

impl Caches {
    /// Drops the whole pages of what is written; whether they are dropped.
    pub fn drop_written(self: &Arc<Caches>, node: u64, bytes: Bytes) -> bool {
        whole(bytes).is_none_or(|pages| self.drop_bytes(node, pages, HELD))
    }

    /// Drops those pages that what was written fills in part and that a read `met`: the kernel has not held them for the
    /// write.
    pub fn drop_edges(self: &Arc<Caches>, node: u64, bytes: Bytes, met: impl Fn(Bytes) -> bool) {
        for page in edges(bytes).filter(|page| met(*page)) {
            self.drop_bytes(node, page, MET);
        }
    }

    /// Drops what was listed of a directory; whether it is dropped.
    pub fn drop_listed(self: &Arc<Caches>, node: u64) -> bool {
        self.drop_range(node, (0, 0), HELD)
    }

    fn drop_bytes(self: &Arc<Caches>, node: u64, (from, to): Bytes, patience: Duration) -> bool {
        let range = i64::try_from(from).ok().zip(i64::try_from(to - from).ok());
        range.is_some_and(|range| self.drop_range(node, range, patience))
    }

    /// From where, and how much: what follows, if that is 0. By another thread, as a page may be held.
    fn drop_range(
        self: &Arc<Caches>,
        node: u64,
        (from, length): (i64, i64),
        patience: Duration,
    ) -> bool {
        let Some(notifier) = self.notifier().cloned() else { return false };
        let ((tell, told), caches) = (mpsc::channel(), Arc::clone(self));
        self.pages.ends.dropping.run(move || {
            caches.pages.ends.dropping(node);
            let dropped = notifier.inval_inode(node, from, length);
            // Whoever asked may have waited long enough.
            let _ = tell.send(dropped.is_ok());
        });
        let dropped = told.recv_timeout(patience).unwrap_or(false);
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
        assert_eq!(whole((0, 4095)), None);
        assert_eq!(whole((1, 8191)), None);
        assert_eq!(whole((1, 8192)), Some((4096, 8192)));
        assert_eq!(whole((4096, 8192)), Some((4096, 8192)));
        assert_eq!(whole((5000, 52_008)), Some((8192, 49_152)));
        assert_eq!(whole((u64::MAX - 1, u64::MAX)), None);
        assert!(are_whole((8192, 12_288)) && !are_whole((1, 8192)) && !are_whole((4096, 4096)));
    }

    #[test]
    fn pages_that_are_filled_in_part_are_those_at_both_ends() {
        let of = |from, to| edges((from, to)).collect::<Vec<_>>();
        assert_eq!(of(0, 4096), []);
        assert_eq!(of(1, 2), [(0, 4096)]);
        assert_eq!(of(0, 8193), [(8192, 12_288)]);
        assert_eq!(of(4095, 8192), [(0, 4096)]);
        assert_eq!(of(4095, 8193), [(0, 4096), (8192, 12_288)]);
        assert_eq!(around((4095, 8193)), (0, 12_288));
        assert_eq!(around((4096, 8192)), (4096, 8192));
    }
}
