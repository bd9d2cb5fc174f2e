//! What is known of one file in memory.
//!
//! Role: written bytes in their states (dirty, in flight, unstable), size and times not yet
//! reported, errors not yet told. Never does: I/O; whoever changes [`State`] calls
//! [`State::account`] before unlocking.

use std::collections::BTreeSet;
use std::sync::Arc;

use parking_lot::{Condvar, Mutex, RwLock};
use proto::attr::A_INLINE;
use proto::mds::SizeReport;
use proto::{Attr, Errno, Fid, Layout, TimeSpec};

use crate::ahead::Ahead;
use crate::budget::{Budget, Held};
use crate::ranges::{Buf, RangeMap};

/// Data that lives with the metadata.
#[derive(Clone, Debug, Default)]
pub(crate) struct Inline {
    /// From offset 0; the file may be longer (zeros).
    pub(crate) data: Vec<u8>,
    /// What the MDT does not have yet.
    pub(crate) dirty: Option<(u64, u64)>,
    /// Whether the MDT holds any data.
    pub(crate) stored: bool,
}

/// Where a file's data is.
#[derive(Clone, Debug)]
pub(crate) enum Place {
    /// Not known (any more).
    Unknown,
    Inline(Inline),
    Striped(Arc<Layout>),
}

/// Of bytes an OST has taken.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Taken {
    /// Number of the answer; a commit sent later covers it.
    pub(crate) id: u64,
    pub(crate) ost: u32,
    pub(crate) verifier: u64,
}

#[derive(Debug)]
pub(crate) struct State {
    /// The newest from the MDT.
    pub(crate) attr: Attr,
    /// Cache epoch under which attr and place are the truth; 0: not known.
    pub(crate) epoch: u64,
    pub(crate) place: Place,
    /// Truth while SOLE.
    pub(crate) size: u64,
    /// Data time not yet reported.
    pub(crate) mtime: Option<TimeSpec>,
    pub(crate) atime: Option<TimeSpec>,
    /// Data was written to objects since the last report.
    pub(crate) unreported: bool,
    /// The MDT was told something since the last sync.
    pub(crate) unsynced: bool,
    pub(crate) opens: u32,
    /// Those among them the MDT knows nothing of, since which tick, and its handle for all of them.
    pub(crate) locals: u32,
    pub(crate) loose_since: u64,
    pub(crate) pin: Option<u64>,
    /// A close or an access time waits to be told.
    pub(crate) late: bool,
    /// Handles at the MDT and their `O_*`.
    pub(crate) handles: Vec<(u64, u32)>,
    /// Not sent.
    pub(crate) dirty: RangeMap<()>,
    /// Sent, not answered.
    pub(crate) flight: RangeMap<()>,
    /// Writes refused for their checksum, in a row.
    pub(crate) damaged: u32,
    /// Answered, not committed.
    pub(crate) unstable: RangeMap<Taken>,
    /// Stripes whose objects were cut since their last commit.
    pub(crate) cut: BTreeSet<u16>,
    pub(crate) next_id: u64,
    /// Blocks of each object, as far as heard.
    pub(crate) blocks: Vec<Option<u64>>,
    /// Counts failures; open files remember which they told.
    pub(crate) failures: u64,
    pub(crate) failure: Option<Errno>,
    /// When the oldest dirty byte came, in ticks of the client.
    pub(crate) dirty_since: Option<u64>,
    /// Queued for the workers.
    pub(crate) queued: bool,
    /// The next push takes everything, not only what is worth an RPC of its own.
    pub(crate) push_all: bool,
    /// A background commit is under way.
    pub(crate) committing: bool,
    /// Somebody tells the MDT about size, times or inline data: one at a time, in order.
    pub(crate) talking: bool,
    /// Counts changes of data, so that a report knows whether it is still the newest.
    pub(crate) changes: u64,
    pub(crate) idle: Idle,
    pub(crate) ahead: Ahead,
    held: Held,
}

/// Where a file waits to be forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Idle {
    No,
    /// Among those that keep their data.
    Full,
    /// Among those that keep their attributes.
    Bare,
}

