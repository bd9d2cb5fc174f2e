//! What an MDT answered and then lost: a restart that forgot an operation it had answered must be
//! told at the next fsync, which would otherwise find nothing left to wait for (invariant 6).
//!
//! Role: compare the last answered transaction number with the last one a restarted MDT recovered.
//! Assumptions: told on the transport's thread before anything is sent again. Never does: replay.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};

use parking_lot::Mutex;
use proto::{Errno, Fid};

/// Directories remembered as told of one loss; beyond that they count as told (invariant 8).
const MAX_TOLD: usize = 65_536;

#[derive(Default)]
struct Told {
    losses: u64,
    fids: HashSet<(u64, u32)>,
}

/// See the module.
#[derive(Default)]
pub(crate) struct Promises {
    answered: AtomicU64,
    /// Boot of the MDT that answered; 0: not known.
    boot: AtomicU32,
    losses: AtomicU64,
    told: Mutex<Told>,
}

impl Promises {
    /// An operation was answered under this transaction number.
    pub(crate) fn answered(&self, transno: u64) {
        self.answered.fetch_max(transno, SeqCst);
    }

    /// The first session is with this boot of the MDT.
    pub(crate) fn begin(&self, epoch: u32) {
        self.boot.store(epoch, SeqCst);
    }

    /// A new session with the MDT, of its boot `epoch`, which began at `recovered`.
    pub(crate) fn restarted(&self, epoch: u32, recovered: u64) {
        // The same boot has everything it answered.
        if self.boot.swap(epoch, SeqCst) == epoch {
            return;
        }
        let answered = self.answered.swap(0, SeqCst);
        if answered > recovered {
            self.losses.fetch_add(1, SeqCst);
            let lost = answered - recovered;
            tracing::warn!(lost, "the MDT restarted without operations it had answered");
        }
    }

    /// How often operations were lost.
    pub(crate) fn losses(&self) -> u64 {
        self.losses.load(SeqCst)
    }

    /// EIO, if something was lost since `seen`, which is brought up to date.
    pub(crate) fn check(&self, seen: &AtomicU64) -> Result<(), Errno> {
        let now = self.losses();
        if seen.swap(now, SeqCst) == now { Ok(()) } else { Err(Errno::EIO) }
    }

    /// The same for what is not open: once for each inode and loss.
    pub(crate) fn check_fid(&self, fid: Fid) -> Result<(), Errno> {
        let now = self.losses();
        if now == 0 {
            return Ok(());
        }
        let mut told = self.told.lock();
        if told.losses != now {
            *told = Told { losses: now, fids: HashSet::new() };
        }
        let room = told.fids.len() < MAX_TOLD;
        if room && told.fids.insert((fid.seq, fid.oid)) { Err(Errno::EIO) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loss_is_told_once_to_each_who_may_be_concerned() {
        let p = Promises::default();
        let before = AtomicU64::new(p.losses());
        p.answered(7);
        p.answered(5);
        p.restarted(2, 7);
        assert_eq!(p.check(&before), Ok(()), "all that was answered is there");
        p.answered(9);
        p.restarted(2, 3);
        assert_eq!(p.check(&before), Ok(()), "the same boot: another session only");
        p.restarted(3, 8);
        let after = AtomicU64::new(p.losses());
        assert_eq!(p.check(&before), Err(Errno::EIO));
        assert_eq!(p.check(&before), Ok(()));
        assert_eq!(p.check(&after), Ok(()), "opened later: nothing of it was lost");
        assert_eq!(p.check_fid(Fid::ROOT), Err(Errno::EIO));
        assert_eq!(p.check_fid(Fid::ROOT), Ok(()));
    }
}
