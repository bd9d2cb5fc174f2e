//! Waiting for what is on its way to the MDT.
//!
//! Role: who has something to send waits for a part of the log that was sent before, and for operations on
//! the same inodes. That part is kept until the MDT has answered, however late, or the session ends; who
//! waits for it gives up after the time a request has, so that an MDT that is away costs callers an
//! error, and nobody what was done here (invariant 1). Never does: send.

use std::time::Instant;

use parking_lot::MutexGuard;
use proto::Errno;

use super::{Tree, Wb};

/// A part of the log has no answer, and neither it nor who waits has more time. It stays on its way.
pub(crate) struct Late;

impl From<Late> for Errno {
    fn from(Late: Late) -> Errno {
        Errno::EIO
    }
}

/// How long somebody waits.
#[derive(Clone, Copy)]
pub(super) enum Wait {
    /// From then on, as long as a request may.
    Request(Instant),
    /// As long as it takes, unless this client ends: others are kept from what they want meanwhile.
    Long,
}

impl Wait {
    /// Somebody begins to wait now.
    pub(super) fn request() -> Wait {
        Wait::Request(Instant::now())
    }
}

impl Wb {
    /// Waits until something of what is on its way has ended.
    pub(super) fn turn(&self, tree: &mut MutexGuard<'_, Tree>, wait: Wait) -> Result<(), Late> {
        // What carries no part of the log ends by itself.
        let since = tree.in_flight;
        let begun = match (since, wait) {
            (Some(since), _) if tree.leaving => since,
            (Some(since), Wait::Request(begun)) => since.max(begun),
            _ => {
                self.changed.wait(tree);
                return Ok(());
            }
        };
        let late = self.changed.wait_until(tree, begun + self.patience).timed_out();
        if late && tree.in_flight == since { Err(Late) } else { Ok(()) }
    }

    /// This client ends.
    pub(crate) fn leave(&self) {
        self.tree.lock().leaving = true;
        self.changed.notify_all();
    }

    pub(super) fn is_leaving(&self) -> bool {
        self.tree.lock().leaving
    }
}
