//! Who keeps to which bytes of a file that several write.
//!
//! Role: notes what sessions have promised ([`proto::mds::Op::LockAhead`]) and whom that was granted. Whoever is granted his
//! bytes may have written some that no OST has; nobody else touches these, because all who have the file open have promised
//! to keep out of them. So a promise is only ever changed for one that keeps out of what others were granted, and is taken
//! back only when these grants are ([`LockAhead::granted_elsewhere`]). Assumptions: only sessions that have a file open
//! promise anything of it, and a promise ends with the last of their opens; so there are no more promises than opens. What
//! was granted is in force while its session has `LS_LATE`, which everything that looks at the file calls back. Never does:
//! decide who has to promise.

use proto::mds::MAX_STRIDES;
use proto::{Fid, Stride};
use rustc_hash::FxHashMap as HashMap;

/// Sessions that keep to bytes of one file at most; above it no more are taken, and nothing is granted (invariant 8).
pub const MAX_KEEPERS: usize = 256;

#[derive(Debug)]
struct Keeper {
    session: u64,
    strides: Vec<Stride>,
    granted: bool,
}

/// See the module.
#[derive(Debug, Default)]
pub struct LockAhead {
    files: HashMap<Fid, Vec<Keeper>>,
}

fn meet(a: &[Stride], b: &[Stride]) -> bool {
    a.iter().any(|a| b.iter().any(|b| a.meets(b)))
}

impl LockAhead {
    fn keepers(&self, fid: Fid) -> impl Iterator<Item = &Keeper> {
        self.files.get(&fid).into_iter().flatten()
    }

    /// Whether a session has promised anything of a file.
    pub fn keeps(&self, fid: Fid, session: u64) -> bool {
        self.keepers(fid).any(|k| k.session == session)
    }

    /// Sessions other than this that rest on what all have promised.
    pub fn granted_elsewhere(&self, fid: Fid, session: u64) -> impl Iterator<Item = u64> {
        self.keepers(fid).filter(move |k| k.session != session && k.granted).map(|k| k.session)
    }

    /// A session promises to keep to these bytes. `grants`: nothing but others' promises is in the way of a grant. Whether
    /// it is taken, and granted. One that was granted is changed for one that is granted, too, or stays: its session may
    /// hold back bytes that rest on it.
    pub fn promise(
        &mut self,
        fid: Fid,
        session: u64,
        strides: Vec<Stride>,
        grants: bool,
    ) -> (bool, bool) {
        let fits = (1..=MAX_STRIDES).contains(&strides.len());
        if !fits || !strides.iter().all(Stride::is_valid) {
            return (false, false);
        }
        let others = || self.keepers(fid).filter(|k| k.session != session);
        let in_the_way = others().any(|k| k.granted && meet(&k.strides, &strides));
        let granted = grants && !others().any(|k| meet(&k.strides, &strides));
        let before = self.keepers(fid).find(|k| k.session == session).map(|k| k.granted);
        let full = before.is_none() && others().count() >= MAX_KEEPERS;
        if in_the_way || full || (before == Some(true) && !granted) {
            return (false, false);
        }
        let keepers = self.files.entry(fid).or_default();
        keepers.retain(|k| k.session != session);
        keepers.push(Keeper { session, strides, granted });
        (true, granted)
    }

    /// What a session wrote under its grant is with the OSTs, and what it writes goes there.
    pub fn revoke(&mut self, fid: Fid, session: u64) {
        let keepers = self.files.get_mut(&fid).into_iter().flatten();
        keepers.filter(|k| k.session == session).for_each(|k| k.granted = false);
    }

    /// A session may go where it likes, or cannot go anywhere any more.
    pub fn end(&mut self, fid: Fid, session: u64) {
        if let Some(keepers) = self.files.get_mut(&fid) {
            keepers.retain(|k| k.session != session);
            if keepers.is_empty() {
                self.files.remove(&fid);
            }
        }
    }

    /// An inode is gone.
    pub fn forget(&mut self, fid: Fid) {
        self.files.remove(&fid);
    }

    /// A session is gone.
    pub fn drop_session(&mut self, session: u64) {
        self.files.retain(|_, keepers| {
            keepers.retain(|k| k.session != session);
            !keepers.is_empty()
        });
    }

    /// Promises, and how many of them were granted.
    pub fn count(&self) -> (usize, usize) {
        let all = || self.files.values().flatten();
        (all().count(), all().filter(|k| k.granted).count())
    }
}

#[cfg(test)]
mod tests;
