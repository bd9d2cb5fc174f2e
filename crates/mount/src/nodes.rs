//! Which nodes the kernel was told of.
//!
//! Role: when a lease goes, what the kernel caches of each must be dropped. Node ids are inode
//! numbers, which a FID gives and which give it back; of each its names are kept ([`crate::names`]). Never
//! does: I/O.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use std::time::{Duration, Instant};

use client::OpenFile;
use net::sparse::give_back;
use parking_lot::Mutex;
use proto::{Attr, FileKind};
use rustc_hash::FxHashMap as HashMap;

use crate::names::{Added, Name, Names, Tally};
use crate::rest::Rest;
use crate::told::Told;

const SHARDS: usize = 64;
/// What is kept of one node. The kernel may know millions, so what most of them have no use for lies apart.
#[derive(Default)]
struct Known {
    lookups: u64,
    /// Until when the kernel may believe its attributes, and when a name was found for it last with
    /// such (0: none was); nanoseconds after the start.
    believed: u64,
    named: u64,
    /// Counts how often it was told some.
    told: u64,
    names: Names,
    rare: Option<Box<Rare>>,
    /// A file was opened to be read.
    opened: bool,
}

/// What directories have, and nodes that were removed, lost their attributes, or are devices, FIFOs or sockets.
#[derive(Default)]
struct Rare {
    /// Its last attributes, if its last name was removed here: who still holds it (as a working
    /// directory, or by O_PATH) may ask.
    removed: Option<Attr>,
    /// What the kernel was told last of a directory, or of something it opens by itself: for the case that another
    /// mount removes it while somebody here holds it.
    seen: Option<Attr>,
    /// Keeps a removed inode alive at the MDT; see `holds`.
    held: Option<Arc<OpenFile>>,
    /// Something the kernel opens by itself.
    special: bool,
    /// The drop of its attributes after which the kernel was told none yet; 0: it was.
    dropped: u64,
    rest: Rest,
}

impl Known {
    fn rare(&mut self) -> &mut Rare {
        self.rare.get_or_insert_default()
    }
}

/// As it is kept of each node.
fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Look-ups the kernel has not forgotten, by node.
pub struct Nodes {
    shards: Vec<Mutex<HashMap<u64, Known>>>,
    special: AtomicUsize,
    /// Drops of attributes so far.
    drops: AtomicU64,
    start: Instant,
    pub(crate) tally: Tally,
}

impl Nodes {
    /// None yet but the root, which the kernel never forgets; of a client that keeps so many inodes.
    pub fn within(inodes: usize) -> Nodes {
        let shards = (0..SHARDS).map(|_| Mutex::default()).collect();
        let (special, start, tally) = (AtomicUsize::new(0), Instant::now(), Tally::within(inodes));
        let nodes = Nodes { shards, special, drops: AtomicU64::new(0), start, tally };
        nodes.told(1, FileKind::Dir);
        nodes
    }

    /// How many devices, FIFOs and sockets the kernel knows.
    pub fn special(&self) -> usize {
        self.special.load(Relaxed)
    }

    fn shard(&self, node: u64) -> &Mutex<HashMap<u64, Known>> {
        &self.shards[(node ^ (node >> 24)) as usize % SHARDS]
    }

    /// The kernel is told of a node once more; whether it knows it.
    pub fn told(&self, node: u64, kind: FileKind) -> bool {
        let mut shard = self.shard(node).lock();
        let known = shard.entry(node).or_default();
        known.lookups += 1;
        let first = known.lookups == 1;
        match kind {
            FileKind::File | FileKind::Symlink => {}
            FileKind::Dir if first => known.rare().rest = Rest::new(self.clock()),
            FileKind::Dir => {}
            _ if !std::mem::replace(&mut known.rare().special, true) => {
                self.special.fetch_add(1, Relaxed);
            }
            _ => {}
        }
        !first
    }

    /// The kernel gives `count` back; whether it knows the node no more.
    pub fn forget(&self, node: u64, count: u64) -> bool {
        let mut shard = self.shard(node).lock();
        let Some(known) = shard.get_mut(&node) else { return false };
        known.lookups = known.lookups.saturating_sub(count);
        if known.lookups > 0 {
            return false;
        }
        let gone = shard.remove(&node);
        give_back(&mut shard);
        drop(shard);
        gone.map(|gone| self.forgotten(gone)).is_some()
    }

