//! Metadata write-back: what is known of names and attributes, and what was done here and waits to
//! be told to the MDT.
//!
//! Role: while this client holds the lease, operations on what is known are answered here; changes
//! are made here first ([`apply`]), logged ([`log`]) and sent in order, many in one message
//! ([`send`]; [`sent`] takes the answers). Alone, the log goes in front of everything else that is sent; among others, of all that
//! concerns what is logged ([`among`]). Nothing is sent while an
//! answer to a part of it is outstanding, so that the MDT sees one order (invariant 2).
//! Assumptions: one lock, held for look-ups and never over a message. Never does: permissions, data.

mod among;
mod apply;
mod aside;
mod foresee;
mod log;
mod message;
pub(crate) mod near;
mod opens;
mod send;
mod sent;
mod trust;
mod turn;
mod vouch;

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use proto::mds::{LS_ATTR, Op, Res};
use proto::{Attr, Errno, Fid, FileKind, Layout};
use rustc_hash::FxHashMap as HashMap;

use crate::attrs::Attrs;
use crate::leases::{Got, Mark};
use crate::names::{Found, Names};
use foresee::{Kinds, Shared};
use log::Log;
use near::Near;
use opens::Opens;
pub(crate) use trust::Trust;

/// Bytes of the MDT's store a change may take, beside its names and data.
const CHANGE_BYTES: u64 = 1024;
/// The MDT's space that is left to it, in bytes: changes that could reach into it are asked for one
/// by one, so that a refusal is heard at once. Above the reserve of the MDT
/// (`MdtOptions::reserve_bytes`) by what others may take while its figure travels.
const ROOM_KEPT: u64 = 128 << 20;
/// Bytes a client among others takes at most before it hears of the MDT's space again: sixteen that do
/// so at once stay within what is kept.
const ROOM_AMONG: u64 = 8 << 20;
/// What one free inode of statfs stands for at the MDT, in bytes.
const INODE_BYTES: u64 = 1024;
/// Failures kept until somebody asks (invariant 8).
const MAX_LOST: usize = 4096;

/// Operations that the MDT refused, or that were lost, after they had been answered here.
#[derive(Debug)]
pub(crate) struct Lost {
    pub(crate) fids: Vec<Fid>,
    pub(crate) errno: Errno,
}

/// What one lock guards.
pub(crate) struct Tree {
    pub(crate) names: Names,
    pub(crate) attrs: Attrs,
    pub(crate) opens: Opens,
    pub(crate) near: Near,
    shared: Shared,
    kinds: Kinds,
    pub(crate) log: Log,
    /// Inodes that operations on their way to the MDT change.
    busy: HashMap<Fid, u32>,
    /// Names, by directory, that such change: others may see them changed already.
    busy_names: Vec<(Fid, Vec<u8>)>,
    /// Inodes that what is logged or on its way touches, and how many entries do not say which.
    pending: HashMap<Fid, u32>,
    vague: usize,
    /// Renames from directory to directory on their way: where a directory is may be another by now.
    moving: u32,
    /// A part of the log was sent then, and is not answered.
    in_flight: Option<Instant>,
    /// This client ends: nobody waits longer than a request may.
    leaving: bool,
    /// Changes when everything known is dropped.
    epoch: u64,
    /// Bytes that changes may still take at the MDT before it is asked again.
    room: u64,
    /// What it said last.
    free: u64,
    pub(crate) dom_limit: u64,
    lost: Vec<Lost>,
    /// Answers that were not as foreseen.
    pub(crate) surprises: u64,
    trust: Trust,
}

/// See the module.
pub(crate) struct Wb {
    tree: Mutex<Tree>,
    changed: Condvar,
    trust: Trust,
    /// How long a request waits for the MDT.
    patience: Duration,
}

/// What was so when something was asked.
struct Note {
    epoch: u64,
    removals: u64,
    /// Of the directory concerned.
    changes: u64,
    /// A rename between two names of one inode, which does nothing.
    idle: bool,
    /// Among others: when it was asked, and what came with the answer.
    mark: Mark,
    got: Arc<Got>,
}

impl Wb {
    /// Whether the MDT was told, and has answered, all that was done here.
    pub(crate) fn is_told(&self) -> bool {
        let tree = self.tree.lock();
        tree.log.is_empty() && tree.in_flight.is_none()
    }

