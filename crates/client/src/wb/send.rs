//! What goes to the MDT, and when.
//!
//! Role: every compound passes here: what can be done here is, the rest goes with the log in front.
//! A message that carries a part of the log keeps all others back until it is answered. Operations
//! that may wait for long at the MDT never carry the log. Never does: interpret data.

use std::sync::Arc;
use std::time::{Instant, SystemTime};

use parking_lot::MutexGuard;
use proto::attr::TimeSpec;
use proto::mds::*;
use proto::{Errno, Fid};

use super::apply::Local;
use super::log::{BATCH_OPS, Entry, cred_of};
use super::sent::{Outcome, Sent, opened};
use super::turn::{Late, Wait};
use super::{Note, Tree};
use crate::leases::Got;
use crate::mdt::{Mdt, own_cred};
use crate::names::Found;

/// Look-ups of a directory that had to be asked before all of it is.
const MISSES: u32 = 3;
/// Bytes of a listing that is asked for ahead.
const LISTING: u32 = 256 << 10;

/// The time an operation done here carries.
pub(super) fn own_time() -> TimeSpec {
    SystemTime::now().into()
}

/// Whether the MDT may take its time: for a commit, or for somebody else.
fn waits(op: &Op) -> bool {
    matches!(op, Op::BeginWrite { .. } | Op::Sync {} | Op::Lock { .. })
        || matches!(op, Op::Open { flags, .. } if flags & O_WRITE != 0)
}

/// Whether the MDT must know of open files first.
fn needs_opens(op: &Op) -> bool {
    matches!(
        op,
        Op::Unlink { .. }
            | Op::Rename { .. }
            | Op::Whiteout { .. }
            | Op::BeginWrite { .. }
            | Op::DropInline { .. }
    )
}

/// Whether it may put a directory elsewhere.
fn moves(op: &Op) -> bool {
    matches!(
        op,
        Op::Rename { from_dir, to_dir, .. } | Op::Whiteout { from_dir, to_dir, .. }
            if from_dir != to_dir
    )
}

/// Whether it is one of several that stand for themselves.
fn reads(op: &Op) -> bool {
    matches!(op, Op::ReadInline { .. })
}

/// Whether it tells what was done to a file's data, or waits until that is durable.
fn tells(op: &Op) -> bool {
    matches!(op, Op::WriteInline { .. } | Op::Report { .. } | Op::Close { .. } | Op::Sync { .. })
}

pub(super) fn looks(op: &Op) -> bool {
    matches!(
        op,
        Op::Lookup { .. }
            | Op::GetAttr { .. }
            | Op::ReadDir { .. }
            | Op::ReadLink { .. }
            | Op::GetXattr { .. }
            | Op::ListXattr { .. }
    )
}

/// The result of an operation that failed.
pub(super) fn failed(errno: Errno) -> Res {
    Res::Failed { errno: errno.0 as u16 }
}

/// How the log keeps an operation that was done here.
pub(super) fn logged(op: Op) -> Op {
    match op {
        // Another's name there now would be a conflict, not a success.
        Op::Create { dir, name, fid, mode, umask, rdev, target, .. } => {
            Op::Create { dir, name, fid, mode, umask, rdev, target, flags: C_EXCL, open: 0 }
        }
        Op::Close { fid, report: Some(report), .. } => Op::Report { fid, report },
        op => op,
    }
}

impl Mdt {
    /// Runs a compound: here as far as possible, the rest at the MDT; results up to the first
    /// failure (which is among them).
    pub(crate) fn compound(&self, cred: &Cred, ops: Vec<Op>) -> Result<Vec<Res>, Errno> {
        self.compound_got(cred, ops).map(|(results, _)| results)
    }

    /// As [`Mdt::compound`]; also the leases that came with it.
    pub(crate) fn compound_got(
        &self,
        cred: &Cred,
        ops: Vec<Op>,
    ) -> Result<(Vec<Res>, Arc<Got>), Errno> {
        let (mut done, mut made) = (Vec::new(), Arc::default());
        let mut left = ops.into_iter();
        while let Some(op) = left.next() {
            match self.here(cred, op) {
                Ok((res, got)) => {
                    let failed = matches!(res, Res::Failed { .. });
                    done.push(res);
                    made = got.unwrap_or(made);
                    if failed {
                        return Ok((done, made));
                    }
                }
                Err(op) => {
                    let rest = std::iter::once(op).chain(left).collect();
                    let (results, got) = self.there(cred, rest)?;
                    done.extend(results);
                    return Ok((done, got));
                }
            }
        }
        Ok((done, made))
    }