    fn forgotten(&self, gone: Known) {
        gone.names.clear(&self.tally);
        if gone.rare.is_some_and(|rare| rare.special) {
            self.special.fetch_sub(1, Relaxed);
        }
    }

    /// The kernel's file system has ended, which gives nothing back one by one.
    pub fn forget_all(&self) {
        for shard in &self.shards {
            let all = std::mem::take(&mut *shard.lock());
            all.into_values().for_each(|gone| self.forgotten(gone));
        }
    }

    /// The kernel may be told that a name leads to a node, and may keep that; `again`: it may have asked
    /// about a name that it knows, for this thread. Whether it is noted.
    pub fn named(&self, node: u64, name: (u64, &[u8]), again: Option<u32>) -> bool {
        let again = again.map(|thread| Told::new(self.clock(), thread));
        let mut shard = self.shard(node).lock();
        // Who tells of it has counted it.
        let added = shard.get_mut(&node).map(|k| k.names.add(&self.tally, name, again));
        drop(shard);
        let new = matches!(added, Some(Added::New | Added::Missed));
        if new && let Some(dir) = self.shard(name.0).lock().get_mut(&name.0) {
            dir.names.remove_absent(&self.tally, name.1);
        }
        matches!(added, Some(Added::New | Added::Known))
    }

    /// Whether the name of a directory may be kept among others. `again`: as in [`Nodes::named`].
    pub fn may_keep(&self, node: u64, again: bool) -> bool {
        let now = self.clock();
        let shard = self.shard(node).lock();
        let rare = shard.get(&node).and_then(|known| known.rare.as_ref());
        rare.is_some_and(|rare| rare.rest.is_over(now, again))
    }

    /// Takes the names of some nodes, which were called back. From now on those that move are noted apart.
    pub fn take_names_of(&self, nodes: impl Iterator<Item = u64>) -> Vec<Name> {
        let (mut names, now) = (Vec::new(), self.clock());
        self.tally.begin_some();
        for node in nodes {
            let mut shard = self.shard(node).lock();
            let Some(known) = shard.get_mut(&node) else { continue };
            // Also where nothing is taken: it is not only read.
            known.rare().rest.begin(now);
            known.names.take_leading(&self.tally, &mut names);
        }
        names
    }

    /// The kernel may be told that a directory has no such name, and may keep that.
    pub fn absent(&self, (parent, name): (u64, &[u8])) {
        match self.shard(parent).lock().get_mut(&parent) {
            Some(dir) => dir.names.add_absent(&self.tally, name),
            None => self.tally.missed(),
        }
    }

    /// A name was removed here.
    pub fn unnamed(&self, node: u64, name: (u64, &[u8])) {
        if let Some(known) = self.shard(node).lock().get_mut(&node) {
            known.names.remove(&self.tally, name);
        }
    }

    /// A name became another here. To be called before the kernel moves it, with its time.
    pub fn moved(&self, node: u64, from: (u64, &[u8]), to: (u64, &[u8])) {
        let mut shard = self.shard(node).lock();
        let Some(known) = shard.get_mut(&node) else { return };
        match known.names.remove(&self.tally, from) {
            Some(again) => drop(known.names.add(&self.tally, to, again)),
            // It has no time, or it was taken and may not have expired.
            None => self.tally.moved(to),
        }
    }

    /// Takes all names the kernel may keep, and whether there are more. From now on those that move are
    /// noted apart.
    pub fn take_names(&self) -> (Vec<Name>, bool) {
        let (mut names, missing) = (Vec::new(), self.tally.begin());
        for shard in &self.shards {
            for (node, known) in shard.lock().iter_mut() {
                known.names.take(*node, &self.tally, &mut names);
            }
        }
        (names, missing)
    }

    /// The names that lead to some nodes, which stay noted.
    pub fn names_of(&self, nodes: impl Iterator<Item = u64>) -> Vec<Name> {
        let of = |node: u64| {
            let shard = self.shard(node).lock();
            shard.get(&node).map(|known| known.names.leading().to_vec()).unwrap_or_default()
        };
        nodes.flat_map(of).collect()
    }

