//! What the namespace holds in memory: inodes, directories, blobs, over the store.
//!
//! Role: a read finds a value, a known absence, or nothing (a miss: the caller steps aside while a
//! reader thread fetches). Changes are noted dirty with the number of the group that will make
//! them durable; dirty values are never evicted (invariant 10: clean ones are, under a limit).
//! Never does: I/O.

use std::cell::Cell;
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use net::sparse::give_back;
use proto::{Enc, Fid};
use store::Write;

use rustc_hash::{FxHashMap as HashMap, FxHashSet as HashSet};

use crate::hot::{self, Hot};
use crate::keys;
use crate::record::{self, Dent, Inode};

mod dir;
mod spans;
mod sweep;
#[cfg(test)]
mod tests;

pub use dir::Page;
use dir::{Dir, Place, place};
pub use spans::TO_THE_END;
use sweep::Hand;

/// Segments of the inode table: growing one of them pauses for a fraction of the whole.
const SEGMENTS: usize = 256;
/// Directories up to this many entries are loaded whole on first use; of larger ones as much as is asked for.
pub const WHOLE_DIR: usize = 65_536;

/// A cached value: `None` is a known absence.
#[derive(Debug)]
struct Slot<T> {
    value: Option<T>,
    /// The store has it, or will with a group already cut.
    stored: bool,
    /// Group that carries its last change.
    group: u64,
    used: Cell<bool>,
}

/// The cache.
pub struct Cache {
    inodes: Vec<HashMap<Fid, Slot<Arc<Inode>>>>,
    dirs: HashMap<Fid, Dir>,
    blobs: HashMap<Vec<u8>, Slot<Bytes>>,
    dirty_inodes: HashSet<Fid>,
    dirty_entries: HashSet<(Fid, Place)>,
    dirty_blobs: HashSet<Vec<u8>>,
    raw: HashMap<Vec<u8>, Option<Vec<u8>>>,
    hot: Hot,
    /// The group that is being filled.
    group: u64,
    /// Last group that is durable.
    durable: u64,
    dirty_bytes: usize,
    weight: usize,
    limit: usize,
    /// Entries in all directories.
    names: usize,
    hand: Hand,
    /// Loads under way, with the group that was durable when each began.
    loads: BTreeMap<u64, u64>,
    next_load: u64,
    /// Removed values, to be forgotten once durable.
    tombs: VecDeque<(u64, Tomb)>,
    /// Inodes that exist, and as of the last group.
    count: (u64, u64),
}

#[derive(Debug)]
enum Tomb {
    Inode(Fid),
    Entry(Fid, Place),
    Blob(Vec<u8>),
}

/// Changes of one operation, to be applied as a whole.
#[derive(Default, Debug)]
pub struct Changes {
    /// New values of inodes; `None` removes.
    pub inodes: Vec<(Fid, Option<Arc<Inode>>)>,
    /// New entries; `None` removes.
    pub entries: Vec<(Fid, Vec<u8>, Option<Dent>)>,
    /// New directories: nothing of them is in the store.
    pub born: Vec<Fid>,
    /// Blobs that are also read back.
    pub blobs: Vec<(Vec<u8>, Option<Bytes>)>,
    /// Records nobody reads while the server runs.
    pub raw: Vec<(Vec<u8>, Option<Vec<u8>>)>,
}

impl Changes {
    /// Whether nothing changes.
    pub fn is_empty(&self) -> bool {
        self.inodes.is_empty()
            && self.entries.is_empty()
            && self.blobs.is_empty()
            && self.raw.is_empty()
    }
}

fn segment(fid: Fid) -> usize {
    (fid.oid as usize ^ (fid.seq as usize).wrapping_mul(31)) % SEGMENTS
}

const BLOB_WEIGHT: usize = 128;
/// Bytes of an entry's record beside the name.
const ENTRY_BYTES: usize = 43;
/// What a known absence weighs.
const ABSENT_WEIGHT: usize = 64;

fn inode_weight(i: Option<&Inode>) -> usize {
    i.map_or(ABSENT_WEIGHT, Inode::weight)
}

const ENTRY_WEIGHT: usize = 112;

impl Cache {
    /// An empty cache of at most `limit` bytes (dirty values may exceed it for a moment).
    pub fn new(limit: usize) -> Cache {
        Cache {
            inodes: (0..SEGMENTS).map(|_| HashMap::default()).collect(),
            dirs: HashMap::default(),
            blobs: HashMap::default(),
            dirty_inodes: HashSet::default(),
            dirty_entries: HashSet::default(),
            dirty_blobs: HashSet::default(),
            raw: HashMap::default(),
            hot: Hot::default(),
            group: 1,
            durable: 0,
            dirty_bytes: 0,
            weight: 0,
            limit,
            names: 0,
            hand: Hand::new(WHOLE_DIR, sweep::LEAST_ENTRIES),
            loads: BTreeMap::new(),
            next_load: 0,
            tombs: VecDeque::new(),
            count: (0, 0),
        }
    }

