//! What is known of one file in memory.
//!
//! Role: written bytes in their states (dirty, in flight, unstable), size and times not yet
//! reported, errors not yet told. Never does: I/O; whoever changes [`State`] calls
//! [`State::account`] before unlocking.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use parking_lot::{Condvar, Mutex, RwLock};
use proto::attr::A_INLINE;
use proto::mds::SizeReport;
use proto::{Attr, Errno, Fid, Layout, MAX_FILE_SIZE, TimeSpec};

use crate::ahead::Ahead;
use crate::budget::{Budget, Held};
use crate::core::Asked;
use crate::cut::Apart;
use crate::lane::Lane;
use crate::late::Unsaid;
use crate::leases::Mark;
use crate::lockahead::Kept;
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

impl Inline {
    /// What the MDT holds, with the bytes it does not have over it: written under a lease that is being
    /// called back, they are newer, and nobody else could write meanwhile.
    pub(crate) fn over(&self, mut data: Vec<u8>) -> Inline {
        let stored = !data.is_empty();
        if let Some((a, b)) = self.dirty
            && let Some(mine) = self.data.get(a as usize..b as usize)
        {
            data.resize(data.len().max(b as usize), 0);
            data[a as usize..b as usize].copy_from_slice(mine);
        }
        Inline { data, dirty: self.dirty, stored }
    }
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

/// A version of attributes, and the session with the MDT ([`Core::life`](crate::core::Core)) it was
/// asked in: after a restart versions may have gone back.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AsOf {
    pub(crate) life: u64,
    pub(crate) version: u64,
}

/// Of bytes on their way to an OST.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sent {
    /// In the order of sending.
    pub(crate) id: u64,
    /// Their writer was answered before they went.
    pub(crate) behind: bool,
}

