//! The client's own threads: sending, committing, closing, ageing.
//!
//! Role: what callers need not wait for. Every queue here is bounded: files are queued once at
//! most for sending and once for committing (asked for, or answered), closes by [`CLOSES_MAX`].

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, bounded, select};
use proto::mds::{Op, Res};
use proto::{Errno, Fid, MAX_BODY};

use crate::budget::Held;
use crate::commit::Answered;
use crate::core::Core;
use crate::inode::{Inode, Place};
use crate::late::Unsaid;
use crate::local::Late;
use crate::mdt::own_cred;
use crate::tell::Telling;

/// The log of metadata is sent at the latest after this long.
const FLUSH_EVERY: Duration = Duration::from_millis(500);
/// Closes that may wait; more make their callers wait.
pub(crate) const CLOSES_MAX: usize = 4096;
/// Closes in one message.
pub(crate) const CLOSES_PER_MESSAGE: usize = 64;
/// How long a close waits for others to share its message.
const LINGER: Duration = Duration::from_millis(2);
/// Ticks between two looks at old dirty data.
pub(crate) const TICKS_PER_EXPIRE: u32 = 5;

/// Ticks after which what OSTs have taken is committed without anybody asking: as long as the kernel
/// keeps a local file system's pages, so that files written and closed share their commits.
pub(crate) const TICKS_UNSTABLE: u64 = 6 * TICKS_PER_EXPIRE as u64;

/// Work for the senders.
pub(crate) enum Task {
    Push(Arc<Inode>),
    /// Asks for a commit that nobody waits for, ...
    Commit(Arc<Inode>),
    /// ... which was answered.
    Committed(Arc<Inode>, Answered),
    /// The layer above must drop what it caches of a file.
    Forget(Fid),
    Stop,
}

/// Work for the closer.
pub(crate) enum Closing {
    /// A handle to close, or (None) an access time to tell.
    File(Arc<Inode>, Option<u64>),
    /// Closes that could wait have waited enough.
    Late,
    /// Answers when everything before is done.
    Barrier(Sender<()>),
    Stop,
}

/// Runs tasks until told to stop.
pub(crate) fn work(core: &Arc<Core>, tasks: &Receiver<Task>) {
    for task in tasks {
        match task {
            Task::Push(inode) => {
                // What a lost OST does not take would keep this thread from all that others take. It goes
                // when that is back.
                let lacks = core.lacks_osts_of(&inode);
                let all = {
                    let mut st = inode.st.lock();
                    st.queued = false;
                    if lacks { st.push_all } else { std::mem::take(&mut st.push_all) }
                };
                if !lacks {
                    core.push(&inode, all, None);
                }
                if core.has_inline(&inode)
                    && let Err(e) = core.tell(&inode, false, false)
                {
                    tracing::warn!(fid = %inode.fid, error = %e, "inline data stays dirty");
                }
                core.registry.rest(&inode);
            }
            Task::Commit(inode) => core.commit_behind(&inode),
            Task::Committed(inode, answered) => core.committed_behind(&inode, answered),
            Task::Forget(fid) => core.announce(|l| l.forget(fid)),
            Task::Stop => return,
        }
    }
}

/// Sends the log: when it is long, and all of it within a second; until the client stops. Files that were removed, or
/// are idle for long, go meanwhile.
pub(crate) fn flush(core: &Arc<Core>, wake: &Receiver<()>, stop: &Receiver<()>) {
    loop {
        select! {
            recv(wake) -> _ => {}
            recv(stop) -> _ => return,
            default(FLUSH_EVERY) => {}
        }
        if core.mdt.flush().is_err() {
            tracing::debug!("the MDT takes nothing");
        }
        core.tell_old_looks();
        core.note_lost();
        core.registry.trim().into_iter().for_each(|fid| core.leases.gone(fid));
    }
}

/// Sends what got old, until the client stops.
pub(crate) fn age(core: &Arc<Core>, stop: &Receiver<()>) {
    let pause = (core.options.dirty_expire / TICKS_PER_EXPIRE).max(Duration::from_millis(10));
    let mut heard = true;
    while stop.recv_timeout(pause).is_err_and(|e| e.is_timeout()) {
        // Also after the machine slept: the kernel's clock stood still meanwhile.
        if std::mem::replace(&mut heard, core.leases.left().is_some()) && !heard {
            core.announce(|l| l.doubted());
        }
        let tick = core.tick.fetch_add(1, SeqCst) + 1;
        core.age_local(tick);
        core.space.look(core.counters.space_changes(), tick);
        if tick.is_multiple_of(u64::from(TICKS_PER_EXPIRE)) {
            crate::slab::trim();
        }
        if core.budget.held() == Held::default() {
            continue;
        }
        for inode in core.registry.all() {
            let mut st = inode.st.lock();
            let old = |since: u64| since + u64::from(TICKS_PER_EXPIRE) <= tick;
            if st.dirty_since.is_some_and(old) {
                st.dirty_since = Some(tick);
                st.push_all = true;
                core.want_push(&inode, &mut st);
            }
            if st.unstable.is_empty() {
                st.unstable_since = None;
            } else if st.unstable_since.is_some_and(|since| since + TICKS_UNSTABLE <= tick) {
                st.unstable_since = Some(tick);
                core.want_commit(&inode, &mut st);
            }
        }
    }
}

