//! What an MDT answered and then lost: a restart that forgot an operation it had answered must be
//! told at the next fsync, which would otherwise find nothing left to wait for (invariant 6).
//!
//! Role: compare the last answered transaction number with the last one a restarted MDT recovered. Who
//! has a file open then is told; so is who opens one later that was changed and not committed.
//! Assumptions: told on the transport's thread before anything is sent again. Never does: replay.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use parking_lot::Mutex;
use proto::{Errno, Fid};
use rustc_hash::{FxHashMap as HashMap, FxHashSet as HashSet};

/// Directories remembered as told of one loss; beyond that they count as told (invariant 8).
const MAX_TOLD: usize = 65_536;

/// Files remembered as changed and not known to be committed; an MDT holds requests back long before
/// that many changes wait for a commit (invariant 8).
const MAX_CHANGED: usize = 65_536;
/// Boots of the MDT remembered; an answer of an earlier one that comes late counts as lost (invariant 8).
const MAX_BOOTS: usize = 16;

#[derive(Default)]
struct Told {
    losses: u64,
    fids: HashSet<(u64, u32)>,
    callers: HashSet<u32>,
}

/// What the MDT answered, and what its boots began with.
#[derive(Default)]
struct Answered {
    /// Boot of the MDT that answered; 0: not known.
    boot: u32,
    /// By that boot, the highest.
    transno: u64,
    /// Of that boot, what it said is durable.
    committed: u64,
    /// The last change of each file, as far as it may not be durable.
    changed: HashMap<Fid, u64>,
    /// Changed, and lost: who opens them next is told.
    lost: HashSet<Fid>,
    /// Boots before, what the next one recovered, and whether a loss between the two was counted.
    before: VecDeque<(u32, u64, bool)>,
}

/// See the module.
#[derive(Default)]
pub(crate) struct Promises {
    answered: Mutex<Answered>,
    losses: AtomicU64,
    /// When the last was noticed, as [`since_boot`] says.
    when: Mutex<Duration>,
    told: Mutex<Told>,
}

/// Who asks for everything to be durable.
#[derive(Clone, Copy, Debug)]
pub struct Caller {
    /// Its number; others may have had it before.
    pub id: u32,
    /// When it began, since the machine did.
    pub born: Duration,
}

fn since_boot() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec.unsigned_abs() as u32)
}

impl Answered {
    fn note(&mut self, transno: u64, fids: &[Fid]) {
        for fid in fids {
            if self.changed.len() >= MAX_CHANGED {
                let committed = self.committed;
                self.changed.retain(|_, t| *t > committed);
            }
            if self.changed.len() < MAX_CHANGED {
                let last = self.changed.entry(*fid).or_default();
                *last = (*last).max(transno);
            }
        }
    }
}

impl Promises {
    /// Operations that changed `fids` were answered by this boot under this transaction number. Whoever
    /// takes the answer may come late: the MDT may have restarted since, without the operations.
    pub(crate) fn answered(&self, boot: u32, transno: u64, committed: u64, fids: &[Fid]) {
        let mut guard = self.answered.lock();
        let a = &mut *guard;
        if boot == a.boot {
            a.transno = a.transno.max(transno);
            a.committed = a.committed.max(committed);
            if transno > a.committed {
                a.note(transno, fids);
            }
            return;
        }
        if transno == 0 {
            return;
        }
        let (has, counted) = match a.before.iter_mut().find(|(b, ..)| *b == boot) {
            Some((_, kept, counted)) if transno > *kept => {
                (false, std::mem::replace(counted, true))
            }
            Some(_) => (true, false),
            None => (false, false),
        };
        if has {
            return;
        }
        a.lost.extend(fids);
        drop(guard);
        // Else it was told to all who may be concerned.
        if !counted {
            self.lost(transno);
        }
    }

    fn lost(&self, transno: u64) {
        self.losses.fetch_add(1, SeqCst);
        *self.when.lock() = since_boot();
        tracing::warn!(transno, "the MDT restarted without operations it had answered");
    }

