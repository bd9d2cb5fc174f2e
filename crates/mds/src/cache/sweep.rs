//! What goes when memory is short: clean values nobody used since the last time round.
//!
//! Role: the hand of a clock, which goes over inodes, directories and blobs a slice at a time, because nothing else
//! happens meanwhile. Dirty values stay (invariant 10). A directory with many entries goes by parts: the spans of a
//! listing once it has passed them, and names nobody looks up. Never does: I/O.

use std::cell::Cell;

use net::sparse::give_back;
use proto::Fid;

use super::dir::{Dir, Place};
use super::spans::TO_THE_END;
use super::{BLOB_WEIGHT, Cache, ENTRY_WEIGHT, SEGMENTS, inode_weight};

/// Values that one call looks at, about: some milliseconds' worth, and more than a request brings, or memory would
/// grow over its limit for good.
const LOOKED_AT: usize = 32_768;
/// As much as a slice counts for that finds less: a call goes round once at most.
const LEAST_OF_SLICE: usize = LOOKED_AT / SEGMENTS;
/// Entries of directories that are looked at in one slice, at least.
pub(super) const LEAST_ENTRIES: usize = 1024;

/// Where the hand is.
#[derive(Debug)]
pub(super) struct Hand {
    /// Directories up to this many entries stay or go whole.
    whole: usize,
    /// Entries looked at in one slice, at least.
    least: usize,
    /// Segment of the inodes.
    segment: usize,
    /// Directories still to be looked at in this round.
    dirs: Vec<Fid>,
    /// Within the last of them: from this hash on.
    from: Option<u64>,
    /// Slices since this round of the directories began.
    slices: usize,
    /// Entries of a slice, in this round.
    share: isize,
    /// Entries by which directories lag behind inodes, or (negative) are ahead.
    due: isize,
}

impl Hand {
    pub(super) fn new(whole: usize, least: usize) -> Hand {
        Hand {
            whole,
            least,
            segment: 0,
            dirs: Vec::new(),
            from: None,
            slices: SEGMENTS,
            share: 0,
            due: 0,
        }
    }
}

/// Whether a value stays: it is not durable, or was used.
fn keep(floor: u64, group: u64, used: &Cell<bool>) -> bool {
    group > floor || used.replace(false)
}

impl Cache {
    /// Evicts clean values while the weight is above the limit; a bounded amount per call.
    pub fn shrink(&mut self) {
        let mut seen = 0;
        while self.weight > self.limit && seen < LOOKED_AT {
            seen += self.sweep().max(LEAST_OF_SLICE);
        }
    }

    /// A slice of everything; how much was looked at.
    fn sweep(&mut self) -> usize {
        let floor = self.floor();
        let (mut freed, mut seen) = (0, self.inodes[self.hand.segment].len());
        self.inodes[self.hand.segment].retain(|_, s| {
            if keep(floor, s.group, &s.used) {
                return true;
            }
            freed += inode_weight(s.value.as_deref());
            false
        });
        give_back(&mut self.inodes[self.hand.segment]);
        self.hand.segment = (self.hand.segment + 1) % SEGMENTS;
        if self.hand.segment.is_multiple_of(16) {
            seen += self.blobs.len();
            self.blobs.retain(|_, s| {
                if keep(floor, s.group, &s.used) {
                    return true;
                }
                freed += s.value.as_ref().map_or(0, |b| b.len()) + BLOB_WEIGHT;
                false
            });
            give_back(&mut self.blobs);
        }
        let (bytes, names) = self.sweep_dirs(floor);
        self.weight = self.weight.saturating_sub(freed + bytes);
        seen + names
    }

    /// As large a part of the directories as a segment is of the inodes, so that both go round together, and no sooner;
    /// bytes freed, and how much was looked at.
    pub(super) fn sweep_dirs(&mut self, floor: u64) -> (usize, usize) {
        self.hand.slices += 1;
        if self.hand.dirs.is_empty() {
            // However few there are: what is fetched for an operation is to be there when that goes on.
            if self.hand.slices < SEGMENTS {
                return (0, 0);
            }
            self.hand.slices = 0;
            self.hand.dirs.extend(self.dirs.keys());
            self.hand.share = ((self.names + self.dirs.len()) / SEGMENTS + 1) as isize;
        }
        let (whole, least) = (self.hand.whole, self.hand.least);
        self.hand.due += self.hand.share;
        let (mut freed, mut seen) = (0, 0);
        while self.hand.due > 0
            && let Some(fid) = self.hand.dirs.last().copied()
        {
            let from = self.hand.from.take();
            let Some(d) = self.dirs.get_mut(&fid) else {
                self.hand.dirs.pop();
                continue;
            };
            let most = least.max(self.hand.due.unsigned_abs());
            let slice = d.sweep(floor, from, d.entries.len() <= whole, most);
            self.names -= slice.gone;
            freed += slice.bytes;
            seen += slice.seen;
            self.hand.due -= slice.passed as isize;
            self.hand.from = slice.on;
            if slice.on.is_none() {
                self.hand.dirs.pop();
                if slice.forget {
                    self.dirs.remove(&fid);
                    give_back(&mut self.dirs);
                }
            }
        }
        if self.hand.dirs.is_empty() {
            // Nothing is left to catch up on.
            self.hand.due = self.hand.due.min(0);
        }
        (freed, seen)
    }
}

/// What a slice of a directory came to.
struct Slice {
    /// Entries that went, and their bytes.
    gone: usize,
    bytes: usize,
    /// How far the hand has come, in entries, and how many of these were looked at.
    passed: usize,
    seen: usize,
    /// The next slice begins at this hash.
    on: Option<u64>,
    /// Nothing is left of it.
    forget: bool,
}

impl Dir {
    /// One slice, of at most `most` entries: of a small directory all, or nothing.
    fn sweep(&mut self, floor: u64, from: Option<u64>, small: bool, most: usize) -> Slice {
        let kept = from.is_some() || keep(floor, self.group, &self.used);
        let whole = small && from.is_none();
        if kept && whole {
            let passed = self.entries.len() + 1;
            return Slice { gone: 0, bytes: 0, passed, seen: 1, on: None, forget: false };
        }
        let first = from.unwrap_or(0);
        let next = self.entries.range(place_of(first)..).nth(most).filter(|_| !whole);
        // Entries of one hash stay together.
        let on = next.map(|((hash, _), _)| (*hash).max(first + 1));
        let end = on.unwrap_or(TO_THE_END);
        if kept {
            self.known.part(first);
            self.known.part(end);
            self.known.keep_used(first..end);
        } else {
            self.known.clear();
        }
        let mut passed = 1;
        let mut gone = Vec::new();
        for (place, s) in self.entries.range(place_of(first)..place_of(end)) {
            passed += 1;
            let stays = kept && (self.known.covers(place.0) || keep(floor, s.group, &s.used));
            if !stays {
                gone.push(place.clone());
            }
        }
        for place in &gone {
            self.entries.remove(place);
        }
        let bytes = gone.iter().map(|(_, name)| ENTRY_WEIGHT + name.len()).sum();
        let idle = self.group <= floor && !self.used.get();
        let forget = idle && self.entries.is_empty();
        Slice { gone: gone.len(), bytes, passed, seen: passed, on, forget }
    }
}

fn place_of(hash: u64) -> Place {
    (hash, Box::default())
}