    /// Nothing known; of so many inodes at most. Requests wait for so long.
    pub(crate) fn new(trust: Trust, dom_limit: u64, inodes: usize, patience: Duration) -> Wb {
        let tree = Tree {
            names: Names::within(2 * inodes),
            attrs: Attrs::within(inodes),
            opens: Opens::default(),
            near: Near::default(),
            shared: Shared::default(),
            kinds: Kinds::default(),
            log: Log::default(),
            busy: HashMap::default(),
            busy_names: Vec::new(),
            pending: HashMap::default(),
            vague: 0,
            moving: 0,
            in_flight: None,
            leaving: false,
            epoch: 1,
            room: 0,
            free: 0,
            dom_limit,
            lost: Vec::new(),
            surprises: 0,
            trust: trust.clone(),
        };
        Wb { tree: Mutex::new(tree), changed: Condvar::new(), trust, patience }
    }

    /// Whether names and attributes may be changed here first.
    fn may(&self) -> bool {
        self.trust.alone()
    }

    /// Nothing is known any more; what was logged stays.
    pub(crate) fn forget_all(&self) {
        self.tree.lock().forget_all();
    }

    /// The lease was lost with all that was not told.
    pub(crate) fn lose(&self) {
        let mut tree = self.tree.lock();
        while !tree.log.is_empty() {
            let front = tree.log.take();
            tree.unlog(&front);
            for entry in front {
                tree.failed_later(&entry.op, Errno::EIO);
            }
        }
        tree.forget_all();
    }

    /// Something is called back: what rests on it is dropped.
    pub(crate) fn recalled(&self, fid: Fid, bits: u8) {
        self.tree.lock().recalled(fid, bits);
    }

    /// Others have read a file; whether what is known of it could be moved on.
    pub(crate) fn accessed(&self, attr: &Attr) -> bool {
        let mut tree = self.tree.lock();
        let known = tree.believed(attr.fid).is_some();
        tree.attrs.accessed(attr);
        known
    }

    /// A file changed elsewhere.
    pub(crate) fn forget(&self, fid: Fid) {
        let mut tree = self.tree.lock();
        tree.names.forget(fid);
        tree.attrs.forget(fid);
    }

    /// The MDT restarted: it knows of no opens and grants other limits.
    pub(crate) fn restarted(&self, dom_limit: u64) {
        let mut tree = self.tree.lock();
        tree.forget_all();
        tree.opens.untell();
        tree.dom_limit = dom_limit;
    }

    /// Failures nobody was told of yet.
    pub(crate) fn take_lost(&self) -> Vec<Lost> {
        std::mem::take(&mut self.tree.lock().lost)
    }

    /// Opens a file without telling the MDT; None when that is not possible. For writing the
    /// MDT must hold its data: it marks files whose objects are written. Among others only what nobody
    /// else has anything of is opened so, and a call-back tells it ([`among`]).
    pub(crate) fn open(&self, fid: Fid, flags: u32) -> Option<u64> {
        let mut tree = self.tree.lock();
        if tree.busy.contains_key(&fid) {
            return None;
        }
        let attr = &tree.own(fid)?.attr;
        let fits = flags & proto::mds::O_WRITE == 0 || apply::plain_inline(attr);
        fits.then(|| tree.opens.begin(fid, flags))
    }

    /// Closes a file the MDT was not told of; false: it was.
    pub(crate) fn close(&self, fid: Fid, handle: u64) -> bool {
        let mut tree = self.tree.lock();
        let own = tree.opens.is_own(fid, handle) && !tree.busy.contains_key(&fid);
        if own {
            tree.opens.end(fid, handle);
        }
        own
    }

    /// Small files that are likely to be read next, and their sizes.
    pub(crate) fn near(&self, fid: Fid) -> Vec<(Fid, u64)> {
        let mut tree = self.tree.lock();
        if self.trust.any() { tree.near(fid) } else { Vec::new() }
    }

    /// Whether a file is known to have objects, and which.
    pub(crate) fn knows_layout(&self, fid: Fid) -> bool {
        self.tree.lock().attrs.edit(fid).is_some_and(|k| k.layout().is_some())
    }

