//! Open objects of a target: at most one [`Object`] for each identifier, in shards.
//!
//! An object in use or with unstable writes stays; of the others the ones not looked up lately are
//! closed when there are more than the limit.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};

use parking_lot::Mutex;
use proto::Fid;
use proto::layout::ObjectId;
use rustix::io::Errno;

use crate::files::Dir;
use crate::object::Object;

/// Shards, so that no lock is shared by all requests (invariant 9).
const SHARDS: usize = 16;
/// How many candidates are looked at to close one object.
const LOOK_AT: usize = 8;
/// Most objects closed when one is opened.
const CLOSE_AT_ONCE: usize = 4;

pub(crate) struct Cache {
    shards: Vec<Mutex<Shard>>,
    limit: usize,
    open: AtomicUsize,
    pub(crate) dirty: AtomicI64,
}

type Key = (Fid, u16, u16);

fn key(id: &ObjectId) -> Key {
    (id.fid, id.comp, id.stripe)
}

#[derive(Default)]
struct Shard {
    objects: HashMap<Key, Arc<Object>>,
    /// Order of closing (second chance); holds each open object once.
    clock: VecDeque<Key>,
}

impl Cache {
    /// At most about `limit` objects stay open without need.
    pub(crate) fn new(limit: usize) -> Cache {
        Cache {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            limit: limit.max(SHARDS),
            open: AtomicUsize::new(0),
            dirty: AtomicI64::new(0),
        }
    }

    fn shard(&self, id: &ObjectId) -> &Mutex<Shard> {
        let mix = id.fid.seq ^ u64::from(id.fid.oid) ^ (u64::from(id.stripe) << 7);
        &self.shards[(mix.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 60) as usize % SHARDS]
    }

    /// How many are open.
    pub(crate) fn len(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }
    /// The limit it was made with.
    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    /// The object if it is open.
    pub(crate) fn peek(&self, id: &ObjectId) -> Option<Arc<Object>> {
        let shard = self.shard(id).lock();
        let object = shard.objects.get(&key(id))?;
        object.used.store(true, Ordering::Relaxed);
        Some(object.clone())
    }

    /// The object, opened (`create`: made) when it is not yet; whether it was made now.
    pub(crate) fn get(
        &self,
        dir: &Dir,
        id: &ObjectId,
        create: bool,
    ) -> Result<Option<(Arc<Object>, bool)>, Errno> {
        if let Some(o) = self.peek(id) {
            return Ok(Some((o, false)));
        }
        let Some(object) = Object::open(dir, id, create)? else { return Ok(None) };
        let object = Arc::new(object);
        let mut shard = self.shard(id).lock();
        if let Some(o) = shard.objects.get(&key(id)) {
            return Ok(Some((o.clone(), false)));
        }
        // A destroy unlinks first and then takes the object out of here, so this look suffices.
        if object.is_gone() {
            return if create { Err(Errno::STALE) } else { Ok(None) };
        }
        shard.objects.insert(key(id), object.clone());
        shard.clock.push_back(key(id));
        self.open.fetch_add(1, Ordering::Relaxed);
        // More than one: objects that had to stay because they were dirty are caught up with.
        for _ in 0..CLOSE_AT_ONCE {
            if self.len() > self.limit {
                self.close_one(&mut shard);
            }
        }
        let made = object.is_new();
        Ok(Some((object, made)))
    }

    fn close_one(&self, shard: &mut Shard) {
        for _ in 0..LOOK_AT.min(shard.clock.len()) {
            let Some(id) = shard.clock.pop_front() else { return };
            let Some(o) = shard.objects.get(&id) else { continue };
            let used = o.used.swap(false, Ordering::Relaxed);
            // The only other owners got theirs under this lock, so a count of one cannot grow.
            if !used && Arc::strong_count(o) == 1 && !o.is_dirty() && !o.is_new() {
                shard.objects.remove(&id);
                self.open.fetch_sub(1, Ordering::Relaxed);
                return;
            }
            shard.clock.push_back(id);
        }
    }

    /// Takes an object out, after its file was unlinked.
    pub(crate) fn remove(&self, id: &ObjectId) {
        let mut shard = self.shard(id).lock();
        if let Some(o) = shard.objects.remove(&key(id)) {
            self.open.fetch_sub(1, Ordering::Relaxed);
            if o.is_dirty() {
                self.dirty.fetch_sub(1, Ordering::Relaxed);
            }
            shard.clock.retain(|c| *c != key(id));
        }
    }

    /// All objects with unstable writes.
    pub(crate) fn dirty_objects(&self) -> Vec<Arc<Object>> {
        let mut all = Vec::new();
        for shard in &self.shards {
            all.extend(shard.lock().objects.values().filter(|o| o.is_dirty()).cloned());
        }
        all
    }
}
