//! Writes among others whose effect on size and times is told late.
//!
//! Role: of a file that others have open, too, the bytes of each write go through to the OSTs before it
//! returns, or wait where nobody else comes ([`crate::lockahead`]). What it did to size and times is kept here
//! under `LS_LATE` and told in one report: when the MDT calls the lease back, because somebody looks at the
//! file or sets something of it; before a change made here; at fsync and close; and with a later write, so
//! that a writer that is left alone hears of it.
//! Assumptions: while this client has the file open for writing its inode is marked, so that sizes
//! are asked of the OSTs whatever the MDT was told; a mark is durable before the first byte is written.
//! Never does: tell of bytes that no OST has; of a size that another has cut since: who cuts calls the lease back first
//! (invariant 3).

use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use proto::mds::{LS_LATE, Op, Res, SizeReport};
use proto::{Attr, Errno, TimeSpec};

use crate::core::{Core, now};
use crate::inode::{AsOf, Inode, Place, State};
use crate::mdt::last;

/// A writer tells of a write itself when it has not done so for that long.
pub(crate) const TOLD_EVERY: Duration = Duration::from_millis(250);
/// Telling of a write that made nothing longer asks for the right to tell late when none did for that long.
pub(crate) const ASKED_EVERY: Duration = Duration::from_millis(20);

/// What writes among others did to a file, and the MDT was not told yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unsaid {
    /// Behind their last byte.
    pub(crate) end: u64,
    /// When the newest of them was.
    pub(crate) mtime: TimeSpec,
}

impl Unsaid {
    fn with(self, other: Option<Unsaid>) -> Unsaid {
        let Some(other) = other else { return self };
        Unsaid { end: self.end.max(other.end), mtime: self.mtime.max(other.mtime) }
    }

    /// What the MDT would say if it knew: of a time that was set by hand to one to come, too, which gives
    /// way.
    pub(crate) fn show(self, attr: &mut Attr) {
        attr.size = attr.size.max(self.end);
        if attr.mtime < self.mtime || attr.mtime > attr.ctime {
            attr.mtime = self.mtime;
        }
        attr.ctime = attr.ctime.max(self.mtime);
    }
}

impl State {
    /// A report that also tells what was to be told late, which is [`State::said`] once it was answered.
    pub(crate) fn with_late(&self, report: Option<SizeReport>) -> Option<SizeReport> {
        let Some(late) = self.to_say() else { return report };
        let none = SizeReport { size: 0, exact: false, blocks: None, mtime: None, atime: None };
        let mut report = report.unwrap_or(none);
        if !report.exact {
            report.size = report.size.max(late.end);
        }
        report.mtime = Some(report.mtime.map_or(late.mtime, |t| t.max(late.mtime)));
        Some(report)
    }

    /// What of it can be told now: a size never promises bytes that the objects do not have.
    pub(crate) fn to_say(&self) -> Option<Unsaid> {
        let partial = self.is_partial();
        self.unsaid.map(|late| if partial { Unsaid { end: 0, ..late } } else { late })
    }

    /// A write of this client among others is done, and to be told late.
    pub(crate) fn wrote_among_others(&mut self, late: Unsaid) {
        self.size = self.size.max(late.end);
        (self.unsynced, self.blocks_due) = (true, true);
        self.blocks.fill(None);
        self.changes += 1;
        self.unsaid = Some(late.with(self.unsaid));
    }

    /// What was written behind among others has come to its OSTs, which say that it was written now: the MDT is to say no less.
    pub(crate) fn landed_among_others(&mut self) {
        self.unsaid = Some(Unsaid { end: 0, mtime: now() }.with(self.unsaid));
    }

    /// The MDT knows it. More may have been written meanwhile.
    pub(crate) fn said(&mut self, late: Option<Unsaid>) {
        if self.unsaid == late {
            self.unsaid = None;
        }
    }
}

impl Core {
    /// Whether a write up to `end`, which the OSTs have taken, is told later.
    pub(crate) fn tells_late(&self, inode: &Inode, end: u64) -> bool {
        let mut st = inode.st.lock();
        // What is told as the whole truth would undo this, if it overtook. Who tells it waits for nobody.
        while st.exactly {
            inode.landed.wait(&mut st);
        }
        let lately = st.told_at.is_some_and(|at| at.elapsed() < TOLD_EVERY);
        let objects = matches!(st.place, Place::Striped(_));
        // Asked under this lock: a call-back takes the lease first, and then what is noted here.
        if !lately || !objects || !self.leases.has(inode.fid, LS_LATE) {
            return false;
        }
        st.wrote_among_others(Unsaid { end, mtime: now() });
        true
    }

    /// What was to be told late is told now. Waits for nothing but the MDT's answer, which waits for
    /// nobody: of a file that this client writes others have nothing to be called back.
    pub(crate) fn tell_late(&self, inode: &Inode) -> Result<(), Errno> {
        let late = {
            let mut st = inode.st.lock();
            loop {
                let Some(late) = st.to_say() else { return Ok(()) };
                if !std::mem::replace(&mut st.saying, true) {
                    break late;
                }
                inode.landed.wait(&mut st);
            }
        };
        let (size, mtime) = (late.end, Some(late.mtime));
        let report = SizeReport { size, exact: false, blocks: None, mtime, atime: None };
        self.leases.changing(inode.fid);
        let life = self.life.load(SeqCst);
        let told = self.mdt.past(vec![Op::Report { fid: inode.fid, report }]).and_then(last);
        self.leases.change_ended(inode.fid, false);
        let mut st = inode.st.lock();
        st.saying = false;
        let told = match told {
            Ok(Res::Attr { attr }) => {
                // Whoever asked here before, and is answered later, gets what it was before.
                st.changed_as_of(AsOf { life, version: attr.version });
                Ok(())
            }
            Err(Errno::ENOENT | Errno::ESTALE) => Ok(()),
            Ok(_) => Err(Errno::EPROTO),
            Err(e) => Err(e),
        };
        if told.is_ok() {
            st.said(Some(late));
        }
        drop(st);
        inode.landed.notify_all();
        told
    }
}
