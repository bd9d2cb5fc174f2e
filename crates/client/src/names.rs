//! Names of directories: present, absent, and how far a listing is known.
//!
//! Role: what the MDT would say of a name once all that waits here has reached it. Assumptions: the
//! caller holds the lock of [`crate::wb`], and asks only while it holds the lease. Bounded by
//! twice `max_cached_inodes` ([`crate::Options`]): directories nobody used lately go first; of a large one
//! it is kept which names it cannot hold ([`hashes`]), so that making others needs no message. Never does: I/O.

mod hashes;

use std::collections::BTreeMap;

use net::sparse::give_back;
use proto::order::{COOKIE_SHIFT, cookie, name_hash};
use proto::{Fid, FileKind};
use rustc_hash::FxHashMap as HashMap;

use crate::ages::{Ages, Tick};
use crate::leases::Mark;
use hashes::Hashes;

/// Names from which on those of a directory are not forgotten at once: of fewer, one message tells all.
const FOLD_MIN: usize = 1024;
/// Hashes that count as much as a name with all that is known of it.
const PER_NAME: usize = 8;

/// What a name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// An inode.
    Is(Fid, FileKind),
    /// Nothing.
    Absent,
    /// Only the MDT knows.
    Unknown,
}

/// One directory.
#[derive(Debug, Default)]
struct Dir {
    /// None: known to be absent.
    list: BTreeMap<(u64, Box<[u8]>), Option<(Fid, FileKind)>>,
    /// Every entry up to this cookie is in the list; u64::MAX: all.
    filled: u64,
    /// Those that are not in it, as far as they are known; never less far than `filled`.
    hashes: Hashes,
    /// Counts changes of names.
    changes: u64,
    /// Look-ups the list could not answer.
    misses: u32,
    /// How often nobody else was to have anything of it, and somebody had.
    vain: u32,
    /// Since when it is known, among others ([`crate::leases`]).
    mark: Mark,
    used: Tick,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Names {
    dirs: HashMap<Fid, Dir>,
    /// Of names over all directories, and these.
    ages: Ages,
    parents: HashMap<Fid, Fid>,
    /// In all lists.
    count: usize,
    /// Among all hashes.
    hashed: usize,
}

/// A page of a listing.
pub(crate) struct Page {
    /// Cookie, name, inode.
    pub(crate) entries: Vec<(u64, Vec<u8>, Fid, FileKind)>,
    /// Nothing follows.
    pub(crate) end: bool,
}

/// Neighbours of an inode.
pub(crate) struct Around<'a> {
    /// Of its name.
    pub(crate) suffix: Option<&'a [u8]>,
    pub(crate) files: Vec<(Fid, FileKind)>,
}

/// What follows the last dot of a name.
fn suffix(name: &[u8]) -> Option<&[u8]> {
    let dot = name.iter().rposition(|b| *b == b'.').filter(|at| *at > 0)?;
    Some(&name[dot + 1..])
}

impl Dir {
    /// Whether every entry up to this hash is in the list.
    fn lists(&self, hash: u64) -> bool {
        self.filled == u64::MAX || hash < self.filled >> COOKIE_SHIFT
    }

    /// Whether every entry of this hash is in the list.
    fn covers(&self, hash: u64) -> bool {
        self.lists(hash) || self.hashes.rules_out(hash)
    }

    /// What it counts against the limit.
    fn weight(&self) -> usize {
        self.list.len() + self.hashes.len() / PER_NAME + 1
    }

    /// Keeps of a large list what it rules out.
    fn fold(&mut self) {
        let present = self.list.iter().filter(|(_, is)| is.is_some());
        self.hashes.add(present.map(|((hash, _), _)| *hash));
        self.list = BTreeMap::new();
        self.filled = 0;
    }
}

impl Names {
    /// None is known.
    pub(crate) fn within(most: usize) -> Names {
        let (dirs, parents) = Default::default();
        Names { dirs, ages: Ages::within(most), parents, count: 0, hashed: 0 }
    }

