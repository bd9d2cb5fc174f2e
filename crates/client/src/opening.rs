//! Opens on their way: the MDT may have opened a file that nothing here counts as open yet.
//!
//! Role: who removes the last name of such a file leaves its data alone, which whoever opens it will read and the
//! servers may not have. What was left alone is dropped once no open is on its way and none came of it. Till then it is
//! known that the file is removed, however late an answer of before comes.
//! Assumptions: an open is noted before the MDT is asked, and counted in the file's state before it is noted to have
//! ended. Never does: I/O.

use std::sync::Arc;

use parking_lot::Mutex;
use proto::{Attr, Fid};
use rustc_hash::FxHashMap as HashMap;

use crate::core::Core;
use crate::inode::Inode;

/// See the module.
#[derive(Default)]
pub(crate) struct Openings {
    /// How many, by file; None: of a name.
    files: Mutex<HashMap<Option<Fid>, u32>>,
    /// Removed files that were left alone: each is being opened, or has data that is not stored, which is bounded
    /// ([`crate::budget`]), or was not reported yet, which soon follows ([`crate::late`]).
    left: Mutex<Vec<Arc<Inode>>>,
}

impl Openings {
    fn begin(&self, what: Option<Fid>) {
        *self.files.lock().entry(what).or_default() += 1;
    }

    /// An open has ended; what was left alone till then.
    fn end(&self, what: Option<Fid>) -> Vec<Arc<Inode>> {
        {
            let mut files = self.files.lock();
            if let Some(n) = files.get_mut(&what) {
                *n -= 1;
                if *n == 0 {
                    files.remove(&what);
                }
            }
        }
        std::mem::take(&mut *self.left.lock())
    }

    /// Whether such a file is being opened; `any`: or some name, which may be its.
    fn has(&self, fid: Fid, any: bool) -> bool {
        let files = self.files.lock();
        files.contains_key(&Some(fid)) || (any && files.contains_key(&None))
    }

    /// Whether a removed file that nobody has open is to be left alone for now; to be asked with its state locked.
    /// `clean`: neither data nor a size is known here alone.
    pub(crate) fn leaves(&self, inode: &Arc<Inode>, clean: bool) -> bool {
        // An open ends before it looks at these.
        let mut left = self.left.lock();
        let has = self.has(inode.fid, !clean);
        if has {
            left.push(Arc::clone(inode));
        }
        has
    }
}

/// An open on its way; ends when it is dropped.
pub(crate) struct Opening<'a> {
    core: &'a Core,
    what: Option<Fid>,
}

impl Core {
    /// The state of a file that was removed, if there is any, or an open on its way may make some of an answer of before.
    pub(crate) fn to_be_told_of(&self, attr: &Attr) -> Option<Arc<Inode>> {
        let known = self.registry.find(attr.fid);
        known.or_else(|| self.openings.has(attr.fid, false).then(|| self.registry.get(attr)))
    }

    /// A file, or whatever a name stands for, is about to be opened.
    pub(crate) fn opening(&self, what: Option<Fid>) -> Opening<'_> {
        self.openings.begin(what);
        Opening { core: self, what }
    }
}

impl Drop for Opening<'_> {
    fn drop(&mut self) {
        let left = self.core.openings.end(self.what);
        for inode in left {
            self.core.drop_removed(&inode);
            self.core.registry.rest(&inode);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_is_left_alone_while_its_file_or_some_name_is_being_opened() {
        let inode = Arc::new(Inode::new(crate::filling::tests::attr()));
        let (openings, fid) = (Openings::default(), inode.fid);
        let other = Fid { oid: fid.oid + 1, ..fid };
        assert!(!openings.leaves(&inode, false) && openings.end(None).is_empty());
        for (what, clean) in [(Some(fid), false), (Some(fid), true), (None, false)] {
            openings.begin(what);
            openings.begin(Some(other));
            assert!(openings.leaves(&inode, clean));
            assert_eq!(openings.end(Some(other)).len(), 1, "whoever ends looks at it");
            assert!(openings.leaves(&inode, clean), "and leaves it again");
            assert_eq!(openings.end(what).len(), 1);
            assert!(!openings.leaves(&inode, clean) && openings.end(what).is_empty());
        }
        openings.begin(None);
        assert!(!openings.leaves(&inode, true), "a name may be anything's");
        assert!(openings.end(None).is_empty());
        openings.begin(Some(other));
        assert!(!openings.leaves(&inode, false), "another file");
        assert!(openings.end(Some(other)).is_empty() && openings.files.lock().is_empty());
    }
}