    /// Does an operation here, or gives it back; also the leases that came with it.
    pub(crate) fn here(&self, cred: &Cred, op: Op) -> Result<(Res, Option<Arc<Got>>), Op> {
        if !self.wb.may() {
            return self.here_among(cred, op);
        }
        let (mut asked, mut wait) = (0, None);
        loop {
            let mut tree = self.wb.tree.lock();
            if !self.wb.may() {
                return Err(op);
            }
            if !looks(&op) {
                let full = tree.log.is_full();
                let waited = match full || tree.is_busy(&[&op]) {
                    true if full => MutexGuard::unlocked(&mut tree, || self.flush()).map(|()| true),
                    true => {
                        let wait = *wait.get_or_insert_with(Wait::request);
                        self.wb.turn(&mut tree, wait).map(|()| true)
                    }
                    false => Ok(false),
                };
                match waited {
                    Ok(true) => continue,
                    Ok(false) => {}
                    Err(late) => return Ok((failed(late.into()), None)),
                }
            }
            let now = own_time();
            match tree.apply(cred, &op, now) {
                Local::Known(res) => return Ok((res, None)),
                Local::Fails(e) => return Ok((failed(e), None)),
                Local::Changed(res) => {
                    let fids = Vec::new();
                    let entry = Entry { cred: cred.clone(), op: logged(op), at: now, fids };
                    self.keep(&mut tree, entry);
                    return Ok((res, None));
                }
                Local::Ask => {}
            }
            // What a name stands for decides what else is concerned.
            let unknown = match &op {
                Op::Unlink { dir, name, .. } => Some((*dir, name)),
                Op::Rename { from_dir, from, .. } | Op::Whiteout { from_dir, from, .. }
                    if !tree.knows(*from_dir, from) =>
                {
                    Some((*from_dir, from))
                }
                Op::Rename { to_dir, to, .. } | Op::Whiteout { to_dir, to, .. } => {
                    Some((*to_dir, to))
                }
                _ => None,
            };
            if let Op::ReadDir { dir, cookie, flags, .. } = &op
                && asked == 0
                && tree.names.continues(*dir, *cookie)
            {
                asked = 1;
                let plus = if *cookie == 0 { RD_PLUS } else { *flags };
                let (dir, cookie, max_bytes) = (*dir, *cookie, LISTING);
                drop(tree);
                let ahead = Op::ReadDir { dir, cookie, max_bytes, flags: plus };
                if let Err(e) = self.there(cred, vec![ahead]) {
                    return Ok((failed(e), None));
                }
                continue;
            }
            let Some((dir, name)) = unknown.filter(|(d, n)| asked < 2 && !tree.knows(*d, n)) else {
                return Err(op);
            };
            let look = Op::Lookup { dir, name: name.clone() };
            drop(tree);
            asked += 1;
            if let Err(e) = self.there(cred, vec![look]) {
                return Ok((failed(e), None));
            }
        }
    }

    /// Sends operations, with the log in front.
    pub(crate) fn there(&self, cred: &Cred, ops: Vec<Op>) -> Outcome {
        let wait = Wait::request();
        let alone = ops.iter().any(waits) || (ops.len() > 1 && !ops.iter().all(reads));
        let refs: Vec<&Op> = ops.iter().collect();
        let mut tree = self.wb.tree.lock();
        let (front, cred) = loop {
            if tree.in_flight.is_some() || tree.is_busy(&refs) {
                self.wb.turn(&mut tree, wait)?;
                continue;
            }
            let among = !self.wb.trust.alone();
            if tree.log.is_empty() || (among && !tree.is_pending(refs.iter().copied())) {
                break (Vec::new(), cred.clone());
            }
            if !alone && !among && tree.log.len() <= BATCH_OPS {
                let front = tree.log.take();
                if tree.log.is_empty()
                    && let Some(cred) = cred_of(&front, ops.first().map(|op| (cred, op)))
                {
                    break (front, cred);
                }
                tree.log.untake(front);
            }
            drop(tree);
            self.flush_once(wait)?;
            tree = self.wb.tree.lock();
        };
        drop(refs);
        let sent = tree.prepare(front, ops, alone);
        drop(tree);
        // Nothing of them is vouched for from here on; what was before is forgotten before anybody can see the change.
        // Of a file that is written nothing was.
        if !sent.ops.iter().all(tells) {
            self.announce_changes(&sent.doubtful);
        }
        self.see_to(sent, cred)?
    }

    /// Sends the whole log.
    ///
    /// # Errors
    /// A part of it has no answer in the time a request has.
    pub(crate) fn flush(&self) -> Result<(), Late> {
        let wait = Wait::request();
        while self.flush_once(wait)? {}
        Ok(())
    }

    /// The same for as long as it takes, unless this client ends.
    pub(crate) fn flush_all(&self) {
        while match self.flush_once(Wait::Long) {
            Ok(more) => more,
            Err(Late) => !self.wb.is_leaving(),
        } {}
    }

