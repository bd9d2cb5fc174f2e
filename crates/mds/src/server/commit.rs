//! Groups on their way to the store: when one is cut, what waits for it, what happens when the
//! store has no room.
//!
//! Role: a group carries every change up to a transaction number (invariant 2), so groups are never
//! reordered: one that the store refuses for lack of room is kept and handed over again, with those
//! that follow it. Limits (invariant 8): [`MAX_DIRTY_RECORDS`] and [`MAX_DIRTY_BYTES`] hold
//! requests back while the store is behind. Never does: I/O, waiting.

use std::sync::Arc;
use std::time::Instant;

use proto::Errno;
use proto::mds::{Op, Res};
use store::{StoreError, Write};

use super::pace::Of;
use super::state::State;
use super::task::Task;
use crate::keys;
use crate::record;

/// Sequences reserved durably at a time.
pub const SEQUENCES: u64 = 65_536;
/// A group of this many bytes is cut without waiting for the delay.
pub const GROUP_BYTES: usize = 1 << 20;
/// Changed records above which requests that change more wait for a commit.
pub const MAX_DIRTY_RECORDS: usize = 16_384;
/// Bytes of changes above which requests that change more wait for a commit.
pub const MAX_DIRTY_BYTES: usize = 4 << 20;

/// Reckoned room below which every group makes the timer measure it.
const LOOK_BYTES: u64 = 64 << 20;

/// Refusals in a row (about 20 a second) after which those that wait for a commit get ENOSPC.
pub const REFUSALS: u32 = 60;
/// The same while the engine flushes and compacts, which makes room by itself: a busy machine may
/// take long for it.
pub const BUSY_REFUSALS: u32 = 20 * REFUSALS;

/// A group to hand to the store.
#[derive(Clone)]
pub struct Group {
    /// Its number.
    pub number: u64,
    /// Transaction numbers: those before, and its last.
    pub transnos: (u64, u64),
    /// Its writes.
    pub writes: Arc<Vec<Write>>,
}

/// A group the store has.
pub struct Flight {
    group: Group,
    refused: bool,
}

impl State {
    /// There is something to commit: a timer must run.
    pub fn arm(&mut self) {
        self.out.arm |= !std::mem::replace(&mut self.armed, true);
    }

    /// Whether the store has refused a group for lack of room.
    pub fn no_room(&self) -> bool {
        self.no_room
    }

    /// Whether it has refused so often that nobody should wait for room.
    pub fn gives_up(&self) -> bool {
        self.refusals >= BUSY_REFUSALS
    }

    fn dirty_bytes(&self) -> usize {
        self.ns.cache.dirty_bytes() + self.reply_bytes
    }

    /// Whether the target is being closed and its store is to need no logs, which takes some room.
    fn settles(&self) -> bool {
        let room = !self.ns.full && !self.no_room;
        self.closing && room && self.ns.cache.dirty() == 0 && !self.ns.cache.hot().is_empty()
    }

    /// Whether something is left to be made durable before the target is closed.
    pub fn unsettled(&self) -> bool {
        let committed = self.ns.cache.dirty() == 0 && self.flights.is_empty();
        !committed || self.settles() || !(self.tidy.is_done() || self.failed)
    }

    /// Cuts a group when somebody waits for it, or it is big enough.
    pub fn maybe_cut(&mut self) {
        let urgent = !self.waiting_commit.is_empty() && self.flights.is_empty();
        if urgent || self.big_enough() {
            self.cut();
        }
    }

    fn big_enough(&self) -> bool {
        self.ns.cache.dirty() >= self.options.group_records || self.dirty_bytes() >= GROUP_BYTES
    }

    /// The delay is over: cuts a group, or waits for the store to catch up and cuts then.
    pub fn cut_now(&mut self) {
        self.overdue = self.flights.len() >= self.options.max_commits;
        self.cut();
    }

