//! What is known of directories while the lease stands.
//!
//! Role: attributes of directories in which names were just made or removed (the kernel asks for
//! them before it does so again), and the names that a directory made here may have, so that others
//! are known to be absent. Assumptions: attributes that the MDT answers carry a version that grows
//! with each change; nobody else makes names under the lease. Never does: I/O.

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hasher};

use parking_lot::Mutex;
use proto::{Attr, Fid};

const SHARDS: usize = 16;
/// Directories known per shard; one more takes the place of any.
const DIRS_PER_SHARD: usize = 128;
/// Names known per shard; a directory that has more is not known by names.
const NAMES_PER_SHARD: usize = 32_768;

#[derive(Default)]
struct Known {
    epoch: u64,
    attr: Option<Attr>,
    /// Hashes of all names it may have; None: not known.
    names: Option<HashSet<u64>>,
}

#[derive(Default)]
struct Shard {
    dirs: HashMap<Fid, Known>,
    names: usize,
}

/// See the module.
#[derive(Default)]
pub(crate) struct Dirs([Mutex<Shard>; SHARDS]);

fn hash(name: &[u8]) -> u64 {
    let mut h = DefaultHasher::new();
    h.write(name);
    h.finish()
}

impl Shard {
    fn forget(&mut self, dir: Fid) {
        if let Some(known) = self.dirs.remove(&dir) {
            self.names -= known.names.map_or(0, |n| n.len());
        }
    }

    /// What is known under this epoch, to be added to.
    fn at(&mut self, dir: Fid, epoch: u64) -> &mut Known {
        if self.dirs.get(&dir).is_some_and(|k| k.epoch != epoch) {
            self.forget(dir);
        }
        if self.dirs.len() >= DIRS_PER_SHARD
            && !self.dirs.contains_key(&dir)
            && let Some(any) = self.dirs.keys().next().copied()
        {
            self.forget(any);
        }
        self.dirs.entry(dir).or_insert_with(|| Known { epoch, ..Known::default() })
    }
}

impl Dirs {
    fn shard(&self, dir: Fid) -> &Mutex<Shard> {
        &self.0[(dir.oid as usize ^ dir.seq as usize) % SHARDS]
    }

    /// Attributes the MDT answered under this epoch; older ones than are known are ignored.
    pub(crate) fn learn(&self, attr: &Attr, epoch: u64) {
        let mut shard = self.shard(attr.fid).lock();
        let known = shard.at(attr.fid, epoch);
        if known.attr.as_ref().is_none_or(|a| a.version <= attr.version) {
            known.attr = Some(attr.clone());
        }
    }

    /// As `learn`, of a directory that may be of no interest.
    pub(crate) fn update(&self, attr: &Attr, epoch: u64) {
        let mut shard = self.shard(attr.fid).lock();
        if let Some(known) = shard.dirs.get_mut(&attr.fid)
            && known.epoch == epoch
            && known.attr.as_ref().is_some_and(|a| a.version < attr.version)
        {
            known.attr = Some(attr.clone());
        }
    }

    /// What is known of a directory's attributes.
    pub(crate) fn attr(&self, dir: Fid, epoch: u64) -> Option<Attr> {
        let shard = self.shard(dir).lock();
        shard.dirs.get(&dir).filter(|k| k.epoch == epoch)?.attr.clone()
    }

    /// Nothing is known any more.
    pub(crate) fn forget(&self, dir: Fid) {
        self.shard(dir).lock().forget(dir);
    }

    /// A directory is about to be made: it has no names.
    pub(crate) fn empty(&self, dir: Fid, epoch: u64) {
        self.shard(dir).lock().at(dir, epoch).names = Some(HashSet::new());
    }

    /// A name is about to be made.
    pub(crate) fn may_have(&self, dir: Fid, name: &[u8]) {
        let mut shard = self.shard(dir).lock();
        let shard = &mut *shard;
        let Some(known) = shard.dirs.get_mut(&dir) else { return };
        let Some(names) = &mut known.names else { return };
        shard.names += usize::from(names.insert(hash(name)));
        if shard.names > NAMES_PER_SHARD {
            shard.names -= names.len();
            known.names = None;
        }
    }

    /// Whether a directory certainly lacks a name.
    pub(crate) fn lacks(&self, dir: Fid, name: &[u8], epoch: u64) -> bool {
        let shard = self.shard(dir).lock();
        let known = shard.dirs.get(&dir).filter(|k| k.epoch == epoch);
        let names = known.and_then(|k| k.names.as_ref());
        names.is_some_and(|n| !n.contains(&hash(name)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIR: Fid = Fid { seq: 0x4_0000_0001, oid: 7, ver: 0 };

    #[test]
    fn names_are_absent_only_where_all_are_known() {
        let d = Dirs::default();
        d.may_have(DIR, b"before");
        assert!(!d.lacks(DIR, b"a", 1), "not made here");
        d.empty(DIR, 1);
        d.may_have(DIR, b"a");
        assert!(!d.lacks(DIR, b"a", 1));
        assert!(d.lacks(DIR, b"b", 1));
        assert!(!d.lacks(DIR, b"b", 2), "another lease");
        d.forget(DIR);
        assert!(!d.lacks(DIR, b"b", 1));
    }

    #[test]
    fn a_directory_with_too_many_names_is_not_known_by_them() {
        let d = Dirs::default();
        d.empty(DIR, 1);
        for n in 0..=NAMES_PER_SHARD as u64 {
            assert!(d.lacks(DIR, b"x", 1));
            d.may_have(DIR, &n.to_le_bytes());
        }
        assert!(!d.lacks(DIR, b"x", 1));
        assert_eq!(d.shard(DIR).lock().names, 0);
    }

    #[test]
    fn there_is_a_limit_to_directories() {
        let d = Dirs::default();
        for oid in 0..10_000 {
            d.empty(Fid { oid, ..DIR }, 1);
            d.may_have(Fid { oid, ..DIR }, b"a");
        }
        for shard in &d.0 {
            let shard = shard.lock();
            assert!(shard.dirs.len() <= DIRS_PER_SHARD && shard.names <= DIRS_PER_SHARD);
        }
    }
}
