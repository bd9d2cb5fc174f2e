//! One operation on the namespace: reads through its own changes, applied as a whole or not at all.
//!
//! Role: operations are written as if everything were in memory; a miss ends the attempt without a
//! trace and names what to fetch, and the operation runs again (design: a cache miss never stops
//! the namespace). Never does: I/O, waiting.

use std::sync::Arc;

use bytes::Bytes;
use proto::wire::List;
use proto::{Errno, Fid, TimeSpec};

use crate::cache::{Cache, Changes, Page, WHOLE_DIR};
use crate::keys;
use crate::record::{self, Dent, Inode, Xattrs};

/// What must be fetched before the operation can run.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Need {
    /// An inode.
    Inode(Fid),
    /// Several inodes.
    Inodes(Vec<Fid>),
    /// A name.
    Entry(Fid, Vec<u8>),
    /// Every entry of a directory.
    Dir(Fid),
    /// Entries of a directory from this hash on, a number of them.
    Part(Fid, u64),
    /// A record that is read as bytes.
    Blob(Vec<u8>),
    /// Records of the further links of a file, as the store has them.
    Links(Fid),
}

/// Why an operation did not run to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    /// It failed.
    Errno(Errno),
    /// Something must be fetched first.
    Miss(Need),
}

impl From<Errno> for Stop {
    fn from(e: Errno) -> Stop {
        Stop::Errno(e)
    }
}

/// Result of a step.
pub type Step<T> = Result<T, Stop>;

/// A running operation.
pub struct Txn<'a> {
    cache: &'a Cache,
    /// The time everything in this operation carries.
    pub now: TimeSpec,
    changes: Changes,
}

impl<'a> Txn<'a> {
    /// Begins an operation.
    pub fn new(cache: &'a Cache, now: TimeSpec) -> Txn<'a> {
        Txn { cache, now, changes: Changes::default() }
    }

    /// Ends it; the changes are to be applied.
    pub fn finish(self) -> Changes {
        self.changes
    }

    /// An inode, if it exists.
    pub fn find(&self, fid: Fid) -> Step<Option<Arc<Inode>>> {
        if let Some((_, i)) = self.changes.inodes.iter().find(|(f, _)| *f == fid) {
            return Ok(i.clone());
        }
        self.cache.inode(fid).ok_or(Stop::Miss(Need::Inode(fid)))
    }

    /// An inode; ESTALE when it is gone.
    pub fn inode(&self, fid: Fid) -> Step<Arc<Inode>> {
        self.find(fid)?.ok_or(Stop::Errno(Errno::ESTALE))
    }

    /// A directory; ENOTDIR when it is something else.
    pub fn dir(&self, fid: Fid) -> Step<Arc<Inode>> {
        let i = self.inode(fid)?;
        if i.is_dir() { Ok(i) } else { Err(Errno::ENOTDIR.into()) }
    }

    /// An inode to change.
    pub fn edit(&mut self, fid: Fid) -> Step<&mut Inode> {
        let at = match self.changes.inodes.iter().position(|(f, _)| *f == fid) {
            Some(at) => at,
            None => {
                let i = self.inode(fid)?;
                self.changes.inodes.push((fid, Some(i)));
                self.changes.inodes.len() - 1
            }
        };
        match &mut self.changes.inodes[at].1 {
            Some(i) => Ok(Arc::make_mut(i)),
            None => Err(Errno::ESTALE.into()),
        }
    }

    /// A new inode.
    pub fn insert(&mut self, fid: Fid, inode: Inode) {
        if inode.is_dir() {
            self.changes.born.push(fid);
        }
        self.changes.inodes.push((fid, Some(Arc::new(inode))));
    }

    /// Removes an inode.
    pub fn remove(&mut self, fid: Fid) {
        self.changes.inodes.retain(|(f, _)| *f != fid);
        self.changes.inodes.push((fid, None));
    }

    /// A name of a directory, if it is there.
    pub fn entry(&self, dir: Fid, name: &[u8]) -> Step<Option<Dent>> {
        let own = self.changes.entries.iter().rev().find(|(d, n, _)| *d == dir && n == name);
        if let Some((_, _, dent)) = own {
            return Ok(dent.clone());
        }
        if self.changes.born.contains(&dir) {
            return Ok(None);
        }
        match self.cache.entry(dir, name) {
            Some(known) => Ok(known),
            // Its other names, and their absence, are asked for next.
            None if self.is_small(dir)? => Err(Stop::Miss(Need::Dir(dir))),
            None => Err(Stop::Miss(Need::Entry(dir, name.to_vec()))),
        }
    }

    /// Whether a directory comes whole. Its record in the store may be older than the one that is known: it is logged.
    fn is_small(&self, dir: Fid) -> Step<bool> {
        Ok(self.find(dir)?.is_some_and(|d| d.size <= WHOLE_DIR as u64))
    }

    /// Sets or removes a name.
    pub fn set_entry(&mut self, dir: Fid, name: &[u8], dent: Option<Dent>) {
        self.changes.entries.push((dir, name.to_vec(), dent));
    }

    /// A blob, if it is there.
    pub fn blob(&self, key: &[u8]) -> Step<Option<Bytes>> {
        if let Some((_, v)) = self.changes.blobs.iter().rev().find(|(k, _)| k == key) {
            return Ok(v.clone());
        }
        self.cache.blob(key).ok_or_else(|| Stop::Miss(Need::Blob(key.to_vec())))
    }

    /// Sets or removes a blob.
    pub fn set_blob(&mut self, key: Vec<u8>, value: Option<Bytes>) {
        self.changes.blobs.push((key, value));
    }

    /// Sets or removes a record nobody reads while the server runs.
    pub fn set_raw(&mut self, key: Vec<u8>, value: Option<Vec<u8>>) {
        self.changes.raw.push((key, value));
    }

    /// Entries after a cookie.
    pub fn page(&self, dir: Fid, cookie: u64, max: usize) -> Step<Page<'a>> {
        match self.cache.page(dir, cookie, max) {
            Ok(page) => Ok(page),
            Err(_) if self.is_small(dir)? => Err(Stop::Miss(Need::Dir(dir))),
            Err(from) => Err(Stop::Miss(Need::Part(dir, from))),
        }
    }

    /// All extended attributes of an inode.
    pub fn xattrs(&self, fid: Fid, inode: &Inode) -> Step<Xattrs> {
        if inode.flags & proto::attr::A_HAS_XATTR == 0 {
            return Ok(Xattrs { list: List(Vec::new()) });
        }
        match self.blob(&keys::of(keys::XATTR, fid))? {
            None => Ok(Xattrs { list: List(Vec::new()) }),
            Some(b) => record::decode(&b).map_err(|e| {
                tracing::error!(%fid, error = %e, "damaged extended attributes; run fsck");
                Errno::EIO.into()
            }),
        }
    }

    /// Writes all extended attributes of an inode.
    pub fn set_xattrs(&mut self, fid: Fid, xattrs: &Xattrs) -> Step<()> {
        let empty = xattrs.list.0.is_empty();
        let value = (!empty).then(|| Bytes::from(record::encode(xattrs)));
        self.set_blob(keys::of(keys::XATTR, fid), value);
        let inode = self.edit(fid)?;
        inode.flags &= !proto::attr::A_HAS_XATTR;
        if !empty {
            inode.flags |= proto::attr::A_HAS_XATTR;
        }
        Ok(())
    }

    /// Inline data of a file.
    pub fn inline(&self, fid: Fid) -> Step<Bytes> {
        Ok(self.blob(&keys::of(keys::INLINE, fid))?.unwrap_or_default())
    }
}