    /// Whether these are the newest attributes of an inode, and nothing of it waits here or is on its way.
    pub(crate) fn is_newest(&self, attr: &Attr) -> bool {
        self.tree.lock().is_newest(attr)
    }

    /// The newest attributes, as far as they are known.
    pub(crate) fn newest(&self, fid: Fid) -> Option<Attr> {
        self.tree.lock().attrs.get(fid).cloned()
    }

    /// Operations waiting, and surprises so far; for tests and statistics.
    pub(crate) fn figures(&self) -> (u64, u64) {
        let tree = self.tree.lock();
        (tree.log.len() as u64, tree.surprises)
    }
}

impl Tree {
    fn forget_all(&mut self) {
        self.names.clear();
        self.attrs.clear();
        self.epoch += 1;
        (self.room, self.free) = (0, 0);
    }

    fn child(&mut self, dir: Fid, name: &[u8]) -> Option<Fid> {
        match self.names.find(dir, name) {
            Found::Is(fid, _) => Some(fid),
            _ => None,
        }
    }

    /// Inodes an operation changes.
    fn touched(&mut self, op: &Op) -> Vec<Fid> {
        let named = match op {
            Op::Create { dir, name, .. } | Op::Unlink { dir, name, .. } => {
                vec![Some(*dir), self.child(*dir, name)]
            }
            Op::Rename { from_dir, from, to_dir, to, .. }
            | Op::Whiteout { from_dir, from, to_dir, to, .. } => {
                let children = (self.child(*from_dir, from), self.child(*to_dir, to));
                vec![Some(*from_dir), Some(*to_dir), children.0, children.1]
            }
            Op::Link { fid, dir, .. } => vec![Some(*fid), Some(*dir)],
            Op::Open { fid, flags, .. } if flags & proto::mds::O_WRITE != 0 => vec![Some(*fid)],
            Op::SetAttr { fid, .. }
            | Op::Close { fid, .. }
            | Op::Report { fid, .. }
            | Op::WriteInline { fid, .. }
            | Op::BeginWrite { fid, .. }
            | Op::DropInline { fid, .. }
            | Op::SetLayout { fid, .. }
            | Op::SetXattr { fid, .. }
            | Op::RemoveXattr { fid, .. } => vec![Some(*fid)],
            _ => Vec::new(),
        };
        let mut fids: Vec<Fid> = named.into_iter().flatten().collect();
        fids.sort_unstable();
        fids.dedup();
        fids
    }

    /// Names an operation changes, and of which directory.
    fn touched_names(op: &Op) -> Vec<(Fid, Vec<u8>)> {
        match op {
            Op::Create { dir, name, .. } if name.is_empty() => Vec::new(),
            Op::Create { dir, name, .. }
            | Op::Unlink { dir, name, .. }
            | Op::Link { dir, name, .. } => vec![(*dir, name.clone())],
            Op::Rename { from_dir, from, to_dir, to, .. }
            | Op::Whiteout { from_dir, from, to_dir, to, .. } => {
                vec![(*from_dir, from.clone()), (*to_dir, to.clone())]
            }
            _ => Vec::new(),
        }
    }

    /// The directory whose names an operation asks for.
    fn asks_names(op: &Op) -> Option<Fid> {
        match op {
            Op::Lookup { dir, .. } | Op::ReadDir { dir, .. } => Some(*dir),
            _ => None,
        }
    }

    fn note(&mut self, op: &Op) -> Note {
        let changes = Tree::asks_names(op).map_or(0, |dir| self.names.changes(dir));
        let idle = match op {
            Op::Rename { from_dir, from, to_dir, to, .. }
            | Op::Whiteout { from_dir, from, to_dir, to, .. } => {
                let moved = self.child(*from_dir, from);
                moved.is_some() && moved == self.child(*to_dir, to)
            }
            _ => false,
        };
        let (removals, mark) = (self.attrs.removals, self.trust.leases.mark());
        Note { epoch: self.epoch, removals, changes, idle, mark, got: Arc::default() }
    }

