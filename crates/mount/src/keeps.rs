//! What the kernel keeps of what goes through its pages, and what of that is to be dropped: which reads, writes and
//! listings leave it something that others may change without asking this mount (invariant 3). Who drops it, and
//! when, is in [`crate::pages`] and [`crate::prompt`]. Never does: wait for the kernel without an end.

use std::time::Duration;

use proto::Fid;

use crate::caches::Mark;
use crate::fs::PinstripeFs;
use crate::prompt::{are_whole, around};
use crate::under_way::Writing;

/// In the number of an open directory: it was opened while this mount was alone.
pub(crate) const LISTED_ALONE: u64 = 1;
/// In the same: it was opened with O_NOATIME.
pub(crate) const NO_ATIME: u64 = 2;
/// Tries to have a file watched while the MDT calls something of it back; each takes a message.
const WATCH_TRIES: u32 = 40;
/// Pause after the second try; it doubles up to the other.
const WATCH_PAUSE: Duration = Duration::from_micros(20);
const WATCH_PAUSE_MAX: Duration = Duration::from_millis(2);

/// A write whose whole pages the kernel did not show when it began, if they could be dropped.
pub(crate) struct Hidden<'a> {
    under_way: Writing<'a>,
    dropped: bool,
}

impl PinstripeFs {
    /// Whether read(2) through an open file comes from the kernel's pages, because it was opened while this mount was
    /// alone, or to be read only.
    pub(crate) fn is_kept(&self, fh: u64) -> bool {
        self.handles.get(fh).is_ok_and(|h| h.keeps_pages)
    }

    /// The kernel keeps pages of a file that it reads through this open file; to be called before they are read.
    /// Whether they are to be dropped as soon as it has them.
    pub(crate) fn keeps_pages(&self, node: u64, fh: u64) -> bool {
        if self.caches.keeps_unleased() || self.client.is_sole() {
            return false;
        }
        let fid = self.caches.fid(node);
        let file = self.handles.get(fh).ok().filter(|h| h.keeps_pages);
        let kept = file.is_some();
        file.iter().for_each(|h| self.pages.follow(node, &h.file, (0, 0)));
        let vouches = || self.client.vouches_for_data(fid);
        if kept || vouches() {
            self.pages.keep(node);
            if vouches() || (kept && self.watches(node, fid)) {
                return false;
            }
        }
        self.pages.doubt(node);
        kept
    }

    /// A write among others begins, through an open file of before they came: whole pages of it the kernel shows already, and
    /// would when another mount has written over them.
    pub(crate) fn hide_written(&self, node: u64, bytes: (u64, u64)) -> Hidden<'_> {
        // Before they are dropped: who reads them after that is met.
        let under_way = self.pages.under_way.write(node, around(bytes));
        let dropped = self.caches.drop_written(node, bytes);
        Hidden { under_way, dropped }
    }

    /// These bytes were written: whether the kernel shows no page of them any more. `hidden`: as it began.
    pub(crate) fn hides_written(
        &self,
        node: u64,
        bytes: (u64, u64),
        hidden: Option<&Hidden<'_>>,
    ) -> bool {
        let met = |bytes| hidden.is_some_and(|hidden| hidden.under_way.met(bytes));
        let still = hidden.is_some_and(|hidden| hidden.dropped) && !met(bytes);
        // Who read what was there before must not show it once this is answered.
        self.caches.drop_edges(node, bytes, met);
        (still || self.caches.drop_written(node, bytes)) && are_whole(bytes)
    }

    /// A write among others has ended, which nothing vouched for all the time: whether it leaves pages that are to be
    /// dropped. The kernel keeps what was written through an open file of before they came, and may have read
    /// meanwhile what is older.
    pub(crate) fn leaves_pages(&self, node: u64, fh: u64, from_cache: bool) -> bool {
        if self.caches.keeps_unleased() {
            return false;
        }
        if from_cache {
            // A pass that met the page while it changed has left it there.
            self.pages.doubt(node);
        }
        let reads = !from_cache && self.pages.keeps(node);
        reads || self.is_kept(fh)
    }

    /// Has a file watched of which the kernel holds a page; whether that page will be dropped in time.
    pub(crate) fn watches(&self, node: u64, fid: Fid) -> bool {
        let mut pause = Duration::ZERO;
        for _ in 0..WATCH_TRIES {
            if self.pages.read_while_recalled(node) || self.client.watch(fid) {
                return true;
            }
            self.pages.pause(pause);
            pause = (pause * 2).clamp(WATCH_PAUSE, WATCH_PAUSE_MAX);
        }
        tracing::debug!(%fid, "pages that others may change are dropped after they were shown");
        false
    }

    /// The kernel was told names of a directory, which it keeps for who lists it again through one that was opened
    /// while this mount was alone: not among others, who change it without asking.
    /// `send` sends them; `last`: there are no more.
    pub(crate) fn listed(
        &self,
        (node, fh): (u64, u64),
        mark: Mark,
        last: bool,
        send: impl FnOnce(),
    ) {
        let shared = || fh & LISTED_ALONE != 0 && !self.caches.valid(mark);
        let dropped = last && shared() && self.caches.drop_listed(node);
        send();
        if !dropped && shared() {
            self.pages.discard(node);
        }
    }
}