    /// Now, as times are noted here.
    pub fn clock(&self) -> Duration {
        self.start.elapsed()
    }

    /// The last name of a node was removed.
    pub fn removed(&self, node: u64, attr: Attr, held: Option<Arc<OpenFile>>) {
        if let Some(known) = self.shard(node).lock().get_mut(&node) {
            let rare = known.rare();
            (rare.removed, rare.held) = (Some(attr), held);
        }
    }

    /// A file is opened to be read; whether it was before.
    pub fn opened(&self, node: u64) -> bool {
        let mut shard = self.shard(node).lock();
        shard.get_mut(&node).is_some_and(|known| std::mem::replace(&mut known.opened, true))
    }

    /// What the kernel is told of a node that it knows.
    pub fn seen(&self, node: u64, attr: &Attr) {
        if matches!(attr.kind(), FileKind::File | FileKind::Symlink) {
            return;
        }
        if let Some(known) = self.shard(node).lock().get_mut(&node) {
            known.rare().seen = Some(attr.clone());
        }
    }

    /// The MDT knows a node no more: its last attributes, if its last name was removed here, or if it is of the kind
    /// that is kept.
    pub fn gone(&self, node: u64) -> Option<Attr> {
        let mut shard = self.shard(node).lock();
        let rare = shard.get_mut(&node)?.rare.as_mut()?;
        if rare.removed.is_none() {
            rare.removed = Some(Attr { nlink: 0, ..rare.seen.take()? });
        }
        rare.removed.clone()
    }

    /// Changes what is kept of a removed node; its new attributes.
    pub fn change(&self, node: u64, f: impl FnOnce(&mut Attr)) -> Option<Attr> {
        let mut shard = self.shard(node).lock();
        let attr = shard.get_mut(&node)?.rare.as_mut()?.removed.as_mut()?;
        f(attr);
        Some(attr.clone())
    }

    /// The kernel may be told to believe attributes for this long (`named`: beside a name); whether it
    /// knows the node.
    pub fn believe(&self, node: u64, time: Duration, named: bool) -> bool {
        let now = self.clock();
        let mut shard = self.shard(node).lock();
        let Some(known) = shard.get_mut(&node) else { return false };
        known.believed = known.believed.max(nanos(now.saturating_add(time)));
        known.told += 1;
        if named {
            known.named = nanos(now).max(1);
        }
        true
    }

    /// Drops of attributes so far.
    pub fn drops(&self) -> u64 {
        self.drops.load(SeqCst)
    }

    /// The kernel's attributes of a node are about to be dropped: it may not know any more how long the file is.
    pub fn dropping(&self, node: u64) {
        if let Some(known) = self.shard(node).lock().get_mut(&node) {
            known.rare().dropped = self.drops.fetch_add(1, SeqCst) + 1;
        }
    }

    /// The kernel is told attributes that were asked for after so many drops.
    pub fn tells(&self, node: u64, drops: u64) {
        let mut shard = self.shard(node).lock();
        let rare = shard.get_mut(&node).and_then(|known| known.rare.as_mut());
        if let Some(rare) = rare.filter(|rare| rare.dropped <= drops) {
            rare.dropped = 0;
        }
    }

    /// Whether it was told none since they were dropped.
    pub fn is_dropped(&self, node: u64) -> bool {
        let shard = self.shard(node).lock();
        let rare = shard.get(&node).and_then(|known| known.rare.as_ref());
        rare.is_some_and(|rare| rare.dropped > 0)
    }

    /// What the kernel may believe of its attributes, for [`Nodes::disbelieved`]; None: nothing.
    pub fn belief(&self, node: u64) -> Option<u64> {
        let now = nanos(self.clock());
        let shard = self.shard(node).lock();
        shard.get(&node).filter(|known| known.believed > now).map(|known| known.told)
    }

    /// The kernel has dropped its attributes; it may have been told others meanwhile.
    pub fn disbelieved(&self, node: u64, belief: u64) {
        let mut shard = self.shard(node).lock();
        if let Some(known) = shard.get_mut(&node).filter(|known| known.told == belief) {
            known.believed = 0;
        }
    }