/// One file.
#[derive(Debug)]
pub(crate) struct Inode {
    pub(crate) fid: Fid,
    /// See the crate's lock order.
    pub(crate) io: RwLock<()>,
    pub(crate) st: Mutex<State>,
    /// Flights landed.
    pub(crate) landed: Condvar,
}

impl Inode {
    pub(crate) fn new(attr: Attr) -> Inode {
        let st = State {
            size: attr.size,
            epoch: 0,
            place: Place::Unknown,
            mtime: None,
            atime: None,
            unreported: false,
            unsynced: false,
            opens: 0,
            locals: 0,
            loose_since: 0,
            pin: None,
            late: false,
            handles: Vec::new(),
            dirty: RangeMap::default(),
            flight: RangeMap::default(),
            unstable: RangeMap::default(),
            damaged: 0,
            cut: BTreeSet::new(),
            next_id: 1,
            blocks: Vec::new(),
            failures: 0,
            failure: None,
            dirty_since: None,
            queued: false,
            push_all: false,
            committing: false,
            talking: false,
            changes: 0,
            idle: Idle::No,
            ahead: Ahead::default(),
            held: Held::default(),
            attr,
        };
        let (io, landed) = (RwLock::new(()), Condvar::new());
        Inode { fid: st.attr.fid, io, st: Mutex::new(st), landed }
    }
}

/// The right to tell the MDT about a file's data; given back when dropped.
pub(crate) struct Talk(pub(crate) Arc<Inode>);

impl Drop for Talk {
    fn drop(&mut self) {
        self.0.st.lock().talking = false;
        self.0.landed.notify_all();
    }
}

/// Waits for the right to talk. The holder waits for nothing but answers of servers.
pub(crate) fn talk(inode: &Arc<Inode>) -> Talk {
    let mut st = inode.st.lock();
    while st.talking {
        inode.landed.wait(&mut st);
    }
    st.talking = true;
    Talk(inode.clone())
}

impl State {
    /// Tells the budget what this file holds now.
    pub(crate) fn account(&mut self, budget: &Budget) {
        let inline = match &self.place {
            Place::Inline(i) => i.dirty.map_or(0, |(a, b)| b - a),
            _ => 0,
        };
        let dirty = self.dirty.bytes() + self.flight.bytes() + inline;
        let now = Held { dirty, unstable: self.unstable.bytes() };
        budget.change(self.held, now);
        self.held = now;
    }

    /// Bytes of data that live with the metadata, as far as they are here.
    pub(crate) fn inline_bytes(&self) -> usize {
        if let Place::Inline(i) = &self.place { i.data.len() } else { 0 }
    }

    /// Whether nothing would be lost with this state.
    pub(crate) fn is_clean(&self) -> bool {
        self.held == Held::default()
            && !self.unreported
            && self.cut.is_empty()
            && self.mtime.is_none()
            && self.atime.is_none()
            && !self.talking
    }

    /// Whether data was written that the servers do not have, or the MDT was not told of.
    pub(crate) fn has_changes(&self) -> bool {
        self.held != Held::default()
            || self.unreported
            || self.mtime.is_some()
            || !self.cut.is_empty()
    }

    /// Whether place and size are the truth under this cache epoch.
    pub(crate) fn is_loaded(&self, epoch: u64) -> bool {
        self.epoch == epoch && !matches!(self.place, Place::Unknown)
    }

    /// Whether there are inline bytes the MDT does not have.
    pub(crate) fn has_inline_dirty(&self) -> bool {
        matches!(&self.place, Place::Inline(i) if i.dirty.is_some())
    }

    /// Whether size and times here are newer than the MDT's.
    pub(crate) fn is_ahead(&self) -> bool {
        self.held.dirty > 0 || self.unreported || self.mtime.is_some()
    }

    /// Takes newer attributes of the MDT; those older than what is known are ignored.
    pub(crate) fn learn(&mut self, attr: &Attr, epoch: u64) {
        if self.epoch == epoch && epoch != 0 && attr.version < self.attr.version {
            return;
        }
        self.attr = attr.clone();
    }