/// One file to close, or (without a handle) to report.
struct Item {
    inode: Arc<Inode>,
    handle: Option<u64>,
    telling: Option<Telling>,
    late: Option<Unsaid>,
    wrote: bool,
    reports: bool,
}

/// Closes files, many in one message, until told to stop.
pub(crate) fn close(core: &Arc<Core>, closings: &Receiver<Closing>) {
    let mut waiting: VecDeque<Late> = VecDeque::new();
    while let Ok(first) = closings.recv() {
        let few = closings.len() < CLOSES_PER_MESSAGE;
        if matches!(first, Closing::File(..)) && few && core.caching() {
            std::thread::sleep(LINGER);
        }
        let (mut barriers, mut stop) = (Vec::new(), false);
        for closing in std::iter::once(first).chain(closings.try_iter().take(CLOSES_MAX)) {
            match closing {
                Closing::File(inode, handle) => waiting.push_back((inode, handle)),
                Closing::Late => waiting.extend(core.take_late()),
                Closing::Barrier(done) => barriers.push(done),
                Closing::Stop => stop = true,
            }
        }
        while !waiting.is_empty() {
            let until = Instant::now() + core.options.request_timeout;
            close_batch(core, batch(core, &mut waiting), Road::Log, until);
        }
        for done in barriers {
            let _ = done.send(());
        }
        if stop {
            return;
        }
    }
}

/// How a message goes: after the log, as all others, or past what waits.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Road {
    Log,
    Past,
}

/// What goes in one message: each file once, and files of this client alone only with their like: the
/// others' may wait at the MDT for somebody who waits for these.
pub(crate) fn batch(core: &Core, waiting: &mut VecDeque<Late>) -> Vec<Late> {
    let mut batch: Vec<Late> = Vec::new();
    let (mut again, mut kind) = (Vec::new(), None);
    while batch.len() < CLOSES_PER_MESSAGE
        && let Some(next) = waiting.pop_front()
    {
        let owned = core.owns(&next.0.st.lock());
        let twice = batch.iter().any(|(inode, _)| Arc::ptr_eq(inode, &next.0));
        match twice || *kind.get_or_insert(owned) != owned {
            true => again.push(next),
            false => batch.push(next),
        }
    }
    for next in again.into_iter().rev() {
        waiting.push_front(next);
    }
    batch
}

/// Lost OSTs are waited for until then.
pub(crate) fn close_batch(core: &Arc<Core>, mut batch: Vec<Late>, road: Road, until: Instant) {
    // Several threads hold the right to talk of several files: all take it in the same order.
    batch.sort_by_key(|(inode, _)| inode.fid);
    let mut waiting = VecDeque::new();
    for (inode, handle) in batch {
        let busy = {
            let st = inode.st.lock();
            !st.dirty.is_empty() || !st.flight.is_empty()
        };
        if busy && let Err(e) = core.drain_by(&inode, until) {
            tracing::debug!(fid = %inode.fid, error = %e, "what was written is not all there");
        }
        core.options.pauses.point();
        let cut = !inode.st.lock().cut.is_empty();
        if cut && let Err(e) = core.commit(&inode) {
            // The report may end the mark: after a crash bytes beyond the size could come back.
            tracing::warn!(fid = %inode.fid, error = %e, "a shortened file is not durable yet");
        }
        // By itself: a call-back may wait for it, and what goes with others may wait for others' leases.
        if let Err(e) = core.tell_late(&inode) {
            tracing::debug!(fid = %inode.fid, error = %e, "what was written is told with the close");
        }
        if let Err(e) = core.learn_blocks(&inode, handle.is_some()) {
            tracing::debug!(fid = %inode.fid, error = %e, "blocks stay unknown");
        }
        let (wrote, reports) = (false, false);
        waiting.push_back(Item { inode, handle, telling: None, late: None, wrote, reports });
    }
    while !waiting.is_empty() {
        let mut sent: Vec<Item> = Vec::new();
        let (mut ops, mut bytes) = (Vec::new(), 0);
        while let Some(mut item) = waiting.pop_front() {
            let before = ops.len();
            let telling = Telling::begin(core, &item.inode, &mut ops);
            item.wrote = ops.len() > before;
            bytes += ops[before..].iter().map(size_of_op).sum::<usize>();
            let (fid, handle) = (item.inode.fid, item.handle);
            let report = {
                let st = item.inode.st.lock();
                item.late = st.to_say();
                st.with_late(telling.report())
            };
            item.reports = handle.is_some() || report.is_some();
            match (handle, report) {
                (Some(handle), report) => ops.push(Op::Close { fid, handle, report }),
                (None, Some(report)) => ops.push(Op::Report { fid, report }),
                (None, None) => {}
            }
            item.telling = Some(telling);
            sent.push(item);
            if bytes > MAX_BODY as usize / 2 {
                break;
            }
        }
        let results = match ops.is_empty() {
            true => Ok(Vec::new()),
            false if road == Road::Past => core.mdt.past(ops),
            false => core.mdt.compound(&own_cred(), ops),
        };
        for again in closed(core, sent, results).into_iter().rev() {
            waiting.push_front(again);
        }
    }
}