    /// Nodes whose attributes the kernel may believe still.
    pub fn believed(&self) -> Vec<u64> {
        let now = nanos(self.clock());
        let of = |shard: &HashMap<u64, Known>| {
            let believed = shard.iter().filter(|(_, known)| known.believed > now);
            believed.map(|(node, _)| *node).collect::<Vec<_>>()
        };
        self.shards.iter().flat_map(|shard| of(&shard.lock())).collect()
    }

    /// Whether a name was found for it, with attributes to believe, a moment ago, and the kernel
    /// has not given it back.
    pub fn named_within(&self, node: u64, moment: Duration) -> bool {
        let now = nanos(self.clock());
        let named = self.shard(node).lock().get(&node).map_or(0, |known| known.named);
        named > 0 && now.saturating_sub(named) < nanos(moment)
    }

    /// All nodes the kernel knows.
    pub fn all(&self) -> Vec<u64> {
        self.shards.iter().flat_map(|s| s.lock().keys().copied().collect::<Vec<_>>()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_the_kernel_knows_takes_little_memory() {
        assert!(size_of::<(u64, Known)>() <= 88, "{}", size_of::<(u64, Known)>());
        let n = Nodes::within(1000);
        n.told(7, FileKind::File);
        n.believe(7, Duration::from_secs(1), true);
        n.tells(7, 0);
        n.opened(7);
        assert!(!n.is_dropped(7) && n.shard(7).lock()[&7].rare.is_none());
    }

    #[test]
    fn of_a_mount_that_has_ended_the_kernel_knows_nothing() {
        let n = Nodes::within(1000);
        n.told(7, FileKind::Dir);
        n.told(9, FileKind::Fifo);
        assert!(n.named(7, (1, b"d"), None) && n.believe(7, Duration::from_secs(9), true));
        assert!(n.named_within(7, Duration::from_secs(9)) && n.special() == 1);
        n.forget_all();
        assert!(!n.named_within(7, Duration::from_secs(9)) && n.belief(7).is_none());
        assert_eq!((n.all(), n.special()), (Vec::new(), 0));
        assert!(n.take_names_of([1, 7].into_iter()).is_empty());
        n.forget(7, 1);
    }

    #[test]
    fn what_another_mount_removed_has_its_last_attributes_and_no_link() {
        let (n, never) = (Nodes::within(1000), proto::TimeSpec::default());
        let attr = |mode, nlink| Attr {
            fid: proto::Fid::NONE,
            mode,
            nlink,
            uid: 1,
            gid: 2,
            rdev: 0,
            size: 4096,
            blocks: 8,
            atime: never,
            mtime: never,
            ctime: never,
            btime: never,
            flags: 0,
            version: 3,
        };
        n.seen(7, &attr(0o040_700, 2));
        assert_eq!(n.gone(7), None, "the kernel does not know it");
        for (node, mode) in [(7, 0o040_755), (8, 0o010_644), (9, 0o100_644)] {
            n.told(node, FileKind::from_mode(mode).unwrap());
            n.seen(node, &attr(mode, 1));
        }
        n.seen(7, &attr(0o040_700, 2));
        assert_eq!(n.gone(7), Some(attr(0o040_700, 0)));
        assert_eq!(n.gone(8), Some(attr(0o010_644, 0)));
        assert_eq!(n.gone(9), None, "files are kept by who has them open");
        n.change(7, |a| a.mode = 0o040_711);
        assert_eq!(n.gone(7), Some(attr(0o040_711, 0)));
    }

    #[test]
    fn what_is_told_while_attributes_are_dropped_stays_noted() {
        let n = Nodes::within(1000);
        n.told(7, FileKind::File);
        assert_eq!(n.belief(7), None);
        n.believe(7, Duration::from_secs(10), false);
        let belief = n.belief(7).unwrap();
        n.believe(7, Duration::ZERO, false);
        n.disbelieved(7, belief);
        assert!(n.belief(7).is_some(), "told since");
        n.disbelieved(7, n.belief(7).unwrap());
        assert!(n.belief(7).is_none());
    }

    #[test]
    fn only_what_was_asked_after_a_drop_makes_up_for_it() {
        let n = Nodes::within(1000);
        n.told(7, FileKind::File);
        n.told(8, FileKind::File);
        let before = n.drops();
        n.dropping(7);
        n.tells(7, before);
        assert!(n.is_dropped(7) && !n.is_dropped(8) && !n.is_dropped(9));
        let since = n.drops();
        n.dropping(8);
        n.tells(7, since);
        n.tells(8, since);
        assert!(!n.is_dropped(7) && n.is_dropped(8));
    }

    #[test]
    fn nodes_live_until_every_look_up_is_forgotten() {
        let n = Nodes::within(1000);
        n.told(7, FileKind::File);
        n.told(7, FileKind::File);
        n.told(8, FileKind::Fifo);
        assert_eq!(n.special(), 1);
        n.forget(7, 1);
        n.forget(8, 5);
        n.forget(9, 1);
        assert_eq!(n.special(), 0);
        let mut all = n.all();
        all.sort_unstable();
        assert_eq!(all, [1, 7]);
        n.forget(7, 1);
        assert_eq!(n.all(), [1]);
    }

    #[test]
    fn a_file_was_opened_before_until_it_is_forgotten() {
        let n = Nodes::within(1000);
        assert!(!n.opened(7) && !n.opened(7), "the kernel does not know it");
        n.told(7, FileKind::File);
        assert!(!n.opened(7) && n.opened(7));
        assert!(n.forget(7, 1) && !n.forget(7, 1));
        n.told(7, FileKind::File);
        assert!(!n.opened(7));
    }

    fn taken(n: &Nodes) -> usize {
        n.take_names().0.len()
    }

    #[test]
    fn names_go_with_their_nodes_and_move_with_renames() {
        let n = Nodes::within(1000);
        assert!(!n.told(7, FileKind::File) && n.told(7, FileKind::File));
        n.absent((1, b"a"));
        n.named(7, (1, b"a"), None);
        n.named(7, (1, b"b"), None);
        n.named(8, (1, b"untold"), None);
        n.moved(7, (1, b"a"), (1, b"c"));
        n.moved(7, (1, b"absent"), (1, b"d"));
        n.unnamed(7, (1, b"b"));
        assert_eq!(taken(&n), 1, "the kernel has it by one name");
        assert_eq!(taken(&n), 0);
        n.named(7, (1, b"a"), None);
        n.absent((1, b"x"));
        n.forget(7, 2);
        assert_eq!(taken(&n), 1, "the absent one");
        n.absent((9, b"x"));
        assert!(n.take_names().1, "of a directory nobody was told of");
    }

    #[test]
    fn names_that_are_called_back_are_taken_once_and_rest() {
        let n = Nodes::within(1000);
        assert!(!n.may_keep(7, false), "the kernel does not know it");
        for node in [7, 8] {
            n.told(node, FileKind::Dir);
            assert!(n.may_keep(node, false) && !n.may_keep(node, true));
            assert!(n.named(node, (1, b"d"), None));
        }
        assert_eq!(n.names_of([7, 8, 9].into_iter()).len(), 2);
        assert_eq!(n.take_names_of([7, 9].into_iter()).len(), 1);
        assert!(!n.may_keep(7, false) && n.may_keep(8, false));
        assert!(n.take_names_of([7].into_iter()).is_empty());
        assert_eq!(n.names_of([7, 8].into_iter()).len(), 1);
        assert_eq!(taken(&n), 1, "they stayed noted");
    }

    #[test]
    fn what_moves_after_it_was_taken_is_found_by_who_took_it() {
        let n = Nodes::within(1000);
        n.told(7, FileKind::File);
        n.named(7, (1, b"a"), None);
        assert_eq!(taken(&n), 1);
        n.moved(7, (1, b"a"), (1, b"b"));
        assert_eq!(n.tally.count_moved(), 1);
        n.named(7, (1, b"c"), None);
        n.moved(7, (1, b"c"), (1, b"d"));
        assert_eq!((n.tally.count_moved(), taken(&n)), (1, 1), "told since, and noted as such");
    }
}
