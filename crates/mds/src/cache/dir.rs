//! What is in memory of one directory.
//!
//! Role: entries in the order of the directory, and which part of it they are all of ([`Spans`]): there what is not
//! here is not in the store either. Never does: count bytes, decide what goes.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use super::Slot;
use super::spans::{Spans, TO_THE_END};
use crate::keys;
use crate::record::Dent;

/// Where an entry stands: hash of its name, name.
pub(super) type Place = (u64, Box<[u8]>);

/// See the module.
#[derive(Default, Debug)]
pub(super) struct Dir {
    pub(super) entries: BTreeMap<Place, Slot<Dent>>,
    pub(super) known: Spans,
    /// The directory was removed.
    pub(super) dead: bool,
    pub(super) group: u64,
    pub(super) used: Cell<bool>,
}

/// What a directory read gives.
pub struct Page<'a> {
    /// Entries in order: cookie, name, entry.
    pub entries: Vec<(u64, &'a [u8], &'a Dent)>,
    /// Nothing follows.
    pub end: bool,
}

/// Where a name stands.
pub(super) fn place(name: &[u8]) -> Place {
    (keys::name_hash(name), name.into())
}

impl Dir {
    /// A new one: nothing of it is in the store.
    pub(super) fn born() -> Dir {
        Dir { known: Spans::all(), ..Dir::default() }
    }

    /// A name: `None` is a miss, `Some(None)` a known absence.
    pub(super) fn find(&self, name: &[u8]) -> Option<Option<Dent>> {
        let place = place(name);
        match self.entries.get(&place) {
            Some(slot) => {
                slot.used.set(true);
                Some(slot.value.clone())
            }
            None if self.known.covers(place.0) => Some(None),
            None => None,
        }
    }

    /// Entries after `cookie`, at most `max`, and fewer where what follows is not known. `Err`: nothing is known from
    /// this hash on.
    pub(super) fn page(&self, cookie: u64, max: usize) -> Result<Page<'_>, u64> {
        let from = cookie >> keys::COOKIE_SHIFT;
        let (mut entries, mut last, mut index) = (Vec::new(), 0, 0);
        // Everything below is known.
        let mut upto = from;
        for ((hash, name), slot) in self.entries.range((from, Box::default())..) {
            while upto <= *hash
                && let Some(end) = self.known.end_of(upto)
            {
                upto = end;
            }
            if upto <= *hash {
                break;
            }
            let Some(dent) = &slot.value else { continue };
            index = if *hash == last { index + 1 } else { 0 };
            last = *hash;
            let at = proto::order::cookie(*hash, index);
            if at <= cookie {
                continue;
            }
            if entries.len() == max {
                return Ok(Page { entries, end: false });
            }
            entries.push((at, &name[..], dent));
        }
        while let Some(end) = self.known.end_of(upto) {
            upto = end;
        }
        // An empty page would look like the end.
        match upto == TO_THE_END || !entries.is_empty() {
            true => Ok(Page { entries, end: upto == TO_THE_END }),
            false => Err(upto),
        }
    }

    /// Takes what the store has of a name, unless something newer is here; whether it was taken.
    pub(super) fn loaded(&mut self, name: &[u8], value: Option<Dent>) -> bool {
        match self.entries.entry(place(name)) {
            Entry::Occupied(_) => false,
            Entry::Vacant(e) => {
                let stored = value.is_some();
                e.insert(Slot { value, stored, group: 0, used: Cell::new(true) });
                true
            }
        }
    }
}
