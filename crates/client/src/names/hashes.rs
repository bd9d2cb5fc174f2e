//! Which names a directory cannot hold, told from the hashes of those it may.
//!
//! Role: a directory too large to be kept by its names is kept by their hashes, a tenth of the memory: a name
//! whose hash is not among them is absent. Assumptions: a hash stays once it was added, whether its name is
//! removed or not, which costs a question and is never wrong. Never does: say that a name is there.

use proto::order::COOKIE_SHIFT;
use rustc_hash::FxHashSet;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Hashes {
    /// Every entry up to this cookie is listed elsewhere, or its hash is here; u64::MAX: all.
    upto: u64,
    set: FxHashSet<u64>,
}

impl Hashes {
    /// Of a directory that holds nothing that is not listed.
    pub(crate) fn of_none() -> Hashes {
        Hashes { upto: u64::MAX, set: FxHashSet::default() }
    }

    /// Whether they say anything of any name.
    pub(crate) fn reach(&self) -> bool {
        self.upto > 0
    }

    /// How many they are.
    pub(crate) fn len(&self) -> usize {
        self.set.len()
    }

    /// Whether no name of this hash is there that is not listed.
    pub(crate) fn rules_out(&self, hash: u64) -> bool {
        let reached = self.upto == u64::MAX || hash < self.upto >> COOKIE_SHIFT;
        reached && !self.set.contains(&hash)
    }

    /// Names of these hashes may be there without being listed, also such that are not known yet; how many of
    /// them are new.
    pub(crate) fn add(&mut self, hashes: impl Iterator<Item = u64>) -> usize {
        let had = self.set.len();
        self.set.extend(hashes);
        self.set.len() - had
    }

    /// All entries after one cookie and up to another are listed.
    pub(crate) fn goes_on(&mut self, from: u64, upto: u64) {
        if from <= self.upto {
            self.upto = self.upto.max(upto);
        }
    }

    /// All entries are listed; how many hashes went.
    pub(crate) fn clear(&mut self) -> usize {
        std::mem::take(&mut self.set).len()
    }
}
