//! Attributes of inodes, as the MDT would tell them once all that waits here has reached it.
//!
//! Role: the newest version wins, whichever way it came. Assumptions: as [`crate::names`]. Bounded
//! by `max_cached_inodes` ([`crate::Options`]): those nobody used lately go first. Never does: I/O.

use net::sparse::give_back;
use proto::attr::A_INLINE;
use proto::{Attr, Fid, Layout};
use rustc_hash::FxHashMap as HashMap;

use crate::ages::{Ages, Tick};
use crate::leases::Mark;

/// What is known of one inode.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    pub(crate) attr: Attr,
    /// Bytes of inline data the MDT holds, if known.
    pub(crate) inline: Option<u64>,
    /// Target of a symlink, if known.
    pub(crate) target: Option<Box<[u8]>>,
    /// Layout of a file with objects, if known, and the version of the attributes it goes with.
    layout: Option<(u64, Box<Layout>)>,
    /// When the attributes were learned ([`crate::leases`]).
    pub(crate) mark: Mark,
    /// Where it was found, and when that was learned. Who moves a directory elsewhere changes its attributes; of
    /// anything else it is one of maybe many, and no more than a hint.
    found: Option<(Fid, Mark)>,
    used: Tick,
}

impl Known {
    /// Layout of a file with objects, if known.
    pub(crate) fn layout(&self) -> Option<&Layout> {
        let (version, layout) = self.layout.as_ref()?;
        (*version == self.attr.version).then_some(layout)
    }

    /// Where a directory was found, and when that was learned, if it is known.
    pub(crate) fn parent(&self) -> Option<(Fid, Mark)> {
        self.found.filter(|_| self.attr.is_dir())
    }

    /// A directory that had it among its names when they were seen last; it need not have it any more.
    pub(crate) fn seen_in(&self) -> Option<Fid> {
        self.found.map(|(dir, _)| dir)
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Attrs {
    map: HashMap<Fid, Known>,
    ages: Ages,
    /// Counts inodes that went: what was asked before must not bring them back.
    pub(crate) removals: u64,
}

impl Attrs {
    /// None is known.
    pub(crate) fn within(most: usize) -> Attrs {
        Attrs { map: HashMap::default(), ages: Ages::within(most), removals: 0 }
    }

    pub(crate) fn get(&mut self, fid: Fid) -> Option<&Attr> {
        self.edit(fid).map(|k| &k.attr)
    }

    pub(crate) fn edit(&mut self, fid: Fid) -> Option<&mut Known> {
        let known = self.map.get_mut(&fid)?;
        known.used = self.ages.now();
        Some(known)
    }

    /// A new inode, made here at `mark`.
    pub(crate) fn born(&mut self, attr: Attr, target: &[u8], mark: Mark) {
        let target = (!target.is_empty()).then(|| target.into());
        let (inline, layout) = (Some(0), None);
        let used = self.ages.more();
        let known = Known { attr, inline, target, layout, mark, found: None, used };
        self.map.insert(known.attr.fid, known);
    }

    /// An answer told attributes; `removals` as it was when it was asked, at `mark`.
    pub(crate) fn learn(&mut self, attr: &Attr, removals: u64, mark: Mark) {
        if attr.nlink == 0 {
            return self.forget(attr.fid);
        }
        match self.map.get_mut(&attr.fid) {
            Some(known) if attr.version < known.attr.version => {}
            Some(known) => {
                if attr.version != known.attr.version {
                    known.inline = None;
                }
                known.attr = attr.clone();
                known.mark = mark;
                known.used = self.ages.now();
            }
            None if removals == self.removals => {
                let attr = attr.clone();
                let (inline, target, layout) = (None, None, None);
                let used = self.ages.more();
                let known = Known { attr, inline, target, layout, mark, found: None, used };
                self.map.insert(known.attr.fid, known);
            }
            None => {}
        }
    }

    /// Others have read a file: of what is known only the time of the last access, and the version, are new.
    pub(crate) fn accessed(&mut self, attr: &Attr) {
        let Some(known) = self.map.get_mut(&attr.fid) else { return };
        if attr.version <= known.attr.version {
            return;
        }
        if let Some((version, _)) = &mut known.layout
            && *version == known.attr.version
        {
            *version = attr.version;
        }
        known.attr = attr.clone();
    }

    /// A layout came behind these attributes. One that has objects by then keeps them until it is
    /// cut to nothing, and has no layout then; of others a later change may have been told.
    pub(crate) fn learn_layout(&mut self, attr: &Attr, layout: &Layout) {
        if let Some(known) = self.map.get_mut(&attr.fid)
            && known.attr.version == attr.version
            && attr.flags & A_INLINE == 0
        {
            known.layout = Some((attr.version, Box::new(layout.clone())));
        }
    }

    /// What told these attributes found the inode there; nothing if newer ones are known.
    pub(crate) fn found_in(&mut self, attr: &Attr, dir: Fid, mark: Mark) {
        if let Some(known) = self.map.get_mut(&attr.fid)
            && known.attr.version == attr.version
        {
            known.found = Some((dir, mark));
        }
    }

    /// Nothing is known any more.
    pub(crate) fn forget(&mut self, fid: Fid) {
        if self.map.remove(&fid).is_some() {
            give_back(&mut self.map);
        }
    }

    /// Nothing is known of any inode any more.
    pub(crate) fn clear(&mut self) {
        self.removals += 1;
        self.map.clear();
        give_back(&mut self.map);
    }

    /// The inode is gone.
    pub(crate) fn removed(&mut self, fid: Fid) {
        self.removals += 1;
        self.forget(fid);
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.map.len()
    }

    /// Keeps within the limit.
    pub(crate) fn shrink(&mut self) {
        if self.map.len() > self.ages.most() {
            let from = self.ages.keep_from(self.map.values().map(|k| (k.used, 1)));
            self.map.retain(|_, k| k.used >= from);
        }
    }
}
