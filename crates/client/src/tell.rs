//! Telling the MDT what was done to a file's data: inline bytes, sizes, times; fsync and close.
//!
//! Role: one teller per file at a time ([`crate::talk`]), so that an older report never
//! overtakes a newer one. What was told is forgotten here only if nothing newer came meanwhile.

use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::time::Instant;

use bytes::Bytes;
use proto::mds::{Op, Res, SizeReport};
use proto::{Attr, Errno, Fid, MAX_FILE_SIZE};

use crate::core::Core;
use crate::inode::{AsOf, Inode, Place, State};
use crate::mdt::own_cred;
use crate::promises::Caller;
use crate::talk::{Talk, talk};

/// Files whose commits are on their way at the same time when all are synced (invariant 8).
const COMMITS_AT_ONCE: usize = 64;

/// What is being told of one file.
pub(crate) struct Telling {
    pub(crate) talk: Talk,
    changes: u64,
    own_changes: u64,
    /// Cache epoch, and session with the MDT, when it was begun.
    epoch: u64,
    life: u64,
    /// The report leaves the size out.
    partial: bool,
    /// The inline range on its way.
    inline: Option<(u64, u64)>,
    report: Option<SizeReport>,
}

impl Telling {
    /// Takes what is to be told; operations for it are added to `ops`. A report is left to the
    /// caller (it may ride on a close).
    pub(crate) fn begin(core: &Core, inode: &Arc<Inode>, ops: &mut Vec<Op>) -> Telling {
        core.options.pauses.point();
        let talk = talk(inode);
        let (epoch, life) = (core.epoch(), core.life.load(SeqCst));
        let mut guard = inode.st.lock();
        let st = &mut *guard;
        let mut inline_sent = None;
        if let Place::Inline(inline) = &mut st.place
            && let Some((a, b)) = inline.dirty.take()
        {
            let data = inline.data.get(a as usize..b as usize).unwrap_or(&[]);
            let data = Bytes::copy_from_slice(data);
            let fid = inode.fid;
            ops.push(Op::WriteInline { fid, offset: a, data, cut: None, mtime: st.mtime });
            inline_sent = Some((a, b));
            st.sending = inline_sent;
        }
        let partial = st.is_partial();
        let mut report = st.report(core.owns(st));
        if inline_sent.is_some() {
            // The write carries the time of the data already.
            report = report.filter(|r| r.atime.is_some());
            if let Some(r) = &mut report {
                r.mtime = None;
            }
        }
        st.exactly = report.as_ref().is_some_and(|r| r.exact);
        let (changes, own_changes) = (st.changes, st.own_changes);
        drop(guard);
        core.options.pauses.point();
        Telling { talk, changes, own_changes, epoch, life, partial, inline: inline_sent, report }
    }

    /// The report that goes with this.
    pub(crate) fn report(&self) -> Option<SizeReport> {
        self.report.clone()
    }

    /// The MDT took the inline bytes.
    pub(crate) fn inline_done(&mut self, core: &Core, attr: &Attr) {
        let mut guard = self.talk.0.st.lock();
        let st = &mut *guard;
        st.unsynced = true;
        (self.inline, st.sending) = (None, None);
        if let Place::Inline(inline) = &mut st.place {
            inline.stored = !inline.data.is_empty();
        }
        st.changed_as_of(AsOf { life: self.life, version: attr.version });
        st.learn(attr, self.epoch);
        if st.changes == self.changes {
            st.mtime = None;
            st.dirty_since = None;
        }
        st.account(&core.budget);
    }

    /// The MDT took the report.
    pub(crate) fn report_done(&mut self, attr: &Attr) {
        let mut st = self.talk.0.st.lock();
        st.unsynced = true;
        st.changed_as_of(AsOf { life: self.life, version: attr.version });
        let Some(report) = self.report.take() else { return };
        st.learn(attr, self.epoch);
        if self.partial {
            st.unreported = true;
        } else if st.changes == self.changes {
            st.mtime = None;
            st.unreported = false;
            st.blocks_due &= report.blocks.is_none();
        } else if !report.exact && st.own_changes == self.own_changes {
            // Writes among others tell themselves. Told again later, the size could undo what another
            // has cut off since.
            (st.mtime, st.unreported) = (None, false);
        }
        if st.atime == report.atime {
            st.atime = None;
        }
    }
}