    /// What a stat shows: the MDT's attributes, and what was not reported yet.
    pub(crate) fn show(&self) -> Attr {
        let mut attr = self.attr.clone();
        attr.size = self.size;
        if let Some(t) = self.mtime {
            // A time that was set by hand is no time of a change.
            if t != attr.mtime {
                attr.ctime = attr.ctime.max(t);
            }
            attr.mtime = t;
        }
        if let Some(t) = self.atime {
            attr.atime = t;
        }
        match &self.place {
            Place::Striped(_) => {
                attr.flags &= !A_INLINE;
                if self.unreported {
                    let known: u64 = self.blocks.iter().map(|b| b.unwrap_or(0)).sum();
                    let waiting = (self.dirty.bytes() + self.flight.bytes()).div_ceil(512);
                    attr.blocks = attr.blocks.max(known) + waiting;
                }
            }
            // On its way to the MDT it is neither dirty nor known there.
            Place::Inline(i) if i.dirty.is_some() || (self.talking && !i.data.is_empty()) => {
                attr.blocks = (i.data.len() as u64).div_ceil(512);
            }
            _ => {}
        }
        attr
    }

    /// Dirty data came or its time changed.
    pub(crate) fn touched(&mut self, now: TimeSpec, tick: u64) {
        self.changes += 1;
        self.mtime = Some(now);
        self.dirty_since.get_or_insert(tick);
    }

    /// Blocks over all objects, when all are known.
    pub(crate) fn blocks_known(&self) -> Option<u64> {
        if self.blocks.is_empty() {
            return None;
        }
        self.blocks.iter().copied().sum()
    }

    /// What a report to the MDT says; None when there is nothing to say.
    pub(crate) fn report(&self, exact: bool) -> Option<SizeReport> {
        if !self.unreported && self.mtime.is_none() && self.atime.is_none() {
            return None;
        }
        // Who only read among others must not tell a size: another may have cut the file since.
        let size = if exact || self.unreported || self.mtime.is_some() { self.size } else { 0 };
        Some(SizeReport {
            size,
            exact,
            blocks: if self.unreported { self.blocks_known() } else { None },
            mtime: self.mtime,
            atime: self.atime,
        })
    }

    /// Writes into inline data.
    pub(crate) fn write_inline(inline: &mut Inline, offset: u64, data: &[u8]) {
        let (a, b) = (offset as usize, offset as usize + data.len());
        let from = inline.data.len().min(a) as u64;
        if inline.data.len() < b {
            inline.data.resize(b, 0);
        }
        inline.data[a..b].copy_from_slice(data);
        // A gap that fills with zeros is part of what the MDT must hear.
        let (lo, hi) = inline.dirty.unwrap_or((from, b as u64));
        inline.dirty = Some((lo.min(from), hi.max(b as u64)));
    }

    /// An error of write-behind: told once to every file that is open.
    pub(crate) fn fail(&mut self, errno: Errno) {
        self.failures += 1;
        self.failure = Some(errno);
    }

    /// Bytes that must be sent again: back to dirty, under whatever is newer.
    pub(crate) fn again(&mut self, runs: Vec<(u64, Buf)>) {
        for (at, data) in runs {
            let end = at + data.len();
            let mut newer: Vec<(u64, u64)> = Vec::new();
            for (start, data) in self.dirty.touching(at, end) {
                newer.push((start, start + data.len() as u64));
            }
            for (start, data) in self.flight.touching(at, end) {
                newer.push((start, start + data.len() as u64));
            }
            newer.sort_unstable();
            let bytes = data.into_bytes();
            let mut from = at;
            for (a, b) in newer.into_iter().chain([(end, end)]) {
                if a > from {
                    let part = bytes.slice((from - at) as usize..(a.min(end) - at) as usize);
                    self.dirty.insert(from, Buf::Shared(part), ());
                }
                from = from.max(b).min(end);
            }
        }
    }
}
