//! Opens that only this client knows of, and closes that can wait.
//!
//! Role: under a lease a file whose attributes are known is opened for reading and closed without a
//! word to the MDT. What an MDT keeps an open for (an unlinked file lives until its last
//! close) is made up for before a name is removed, before the lease goes, and when a file stays
//! open for long: it is *pinned* then, by one handle at the MDT for all its local opens.
//! Access times, and handles of files that were only read or are this client's alone among others, are
//! told late, many in one message.
//! Assumptions: while the lease stands nobody else removes names. Never does: open for writing.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use crossbeam_channel::TrySendError;
use parking_lot::Mutex;
use proto::mds::{O_NO_INLINE, O_READ, Op, Res};
use proto::{Errno, Fid, FileKind};

use crate::core::Core;
use crate::file::OpenFlags;
use crate::inode::Inode;
use crate::mdt::{last, own_cred};
use crate::worker::{CLOSES_MAX, CLOSES_PER_MESSAGE, Closing, TICKS_UNSTABLE};

/// Ticks of the client after which a file that is still open is pinned.
const LOOSE_TICKS: u64 = 2;

/// Ticks after which access times are told that nobody asked for.
const TIMES_TICKS: u64 = TICKS_UNSTABLE;

/// A handle to close, or (None) an access time to tell.
pub(crate) type Late = (Arc<Inode>, Option<u64>);

/// See the module.
#[derive(Default)]
pub(crate) struct Local {
    /// Files that are open here and not pinned; above that number only for a moment.
    loose: AtomicU64,
    /// Removals of names on their way: no file is opened here meanwhile.
    removals: AtomicU64,
    /// What can wait; at most [`CLOSES_MAX`].
    late: Mutex<Waiting>,
}

/// What can wait, and until which tick.
#[derive(Default)]
struct Waiting {
    files: Vec<Late>,
    until: u64,
}

/// To be held while names are removed.
pub(crate) struct Removal(Arc<Core>);

impl Drop for Removal {
    fn drop(&mut self) {
        self.0.local.removals.fetch_sub(1, SeqCst);
    }
}

impl Core {
    /// Opens a file without the MDT, if that is possible.
    pub(crate) fn open_here(&self, fid: Fid, flags: OpenFlags) -> Option<Arc<Inode>> {
        if flags.write || flags.trunc || !self.believes() {
            return None;
        }
        let inode = self.registry.find(fid)?;
        // Counted before removals are looked for: of an open and a removal one sees the other.
        self.local.loose.fetch_add(1, SeqCst);
        let opened = {
            let mut st = inode.st.lock();
            let known = self.opens_here(&st) && self.local.removals.load(SeqCst) == 0;
            (known && st.attr.kind() == FileKind::File && st.attr.nlink > 0).then(|| {
                st.opens += 1;
                st.locals += 1;
                let first = st.locals == 1 && st.pin.is_none();
                if first {
                    st.loose_since = self.tick_now();
                }
                first
            })
        };
        if opened != Some(true) {
            self.local.loose.fetch_sub(1, SeqCst);
        }
        opened.map(|_| inode)
    }

    /// Closes what `open_here` opened.
    pub(crate) fn close_here(&self, inode: &Arc<Inode>) {
        let late = {
            let mut st = inode.st.lock();
            st.opens -= 1;
            st.locals -= 1;
            let pin = if st.locals == 0 { st.pin.take() } else { None };
            if st.locals == 0 && pin.is_none() {
                self.local.loose.fetch_sub(1, SeqCst);
            }
            let told = pin.is_none() && (st.atime.is_none() || st.late);
            st.late |= !told;
            (!told).then_some((pin, st.attr.nlink > 0))
        };
        match late {
            Some((handle, wait)) => self.close_late(inode, handle, wait),
            None => self.registry.rest(inode),
        }
    }

    /// Closes what the MDT was not told of and that has nothing to tell but an access time.
    pub(crate) fn close_untold(&self, inode: &Arc<Inode>, handle: u64) -> bool {
        if inode.st.lock().has_changes() || !self.mdt.wb.close(inode.fid, handle) {
            return false;
        }
        let late = {
            let mut st = inode.st.lock();
            st.opens -= 1;
            st.handles.retain(|(h, _)| *h != handle);
            let told = st.atime.is_none() || st.late;
            st.late |= !told;
            !told
        };
        if late {
            self.close_late(inode, None, true)
        } else {
            self.registry.rest(inode)
        }
        true
    }

    /// Whether the close of a handle can wait: alone, of one that only read; among others, of a file
    /// that is this client's.
    pub(crate) fn can_wait(&self, inode: &Inode, wrote: bool) -> bool {
        let mut st = inode.st.lock();
        let stands = if self.caching() { !wrote } else { self.owns(&st) };
        let can = stands && st.attr.nlink > 0;
        st.late |= can;
        can
    }