fn size_of_op(op: &Op) -> usize {
    match op {
        Op::WriteInline { data, .. } => data.len() + 64,
        _ => 128,
    }
}

/// Takes the results of a compound of closes; those it did not come to.
fn closed(core: &Arc<Core>, sent: Vec<Item>, results: Result<Vec<Res>, Errno>) -> Vec<Item> {
    let (results, lost) = match results {
        Ok(results) => (results, None),
        Err(e) => (Vec::new(), Some(e)),
    };
    let mut results = results.into_iter();
    let mut again = Vec::new();
    let mut ended = false;
    for mut item in sent {
        let Some(mut telling) = item.telling.take() else { continue };
        if ended {
            drop(telling);
            again.push(item);
            continue;
        }
        let mut failed = lost;
        if item.wrote {
            match results.next() {
                Some(Res::Attr { attr }) => telling.inline_done(core, &attr),
                other => failed = failed.or(Some(failure(other))),
            }
            if let Some(e) = failed {
                inline_lost(core, &item.inode, &mut telling, e);
                if lost.is_none() {
                    // The close itself is still to be done, without the data.
                    if let Some(handle) = item.handle {
                        core.mention(Op::Close { fid: item.inode.fid, handle, report: None });
                    }
                    ended = true;
                }
            }
        }
        if failed.is_none() && item.reports {
            match results.next() {
                Some(Res::Attr { attr }) => {
                    telling.report_done(&attr);
                    item.inode.st.lock().said(item.late);
                }
                // An open the MDT never knew, of a file that was not changed.
                Some(Res::Done {}) => {}
                other => {
                    tracing::debug!(fid = %item.inode.fid, error = %failure(other), "close");
                    // Gone: its access time interests nobody.
                    item.inode.st.lock().atime = None;
                    ended = true;
                }
            }
        }
        drop(telling);
        {
            let mut st = item.inode.st.lock();
            if let Some(handle) = item.handle {
                st.opens -= 1;
                st.handles.retain(|(h, _)| *h != handle);
            }
        }
        // It is closed here: the MDT must not keep it open for as long as this client lives.
        if let Some(handle) = item.handle.filter(|_| lost.is_some()) {
            core.mdt.close_at_last(item.inode.fid, handle);
        }
        core.registry.rest(&item.inode);
    }
    again
}

/// Inline data of a closed file did not arrive: it is kept, tried again, and told at syncfs.
fn inline_lost(core: &Arc<Core>, inode: &Arc<Inode>, telling: &mut Telling, errno: Errno) {
    telling.inline_failed(core, errno);
    if matches!(errno, Errno::ENOENT | Errno::ESTALE) {
        return;
    }
    if errno == Errno::EFBIG {
        // It has objects now: who tells it alone finds that out.
        let mut st = inode.st.lock();
        return core.want_push(inode, &mut st);
    }
    tracing::warn!(fid = %inode.fid, error = %errno, "data of a closed file is not stored yet");
    core.careful.store(true, Relaxed);
    *core.failed.lock() = Some(errno);
    inode.st.lock().fail(errno);
}

fn failure(res: Option<Res>) -> Errno {
    match res {
        Some(Res::Failed { errno }) => Errno(errno.into()),
        _ => Errno::EPROTO,
    }
}

impl Core {
    fn has_inline(&self, inode: &Inode) -> bool {
        matches!(&inode.st.lock().place, Place::Inline(i) if i.dirty.is_some())
    }

    /// Waits until every close so far has reached the MDT.
    pub(crate) fn closed_all(&self) {
        let (done, wait) = bounded(1);
        self.hurry();
        if self.closings.send(Closing::Barrier(done)).is_ok() {
            let _ = wait.recv();
        }
    }
}
