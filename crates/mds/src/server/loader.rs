//! Reader threads: they fetch what the namespace has not in memory.
//!
//! Role: turn a need into store reads. Never does: change anything.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use proto::Fid;
use store::{Store, StoreError};

use crate::cache::TO_THE_END;
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
        /// All that the directory has of these hashes are among them.
        all_of: Range<u64>,
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
        Need::Part(dir, from) => part(store, *dir, *from),
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

type Found = Vec<(Vec<u8>, Dent)>;

/// Entries of a directory from a key on, at most [`SCAN`]; where the next ones begin, if there may be any.
fn scan(
    store: &Arc<dyn Store>,
    dir: Fid,
    from: &[u8],
    found: &mut Found,
) -> Result<Option<Vec<u8>>, LoadError> {
    let end = keys::after(&keys::of(keys::ENTRY, dir));
    let part = store.scan(from, end.as_deref(), SCAN)?;
    let next = part.last().filter(|_| part.len() == SCAN).map(|(key, _)| {
        let mut next = key.to_vec();
        next.push(0);
        next
    });
    for (key, value) in part {
        let (_, _, name) = keys::parse_entry(&key).ok_or_else(|| damaged(&key, "short key"))?;
        found.push((name.to_vec(), record::decode(&value).map_err(|e| damaged(&key, e))?));
    }
    Ok(next)
}

fn whole(store: &Arc<dyn Store>, dir: Fid) -> Result<Loaded, LoadError> {
    let mut found = Vec::new();
    let mut from = Some(keys::of(keys::ENTRY, dir));
    while let Some(key) = from {
        from = scan(store, dir, &key, &mut found)?;
    }
    Ok(Loaded::Entries { dir, found, all_of: 0..TO_THE_END, absent: None })
}

/// What is known ends before the last hash found, because there may be more of it.
fn part(store: &Arc<dyn Store>, dir: Fid, first: u64) -> Result<Loaded, LoadError> {
    let mut found = Vec::new();
    let mut from = keys::entry(dir, first, b"");
    loop {
        let next = scan(store, dir, &from, &mut found)?;
        let last = next.as_deref().and_then(keys::parse_entry).map_or(TO_THE_END, |(_, h, _)| h);
        match next.filter(|_| last == first) {
            Some(next) => from = next,
            None => return Ok(Loaded::Entries { dir, found, all_of: first..last, absent: None }),
        }
    }
}

fn entry(store: &Arc<dyn Store>, dir: Fid, name: &[u8]) -> Result<Loaded, LoadError> {
    let key = keys::entry(dir, keys::name_hash(name), name);
    let found = match store.get(&key)? {
        Some(v) => vec![(name.to_vec(), record::decode(&v).map_err(|e| damaged(&key, e))?)],
        None => Vec::new(),
    };
    let absent = found.is_empty().then(|| name.to_vec());
    Ok(Loaded::Entries { dir, found, all_of: 0..0, absent })
}
