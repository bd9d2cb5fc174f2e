//! Which small files are likely to be read next: the neighbours of one that is read.
//!
//! Role: remembers in which directories names were looked up or listed, or files read, lately, how many of
//! their files were read with a message of their own, and how many with the same suffix one after the
//! other, in whatever directories. A kernel that keeps names looks none up, so a file is sought first where it was
//! seen last. Assumptions: as [`super`]. Never does: I/O.

use std::collections::VecDeque;

use proto::{Fid, FileKind};

use super::{Tree, apply};
use crate::attrs::Known;

/// Directories that are remembered (invariant 8).
const RECENT: usize = 4;
/// Names of a directory among which a file is sought.
const SOUGHT: usize = 4096;
/// Files of one directory that are read before others are read along.
const READS: u32 = 2;
/// Files with the same suffix read one after the other before others are read along in any directory.
const RUN: u32 = 4;
/// Files that may be read along with another.
pub(crate) const ALONG: usize = 32;
/// Bytes they may have together.
pub(crate) const ALONG_BYTES: u64 = 128 << 10;
/// Of these, larger files are not worth it.
const LARGE: u64 = 32 << 10;
/// Candidates, of which some may be known already.
const CANDIDATES: usize = 64;

#[derive(Debug)]
struct Recent {
    dir: Fid,
    reads: u32,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Near {
    recent: VecDeque<Recent>,
    /// The suffix that was read last, and how often in a row.
    run: (Vec<u8>, u32),
}

impl Near {
    /// Names of a directory were asked for, or a file of it.
    pub(crate) fn visit(&mut self, dir: Fid) {
        match self.recent.iter().position(|r| r.dir == dir) {
            Some(0) => {}
            Some(at) => {
                if let Some(recent) = self.recent.remove(at) {
                    self.recent.push_front(recent);
                }
            }
            None => {
                self.recent.truncate(RECENT - 1);
                self.recent.push_front(Recent { dir, reads: 0 });
            }
        }
    }

    /// How many files of a directory were read since it was first visited, with this one.
    fn count(&mut self, dir: Fid) -> u32 {
        self.visit(dir);
        self.recent.front_mut().map_or(0, |recent| {
            recent.reads = recent.reads.saturating_add(1);
            recent.reads
        })
    }

    /// A file of this suffix is read; whether many were before.
    fn goes_on(&mut self, suffix: &[u8]) -> bool {
        if self.run.0 != suffix {
            self.run = (suffix.to_vec(), 0);
        }
        self.run.1 = self.run.1.saturating_add(1);
        self.run.1 > RUN
    }
}

impl Tree {
    /// A file is about to be read: small files near it, in the order of the listing, and their
    /// sizes, such with the same suffix first; none before a few were read.
    pub(crate) fn near(&mut self, fid: Fid) -> Vec<(Fid, u64)> {
        for dir in self.likely_in(fid) {
            let Some(around) = self.names.around(dir, fid, SOUGHT, CANDIDATES) else { continue };
            let goes_on = around.suffix.is_some_and(|suffix| self.near.goes_on(suffix));
            let files = around.files;
            if self.near.count(dir) <= READS && !goes_on {
                return Vec::new();
            }
            let mut small = Vec::new();
            for (fid, kind) in files {
                // Among others: what is believed of a file nobody else has for himself, so nobody is
                // waited for.
                if kind == FileKind::File
                    && let Some(Known { attr, .. }) = self.believed(fid)
                    && apply::plain_inline(attr)
                    && attr.size <= LARGE
                {
                    small.push((fid, attr.size));
                }
            }
            return small;
        }
        Vec::new()
    }

    /// Directories a file may be in: where it was seen, then those of which names were asked for lately, the last
    /// one first.
    pub(super) fn likely_in(&mut self, fid: Fid) -> Vec<Fid> {
        let seen = self.attrs.edit(fid).and_then(|known| known.seen_in());
        let recent = self.near.recent.iter().map(|r| r.dir).filter(|dir| Some(*dir) != seen);
        seen.into_iter().chain(recent).collect()
    }
}
