//! Files that any rank may copy, in the order of the walk: our own threads take them by tickets, one for each
//! file, and the manager takes some for others. Who is free first has the next.

use super::super::dispatch;
use super::super::links::Met;
use super::super::options::Clobber;
use super::super::run::{Item, Run};
use super::message::Outcome;
use super::wire::NAME_MOST;
use crate::engine::{Engine, Held, TASKS_WAITING};
use parking_lot::{Condvar, Mutex};
use rustix::fs::{AtFlags, CWD};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Files that may wait; the walk waits when there are more. As many tickets can wait in the engine.
const QUEUE_MOST: usize = TASKS_WAITING;
/// After that long without room the walk copies a file itself: nobody else may be there to do it.
const ROOM_WAIT: Duration = Duration::from_millis(100);

/// A file on its way to whoever is free.
pub struct Waiting {
    pub item: Item,
    /// Another rank may have begun it.
    pub anew: bool,
    /// Until it is done, the engine is not drained.
    _held: Held,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Waiting>,
    /// Tickets the engine has; never fewer than files wait, unless there is one thread only.
    tickets: usize,
}

/// What the traversal and the manager share.
#[derive(Default)]
pub struct Far {
    state: Mutex<State>,
    room: Condvar,
    /// No other rank takes any more.
    closed: AtomicBool,
    /// Everything is done: the other ranks are to end.
    ending: AtomicBool,
}

/// Takes a file of a fresh directory that any rank can copy as well; gives back what none but us can.
pub fn offer(run: &Arc<Run>, mut item: Item, met: Option<Met>) -> Option<(Item, Option<Met>)> {
    let Some(far) = &run.far else { return Some((item, met)) };
    let split = run.engine.settings().split_size;
    // Of larger files the chunks are handed out.
    let whole = item.st.is_file() && (split == 0 || item.st.size <= split);
    let short = [&item.src, &item.dst].iter().all(|path| path.as_os_str().len() <= NAME_MOST);
    let again = matches!(met, Some(Met::Again(_)));
    if !whole || !short || again || unsure(run) || far.closed.load(Ordering::Relaxed) {
        return Some((item, met));
    }
    if let Some(Met::First(first)) = met {
        item.first = Some(first);
    }
    far.push(run, item);
    None
}

/// With a journal and one of these, a file that another rank has begun, and the journal does not know as
/// made, would be taken for somebody's by a later run.
fn unsure(run: &Run) -> bool {
    let o = &run.options;
    run.journal.is_some() && (o.clobber != Clobber::Always || o.update || o.backup.on())
}

impl Far {
    fn push(self: &Arc<Self>, run: &Arc<Run>, item: Item) {
        let waiting = Waiting { item, anew: false, _held: run.engine.hold() };
        let alone = run.engine.settings().threads == 1;
        let mut state = self.state.lock();
        while state.queue.len() >= QUEUE_MOST {
            let late = !alone && self.room.wait_for(&mut state, ROOM_WAIT).timed_out();
            if (alone || late)
                && let Some(first) = state.queue.pop_front()
            {
                drop(state);
                here(run, first);
                state = self.state.lock();
            }
        }
        state.queue.push_back(waiting);
        drop(state);
        self.issue(run);
    }

    /// A ticket for each file that waits.
    fn issue(self: &Arc<Self>, run: &Arc<Run>) {
        if run.engine.settings().threads == 1 {
            return;
        }
        loop {
            let mut state = self.state.lock();
            if state.tickets >= state.queue.len() {
                return;
            }
            state.tickets += 1;
            drop(state);
            let (far, for_run) = (self.clone(), run.clone());
            let ticket = Box::new(move |_: &Engine| {
                let first = {
                    let mut state = far.state.lock();
                    state.tickets -= 1;
                    state.queue.pop_front()
                };
                if let Some(first) = first {
                    far.room.notify_one();
                    here(&for_run, first);
                }
            });
            run.engine.submit(None, ticket);
        }
    }

    /// Files for another rank.
    pub fn take(&self, most: usize, sharers: usize, mut bytes: u64) -> Vec<Waiting> {
        let mut state = self.state.lock();
        // Near the end, nobody shall have many while others have none.
        let most = most.min(state.queue.len().div_ceil(sharers.max(1)));
        let mut taken = Vec::new();
        while taken.len() < most
            && let Some(first) = state.queue.pop_front()
        {
            let size = first.item.st.size;
            taken.push(first);
            if size >= bytes {
                break;
            }
            bytes -= size;
        }
        drop(state);
        if !taken.is_empty() {
            self.room.notify_all();
        }
        taken
    }

    /// Takes back what a rank has not done.
    pub fn again(self: &Arc<Self>, run: &Arc<Run>, lost: Vec<Waiting>) {
        let mut state = self.state.lock();
        for mut waiting in lost.into_iter().rev() {
            waiting.anew = true;
            state.queue.push_front(waiting);
        }
        drop(state);
        self.issue(run);
    }

    /// No other rank is left: what waits is done here.
    pub fn close(&self, run: &Arc<Run>) {
        self.closed.store(true, Ordering::Relaxed);
        if run.engine.settings().threads > 1 {
            return;
        }
        loop {
            let first = self.state.lock().queue.pop_front();
            let Some(first) = first else { return };
            self.room.notify_one();
            here(run, first);
        }
    }

    pub fn end(&self) {
        self.ending.store(true, Ordering::Release);
    }

    pub fn ending(&self) -> bool {
        self.ending.load(Ordering::Acquire)
    }
}

/// Copies a file in this thread.
pub fn here(run: &Arc<Run>, waiting: Waiting) {
    let Waiting { item, anew, _held } = waiting;
    if anew {
        // What another rank left of it is not ours to write into: it may still be writing.
        let _ = rustix::fs::unlinkat(CWD, &item.dst, AtFlags::empty());
    }
    dispatch::copy_here(run, item);
}

/// Copies a file that another rank may have begun.
pub fn here_anew(run: &Arc<Run>, waiting: Waiting) {
    here(run, Waiting { anew: true, ..waiting });
}

/// A file that another rank has copied, or could not.
pub fn done(run: &Run, mut waiting: Waiting, end: super::message::FileEnd) {
    let item = &mut waiting.item;
    item.notes.add(end.lines);
    if end.failed {
        item.notes.fail();
    }
    if let Some(copied) = &end.copied {
        run.counts.file(copied);
        run.counts.elsewhere(1, copied.bytes, copied.moved);
    }
    let Waiting { item, _held, .. } = waiting;
    match end.outcome {
        Outcome::Done => item.done(run),
        Outcome::Failed | Outcome::Unseen(_) => item.failed(run),
    }
}
