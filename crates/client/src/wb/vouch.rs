//! Whether what was told of an inode stands ([`crate::vouch`]).
//!
//! Role: the answer under the tree's lock. Never does: I/O.

use proto::mds::LS_ATTR;
use proto::{Attr, Fid};

use super::Wb;
use crate::names::Found;

impl Wb {
    /// Whether an operation on its way to the MDT changes an inode.
    pub(crate) fn is_changing(&self, fid: Fid) -> bool {
        self.tree.lock().busy.contains_key(&fid)
    }

    /// Whether a name is believed, among others, to lead there, and nothing on its way changes it.
    pub(crate) fn leads(&self, dir: Fid, name: &[u8], to: Option<Fid>) -> bool {
        let mut tree = self.tree.lock();
        if tree.trust.alone() || !tree.trusts(dir) || tree.is_moving(dir, name) {
            return false;
        }
        match tree.names.find(dir, name) {
            Found::Is(fid, _) => Some(fid) == to,
            Found::Absent => to.is_none(),
            Found::Unknown => false,
        }
    }

    /// Whether these attributes are what is believed among others, and nothing on its way changes them.
    pub(crate) fn stands(&self, attr: &Attr) -> bool {
        let mut tree = self.tree.lock();
        if tree.busy.contains_key(&attr.fid) {
            return false;
        }
        let Some(known) = tree.attrs.edit(attr.fid) else { return false };
        let (version, mark) = (known.attr.version, known.mark);
        version == attr.version && self.trust.leases.fresh(attr.fid, LS_ATTR, mark)
    }
}