    /// Takes in what the MDT said to something that went there.
    fn learn(&mut self, op: &Op, res: &Res, note: &Note) {
        if note.epoch != self.epoch {
            return self.doubt(op);
        }
        let same = |t: &Tree, dir: Fid| t.names.changes(dir) == note.changes;
        let learn = |t: &mut Tree, attr: &Attr| t.learn_attr(attr, note);
        match (op, res) {
            (Op::Lookup { dir, name }, Res::Entry { attr, .. }) => {
                learn(self, attr);
                if !matches!(&name[..], b"." | b"..") {
                    self.found_in(attr, *dir, note);
                }
                match &name[..] {
                    b"." => {}
                    b".." => self.names.set_parent(*dir, attr.fid),
                    _ if same(self, *dir) && self.trusts_since(*dir, note) => {
                        self.names.set(*dir, name, Some((attr.fid, attr.kind())), false);
                    }
                    _ => {}
                }
            }
            (Op::Lookup { dir, name }, Res::Failed { errno })
                if i32::from(*errno) == Errno::ENOENT.0
                    && same(self, *dir)
                    && self.trusts_since(*dir, note) =>
            {
                self.names.set(*dir, name, None, false);
            }
            (Op::ReadDir { dir, cookie, .. }, Res::Entries { entries, end }) => {
                for attr in entries.0.iter().filter_map(|e| e.attr.as_ref()) {
                    learn(self, attr);
                    self.found_in(attr, *dir, note);
                }
                if same(self, *dir) && self.trusts_since(*dir, note) {
                    let of = entries.0.iter().map(|e| (e.cookie, e.name.clone(), e.fid, e.kind));
                    self.names.fill(*dir, *cookie, of, *end);
                }
            }
            (Op::Create { dir, name, .. }, Res::Entry { attr, created, .. }) => {
                learn(self, attr);
                if *created && attr.is_dir() {
                    self.born(attr.fid, *dir, note);
                    self.found_in(attr, *dir, note);
                }
                if !name.is_empty() {
                    let is = Some((attr.fid, attr.kind()));
                    self.set_name(*dir, name, is, *created, note);
                }
            }
            (Op::Unlink { dir, name, .. }, Res::Attr { attr }) => {
                self.set_name(*dir, name, None, true, note);
                self.lost_link(attr, note);
            }
            (
                Op::Rename { from_dir, from, to_dir, to, flags },
                Res::Renamed { moved, replaced },
            ) => {
                learn(self, moved);
                self.found_in(moved, *to_dir, note);
                let of = |a: &Attr| Some((a.fid, a.kind()));
                let swap = flags & proto::mds::RN_EXCHANGE != 0;
                // Two names of one inode: nothing happened.
                if note.idle {
                    return;
                }
                // Among others only the MDT knows whether they were.
                if replaced.is_none() && moved.nlink > 1 && !self.trust.alone() {
                    self.names.forget_name(*from_dir, from);
                    self.names.forget_name(*to_dir, to);
                    return;
                }
                let back = replaced.as_ref().filter(|_| swap).and_then(of);
                self.set_name(*from_dir, from, back, true, note);
                self.set_name(*to_dir, to, of(moved), true, note);
                if let Some(a) = replaced {
                    if swap {
                        learn(self, a);
                        self.found_in(a, *from_dir, note);
                    } else {
                        self.lost_link(a, note);
                    }
                }
            }
            // What is at the old name the answer does not tell.
            (Op::Whiteout { from_dir, from, to_dir, to, .. }, Res::Renamed { moved, replaced }) => {
                learn(self, moved);
                self.found_in(moved, *to_dir, note);
                self.names.forget_name(*from_dir, from);
                self.names.forget_name(*to_dir, to);
                replaced.iter().for_each(|a| self.lost_link(a, note));
            }
            (Op::Link { dir, name, .. }, Res::Attr { attr }) => {
                learn(self, attr);
                self.set_name(*dir, name, Some((attr.fid, attr.kind())), true, note);
            }
            (Op::ReadLink { fid }, Res::Data { data }) => {
                if let Some(known) = self.believed(*fid) {
                    known.target = Some(data[..].into());
                }
            }
            (Op::ReadInline { .. }, Res::Inline { attr, data, .. }) => {
                learn(self, attr);
                if let Some(known) = self.attrs.edit(attr.fid)
                    && known.attr.version == attr.version
                {
                    known.inline = data.as_ref().map(|d| d.len() as u64);
                }
            }
            (Op::Statfs {}, Res::Statfs { files_free, .. }) => self.learn_room(*files_free),
            (_, Res::Attr { attr }) | (_, Res::Opened { attr, .. }) => learn(self, attr),
            (_, Res::Layout { attr, .. }) => learn(self, attr),
            (op, Res::Failed { .. }) => self.doubt(op),
            _ => {}
        }
        self.names.shrink();
        self.attrs.shrink();
    }