impl Telling {
    /// The inline bytes did not arrive: they are dirty again, unless the file is gone.
    pub(crate) fn inline_failed(&mut self, core: &Core, errno: Errno) {
        let Some((a, b)) = self.inline.take() else { return };
        let mut guard = self.talk.0.st.lock();
        let st = &mut *guard;
        st.sending = None;
        if matches!(errno, Errno::ENOENT | Errno::ESTALE) {
            st.mtime = None;
            st.unreported = false;
        } else if let Place::Inline(inline) = &mut st.place {
            let end = inline.data.len() as u64;
            let (lo, hi) = inline.dirty.unwrap_or((a, b));
            inline.dirty = Some((lo.min(a).min(end), hi.max(b).min(end))).filter(|(a, b)| a < b);
            st.dirty_since.get_or_insert(core.tick_now());
        }
        st.account(&core.budget);
    }
}

impl Telling {
    /// The report was refused. What is to be told of a file that is gone interests nobody any more.
    pub(crate) fn report_failed(&mut self, errno: Errno) {
        if matches!(errno, Errno::ENOENT | Errno::ESTALE) {
            let mut st = self.talk.0.st.lock();
            (st.mtime, st.atime) = (None, None);
            (st.unreported, st.blocks_due) = (false, false);
        }
    }
}

impl Drop for Telling {
    fn drop(&mut self) {
        // Lost on the way without an answer: dirty again.
        if let Some((a, b)) = self.inline.take() {
            let mut st = self.talk.0.st.lock();
            st.sending = None;
            if let Place::Inline(inline) = &mut st.place {
                let (lo, hi) = inline.dirty.unwrap_or((a, b));
                inline.dirty = Some((lo.min(a), hi.max(b)));
            }
        }
    }
}

impl Core {
    /// Blocks of a written file that are not known are asked for; those of one that others may write,
    /// too, when it is closed (`last`).
    pub(crate) fn learn_blocks(
        self: &Arc<Core>,
        inode: &Arc<Inode>,
        last: bool,
    ) -> Result<(), Errno> {
        let (layout, attr, changes) = {
            let st = inode.st.lock();
            let wanted = st.unreported || (last && st.blocks_due);
            match &st.place {
                Place::Striped(l) if wanted && st.blocks_known().is_none() => {
                    (l.clone(), st.attr.clone(), st.changes)
                }
                _ => return Ok(()),
            }
        };
        let seen = self.glimpse(&layout, &attr)?;
        let mut st = inode.st.lock();
        if st.changes == changes {
            st.blocks = seen.blocks;
        }
        Ok(())
    }

    /// Sends inline data and, when `report`, size and times; with `sync` waits for durability.
    pub(crate) fn tell(
        self: &Arc<Core>,
        inode: &Arc<Inode>,
        report: bool,
        sync: bool,
    ) -> Result<(), Errno> {
        if report {
            self.tell_late(inode)?;
            self.learn_blocks(inode, false)?;
        }
        let mut ops = Vec::new();
        let mut telling = Telling::begin(self, inode, &mut ops);
        let wrote = !ops.is_empty();
        let reports = telling.report().filter(|_| report);
        if let Some(r) = &reports {
            ops.push(Op::Report { fid: inode.fid, report: r.clone() });
        }
        // Always asked: names, owners and attributes may have been changed by other paths than
        // this file's, and the MDT answers at once when nothing waits.
        let syncs = sync;
        if syncs {
            ops.push(Op::Sync {});
        }
        if ops.is_empty() {
            return Ok(());
        }
        let results = match self.mdt.compound(&own_cred(), ops) {
            Ok(results) => results,
            Err(e) => {
                telling.inline_failed(self, e);
                return Err(e);
            }
        };
        let mut results = results.into_iter();
        if wrote {
            match results.next() {
                Some(Res::Attr { attr }) => telling.inline_done(self, &attr),
                other => {
                    let e = errno_of(other);
                    telling.inline_failed(self, e);
                    self.careful.store(true, Relaxed);
                    drop(telling);
                    if e == Errno::EFBIG && self.outgrown(inode)? {
                        return self.tell(inode, report, sync);
                    }
                    return Err(e);
                }
            }
        }
        if reports.is_some() {
            match results.next() {
                Some(Res::Attr { attr }) => telling.report_done(&attr),
                other => {
                    let e = errno_of(other);
                    telling.report_failed(e);
                    return Err(e);
                }
            }
        }
        if syncs {
            match results.next() {
                Some(Res::Done {}) => inode.st.lock().unsynced = false,
                other => return Err(errno_of(other)),
            }
        }
        Ok(())
    }