    /// Sends a part of the log; whether there was any.
    fn flush_once(&self, wait: Wait) -> Result<bool, Late> {
        let mut tree = self.wb.tree.lock();
        while tree.in_flight.is_some() {
            self.wb.turn(&mut tree, wait)?;
        }
        if tree.log.is_empty() {
            return Ok(false);
        }
        let front = tree.log.take();
        tree.in_flight = Some(Instant::now());
        let room = Op::Statfs {};
        let asks = vec![(room.clone(), tree.note(&room))];
        drop(tree);
        let cred = cred_of(&front, None).unwrap_or_else(own_cred);
        self.see_to(Sent { front, asks, ..Sent::default() }, cred).map(|_| true)
    }

    /// The lease is gone (nothing is logged any more): all that waits is sent, and the MDT is told
    /// of all opens.
    pub(crate) fn end_local(&self) {
        loop {
            let untold = self.wb.tree.lock().opens.untold();
            // What is told, or closed meanwhile, is not found again.
            self.come_clean(&untold);
            if untold.is_empty() {
                break;
            }
        }
        self.wb.tree.lock().forget_all();
    }

    /// An operation was done here and is to be sent.
    pub(super) fn keep(&self, tree: &mut Tree, entry: Entry) {
        let was_long = tree.log.is_long();
        tree.log(entry);
        tree.names.shrink();
        tree.attrs.shrink();
        if !was_long && tree.log.is_long() {
            self.wake_flusher();
        }
    }
}

/// What operations on their way change.
#[derive(Default)]
pub(super) struct Busy {
    fids: Vec<Fid>,
    names: Vec<(Fid, Vec<u8>)>,
}

/// An open to be told: the operation, file and handle.
pub(super) type Telling = (Op, Fid, u64);

impl Tree {
    /// What goes along with operations that are sent now, behind a part of the log.
    fn prepare(&mut self, front: Vec<Entry>, ops: Vec<Op>, alone: bool) -> Sent {
        let refs: Vec<&Op> = ops.iter().collect();
        let may = self.trust.any();
        let opens = self.tell_opens(&refs);
        let doubtful = self.makes_doubtful(&refs);
        doubtful.iter().for_each(|fid| self.trust.leases.changing(*fid));
        // What is open here goes name by name: its opens take the message's room.
        let foresees = may && !alone && opens.is_empty();
        let first = if foresees { self.foresee(&ops) } else { Vec::new() };
        let asks = if may && !alone { self.wishes(&ops) } else { Vec::new() };
        let notes: Vec<Note> = ops.iter().map(|op| self.note(op)).collect();
        let busy = self.make_busy(&refs);
        let moves = u32::from(refs.iter().any(|op| moves(op)));
        self.moving += moves;
        let ops: Vec<Op> = ops.into_iter().map(|op| self.closing(op)).collect();
        if !front.is_empty() {
            self.in_flight = Some(Instant::now());
        }
        let closed = Vec::new();
        Sent { front, first, opens, ops, notes, asks, alone, busy, moves, doubtful, closed }
    }

    fn knows(&mut self, dir: Fid, name: &[u8]) -> bool {
        self.names.find(dir, name) != Found::Unknown
    }

    fn is_busy(&mut self, ops: &[&Op]) -> bool {
        // Tellers of one file come one after the other anyway, and must not wait for what may wait for others
        // who want that file.
        if self.busy.is_empty() || (!self.trust.alone() && ops.iter().all(|op| tells(op))) {
            return false;
        }
        ops.iter().any(|op| self.touched(op).iter().any(|fid| self.busy.contains_key(fid)))
    }

    fn make_busy(&mut self, ops: &[&Op]) -> Busy {
        let fids: Vec<Fid> = ops.iter().flat_map(|op| self.touched(op)).collect();
        for fid in &fids {
            *self.busy.entry(*fid).or_default() += 1;
        }
        let names: Vec<_> = ops.iter().flat_map(|op| Tree::touched_names(op)).collect();
        self.busy_names.extend(names.iter().cloned());
        Busy { fids, names }
    }

    pub(super) fn end_busy(&mut self, busy: &Busy) {
        for name in &busy.names {
            if let Some(at) = self.busy_names.iter().position(|busy| busy == name) {
                self.busy_names.swap_remove(at);
            }
        }
        for fid in &busy.fids {
            if let Some(n) = self.busy.get_mut(fid) {
                *n -= 1;
                if *n == 0 {
                    self.busy.remove(fid);
                }
            }
        }
    }

    pub(super) fn opens_of(&self, fid: Fid) -> Vec<Telling> {
        let own = self.opens.own(fid).into_iter();
        own.map(|(handle, flags)| {
            let wire = flags | O_REOPEN | O_NO_INLINE;
            (Op::Open { fid, flags: wire, handle }, fid, handle)
        })
        .collect()
    }