    /// What a name stands for.
    pub(crate) fn find(&mut self, dir: Fid, name: &[u8]) -> Found {
        let Some(d) = self.dirs.get_mut(&dir) else { return Found::Unknown };
        d.used = self.ages.now();
        let hash = name_hash(name);
        match d.list.get(&(hash, name.into())) {
            Some(Some((fid, kind))) => Found::Is(*fid, *kind),
            Some(None) => Found::Absent,
            None if d.covers(hash) => Found::Absent,
            None => Found::Unknown,
        }
    }

    /// Whether anything is known of a directory's names.
    pub(crate) fn has(&self, dir: Fid) -> bool {
        self.dirs.contains_key(&dir)
    }

    /// Counts look-ups that had to be asked; how many there were.
    pub(crate) fn missed(&mut self, dir: Fid) -> u32 {
        let d = self.dirs.entry(dir).or_default();
        d.misses += 1;
        d.misses
    }

    /// Since when a directory's names are known.
    pub(crate) fn mark(&self, dir: Fid) -> Mark {
        self.dirs.get(&dir).map_or(Mark::NEVER, |d| d.mark)
    }

    /// What was known of a directory's names is not known any more; from `mark` on they are learned
    /// anew.
    pub(crate) fn begin(&mut self, dir: Fid, mark: Mark) {
        let d = self.dirs.entry(dir).or_default();
        self.count -= d.list.len();
        self.hashed -= d.hashes.len();
        let (changes, misses) = (d.changes, d.misses);
        *d = Dir { changes, misses, mark, ..Dir::default() };
    }

    /// A number that moves when names of the directory change.
    pub(crate) fn changes(&self, dir: Fid) -> u64 {
        self.dirs.get(&dir).map_or(0, |d| d.changes)
    }

    /// A new and empty directory.
    pub(crate) fn born(&mut self, dir: Fid, parent: Fid, mark: Mark) {
        self.forget(dir);
        let used = self.ages.more();
        let hashes = Hashes::of_none();
        self.dirs.insert(dir, Dir { filled: u64::MAX, hashes, used, mark, ..Dir::default() });
        self.parents.insert(dir, parent);
    }

    /// A name stands for this, or (None) for nothing. `changed`: it was not so before.
    pub(crate) fn set(
        &mut self,
        dir: Fid,
        name: &[u8],
        is: Option<(Fid, FileKind)>,
        changed: bool,
    ) {
        let d = self.dirs.entry(dir).or_default();
        d.used = self.ages.now();
        d.changes += u64::from(changed);
        let key = (name_hash(name), name.into());
        if let Some((fid, FileKind::Dir)) = is {
            self.parents.insert(fid, dir);
        }
        let had = if is.is_none() && d.covers(key.0) {
            d.list.remove(&key).map(|_| 0)
        } else {
            d.list.insert(key, is).map(|_| 1)
        };
        match (had, is) {
            (Some(0), _) => self.count -= 1,
            (None, None) if d.covers(name_hash(name)) => {}
            (None, _) => {
                self.count += 1;
                d.used = self.ages.more();
            }
            _ => {}
        }
    }

    /// A page the MDT gave, that begins after `from`; ignored unless it continues what is known.
    pub(crate) fn fill(
        &mut self,
        dir: Fid,
        from: u64,
        entries: impl Iterator<Item = (u64, Vec<u8>, Fid, FileKind)>,
        end: bool,
    ) {
        let d = self.dirs.entry(dir).or_default();
        let goes_on = from <= d.filled;
        let mut upto = from;
        for (at, name, fid, kind) in entries {
            upto = at;
            if kind == FileKind::Dir {
                self.parents.insert(fid, dir);
            }
            let old = d.list.insert((name_hash(&name), name.into()), Some((fid, kind)));
            if old.is_none() {
                self.count += 1;
                self.ages.more();
            }
        }
        d.used = self.ages.now();
        let upto = if end { u64::MAX } else { upto };
        d.hashes.goes_on(from, upto);
        if goes_on {
            d.filled = d.filled.max(upto);
        }
        if d.filled == u64::MAX {
            self.hashed -= d.hashes.clear();
        }
    }