    /// The first session is with this boot of the MDT.
    pub(crate) fn begin(&self, epoch: u32) {
        self.answered.lock().boot = epoch;
    }

    /// A new session with the MDT, of its boot `epoch`, which began at `recovered`.
    pub(crate) fn restarted(&self, epoch: u32, recovered: u64) {
        let mut a = self.answered.lock();
        // The same boot has everything it answered.
        if a.boot == epoch {
            return;
        }
        let (transno, committed) =
            (std::mem::take(&mut a.transno), std::mem::take(&mut a.committed));
        let boot = std::mem::replace(&mut a.boot, epoch);
        // A boot this client did not see may have begun with less than this one.
        let kept = if epoch == boot.wrapping_add(1) { recovered } else { committed.min(recovered) };
        let lost = transno > kept;
        let changed = std::mem::take(&mut a.changed);
        a.lost.extend(changed.into_iter().filter(|(_, t)| *t > kept).map(|(fid, _)| fid));
        a.before.push_back((boot, kept, lost));
        if a.before.len() > MAX_BOOTS {
            a.before.pop_front();
        }
        drop(a);
        if lost {
            self.lost(transno);
        }
    }

    /// Whether all that the MDT has answered so far is known to be durable there.
    pub(crate) fn all_durable(&self) -> bool {
        let answered = self.answered.lock();
        answered.transno <= answered.committed
    }

    /// How often operations were lost.
    pub(crate) fn losses(&self) -> u64 {
        self.losses.load(SeqCst)
    }

    /// What an open file has been told of when it is opened.
    pub(crate) fn opened(&self, fid: Fid) -> u64 {
        // Looked at first: a loss meanwhile is told rather than missed.
        let now = self.losses();
        now.saturating_sub(u64::from(self.answered.lock().lost.contains(&fid)))
    }

    /// EIO, if something was lost since `seen`, which is brought up to date.
    pub(crate) fn check(&self, fid: Fid, seen: &AtomicU64) -> Result<(), Errno> {
        let now = self.losses();
        if seen.swap(now, SeqCst) == now {
            return Ok(());
        }
        self.answered.lock().lost.remove(&fid);
        Err(Errno::EIO)
    }

    /// The same for what is not open: once for each inode and loss.
    pub(crate) fn check_fid(&self, fid: Fid) -> Result<(), Errno> {
        self.once(|told| told.fids.len() < MAX_TOLD && told.fids.insert((fid.seq, fid.oid)))
    }

    /// The same for who asks for all files: once for each caller and loss, if it was there then.
    pub(crate) fn check_caller(&self, caller: Caller) -> Result<(), Errno> {
        let late = caller.born > *self.when.lock();
        self.once(|told| !late && told.callers.len() < MAX_TOLD && told.callers.insert(caller.id))
    }

