//! Which small files are likely to be read next: the neighbours of one that is read.
//!
//! Role: remembers in which directories names were looked up or listed lately, and how many of
//! their files were read with a message of their own. Assumptions: as [`super`]. Never does: I/O.

use std::collections::VecDeque;

use proto::{Fid, FileKind};

use super::{Tree, apply};
use crate::attrs::Known;

/// Directories that are remembered (invariant 8).
const RECENT: usize = 4;
/// Names of a directory among which a file is sought.
const SOUGHT: usize = 1024;
/// Files of one directory that are read before others are read along.
const READS: u32 = 2;
/// Files that may be read along with another.
pub(crate) const ALONG: usize = 16;
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
pub(crate) struct Near(VecDeque<Recent>);

impl Near {
    /// Names of a directory were asked for.
    pub(crate) fn visit(&mut self, dir: Fid) {
        match self.0.iter().position(|r| r.dir == dir) {
            Some(0) => {}
            Some(at) => {
                if let Some(recent) = self.0.remove(at) {
                    self.0.push_front(recent);
                }
            }
            None => {
                self.0.truncate(RECENT - 1);
                self.0.push_front(Recent { dir, reads: 0 });
            }
        }
    }
}

impl Tree {
    /// A file is about to be read: small files near it, in the order of the listing, and their
    /// sizes; none before a few of the directory were read.
    pub(crate) fn near(&mut self, fid: Fid) -> Vec<(Fid, u64)> {
        for at in 0..self.near.0.len() {
            let dir = self.near.0[at].dir;
            let Some(files) = self.names.around(dir, fid, SOUGHT, CANDIDATES) else { continue };
            self.near.0[at].reads += 1;
            if self.near.0[at].reads <= READS {
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
}