    /// Whether a page after this cookie continues what is known.
    pub(crate) fn continues(&self, dir: Fid, from: u64) -> bool {
        from <= self.dirs.get(&dir).map_or(0, |d| d.filled)
    }

    /// Entries after a cookie, at most `max`; None when they are not all known.
    pub(crate) fn page(&mut self, dir: Fid, from: u64, max: usize) -> Option<Page> {
        let d = self.dirs.get_mut(&dir)?;
        d.used = self.ages.now();
        if from >= d.filled && d.filled != u64::MAX {
            return None;
        }
        let start = (from >> COOKIE_SHIFT, Box::default());
        let (mut entries, mut last, mut index) = (Vec::new(), 0, 0);
        for ((hash, name), is) in d.list.range(start..) {
            let Some((fid, kind)) = is else { continue };
            index = if *hash == last { index + 1 } else { 0 };
            last = *hash;
            let at = cookie(*hash, index);
            if at <= from {
                continue;
            }
            if at > d.filled {
                break;
            }
            if entries.len() == max {
                return Some(Page { entries, end: false });
            }
            entries.push((at, name.to_vec(), *fid, *kind));
        }
        let end = d.filled == u64::MAX;
        // An empty page would look like the end.
        (end || !entries.is_empty()).then_some(Page { entries, end })
    }