    fn once(&self, first: impl FnOnce(&mut Told) -> bool) -> Result<(), Errno> {
        let now = self.losses();
        if now == 0 {
            return Ok(());
        }
        let mut told = self.told.lock();
        if told.losses != now {
            *told = Told { losses: now, ..Told::default() };
        }
        if first(&mut told) { Err(Errno::EIO) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loss_is_told_once_to_each_who_may_be_concerned() {
        let p = Promises::default();
        p.begin(1);
        let before = AtomicU64::new(p.losses());
        p.answered(1, 7, 0, &[]);
        p.answered(1, 5, 0, &[]);
        p.restarted(2, 7);
        assert_eq!(p.check(Fid::ROOT, &before), Ok(()), "all that was answered is there");
        p.answered(2, 9, 0, &[]);
        p.restarted(2, 3);
        assert_eq!(p.check(Fid::ROOT, &before), Ok(()), "the same boot: another session only");
        p.restarted(3, 8);
        let after = AtomicU64::new(p.losses());
        assert_eq!(p.check(Fid::ROOT, &before), Err(Errno::EIO));
        assert_eq!(p.check(Fid::ROOT, &before), Ok(()));
        assert_eq!(p.check(Fid::ROOT, &after), Ok(()), "opened later: nothing of it was lost");
        assert_eq!(p.check_fid(Fid::ROOT), Err(Errno::EIO));
        assert_eq!(p.check_fid(Fid::ROOT), Ok(()));
    }

    #[test]
    fn what_is_answered_is_durable_when_the_same_boot_says_so() {
        let p = Promises::default();
        p.begin(1);
        assert!(p.all_durable(), "nothing was changed");
        p.answered(1, 7, 6, &[]);
        assert!(!p.all_durable());
        p.answered(1, 0, 7, &[]);
        assert!(p.all_durable());
        p.answered(1, 9, 7, &[]);
        p.restarted(2, 9);
        assert!(p.all_durable(), "the next boot began with it");
        p.answered(2, 11, 9, &[]);
        assert!(!p.all_durable());
    }

    #[test]
    fn an_answer_that_is_taken_late_is_not_forgotten() {
        let p = Promises::default();
        p.begin(1);
        let seen = AtomicU64::new(p.losses());
        p.restarted(2, 10);
        p.answered(1, 10, 0, &[]);
        p.answered(2, 30, 0, &[]);
        assert_eq!(p.check(Fid::ROOT, &seen), Ok(()), "the new boot has it");
        p.answered(1, 11, 0, &[]);
        assert_eq!(p.check(Fid::ROOT, &seen), Err(Errno::EIO));
        p.answered(1, 12, 0, &[]);
        assert_eq!(p.check(Fid::ROOT, &seen), Ok(()), "one loss, told once");
        p.restarted(3, 20);
        assert_eq!(p.check(Fid::ROOT, &seen), Err(Errno::EIO), "what the second answered");
        p.answered(2, 25, 0, &[]);
        assert_eq!(p.check(Fid::ROOT, &seen), Ok(()));
    }

    #[test]
    fn a_boot_that_was_not_seen_may_have_lost_what_the_next_one_has_numbers_for() {
        let p = Promises::default();
        p.begin(1);
        let seen = AtomicU64::new(p.losses());
        p.answered(1, 100, 90, &[]);
        p.restarted(3, 150);
        assert_eq!(p.check(Fid::ROOT, &seen), Err(Errno::EIO));
        p.answered(3, 160, 160, &[]);
        p.restarted(5, 170);
        assert_eq!(p.check(Fid::ROOT, &seen), Ok(()), "all of it was durable");
    }

    #[test]
    fn who_opens_what_lost_changes_is_told() {
        let fid = |oid| Fid { oid, ..Fid::ROOT };
        let p = Promises::default();
        p.begin(1);
        p.answered(1, 5, 0, &[fid(7)]);
        p.answered(1, 6, 0, &[fid(8)]);
        p.answered(1, 7, 6, &[fid(9)]);
        p.restarted(2, 5);
        p.answered(1, 8, 0, &[fid(10)]);
        let open = |oid| AtomicU64::new(p.opened(fid(oid)));
        let (a, b, c, d) = (open(7), open(8), open(9), open(10));
        assert_eq!(p.check(fid(7), &a), Ok(()), "that is there");
        for (oid, seen) in [(8, b), (9, c), (10, d)] {
            assert_eq!(p.check(fid(oid), &seen), Err(Errno::EIO), "{oid}");
            assert_eq!(p.check(fid(oid), &seen), Ok(()));
            assert_eq!(p.check(fid(oid), &open(oid)), Ok(()), "somebody was told");
        }
        let caller = |id, born| p.check_caller(Caller { id, born });
        assert_eq!(caller(3, Duration::ZERO), Err(Errno::EIO));
        assert_eq!(caller(3, Duration::ZERO), Ok(()));
        assert_eq!(caller(4, Duration::ZERO), Err(Errno::EIO));
        assert_eq!(caller(5, Duration::MAX), Ok(()), "it lost nothing");
    }
}
