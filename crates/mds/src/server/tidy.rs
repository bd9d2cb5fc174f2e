//! What the target does by itself once others are gone: unlinked files whose last user has left are removed, records
//! of destroyed objects are forgotten.
//!
//! Role: a client that ends may leave more such files than a group can carry, and OSTs destroy objects while the
//! store stands still. Both are done a part at a time, as room in the group that is being filled allows; what is left
//! goes on when a group is durable. A crash loses nothing of it: files, and objects, are found by their records when
//! the target opens again. Limits (invariant 8): [`SLICE`], [`MAX_LOADS`]; what waits is a name each of what is in
//! memory, or on the disk, anyway. Never does: I/O, waiting.

use std::collections::{HashSet, VecDeque};

use proto::Fid;

use super::state::State;
use super::task::Parked;
use crate::txn::Stop;

/// Changes made at a time; requests come in between.
pub const SLICE: usize = 1024;
/// Files that are fetched at a time.
pub const MAX_LOADS: usize = 64;

/// What is left to do.
#[derive(Default)]
pub struct Tidy {
    /// Files that may have lost their last user.
    left: VecDeque<Fid>,
    /// Those that are being fetched.
    loading: HashSet<Fid>,
    /// Keys of records nobody reads.
    forgotten: VecDeque<Vec<u8>>,
}

impl Tidy {
    /// Whether nothing is left.
    pub fn is_done(&self) -> bool {
        self.left.is_empty() && self.loading.is_empty() && self.forgotten.is_empty()
    }

    /// Files that are left.
    pub fn files(&self) -> usize {
        self.left.len() + self.loading.len()
    }
}

impl State {
    /// Removes those of the files that are unlinked and no longer open.
    pub fn reap(&mut self, fids: Vec<Fid>) {
        self.tidy.left.extend(fids);
        self.tidy_up();
    }

    /// Removes records nobody reads, for instance of destroyed objects.
    pub fn forget(&mut self, keys: Vec<Vec<u8>>) {
        self.tidy.forgotten.extend(keys);
        self.tidy_up();
    }

    /// A file was fetched, or cannot be.
    pub fn reap_loaded(&mut self, fid: Fid, failed: bool) {
        if self.tidy.loading.remove(&fid) && !failed {
            self.tidy.left.push_front(fid);
        }
        self.tidy_up();
    }

    /// Does as much as there is room for.
    pub fn tidy_up(&mut self) {
        let mut changes = 0;
        while changes < SLICE && !self.failed && !self.is_behind(1) {
            if let Some(key) = self.tidy.forgotten.pop_front() {
                self.ns.cache.put_raw(key, None);
                self.arm();
                changes += 1;
            } else if self.tidy.loading.len() < MAX_LOADS
                && let Some(fid) = self.tidy.left.pop_front()
            {
                changes += usize::from(self.reap_one(fid));
            } else {
                return;
            }
        }
    }

    /// Whether it changed anything.
    fn reap_one(&mut self, fid: Fid) -> bool {
        let now = self.options.clock.now();
        match self.ns.reap(fid, now) {
            Ok(outcome) => {
                self.forget_leases(&outcome.changes);
                let changed = self.ns.apply(outcome.changes, outcome.effects);
                if changed {
                    self.transno += 1;
                    self.arm();
                    self.maybe_cut();
                }
                return changed;
            }
            Err(Stop::Miss(need)) => {
                self.tidy.loading.insert(fid);
                self.park(need, Parked::Reap(fid));
            }
            Err(Stop::Errno(e)) => tracing::warn!(%fid, error = %e, "cannot remove an orphan"),
        }
        false
    }
}