    /// What the names after that of an inode stand for, and those before it when the end is reached: of
    /// `sought` names at most `max`, such with the same suffix first. None when it is not among the first.
    pub(crate) fn around(
        &self,
        dir: Fid,
        fid: Fid,
        sought: usize,
        max: usize,
    ) -> Option<Around<'_>> {
        let d = self.dirs.get(&dir)?;
        let present = || d.list.iter().filter_map(|((_, n), is)| is.map(|is| (suffix(n), is)));
        let at = present().take(sought).position(|(_, (is, _))| is == fid)?;
        let of = present().nth(at).and_then(|(suffix, _)| suffix);
        let round = present().skip(at + 1).take(sought).chain(present().take(at));
        let (mut files, mut others) = (Vec::new(), Vec::new());
        for (suffix, is) in round {
            if suffix == of {
                files.push(is);
            } else if others.len() < max {
                others.push(is);
            }
            if files.len() == max {
                break;
            }
        }
        files.extend(others);
        files.truncate(max);
        Some(Around { suffix: of, files })
    }

    /// The suffix of an inode's name, and what others with the same stand for, in the order of
    /// [`Names::around`]. None when it has no suffix, or is not among the first.
    pub(crate) fn alike(
        &self,
        dir: Fid,
        fid: Fid,
        sought: usize,
    ) -> Option<(Vec<u8>, Vec<(Fid, FileKind)>)> {
        let d = self.dirs.get(&dir)?;
        let present = || d.list.iter().filter_map(|((_, n), is)| is.map(|is| (suffix(n), is)));
        let (at, of) = present()
            .take(sought)
            .enumerate()
            .find_map(|(at, (of, (is, _)))| (is == fid).then_some((at, of)))?;
        let of = of?;
        let round = present().skip(at + 1).take(sought).chain(present().take(at));
        let same = round.filter(|(suffix, _)| *suffix == Some(of)).map(|(_, is)| is);
        Some((of.to_vec(), same.collect()))
    }

    /// The first names of a listing and what they stand for, at most `max`, if this is the first of all;
    /// else nothing.
    pub(crate) fn listed_first(&self, dir: Fid, name: &[u8], max: usize) -> Vec<(Fid, FileKind)> {
        let Some(d) = self.dirs.get(&dir) else { return Vec::new() };
        // Known to be absent may be some, too.
        let listed = d.list.iter().take(4 * max).take_while(|((hash, _), _)| d.lists(*hash));
        let mut present = listed.filter_map(|((_, n), is)| is.map(|is| (n, is))).peekable();
        if present.peek().is_none_or(|(first, _)| ***first != *name) {
            return Vec::new();
        }
        present.map(|(_, is)| is).take(max).collect()
    }

    /// Notes that a directory was asked for in vain; how often it was is [`Names::vain`].
    pub(crate) fn asked_in_vain(&mut self, dir: Fid) {
        if let Some(d) = self.dirs.get_mut(&dir) {
            d.vain += 1;
        }
    }

    /// See [`Names::asked_in_vain`]; begins anew when the names are forgotten.
    pub(crate) fn vain(&self, dir: Fid) -> u32 {
        self.dirs.get(&dir).map_or(0, |d| d.vain)
    }

    /// Whether a directory holds nothing; None: not known.
    pub(crate) fn is_empty(&self, dir: Fid) -> Option<bool> {
        let d = self.dirs.get(&dir)?;
        if d.list.values().any(Option::is_some) {
            return Some(false);
        }
        (d.filled == u64::MAX).then_some(true)
    }

    /// The parent of a directory.
    pub(crate) fn parent(&self, dir: Fid) -> Option<Fid> {
        self.parents.get(&dir).copied()
    }

    /// A directory was found under `..`.
    pub(crate) fn set_parent(&mut self, dir: Fid, parent: Fid) {
        self.parents.insert(dir, parent);
    }

    /// Nothing is known of a directory any more.
    pub(crate) fn forget(&mut self, dir: Fid) {
        if let Some(d) = self.dirs.remove(&dir) {
            self.count -= d.list.len();
            self.hashed -= d.hashes.len();
            give_back(&mut self.dirs);
        }
        if self.parents.remove(&dir).is_some() {
            give_back(&mut self.parents);
        }
    }

    /// Nothing is known of a name any more.
    pub(crate) fn forget_name(&mut self, dir: Fid, name: &[u8]) {
        let Some(d) = self.dirs.get_mut(&dir) else { return };
        let hash = name_hash(name);
        d.changes += 1;
        if d.hashes.reach() {
            self.hashed += d.hashes.add(std::iter::once(hash));
        }
        if d.lists(hash) {
            // Not even up to the first cookie this name may have.
            d.filled = (hash << COOKIE_SHIFT) - 1;
        }
        if d.list.remove(&(hash, name.into())).is_some() {
            self.count -= 1;
        }
    }

    /// Nothing is known any more.
    pub(crate) fn clear(&mut self) {
        *self = Names::within(self.ages.most());
    }

    /// Keeps within the limit: of what was not used lately large lists become hashes, and what is still
    /// too much goes.
    pub(crate) fn shrink(&mut self) {
        let most = self.ages.most();
        let weight = self.count + self.hashed / PER_NAME + self.dirs.len();
        if weight <= most && self.parents.len() <= most {
            return;
        }
        let from = self.keep_from();
        for d in self.dirs.values_mut().filter(|d| d.used < from) {
            if d.list.len() >= FOLD_MIN && d.hashes.reach() {
                self.count -= d.list.len();
                self.hashed -= d.hashes.len();
                d.fold();
                self.hashed += d.hashes.len();
            }
        }
        let from = self.keep_from();
        let (count, hashed) = (&mut self.count, &mut self.hashed);
        self.dirs.retain(|_, d| {
            let keep = d.used >= from;
            if !keep {
                *count -= d.list.len();
                *hashed -= d.hashes.len();
            }
            keep
        });
        let dirs = &self.dirs;
        self.parents.retain(|dir, _| dirs.contains_key(dir));
    }

    fn keep_from(&self) -> Tick {
        self.ages.keep_from(self.dirs.values().map(|d| (d.used, d.weight())))
    }
}

#[cfg(test)]
mod tests;