    /// An inode: `None` is a miss, `Some(None)` a known absence.
    pub fn inode(&self, fid: Fid) -> Option<Option<Arc<Inode>>> {
        let slot = self.inodes[segment(fid)].get(&fid)?;
        slot.used.set(true);
        Some(slot.value.clone())
    }

    /// An entry: `None` is a miss, `Some(None)` a known absence.
    pub fn entry(&self, dir: Fid, name: &[u8]) -> Option<Option<Dent>> {
        let d = self.dirs.get(&dir)?;
        d.used.set(true);
        d.find(name)
    }

    /// A blob: `None` is a miss, `Some(None)` a known absence.
    pub fn blob(&self, key: &[u8]) -> Option<Option<Bytes>> {
        let slot = self.blobs.get(key)?;
        slot.used.set(true);
        Some(slot.value.clone())
    }

    /// Entries after `cookie`, at most `max`, and fewer where what follows is not here. `Err`: from this hash on
    /// nothing is.
    pub fn page(&self, dir: Fid, cookie: u64, max: usize) -> Result<Page<'_>, u64> {
        let d = self.dirs.get(&dir).ok_or(cookie >> keys::COOKIE_SHIFT)?;
        d.used.set(true);
        d.page(cookie, max)
    }

    /// Applies the changes of one operation; they belong to the group being filled.
    pub fn apply(&mut self, changes: Changes) {
        for dir in changes.born {
            self.dirs.insert(dir, Dir::born());
        }
        for (fid, value) in changes.inodes {
            self.put_inode(fid, value);
        }
        for (dir, name, value) in changes.entries {
            self.put_entry(dir, &name, value);
        }
        for (key, value) in changes.blobs {
            self.put_blob(key, value);
        }
        for (key, value) in changes.raw {
            self.put_raw(key, value);
        }
    }

    fn put_inode(&mut self, fid: Fid, value: Option<Arc<Inode>>) {
        let add = inode_weight(value.as_deref());
        let table = &mut self.inodes[segment(fid)];
        let old = table.get(&fid);
        let stored = old.is_some_and(|s| s.stored);
        let less = old.map_or(0, |s| inode_weight(s.value.as_deref()));
        // Whatever is changed or removed was read before: what is not here is new.
        let was = old.is_some_and(|s| s.value.is_some());
        let delta = i64::from(value.is_some()) - i64::from(was);
        self.count.0 = self.count.0.saturating_add_signed(delta);
        self.weight = (self.weight + add).saturating_sub(less);
        if value.is_none()
            && let Some(d) = self.dirs.get_mut(&fid)
        {
            d.group = self.group;
            d.dead = true;
        }
        table.insert(fid, Slot { value, stored, group: self.group, used: Cell::new(true) });
        match self.dirty_inodes.insert(fid) {
            true => self.dirty_bytes += add,
            false => self.dirty_bytes = (self.dirty_bytes + add).saturating_sub(less),
        }
    }

    fn put_entry(&mut self, dir: Fid, name: &[u8], value: Option<Dent>) {
        let place = place(name);
        let d = self.dirs.entry(dir).or_default();
        d.group = self.group;
        d.used.set(true);
        let old = d.entries.get(&place);
        // An entry that is not here is in the store only if this part of the directory is not known.
        let stored = old.map_or_else(|| !d.known.covers(place.0), |s| s.stored);
        if old.is_none() {
            self.weight += ENTRY_WEIGHT + name.len();
            self.names += 1;
        }
        let slot = Slot { value, stored, group: self.group, used: Cell::new(true) };
        d.entries.insert(place.clone(), slot);
        if self.dirty_entries.insert((dir, place)) {
            self.dirty_bytes += ENTRY_BYTES + name.len();
        }
    }

    fn put_blob(&mut self, key: Vec<u8>, value: Option<Bytes>) {
        let old = self.blobs.get(&key);
        let stored = old.is_none_or(|s| s.stored);
        let size = |v: Option<&Bytes>| v.map_or(0, |b| b.len()) + BLOB_WEIGHT;
        let (less, add) = (old.map_or(0, |s| size(s.value.as_ref())), size(value.as_ref()));
        self.weight = (self.weight + add).saturating_sub(less);
        match self.dirty_blobs.insert(key.clone()) {
            true => self.dirty_bytes += add,
            false => self.dirty_bytes = (self.dirty_bytes + add).saturating_sub(less),
        }
        self.blobs.insert(key, Slot { value, stored, group: self.group, used: Cell::new(true) });
    }

    /// Takes what a reader found of an inode, unless something newer is here.
    pub fn loaded_inode(&mut self, fid: Fid, value: Option<Inode>) {
        let table = &mut self.inodes[segment(fid)];
        if table.contains_key(&fid) {
            return;
        }
        // What is in a log is newer than the record, and was read when it came from the store.
        let value = match self.hot.get(&keys::of(keys::INODE, fid)) {
            Some(newest) => newest.and_then(|v| record::decode(v).ok()),
            None => value,
        };
        self.weight += inode_weight(value.as_ref());
        let stored = value.is_some();
        let slot = Slot { value: value.map(Arc::new), stored, group: 0, used: Cell::new(true) };
        table.insert(fid, slot);
    }

    /// Takes what a reader found of a blob, unless something newer is here.
    pub fn loaded_blob(&mut self, key: Vec<u8>, value: Option<Bytes>) {
        if self.blobs.contains_key(&key) {
            return;
        }
        self.weight += value.as_ref().map_or(0, |b| b.len()) + BLOB_WEIGHT;
        let stored = value.is_some();
        self.blobs.insert(key, Slot { value, stored, group: 0, used: Cell::new(true) });
    }

    /// Takes entries a reader found: all that the directory has of these hashes, and maybe others. `absent`: this
    /// name was looked for and not found.
    pub fn loaded_entries(
        &mut self,
        dir: Fid,
        found: Vec<(Vec<u8>, Dent)>,
        all_of: Range<u64>,
        absent: Option<&[u8]>,
    ) {
        let d = self.dirs.entry(dir).or_default();
        d.used.set(true);
        let found = found.iter().map(|(name, dent)| (&name[..], Some(dent)));
        for (name, dent) in found.chain(absent.map(|name| (name, None))) {
            if d.loaded(name, dent.cloned()) {
                self.weight += ENTRY_WEIGHT + name.len();
                self.names += 1;
            }
        }
        if !all_of.is_empty() {
            d.known.add(all_of);
        }
    }

    /// How many changed records wait for the next group.
    pub fn dirty(&self) -> usize {
        self.dirty_inodes.len() + self.dirty_entries.len() + self.dirty_blobs.len() + self.raw.len()
    }

    /// Adds a record nobody reads while the server runs.
    pub fn put_raw(&mut self, key: Vec<u8>, value: Option<Vec<u8>>) {
        let size = |v: &Option<Vec<u8>>| v.as_ref().map_or(0, Vec::len);
        self.dirty_bytes += size(&value);
        match self.raw.entry(key) {
            Entry::Vacant(e) => {
                self.dirty_bytes += e.key().len();
                e.insert(value);
            }
            Entry::Occupied(mut e) => {
                let old = e.insert(value);
                self.dirty_bytes = self.dirty_bytes.saturating_sub(size(&old));
            }
        }
    }

    /// Adds a record that will be changed again to the group that is about to be cut; `write` encodes it.
    pub fn put_hot(&mut self, key: [u8; hot::KEY], write: impl FnOnce(&mut Enc)) {
        // What was to become of it before counts no more.
        if !self.raw.is_empty() {
            self.raw.remove(&key[..]);
        }
        self.hot.gather(key, write);
    }

    /// Bytes of the records that wait for the next group, about.
    pub fn dirty_bytes(&self) -> usize {
        self.dirty_bytes
    }

    /// The logs that the store holds, as it says.
    pub fn set_hot(&mut self, hot: Hot) {
        self.hot = hot;
    }

    /// Records that a log holds in place of those of the store.
    pub fn hot(&self) -> &Hot {
        &self.hot
    }

    /// Cuts the group: its number and its writes. What was made and removed within it cancels out.
    /// With `settled` the store needs no logs after it.
    pub fn cut(&mut self, settled: bool) -> (u64, Vec<Write>) {
        let mut writes = Vec::with_capacity(self.dirty() + 1);
        if self.count.0 != self.count.1 {
            self.count.1 = self.count.0;
            let value = self.count.0.to_le_bytes().to_vec();
            writes.push(Write::Put(keys::single(keys::COUNT), value));
        }
        for fid in self.dirty_inodes.drain() {
            let Some(slot) = self.inodes[segment(fid)].get_mut(&fid) else { continue };
            let key = keys::hot(keys::INODE, fid.key());
            match &slot.value {
                // A directory that was there before changes with each name in it.
                Some(i) if slot.stored && i.is_dir() => {
                    self.hot.gather(key, |e| record::encode_into(e, &**i));
                }
                Some(i) => {
                    emit(&mut writes, key.to_vec(), Some(record::encode(&**i)), &mut slot.stored);
                }
                None => {
                    self.tombs.push_back((self.group, Tomb::Inode(fid)));
                    if std::mem::take(&mut slot.stored) {
                        writes.extend(self.hot.take(key.to_vec(), None));
                    }
                }
            }
        }
        for (dir, place) in self.dirty_entries.drain() {
            let key = keys::entry(dir, place.0, &place.1);
            let slot = self.dirs.get_mut(&dir).and_then(|d| d.entries.get_mut(&place));
            if let Some(slot) = slot {
                let value = slot.value.as_ref().map(record::encode);
                if value.is_none() {
                    self.tombs.push_back((self.group, Tomb::Entry(dir, place)));
                }
                emit(&mut writes, key, value, &mut slot.stored);
            }
        }
        for key in self.dirty_blobs.drain() {
            if let Some(slot) = self.blobs.get_mut(&key) {
                let value = slot.value.as_ref().map(|b| b.to_vec());
                if value.is_none() {
                    self.tombs.push_back((self.group, Tomb::Blob(key.clone())));
                }
                emit(&mut writes, key, value, &mut slot.stored);
            }
        }
        for (key, value) in self.raw.drain() {
            writes.extend(self.hot.take(key, value));
        }
        self.hot.cut(self.group, &mut writes, settled);
        let group = self.group;
        self.group += 1;
        self.dirty_bytes = 0;
        (group, writes)
    }

    /// A load begins; what changes from now on stays until it ends, so that the (older) values it
    /// brings cannot take the place of newer ones.
    pub fn begin_load(&mut self) -> u64 {
        self.next_load += 1;
        self.loads.insert(self.next_load, self.durable);
        self.next_load
    }

    /// A load's values were taken in.
    pub fn end_load(&mut self, load: u64) {
        self.loads.remove(&load);
    }

    /// Values last changed by this group or an earlier one may be forgotten.
    fn floor(&self) -> u64 {
        self.loads.values().copied().min().unwrap_or(self.durable).min(self.durable)
    }

    /// A group is durable: what it carried may be evicted.
    pub fn committed(&mut self, group: u64) {
        self.durable = group;
        let floor = self.floor();
        self.hot.stored(floor);
        while self.tombs.front().is_some_and(|(g, _)| *g <= floor) {
            if let Some((_, tomb)) = self.tombs.pop_front() {
                self.forget(tomb, floor);
            }
        }
    }

    fn forget(&mut self, tomb: Tomb, floor: u64) {
        fn dead<T>(s: &Slot<T>, floor: u64) -> bool {
            s.value.is_none() && s.group <= floor
        }
        match tomb {
            Tomb::Inode(fid) => {
                let table = &mut self.inodes[segment(fid)];
                if let Some(s) = table.get(&fid).filter(|s| dead(s, floor)) {
                    self.weight = self.weight.saturating_sub(inode_weight(s.value.as_deref()));
                    table.remove(&fid);
                    give_back(table);
                    self.bury(fid, floor);
                }
            }
            Tomb::Entry(dir, place) => {
                let Some(d) = self.dirs.get_mut(&dir) else { return };
                if d.entries.get(&place).is_some_and(|s| dead(s, floor)) {
                    d.entries.remove(&place);
                    self.weight = self.weight.saturating_sub(ENTRY_WEIGHT + place.1.len());
                    self.names -= 1;
                    self.bury(dir, floor);
                }
            }
            Tomb::Blob(key) => {
                if self.blobs.get(&key).is_some_and(|s| dead(s, floor)) {
                    self.blobs.remove(&key);
                    self.weight = self.weight.saturating_sub(BLOB_WEIGHT);
                }
            }
        }
    }

    /// Forgets a removed directory once its last entry is forgotten.
    fn bury(&mut self, dir: Fid, floor: u64) {
        let done = |d: &Dir| d.dead && d.entries.is_empty() && d.group <= floor;
        if self.dirs.get(&dir).is_some_and(done) {
            self.dirs.remove(&dir);
            give_back(&mut self.dirs);
        }
    }

    /// Whether an inode's last change is not durable yet.
    pub fn is_dirty(&self, fid: Fid) -> bool {
        self.inodes[segment(fid)].get(&fid).is_some_and(|s| s.group > self.durable)
    }

    /// Inodes that exist.
    pub fn count(&self) -> u64 {
        self.count.0
    }

    /// Inodes that the store holds, as it says.
    pub fn set_count(&mut self, count: u64) {
        self.count = (count, count);
    }

    /// The group that is being filled.
    pub fn group(&self) -> u64 {
        self.group
    }

    /// Bytes held, roughly.
    pub fn weight(&self) -> usize {
        self.weight
    }
}

fn emit(writes: &mut Vec<Write>, key: Vec<u8>, value: Option<Vec<u8>>, stored: &mut bool) {
    match value {
        Some(v) => {
            *stored = true;
            writes.push(Write::Put(key, v));
        }
        None if *stored => {
            *stored = false;
            writes.push(Write::Del(key));
        }
        None => {}
    }
}