    /// Cuts a group, if there is anything in it and the store is not behind.
    fn cut(&mut self) {
        let settles = self.settles();
        if self.ns.cache.dirty() == 0 && !settles {
            self.armed = false;
            return;
        }
        let behind = self.flights.len() >= self.options.max_commits;
        if behind || self.failed || self.flights.iter().any(|f| f.refused) {
            return;
        }
        self.armed = false;
        self.reply_bytes = 0;
        for id in std::mem::take(&mut self.changed) {
            let Some(c) = self.clients.get_mut(&id) else { continue };
            c.changed = false;
            let key = keys::hot(keys::REPLIES, c.id);
            self.ns.cache.put_hot(key, |e| record::encode_replies(e, c.kept.iter()));
        }
        let (number, writes) = self.ns.cache.cut(settles);
        self.reckon(&writes);
        let garbage = std::mem::take(&mut self.ns.garbage);
        if !garbage.is_empty() {
            self.garbage.push_back((number, garbage));
        }
        let transnos = (self.cut_upto, self.transno);
        self.cut_upto = self.transno;
        let group = Group { number, transnos, writes: writes.into() };
        self.pace.waits(Of::Commit, Instant::now());
        self.flights.push_back(Flight { group: group.clone(), refused: false });
        self.out.groups.push(group);
    }

    /// Takes a group off the room that was measured last, so that it cannot be overrun between two
    /// looks. Its bytes count thrice: journal, table, and a copy while tables merge.
    fn reckon(&mut self, writes: &[Write]) {
        let takes = 3 * writes.iter().map(Write::bytes).sum::<usize>() as u64;
        self.room = self.room.map(|r| r.saturating_sub(takes));
        self.ns.full |= self.room == Some(0);
        self.out.look |= self.room.is_some_and(|r| r < LOOK_BYTES);
    }

    /// A group is durable, or not.
    pub fn committed(&mut self, number: u64, result: Result<(), StoreError>) {
        match result {
            Ok(()) => self.durable(number),
            Err(e) => self.refused(number, e),
        }
    }

    fn durable(&mut self, number: u64) {
        if self.flights.front().is_none_or(|f| f.group.number != number) {
            tracing::error!(number, "the target stops: the store changed the order of commits");
            return self.stop();
        }
        let Some(flight) = self.flights.pop_front() else { return };
        self.pace.came(Of::Commit, !self.flights.is_empty(), Instant::now());
        if std::mem::take(&mut self.no_room) {
            tracing::info!("the store has room again");
        }
        self.refusals = 0;
        self.committed = flight.group.transnos.1;
        self.ns.cache.committed(number);
        while self.garbage.front().is_some_and(|(n, _)| *n <= number) {
            self.out.garbage.extend(self.garbage.pop_front().map(|g| g.1).unwrap_or_default());
        }
        if self.reserve.is_some_and(|(n, _)| n <= number)
            && let Some((_, end)) = self.reserve.take()
        {
            self.ns.sequences.1 = end;
        }
        while let Some(first) = self.waiting_commit.first_entry() {
            if *first.key() > self.committed {
                break;
            }
            for mut task in first.remove() {
                let settled = std::mem::take(&mut task.settles);
                if !settled && matches!(task.op(), Some(Op::Sync {})) {
                    task.add(Res::Done {});
                    task.next += 1;
                }
                self.step(task);
            }
        }
        let wanted = !self.waiting_commit.is_empty() || !self.stalled.is_empty();
        if wanted || self.big_enough() || std::mem::take(&mut self.overdue) {
            self.cut();
        }
        self.unstall();
        self.tidy_up();
        self.make_room();
    }

    /// The store did not take a group. Without room it is kept, and those after it (the store
    /// refuses them because of the gap); anything else ends the target.
    fn refused(&mut self, number: u64, error: StoreError) {
        let waits = match &error {
            StoreError::NoSpace { .. } | StoreError::Retry(_) => true,
            StoreError::Gap { .. } => self.flights.iter().any(|f| f.refused),
            _ => false,
        };
        let flight = self.flights.iter_mut().find(|f| f.group.number == number);
        match flight.filter(|_| waits) {
            Some(flight) => flight.refused = true,
            None => {
                if !self.failed {
                    tracing::error!(%error, "the target stops: a commit failed");
                }
                return self.stop();
            }
        }
        if let StoreError::NoSpace { busy, .. } = error {
            if !std::mem::replace(&mut self.no_room, true) {
                tracing::error!(%error, "changes wait in memory until there is room");
            }
            self.ns.full = true;
            // fsync must not hang on a full disk; what it asked for may still become durable.
            self.refusals += if busy { 1 } else { BUSY_REFUSALS / REFUSALS };
            if self.gives_up() {
                self.give_up_waits();
            }
            self.unstall();
        }
    }