    /// An answer told attributes.
    fn learn_attr(&mut self, attr: &Attr, note: &Note) {
        let mark = note.got.mark(attr.fid, LS_ATTR, note.mark);
        if self.trust.alone() || self.trust.leases.fresh(attr.fid, LS_ATTR, mark) {
            self.attrs.learn(attr, note.removals, mark);
        }
    }

    /// An answer that told attributes found them in this directory.
    fn found_in(&mut self, attr: &Attr, dir: Fid, note: &Note) {
        self.attrs.found_in(attr, dir, note.got.mark(attr.fid, LS_ATTR, note.mark));
    }

    /// A layout came along with what a look-up found.
    fn learn_layout(&mut self, found: Option<&Res>, layout: Option<&Layout>, note: &Note) {
        if let (Some(Res::Entry { attr, .. }), Some(layout)) = (found, layout)
            && note.epoch == self.epoch
            && self.trust.alone()
        {
            self.attrs.learn_layout(attr, layout);
        }
    }

    /// A name was changed from here.
    fn set_name(
        &mut self,
        dir: Fid,
        name: &[u8],
        is: Option<(Fid, FileKind)>,
        changed: bool,
        note: &Note,
    ) {
        if self.trusts_since(dir, note) {
            return self.names.set(dir, name, is, changed);
        }
        // Others may have changed it since; what is known of the rest stands or falls by its lease.
        self.names.forget_name(dir, name);
    }

    fn lost_link(&mut self, attr: &Attr, note: &Note) {
        if attr.nlink > 0 && attr.kind() != FileKind::Dir {
            return self.learn_attr(attr, note);
        }
        self.attrs.removed(attr.fid);
        self.names.forget(attr.fid);
    }

    /// An operation failed at the MDT: what was believed of what it names may be wrong.
    fn doubt(&mut self, op: &Op) {
        match op {
            Op::Create { dir, name, .. }
            | Op::Unlink { dir, name, .. }
            | Op::Lookup { dir, name }
            | Op::Link { dir, name, .. } => self.names.forget_name(*dir, name),
            Op::Rename { from_dir, from, to_dir, to, .. }
            | Op::Whiteout { from_dir, from, to_dir, to, .. } => {
                self.names.forget_name(*from_dir, from);
                self.names.forget_name(*to_dir, to);
            }
            _ => {}
        }
        for fid in self.touched(op) {
            self.attrs.forget(fid);
        }
        match op {
            // Removed, perhaps, by an operation whose answer has not come yet: names that lead there are asked for.
            Op::GetAttr { fid }
            | Op::GetLayout { fid }
            | Op::ReadInline { fid }
            | Op::Open { fid, .. } => {
                self.attrs.forget(*fid);
            }
            _ => {}
        }
    }

    fn learn_room(&mut self, files_free: u64) {
        let free = files_free.saturating_mul(INODE_BYTES);
        if !self.trust.alone() {
            // Others take from it, too.
            self.free = free;
            self.room = free.saturating_sub(ROOM_KEPT).min(ROOM_AMONG);
            return;
        }
        // The same figure was measured before what was done since.
        if free != self.free {
            self.free = free;
            let waiting = self.log.len() as u64 * CHANGE_BYTES + 2 * self.log.bytes() as u64;
            self.room = free.saturating_sub(ROOM_KEPT + waiting);
        }
    }

    /// An operation that was answered here failed afterwards (invariant 6).
    fn failed_later(&mut self, op: &Op, errno: Errno) {
        let fids = self.touched(op);
        let mut fids = fids;
        if let Op::Create { fid, .. } = op {
            fids.push(*fid);
            self.attrs.forget(*fid);
            self.names.forget(*fid);
        }
        tracing::warn!(op = op.verb(), ?fids, error = %errno, "an operation answered before has failed");
        self.doubt(op);
        if self.lost.len() < MAX_LOST {
            self.lost.push(Lost { fids, errno });
        }
    }
}

#[cfg(test)]
mod tests;