    /// The MDT no longer holds the data of a file that is inline here: after its restart another client
    /// gave it objects. What is here goes to them; whether it was so.
    fn outgrown(self: &Arc<Core>, inode: &Arc<Inode>) -> Result<bool, Errno> {
        self.load_now(inode)?;
        let moved = matches!(inode.st.lock().place, Place::Striped(_));
        if moved {
            self.drain(inode)?;
        }
        Ok(moved)
    }

    /// fsync or fdatasync of a file. Errors of write-behind are the caller's to look up.
    pub(crate) fn fsync(self: &Arc<Core>, inode: &Arc<Inode>, datasync: bool) -> Result<(), Errno> {
        let until = Instant::now() + self.options.request_timeout;
        if datasync && self.push_stable(inode) {
            // Names, owners and attributes meanwhile: the MDT answers at once when nothing of it waits.
            let told = self.tell(inode, false, true);
            let _told_by_the_file = self.drain_by(inode, until);
            let durable = self.commit(inode);
            self.note_lost();
            return durable.and(told);
        }
        let _told_by_the_file = self.drain_by(inode, until);
        // The OSTs and the MDT write to their disks at the same time: after a crash before this ends either may have done
        // so, as after one that comes behind a close.
        let commit = self.begin_commit(inode);
        let report = {
            let st = inode.st.lock();
            !datasync || st.attr.size != st.size || !self.owns(&st)
        };
        let told = self.tell(inode, report, true);
        let durable = self.end_commit(inode, commit);
        self.note_lost();
        durable.and(told)
    }

    /// syncfs: everything of this client is durable; the first error met.
    pub(crate) fn sync_all(self: &Arc<Core>, caller: Option<Caller>) -> Result<(), Errno> {
        self.closed_all();
        let dirty = self.registry.unclean();
        for inode in &dirty {
            self.push(inode, true, None);
        }
        let until = Instant::now() + self.options.request_timeout;
        let mut outcome = Ok(());
        for inode in &dirty {
            outcome = outcome.and(self.drain_by(inode, until));
        }
        for some in dirty.chunks(COMMITS_AT_ONCE) {
            let begun: Vec<_> = some.iter().map(|inode| self.begin_commit(inode)).collect();
            for (inode, commit) in some.iter().zip(begun) {
                let durable = self.end_commit(inode, commit);
                outcome = outcome.and(durable.and_then(|()| self.tell(inode, true, false)));
            }
        }
        self.tell_looks();
        // An MDT that can be asked also sees to what others did. Who unmounts, or syncs the whole machine, does not wait for
        // one that is lost and lacks nothing.
        let synced = match !self.mdt.session.is_connected() && self.mdt_has_all() {
            true => Ok(Res::Done {}),
            false => self.mdt.one(&own_cred(), Op::Sync {}),
        };
        self.note_lost();
        let failed = self.failed.lock().take();
        match synced {
            Ok(Res::Done {}) => {
                let promises = &self.mdt.promises;
                let nobody = || promises.check_fid(Fid::NONE);
                let lost = caller.map_or_else(nobody, |c| promises.check_caller(c));
                outcome.and(failed.map_or(Ok(()), Err)).and(lost)
            }
            Ok(_) => Err(Errno::EPROTO),
            Err(e) => Err(e),
        }
    }

    /// Whether the MDT has all that was done here, on its disk, as far as is known.
    pub(crate) fn mdt_has_all(&self) -> bool {
        self.mdt.wb.is_told() && self.mdt.promises.all_durable()
    }

    /// Cuts what memory holds of a file to `size`; `io` is held exclusively.
    pub(crate) fn cut_memory(&self, inode: &Inode, size: u64) {
        let mut guard = inode.st.lock();
        loop {
            guard.dirty.remove(size, MAX_FILE_SIZE);
            if !guard.flight.overlaps(size, MAX_FILE_SIZE) {
                break;
            }
            inode.landed.wait(&mut guard);
        }
        let st: &mut State = &mut guard;
        st.unstable.remove(size, MAX_FILE_SIZE);
        st.ahead.invalidate(size, MAX_FILE_SIZE);
        if let Place::Inline(inline) = &mut st.place {
            inline.data.truncate(size.min(inline.data.len() as u64) as usize);
            let end = inline.data.len() as u64;
            inline.dirty = inline.dirty.map(|(a, b)| (a, b.min(end))).filter(|(a, b)| a < b);
        }
        st.account(&self.budget);
    }
}

fn errno_of(res: Option<Res>) -> Errno {
    match res {
        Some(Res::Failed { errno }) => Errno(errno.into()),
        _ => Errno::EPROTO,
    }
}