    fn give_up_waits(&mut self) {
        for (_, tasks) in std::mem::take(&mut self.waiting_commit) {
            for t in tasks {
                // A mark that waits for room is no reason to refuse what only needed it.
                if t.settles { self.finish(t) } else { self.fail_op(t, Errno::ENOSPC) }
            }
        }
    }

    /// Time has passed: refused groups go to the store again, in order, once it has none of them.
    pub fn retry(&mut self) {
        if self.failed || !self.flights.iter().all(|f| f.refused) {
            return;
        }
        for f in &mut self.flights {
            f.refused = false;
            self.out.groups.push(f.group.clone());
        }
    }

    /// The space of the store was measured.
    pub fn space(&mut self, space: (u64, u64, u64), reserve: u64) {
        self.room = Some(space.2.saturating_sub(reserve));
        let full = self.room == Some(0) || self.no_room;
        if full != self.ns.full {
            tracing::warn!(
                free = space.2,
                full,
                "room of the store: without it, only deletes pass"
            );
        }
        self.ns.store_space = space;
        self.ns.full = full;
        self.retry();
    }

    /// Whether so many changes wait for the store, or `factor` times as many.
    pub fn is_behind(&self, factor: usize) -> bool {
        self.ns.cache.dirty() >= MAX_DIRTY_RECORDS * factor
            || self.dirty_bytes() >= MAX_DIRTY_BYTES * factor
    }

    /// Whether an operation must wait until the store has caught up; ENOSPC when it cannot.
    pub fn holds_back(&self, op: &Op) -> Result<bool, Errno> {
        if !self.is_behind(1) || !crate::ops::changes(op) {
            return Ok(false);
        }
        match (self.no_room, self.is_behind(2)) {
            (false, _) => Ok(true),
            (true, false) => Ok(false),
            (true, true) if self.gives_up() => Err(Errno::ENOSPC),
            (true, true) => Ok(true),
        }
    }

    /// Requests that were held back go on.
    fn unstall(&mut self) {
        for _ in 0..self.stalled.len() {
            let Some(task) = self.stalled.pop_front() else { return };
            let waits = task.op().is_some_and(|op| self.holds_back(op) == Ok(true));
            if waits {
                return self.stalled.push_front(task);
            }
            self.step(task);
        }
    }

    /// A request steps aside: what it has done already is kept for its client with the group that
    /// carries it, so that a crash before its end does not make a retry do it twice (invariant 4).
    pub fn suspend(&mut self, task: &mut Task) {
        if task.transno == task.kept {
            return;
        }
        let body = task.body(&[]);
        self.keep(task, Some(task.current), body);
    }

    /// Keeps an answer, or the part that is there already. What came after the last change that is
    /// kept in a group can be done again: it takes no room in another, where a thousand such
    /// answers of one moment might be more than a group holds.
    pub fn keep(&mut self, task: &mut Task, current: Option<proto::Fid>, body: Vec<u8>) {
        let id = task.session.id();
        let stored = std::mem::replace(&mut task.kept, task.transno) == task.transno;
        let Some(c) = self.clients.get_mut(&id) else { return };
        let kept =
            record::Kept { xid: task.xid, transno: task.transno, current, body: body.into() };
        let bytes = c.keep(kept);
        if c.changed {
            self.reply_bytes += bytes;
        } else if !stored {
            c.changed = true;
            self.changed.push(id);
            self.reply_bytes += c.kept_bytes;
        }
    }

    /// Sequences are reserved ahead of their use, durably.
    pub fn renew_sequences(&mut self) {
        let (next, end) = self.ns.sequences;
        if end - next < SEQUENCES / 2 && self.reserve.is_none() {
            let more = end + SEQUENCES;
            let value = more.to_le_bytes().to_vec();
            self.ns.cache.put_raw(keys::single("sequence"), Some(value));
            // It counts with the group that is being filled now, or a later one.
            self.reserve = Some((self.ns.cache.group(), more));
            self.arm();
        }
    }

    /// A client no longer waits for answers below `lowest`.
    pub fn trim_kept(&mut self, session: u64, lowest: u64) {
        if let Some(c) = self.clients.get_mut(&session) {
            c.trim(lowest);
        }
    }
}