    /// A handle is to be closed, or an access time told, soon, or (without `wait`) at once. Waits while
    /// [`CLOSES_MAX`] are to be closed already.
    pub(crate) fn close_late(&self, inode: &Arc<Inode>, handle: Option<u64>, wait: bool) {
        if wait && self.local.late.lock().files.len() < CLOSES_MAX {
            return if self.wait_closing(inode, handle) {
                self.hurry()
            };
        }
        inode.st.lock().late = false;
        // Fails only after the client ended, and its session with it.
        let _ = self.closings.send(Closing::File(inode.clone(), handle));
    }

    /// The same for who must not wait for the closer, which may wait for a call-back that is being answered. Beyond
    /// [`CLOSES_MAX`] there may be as many more as files are open.
    fn close_unwaiting(&self, inode: &Arc<Inode>, handle: u64) {
        let closing = Closing::File(inode.clone(), Some(handle));
        if let Err(TrySendError::Full(_)) = self.closings.try_send(closing) {
            inode.st.lock().late = true;
            self.wait_closing(inode, Some(handle));
        }
    }

    /// Keeps a close, or an access time, for later; whether those are enough for a message.
    fn wait_closing(&self, inode: &Arc<Inode>, handle: Option<u64>) -> bool {
        let mut late = self.local.late.lock();
        let until = self.tick_now() + if handle.is_some() { 0 } else { TIMES_TICKS };
        late.until = if late.files.is_empty() { until } else { late.until.min(until) };
        late.files.push((inode.clone(), handle));
        late.files.len().is_multiple_of(CLOSES_PER_MESSAGE)
    }

    /// What waits is told now.
    pub(crate) fn hurry(&self) {
        let _ = self.closings.send(Closing::Late);
    }

    /// Takes what waits.
    pub(crate) fn take_late(&self) -> Vec<Late> {
        let late = std::mem::take(&mut self.local.late.lock().files);
        for (inode, _) in &late {
            inode.st.lock().late = false;
        }
        late
    }

    /// Takes what waits of these files.
    pub(crate) fn take_late_of(&self, files: &HashSet<Fid>) -> Vec<Late> {
        let taken: Vec<Late> = {
            let mut late = self.local.late.lock();
            late.files.extract_if(.., |(inode, _)| files.contains(&inode.fid)).collect()
        };
        for (inode, _) in &taken {
            inode.st.lock().late = false;
        }
        taken
    }

    /// Once a tick: what waited long enough is told, what is open for long is pinned.
    pub(crate) fn age_local(self: &Arc<Core>, tick: u64) {
        let due = {
            let late = self.local.late.lock();
            !late.files.is_empty() && late.until <= tick
        };
        if due {
            // The closer has enough to do otherwise, and is asked again with the next tick.
            let _ = self.closings.try_send(Closing::Late);
        }
        if self.local.loose.load(SeqCst) == 0 {
            return;
        }
        for inode in self.registry.all() {
            if inode.st.lock().loose_since + LOOSE_TICKS <= tick
                && let Err(e) = self.pin(&inode)
            {
                tracing::warn!(fid = %inode.fid, error = %e, "an open file is not pinned yet");
            }
        }
    }

    /// Before names are removed: files they name that are open here only are pinned.
    pub(crate) fn removal(self: &Arc<Core>, names: &[(Fid, &[u8])]) -> Result<Removal, Errno> {
        self.local.removals.fetch_add(1, SeqCst);
        let removal = Removal(self.clone());
        if self.local.loose.load(SeqCst) == 0 {
            return Ok(removal);
        }
        for (dir, name) in names {
            let op = Op::Lookup { dir: *dir, name: name.to_vec() };
            // A name that is not there is the removal's own business.
            if let Ok(Res::Entry { attr, .. }) = self.mdt.one(&own_cred(), op)
                && let Some(inode) = self.registry.find(attr.fid)
            {
                self.pin(&inode)?;
            }
        }
        Ok(removal)
    }

    /// A file that is open here only is from now on open at the MDT too.
    pub(crate) fn pin(self: &Arc<Core>, inode: &Arc<Inode>) -> Result<(), Errno> {
        {
            let mut st = inode.st.lock();
            if st.locals == 0 || st.pin.is_some() {
                return Ok(());
            }
            // The pin's own; the closer takes it back.
            st.opens += 1;
        }
        let op = Op::Open { fid: inode.fid, flags: O_READ | O_NO_INLINE, handle: 0 };
        let answer = self.mdt.compound(&own_cred(), vec![op]).and_then(last);
        let mut st = inode.st.lock();
        let handle = match answer {
            Ok(Res::Opened { open, .. }) => open.handle,
            other => {
                st.opens -= 1;
                return Err(other.err().unwrap_or(Errno::EPROTO));
            }
        };
        st.handles.push((handle, O_READ));
        if st.locals > 0 && st.pin.is_none() {
            st.pin = Some(handle);
            self.local.loose.fetch_sub(1, SeqCst);
        } else {
            drop(st);
            self.close_unwaiting(inode, handle);
        }
        Ok(())
    }
}
