//! Which journaled changes survive a cut. Pure: a function of the entries, the cut and the seed.

use super::journal::Entry;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use std::collections::HashMap;
use std::ops::Range;

/// What survives.
#[derive(Debug, PartialEq, Eq)]
pub struct Choice {
    /// Metadata entries before this index are durable, later ones are lost.
    pub metadata: usize,
    /// For each surviving write: its index and the pieces of its data that arrived, as ranges
    /// relative to its start.
    pub writes: Vec<(usize, Vec<Range<u64>>)>,
}

/// Chooses for a cut after `cut` operations.
pub fn choose(entries: &[Entry], cut: usize, seed: Option<u64>) -> Choice {
    let cut = cut.min(entries.len());
    let entries = &entries[..cut];
    let committed = entries.iter().rposition(Entry::is_barrier).map_or(0, |at| at + 1);
    let mut random = seed.map(|seed| Luck::new(seed ^ (cut as u64) << 32));
    let metadata = match &mut random {
        None => committed,
        Some(luck) => luck.between(committed, cut),
    };
    let synced = last_syncs(entries);
    let mut writes = Vec::new();
    for (index, entry) in entries.iter().enumerate() {
        let Entry::Write { id, off, len, durable } = entry else { continue };
        let len = u64::from(*len);
        let barrier = synced.all.max(synced.of.get(id).copied());
        if *durable || barrier.is_some_and(|at| at > index) {
            writes.push((index, std::iter::once(0..len).collect()));
        } else if let Some(luck) = &mut random {
            let pieces = luck.pieces(*off, len);
            if !pieces.is_empty() {
                writes.push((index, pieces));
            }
        }
    }
    Choice { metadata, writes }
}

struct Syncs {
    of: HashMap<u64, usize>,
    all: Option<usize>,
}

fn last_syncs(entries: &[Entry]) -> Syncs {
    let mut syncs = Syncs { of: HashMap::new(), all: None };
    for (index, entry) in entries.iter().enumerate() {
        match entry {
            Entry::Sync { id, .. } => {
                syncs.of.insert(*id, index);
            }
            Entry::SyncAll => syncs.all = Some(index),
            _ => {}
        }
    }
    syncs
}

/// The random part of a cut.
struct Luck {
    rng: StdRng,
    keep: f64,
}

impl Luck {
    fn new(seed: u64) -> Self {
        let mut rng = StdRng::seed_from_u64(seed);
        let keep = *[0.0, 0.1, 0.5, 0.9, 1.0].choose(&mut rng).unwrap_or(&0.5);
        Luck { rng, keep }
    }

    fn between(&mut self, low: usize, high: usize) -> usize {
        match self.rng.random_range(0..3) {
            0 => low,
            1 => high,
            _ => self.rng.random_range(low..=high),
        }
    }

    /// Pieces of an unsynced write that arrived: none, all, or some of its sectors.
    fn pieces(&mut self, off: u64, len: u64) -> Vec<Range<u64>> {
        if len == 0 || !self.rng.random_bool(self.keep) {
            return vec![];
        }
        if self.rng.random_range(0..3) > 0 {
            return std::iter::once(0..len).collect();
        }
        let unit = if self.rng.random() { 512 } else { 4096 };
        let sectors = (off / unit)..=((off + len - 1) / unit);
        let tear = self.rng.random_range(0..3);
        let at = self.rng.random_range(*sectors.start()..=*sectors.end());
        let mut out = Vec::new();
        for sector in sectors {
            let arrived = match tear {
                0 => sector < at,
                1 => sector >= at,
                _ => self.rng.random(),
            };
            if arrived {
                let from = (sector * unit).max(off) - off;
                out.push(from..((sector + 1) * unit - off).min(len));
            }
        }
        out
    }
}
