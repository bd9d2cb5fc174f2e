//! Reader threads: they fetch what the namespace has not in memory.
//!
//! Role: turn a need into store reads. Never does: change anything.

use std::sync::Arc;

use bytes::Bytes;
use proto::Fid;
use store::{Store, StoreError};

use crate::cache::WHOLE_DIR;
use crate::keys;
use crate::record::{self, Dent, Home, Inode};
use crate::txn::Need;

/// Entries fetched from the store at a time.
const SCAN: usize = 4096;

/// Further links of a file that are fetched.
const MAX_LINKS: usize = 64;

/// What a reader found.
pub enum Loaded {
    /// Inodes.
    Inodes(Vec<(Fid, Option<Inode>)>),
    /// Entries of a directory.
    Entries {
        /// The directory.
        dir: Fid,
        /// What was found.
        found: Vec<(Vec<u8>, Dent)>,
        /// These are all.
        whole: bool,
        /// The name that was looked for and is not there.
        absent: Option<Vec<u8>>,
    },
    /// A blob.
    Blob(Vec<u8>, Option<Bytes>),
    /// Further links of a file.
    Links(Fid, Vec<Home>),
}

/// Why a reader failed.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The store.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A record cannot be read.
    #[error("the record {key} is damaged ({why}); run `pinstripe fsck`")]
    Record {
        /// Its key.
        key: String,
        /// How.
        why: String,
    },
}

fn damaged(key: &[u8], why: impl ToString) -> LoadError {
    LoadError::Record { key: key.escape_ascii().to_string(), why: why.to_string() }
}

/// Fetches what is needed.
pub fn load(store: &Arc<dyn Store>, need: &Need) -> Result<Loaded, LoadError> {
    match need {
        Need::Inode(fid) => inodes(store, std::slice::from_ref(fid)),
        Need::Inodes(fids) => inodes(store, fids),
        Need::Dir(dir) => whole(store, *dir),
        Need::Entry(dir, name) => entry(store, *dir, name),
        Need::Links(fid) => links(store, *fid),
        Need::Blob(key) => Ok(Loaded::Blob(key.clone(), store.get(key)?)),
    }
}

fn inodes(store: &Arc<dyn Store>, fids: &[Fid]) -> Result<Loaded, LoadError> {
    let keys: Vec<Vec<u8>> = fids.iter().map(|f| keys::of(keys::INODE, *f)).collect();
    let values = store.multi_get(&keys)?;
    let mut found = Vec::with_capacity(fids.len());
    for ((fid, key), value) in fids.iter().zip(&keys).zip(values) {
        let inode = value.map(|v| record::decode(&v).map_err(|e| damaged(key, e))).transpose()?;
        found.push((*fid, inode));
    }
    Ok(Loaded::Inodes(found))
}

fn links(store: &Arc<dyn Store>, fid: Fid) -> Result<Loaded, LoadError> {
    let from = keys::of(keys::LINK, fid);
    let mut found = Vec::new();
    for (key, _) in store.scan(&from, keys::after(&from).as_deref(), MAX_LINKS)? {
        let dir = key.get(17..33).and_then(Fid::from_key);
        let (dir, name) = dir.zip(key.get(33..)).ok_or_else(|| damaged(&key, "short key"))?;
        found.push(Home { dir, name: name.to_vec() });
    }
    Ok(Loaded::Links(fid, found))
}

fn whole(store: &Arc<dyn Store>, dir: Fid) -> Result<Loaded, LoadError> {
    let prefix = keys::of(keys::ENTRY, dir);
    let end = keys::after(&prefix);
    let (mut from, mut found) = (prefix, Vec::new());
    loop {
        let part = store.scan(&from, end.as_deref(), SCAN)?;
        let last = part.last().map(|(k, _)| k.clone());
        let more = part.len() == SCAN;
        for (key, value) in part {
            let (_, _, name) = keys::parse_entry(&key).ok_or_else(|| damaged(&key, "short key"))?;
            let dent = record::decode(&value).map_err(|e| damaged(&key, e))?;
            found.push((name.to_vec(), dent));
        }
        match last.filter(|_| more) {
            Some(mut k) => {
                k.push(0);
                from = k;
            }
            None => return Ok(Loaded::Entries { dir, found, whole: true, absent: None }),
        }
    }
}

/// A small directory comes whole: its other names, and their absence, are asked for next.
fn entry(store: &Arc<dyn Store>, dir: Fid, name: &[u8]) -> Result<Loaded, LoadError> {
    if let Some(v) = store.get(&keys::of(keys::INODE, dir))?
        && let Ok(d) = record::decode::<Inode>(&v)
        && d.size <= WHOLE_DIR as u64
    {
        return whole(store, dir);
    }
    let key = keys::entry(dir, keys::name_hash(name), name);
    let found = match store.get(&key)? {
        Some(v) => vec![(name.to_vec(), record::decode(&v).map_err(|e| damaged(&key, e))?)],
        None => Vec::new(),
    };
    let absent = found.is_empty().then(|| name.to_vec());
    Ok(Loaded::Entries { dir, found, whole: false, absent })
}