    /// Opens the MDT must know of before these operations run.
    fn tell_opens(&mut self, ops: &[&Op]) -> Vec<Telling> {
        let mut fids: Vec<Fid> =
            ops.iter().filter(|op| needs_opens(op)).flat_map(|op| self.touched(op)).collect();
        fids.sort_unstable();
        fids.dedup();
        fids.into_iter().flat_map(|fid| self.opens_of(fid)).collect()
    }

    /// What should be known after an operation so that the next ones can be done here.
    fn wishes(&mut self, ops: &[Op]) -> Vec<(Op, Note)> {
        let mut wishes = Vec::new();
        for op in ops {
            match op {
                Op::Create { dir, .. } | Op::Unlink { dir, .. } | Op::Link { dir, .. } => {
                    wishes.push(Op::GetAttr { fid: *dir });
                }
                Op::Rename { from_dir, to_dir, .. } | Op::Whiteout { from_dir, to_dir, .. } => {
                    wishes.push(Op::GetAttr { fid: *from_dir });
                    if to_dir != from_dir {
                        wishes.push(Op::GetAttr { fid: *to_dir });
                    }
                }
                Op::Lookup { dir, name } => {
                    // What is looked up is often opened next.
                    if self.trust.alone() && ops.len() == 1 {
                        wishes.push(Op::GetLayout { fid: Fid::CURRENT });
                    }
                    if self.attrs.get(*dir).is_none() {
                        wishes.push(Op::GetAttr { fid: *dir });
                    }
                    if name != b".." && self.lists(*dir) {
                        let flags = RD_PLUS;
                        let max_bytes = LISTING;
                        wishes.push(Op::ReadDir { dir: *dir, cookie: 0, max_bytes, flags });
                    }
                }
                _ => {}
            }
        }
        if self.room == 0 {
            wishes.push(Op::Statfs {});
        }
        wishes.into_iter().map(|op| (op.clone(), self.note(&op))).collect()
    }

    /// A name of a directory is asked for: whether all of them are asked for along with it. Who has just made them may
    /// still have to give them up, so that no attributes may be kept, or none of the names: then it is tried again, ever more
    /// rarely.
    fn lists(&mut self, dir: Fid) -> bool {
        let misses = self.names.missed(dir);
        misses.is_multiple_of(MISSES) && (misses / MISSES).is_power_of_two()
    }

    /// A close as the MDT must hear it: of an open it does not know only the report.
    pub(super) fn closing(&mut self, op: Op) -> Op {
        let Op::Close { fid, handle, report } = op else { return op };
        let own = self.opens.is_own(fid, handle);
        self.opens.end(fid, handle);
        match report {
            Some(report) if own => Op::Report { fid, report },
            None if own => Op::GetAttr { fid },
            report => Op::Close { fid, handle, report },
        }
    }

    /// The MDT opened a file.
    pub(super) fn note_open(&mut self, op: &Op, res: &Res) {
        if let Some((fid, handle, flags)) = opened(op, res) {
            self.opens.opened(fid, handle, flags);
        }
    }

    /// Takes the answers to a part of the log.
    pub(super) fn settle(
        &mut self,
        front: &[Entry],
        results: &mut impl Iterator<Item = Res>,
        got: &Got,
    ) {
        self.unlog(front);
        self.confirm(front, got);
        for entry in front {
            match results.next() {
                // A restarted MDT does not know the open: nothing is lost.
                Some(Res::Failed { errno })
                    if Errno(errno.into()) == Errno::EBADF
                        && matches!(entry.op, Op::Close { .. }) => {}
                Some(Res::Failed { errno }) => {
                    self.failed_later(&entry.op, Errno(errno.into()));
                }
                Some(Res::Attr { attr }) | Some(Res::Entry { attr, .. }) => self.compare(&attr),
                Some(Res::Renamed { moved, replaced }) => {
                    self.compare(&moved);
                    replaced.iter().for_each(|a| self.compare(a));
                }
                Some(_) => {}
                None => self.failed_later(&entry.op, Errno::EIO),
            }
        }
    }

    /// What was foreseen must be what is; if not, the MDT is right.
    fn compare(&mut self, attr: &proto::Attr) {
        if attr.nlink == 0 {
            return;
        }
        // What is not believed any more may be another's doing.
        let Some(known) = self.believed(attr.fid) else {
            return;
        };
        if known.attr.version < attr.version
            || (known.attr.version == attr.version && known.attr != *attr)
        {
            tracing::warn!(foreseen = ?known.attr, found = ?attr, "an operation went otherwise");
            known.attr = attr.clone();
            self.surprises += 1;
        }
    }
}
