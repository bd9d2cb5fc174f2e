//! When directories were listed, and symbolic links read.
//!
//! Role: keeps these access times until the MDT is told, many in one message, and shows them meanwhile. (Files
//! keep theirs with their state, [`crate::atime`].) Assumptions: whoever is given such an inode's attributes gets
//! them through [`Core::settle`]. Bounded ([`MOST`]): what is looked at beyond that moves no time. Never does: keep
//! anybody who looks waiting for the MDT.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};

use parking_lot::Mutex;
use proto::mds::{Op, Res};
use proto::{Attr, Errno, Fid, TimeSpec};
use rustc_hash::FxHashMap as HashMap;

use crate::atime::read_at;
use crate::core::{Core, now};
use crate::mdt::own_cred;
use crate::worker::{CLOSES_PER_MESSAGE, TICKS_PER_EXPIRE};

/// Inodes of which times wait to be told.
const MOST: usize = 8192;
/// Ticks between two times of telling.
const TELL_EVERY: u64 = 4 * TICKS_PER_EXPIRE as u64;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Looks {
    times: Mutex<HashMap<Fid, TimeSpec>>,
    /// As many as there are.
    count: AtomicUsize,
    /// The tick at which they were told.
    told_at: AtomicU64,
}

impl Looks {
    fn with<T>(&self, work: impl FnOnce(&mut HashMap<Fid, TimeSpec>) -> T) -> T {
        let mut times = self.times.lock();
        let done = work(&mut times);
        self.count.store(times.len(), SeqCst);
        done
    }

    fn is_empty(&self) -> bool {
        self.count.load(SeqCst) == 0
    }

    /// Attributes as whoever looked here must see them.
    pub(crate) fn show(&self, mut attr: Attr) -> Attr {
        if !self.is_empty()
            && let Some(time) = self.times.lock().get(&attr.fid)
        {
            attr.atime = attr.atime.max(*time);
        }
        attr
    }

    fn all(&self) -> Vec<(Fid, TimeSpec)> {
        self.times.lock().iter().map(|(fid, time)| (*fid, *time)).collect()
    }

    /// The MDT knows this time, or will.
    fn told(&self, fid: Fid, time: TimeSpec) {
        self.with(|times| {
            if times.get(&fid) == Some(&time) {
                times.remove(&fid);
            }
        });
    }

    /// Of an inode that is gone: as [`Looks::show`], for the last time. Nobody is told: each would be a message, as what
    /// fails ends it.
    pub(crate) fn last(&self, attr: Attr) -> Attr {
        let attr = self.show(attr);
        self.forget(attr.fid);
        attr
    }

    /// A time was set by hand.
    pub(crate) fn forget(&self, fid: Fid) {
        if !self.is_empty() {
            self.with(|times| times.remove(&fid));
        }
    }
}

impl Core {
    /// A directory was listed from its beginning, or a symbolic link was read.
    pub(crate) fn looked_at(&self, fid: Fid) {
        // Who looked has asked for it; if it is not known any more another look will do.
        let Some(attr) = self.mdt.wb.newest(fid) else { return };
        let attr = self.looks.show(attr);
        if self.moves(attr.atime, attr.mtime, attr.ctime) {
            let now = now();
            self.looks.with(|times| {
                if times.len() < MOST || times.contains_key(&fid) {
                    times.insert(fid, now);
                }
            });
        }
    }

    /// Tells the MDT of them if they wait for long, or are many.
    pub(crate) fn tell_old_looks(&self) {
        let tick = self.tick_now();
        let many = self.looks.count.load(SeqCst) >= MOST / 2;
        if many || tick >= self.looks.told_at.load(SeqCst) + TELL_EVERY {
            self.looks.told_at.store(tick, SeqCst);
            self.tell_looks();
        }
    }

    /// Tells the MDT of all of them. For one that is lost nobody waits because of that: they wait themselves.
    pub(crate) fn tell_looks(&self) {
        if self.looks.is_empty() || !self.mdt.session.is_connected() {
            return;
        }
        let all = self.looks.all();
        // What may be changed here first is: an answer that knows nothing of what is logged meanwhile would undo that.
        let here = |(fid, time): &(Fid, TimeSpec)| {
            let told = self.mdt.here(&own_cred(), read_at(*fid, *time)).is_ok();
            if told {
                self.looks.told(*fid, *time);
            }
            told
        };
        let (_, there): (Vec<_>, Vec<_>) = all.into_iter().partition(here);
        self.tell_times(&there, |ops| self.mdt.there(&own_cred(), ops).map(|told| told.0));
    }

    /// The same while others wait for this client, and it is not alone any more: waits for none of its operations.
    pub(crate) fn tell_looks_past(&self) {
        self.tell_times(&self.looks.all(), |ops| self.mdt.past(ops));
    }

    /// Tells it so of some, before others change their attributes.
    pub(crate) fn tell_looks_of(&self, fids: impl Iterator<Item = Fid>) {
        if self.looks.is_empty() {
            return;
        }
        let some = |times: &mut HashMap<Fid, TimeSpec>| {
            fids.filter_map(|fid| times.get(&fid).map(|t| (fid, *t))).collect::<Vec<_>>()
        };
        self.tell_times(&self.looks.with(some), |ops| self.mdt.past(ops));
    }

    fn tell_times(
        &self,
        all: &[(Fid, TimeSpec)],
        tell: impl Fn(Vec<Op>) -> Result<Vec<Res>, Errno>,
    ) {
        let mut left = all;
        while !left.is_empty() {
            let some = &left[..left.len().min(CLOSES_PER_MESSAGE)];
            let ops = some.iter().map(|(fid, time)| read_at(*fid, *time)).collect();
            let told = match tell(ops) {
                // The last one may have failed: its inode is gone. None after that was run.
                Ok(results) if !results.is_empty() => results.len(),
                // They are told another time.
                _ => return,
            };
            let (told, rest) = left.split_at(told.min(some.len()));
            told.iter().for_each(|(fid, time)| self.looks.told(*fid, *time));
            left = rest;
        }
    }
}