#[derive(Debug)]
pub(crate) struct State {
    /// The newest from the MDT.
    pub(crate) attr: Attr,
    /// Cache epoch under which attr and place are the truth; 0: not known.
    pub(crate) epoch: u64,
    /// When they were learned, among others ([`crate::leases`]).
    pub(crate) mark: Mark,
    pub(crate) place: Place,
    /// What `place` came with.
    pub(crate) place_as_of: AsOf,
    /// Inline bytes are being moved to objects: until that ends the MDT says both.
    pub(crate) moving: bool,
    /// Truth while the file is this client's alone.
    pub(crate) size: u64,
    /// Data time not yet reported.
    pub(crate) mtime: Option<TimeSpec>,
    pub(crate) atime: Option<TimeSpec>,
    /// Data was written to objects since the last report.
    pub(crate) unreported: bool,
    /// What writes among others did, under `LS_LATE`.
    pub(crate) unsaid: Option<Unsaid>,
    /// Bytes that this client keeps to among others.
    pub(crate) kept: Kept,
    /// It is on its way to the MDT.
    pub(crate) saying: bool,
    /// When the MDT was last told of a write among others.
    pub(crate) told_at: Option<Instant>,
    /// And when that could bring the right to tell late, or the file as this client's alone.
    pub(crate) asked_at: Option<Instant>,
    /// Reads of it that could not be believed, since a lease was last called back.
    pub(crate) direct_reads: u32,
    /// When a read of it had waited in vain for a lost OST.
    pub(crate) gave_up: Option<Instant>,
    /// Written among others: the blocks are asked of the OSTs when it is closed.
    pub(crate) blocks_due: bool,
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
    pub(crate) flight: RangeMap<Sent>,
    pub(crate) next_sent: u64,
    /// Who waits until all that is dirty has gone: writers do not add to it meanwhile.
    pub(crate) draining: u32,
    /// Writes refused for their checksum, in a row.
    pub(crate) damaged: u32,
    /// Answered, not committed.
    pub(crate) unstable: RangeMap<Taken>,
    /// When the first of these, and of those on their way, was sent ([`crate::leases`]).
    pub(crate) taken_at: Mark,
    /// Stripes whose objects were cut since their last commit.
    pub(crate) cut: BTreeSet<u16>,
    /// How often some were added.
    pub(crate) cuts: u64,
    pub(crate) next_id: u64,
    /// Blocks of each object, as far as heard.
    pub(crate) blocks: Vec<Option<u64>>,
    /// Counts failures; open files remember which they told.
    pub(crate) failures: u64,
    /// Counts how often something in flight became dirty again.
    pub(crate) returned: u64,
    /// When the last one was.
    pub(crate) failed_at: Option<Instant>,
    pub(crate) failure: Option<Errno>,
    /// When the oldest dirty byte came, in ticks of the client.
    pub(crate) dirty_since: Option<u64>,
    /// The same for the oldest byte that an OST has taken and not committed.
    pub(crate) unstable_since: Option<u64>,
    /// Queued for the workers.
    pub(crate) queued: bool,
    /// The next push takes everything, not only what is worth an RPC of its own.
    pub(crate) push_all: bool,
    /// How it takes pieces that lie apart.
    pub(crate) apart: Apart,
    /// A background commit is under way.
    pub(crate) committing: bool,
    /// Inline bytes on their way to the MDT.
    pub(crate) sending: Option<(u64, u64)>,
    /// Somebody tells the MDT about size, times or inline data: one at a time, in order.
    pub(crate) talking: bool,
    /// And what is told of the size counts as the whole truth: this client was alone with the file.
    pub(crate) exactly: bool,
    /// Counts changes of data, so that a report knows whether it is still the newest.
    pub(crate) changes: u64,
    /// Counts those among them that do not tell themselves: made while this client was alone with the
    /// file.
    pub(crate) own_changes: u64,
    /// Writes among others that are being told: an answer to what was asked before may lack them.
    pub(crate) reporting: u32,
    pub(crate) idle: Idle,
    pub(crate) ahead: Ahead,
    held: Held,
    /// Where that goes.
    lane: Lane,
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
    /// Taken before `io` by who appends: two of this client must not begin at the same end, one under
    /// a lease and one without.
    pub(crate) end: Mutex<()>,
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
            mark: Mark::NEVER,
            place: Place::Unknown,
            place_as_of: AsOf::default(),
            moving: false,
            mtime: None,
            atime: None,
            unreported: false,
            unsaid: None,
            direct_reads: 0,
            gave_up: None,
            kept: Kept::default(),
            saying: false,
            told_at: None,
            asked_at: None,
            blocks_due: false,
            unsynced: false,
            opens: 0,
            locals: 0,
            loose_since: 0,
            pin: None,
            late: false,
            handles: Vec::new(),
            dirty: RangeMap::default(),
            flight: RangeMap::default(),
            next_sent: 1,
            draining: 0,
            unstable: RangeMap::default(),
            taken_at: Mark::NEVER,
            damaged: 0,
            cut: BTreeSet::new(),
            cuts: 0,
            next_id: 1,
            blocks: Vec::new(),
            failures: 0,
            returned: 0,
            failed_at: None,
            failure: None,
            dirty_since: None,
            unstable_since: None,
            queued: false,
            push_all: false,
            apart: Apart::default(),
            committing: false,
            sending: None,
            talking: false,
            exactly: false,
            changes: 0,
            own_changes: 0,
            reporting: 0,
            idle: Idle::No,
            ahead: Ahead::default(),
            held: Held::default(),
            lane: Lane::default(),
            attr,
        };
        let (io, landed) = (RwLock::new(()), Condvar::new());
        Inode { fid: st.attr.fid, end: Mutex::new(()), io, st: Mutex::new(st), landed }
    }
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
        let lane = self.lane();
        budget.change((self.lane, self.held), (lane, now));
        (self.lane, self.held) = (lane, now);
    }

    /// Where what is written goes; as before where that is not known.
    pub(crate) fn lane(&self) -> Lane {
        Lane::of(&self.place).unwrap_or(self.lane)
    }

    /// What the budget was told.
    pub(crate) fn held(&self) -> Held {
        self.held
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
            && self.unsaid.is_none()
            && !self.talking
    }

    /// Whether neither data nor a size would be lost with this state; times may be.
    pub(crate) fn is_empty_handed(&self) -> bool {
        self.held == Held::default() && !self.unreported
    }

    /// Whether data was written that is not on the servers' disks, or the MDT was not told of.
    pub(crate) fn has_changes(&self) -> bool {
        self.held.unstable > 0 || self.has_untold()
    }

    /// Whether data was written that the servers do not have, or the MDT was not told of.
    pub(crate) fn has_untold(&self) -> bool {
        self.held.dirty > 0
            || self.unreported
            || self.mtime.is_some()
            || self.unsaid.is_some()
            || !self.cut.is_empty()
    }

    /// Whether place and size are the truth under this cache epoch.
    pub(crate) fn is_loaded(&self, epoch: u64) -> bool {
        self.epoch == epoch && !matches!(self.place, Place::Unknown)
    }

    /// Whether an answer tells of the file as it was before what is known of its place: it was
    /// overtaken on its way, and must not bring the old place back.
    pub(crate) fn outruns(&self, told: AsOf, theirs: &Place) -> bool {
        let known = self.place_as_of;
        let same = told.life == known.life;
        match (&self.place, theirs) {
            (Place::Unknown, _) => false,
            (Place::Striped(_), Place::Inline(_)) => {
                self.moving || (same && told.version <= known.version)
            }
            _ => same && told.version < known.version,
        }
    }

    /// Whether an answer was asked for before the last change made here.
    pub(crate) fn overtakes(&self, told: AsOf) -> bool {
        self.place_as_of.life == told.life && told.version < self.place_as_of.version
    }

    /// This client changed the file, and the MDT says so: what was asked before, and is answered later,
    /// tells of the file as it was before.
    pub(crate) fn changed_as_of(&mut self, told: AsOf) {
        let known = self.place_as_of;
        if told.life != known.life || told.version > known.version {
            self.place_as_of = told;
        }
    }

    /// Whether there are bytes of objects whose writer was answered and that no OST has for certain.
    pub(crate) fn is_behind(&self) -> bool {
        !self.dirty.is_empty() || self.flight.runs().any(|(_, seg)| seg.tag.behind)
    }

    /// The objects of these stripes are cut, which a commit begun before says nothing about.
    pub(crate) fn note_cut(&mut self, stripes: impl Iterator<Item = u16>) {
        self.cut.extend(stripes);
        self.cuts += 1;
    }

    /// Bytes are on their way from now on. Once an OST has taken them they are believed only under a right
    /// that was there already: whoever writes after they were sent may come out over them.
    pub(crate) fn take_off(&mut self, at: u64, bytes: &Bytes, behind: bool, now: Mark) {
        if self.unstable.is_empty() && self.flight.is_empty() {
            self.taken_at = now;
        }
        let sent = Sent { id: self.next_sent, behind };
        self.next_sent += 1;
        self.flight.insert(at, Buf::Shared(bytes.clone()), sent);
    }

    /// Whether there are inline bytes the MDT does not have.
    pub(crate) fn has_inline_dirty(&self) -> bool {
        matches!(&self.place, Place::Inline(i) if i.dirty.is_some())
    }

    /// Whether there are bytes whose writer was answered and that no server has for certain.
    pub(crate) fn is_untold(&self) -> bool {
        self.has_inline_dirty() || self.sending.is_some() || self.is_behind()
    }

    /// Whether the MDT may not have been told yet of some that was written here.
    pub(crate) fn is_telling(&self) -> bool {
        let late = self.unsaid.is_some() || self.saying || self.reporting > 0;
        late || self.is_untold() || self.is_ahead()
    }

    /// Whether size and times here are newer than the MDT's.
    pub(crate) fn is_ahead(&self) -> bool {
        self.held.dirty > 0 || self.unreported || self.mtime.is_some()
    }

    /// Takes attributes of the MDT that were asked for in `epoch` (0: that does not matter). Those older
    /// than what is known are ignored, and those of before the last change of epoch: an MDT that
    /// restarted may not have them any more, whatever their version.
    pub(crate) fn learn(&mut self, attr: &Attr, epoch: u64) {
        let older = self.epoch == epoch && attr.version < self.attr.version;
        if epoch != 0 && (older || self.epoch > epoch) {
            return;
        }
        self.attr = attr.clone();
    }

    /// The last name is gone, and these are the attributes: no answer to a question of before brings it back.
    pub(crate) fn removed(&mut self, attr: &Attr, asked: Asked) {
        self.learn(attr, asked.epoch);
        self.changed_as_of(asked.of(attr));
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

    /// What the MDT holds, with what it does not have yet laid over: it may have lost what was there
    /// when that was written.
    pub(crate) fn rebase(&mut self, theirs: Place) {
        let (mine, ranges) = match &self.place {
            Place::Inline(mine) => (mine.clone(), [self.sending, mine.dirty]),
            // Objects are durable before they are written; a file that moved to them and did not is
            // inline again, and what was written to them belongs to nothing.
            Place::Striped(_) => {
                if matches!(theirs, Place::Inline(_)) && self.flight.is_empty() {
                    self.dirty.remove(0, MAX_FILE_SIZE);
                    self.unstable.remove(0, MAX_FILE_SIZE);
                    (self.unreported, self.dirty_since) = (false, None);
                    self.place = theirs;
                    self.fail(Errno::EIO);
                }
                return;
            }
            Place::Unknown => return self.place = theirs,
        };
        let over = ranges
            .into_iter()
            .flatten()
            .filter_map(|(a, b)| Some((a, mine.data.get(a as usize..b as usize)?)));
        match theirs {
            Place::Inline(mut base) => {
                for (at, data) in over {
                    let end = at as usize + data.len();
                    base.data.resize(base.data.len().max(end), 0);
                    base.data[at as usize..end].copy_from_slice(data);
                }
                self.place = Place::Inline(Inline { dirty: mine.dirty, ..base });
            }
            Place::Striped(layout) => {
                for (at, data) in over {
                    self.dirty.insert_copy(at, data, ());
                }
                self.blocks = vec![None; layout.osts.len()];
                self.unreported = true;
                self.place = Place::Striped(layout);
            }
            Place::Unknown => {}
        }
    }

    /// Dirty data came or its time changed, while this client was alone with the file.
    pub(crate) fn touched(&mut self, now: TimeSpec, tick: u64) {
        self.changes += 1;
        self.own_changes += 1;
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
        let blocks = match self.unreported || self.blocks_due {
            true => self.blocks_known(),
            false => None,
        };
        let counted = self.blocks_due && blocks.is_some();
        if !self.unreported && self.mtime.is_none() && self.atime.is_none() && !counted {
            return None;
        }
        // A size never promises bytes that the objects do not have.
        let partial = self.is_partial();
        let exact = exact && !partial;
        // Who only read among others must not tell a size: another may have cut the file since.
        let tells = exact || self.unreported || self.mtime.is_some();
        let size = if tells && !partial { self.size } else { 0 };
        Some(SizeReport { size, exact, blocks, mtime: self.mtime, atime: self.atime })
    }

    /// Whether a report leaves the size out, which has to be told once all bytes are there.
    pub(crate) fn is_partial(&self) -> bool {
        matches!(self.place, Place::Striped(_)) && self.is_behind()
    }

    /// Writes into inline data.
    pub(crate) fn write_inline(inline: &mut Inline, offset: u64, data: &[u8]) {
        let (a, b) = (offset as usize, offset as usize + data.len());
        let from = inline.data.len().min(a) as u64;
        if inline.data.is_empty() {
            // Most files are written once.
            inline.data.reserve_exact(b);
        }
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
        self.failed_at = Some(Instant::now());
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
