//! What happens before a target serves: its store is acquired, the root made on first use,
//! sequences reserved, what a crash left over gathered.

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc;

use proto::attr::FileKind;
use proto::{Fid, TimeSpec};
use store::fjall_engine::{self, FjallOptions};
use store::{Commit, Store, StoreError, Write};

use super::MdtError;
use super::commit::SEQUENCES;
use super::state::State;
use crate::cache::Cache;
use crate::format;
use crate::hot::Hot;
use crate::keys;
use crate::label::MdtLabel;
use crate::locks::Locks;
use crate::namespace::Namespace;
use crate::opens::Opens;
use crate::options::MdtOptions;
use crate::osts::OstTable;
use crate::record::{self, Garbage, Inode};

/// Records gathered at a time.
const SCAN: usize = 4096;

/// What a target starts with.
pub struct Start {
    /// The state.
    pub state: State,
    /// Files that were unlinked but open.
    pub orphans: Vec<Fid>,
    /// Objects to destroy.
    pub garbage: Vec<(Fid, Garbage)>,
}

/// Acquires the store of a target. One that is not there is never made anew: FIDs would be handed
/// out again, and old objects' bytes show up in new files (invariant 11).
pub fn store(dir: &Path) -> Result<Arc<dyn Store>, MdtError> {
    let path = dir.join(format::STORE).display().to_string();
    let fail = |source| MdtError::Store { path: path.clone(), source };
    let Some(place) = format::store(dir).map_err(fail)? else {
        return Err(MdtError::StoreLost { path });
    };
    let owner = format!("pid {}", std::process::id());
    let engine = FjallOptions::default();
    let store = fjall_engine::acquire(&place, &owner, 0, &engine).map_err(fail)?;
    Ok(Arc::from(store))
}

fn commit(store: &Arc<dyn Store>, last: u64, writes: Vec<Write>) -> Result<(), StoreError> {
    let (tx, rx) = mpsc::channel();
    let c = Commit { prev_last: last, last, writes: writes.into() };
    store.submit(c, Box::new(move |r| drop(tx.send(r))));
    rx.recv().unwrap_or(Err(StoreError::Closed))
}

/// The state of a target whose store was acquired.
pub fn state(
    label: &MdtLabel,
    store: &Arc<dyn Store>,
    options: &MdtOptions,
    path: &str,
) -> Result<Start, MdtError> {
    let fail = |source| MdtError::Store { path: path.to_string(), source };
    let info = store.info();
    let sequences = reserve(label, store, info.last, path)?;
    if store.get(&keys::of(keys::INODE, Fid::ROOT)).map_err(fail)?.is_none() && label.index == 0 {
        let root = record::encode(&root(options.clock.now()));
        let put = Write::Put(keys::of(keys::INODE, Fid::ROOT), root);
        let count = Write::Put(keys::single(keys::COUNT), 1u64.to_le_bytes().to_vec());
        commit(store, info.last, vec![put, count]).map_err(fail)?;
    }
    let count = number(store, keys::COUNT, path)?.unwrap_or(0);
    let orphans = fids(store, keys::ORPHAN).map_err(fail)?;
    let garbage = garbage(store, path)?;
    let mut cache = Cache::new(options.cache_bytes);
    cache.set_count(count);
    let damaged = |key: &[u8], why| MdtError::Record {
        path: path.to_string(),
        what: "log",
        why: format!("{}: {why}", key.escape_ascii()),
    };
    cache.set_hot(Hot::read(|a, b, n| store.scan(a, b, n).map_err(fail), damaged)?);
    let ns = Namespace {
        cache,
        opens: Opens::new((info.epoch & 0xff_ffff) << 40),
        locks: Locks::default(),
        osts: Arc::new(OstTable::new(options.seed)),
        dom_limit: options.dom_limit,
        granted: Default::default(),
        boot_sequences: (keys::first_sequence(label.index), sequences.0),
        links: None,
        sequences,
        movers: Default::default(),
        garbage: Vec::new(),
        store_space: (0, 0, 0),
        full: false,
    };
    let state = State::new(ns, options.clone(), info.last);
    Ok(Start { state, orphans, garbage })
}

/// A singleton that is a number.
fn number(store: &Arc<dyn Store>, what: &'static str, path: &str) -> Result<Option<u64>, MdtError> {
    let fail = |source| MdtError::Store { path: path.to_string(), source };
    let Some(v) = store.get(&keys::single(what)).map_err(fail)? else { return Ok(None) };
    match v[..].try_into() {
        Ok(bytes) => Ok(Some(u64::from_le_bytes(bytes))),
        Err(_) => {
            let why = format!("{} bytes", v.len());
            Err(MdtError::Record { path: path.to_string(), what, why })
        }
    }
}

/// Reserves sequences for this boot, durably, before one is granted: an earlier boot's are never
/// granted again.
fn reserve(
    label: &MdtLabel,
    store: &Arc<dyn Store>,
    last: u64,
    path: &str,
) -> Result<(u64, u64), MdtError> {
    let fail = |source| MdtError::Store { path: path.to_string(), source };
    let key = keys::single("sequence");
    let stored = number(store, "sequence", path)?;
    let first = stored.unwrap_or(keys::first_sequence(label.index));
    let end = first + SEQUENCES;
    commit(store, last, vec![Write::Put(key, end.to_le_bytes().to_vec())]).map_err(fail)?;
    Ok((first, end))
}

fn root(now: TimeSpec) -> Inode {
    Inode {
        mode: FileKind::Dir.mode_bits() | 0o755,
        nlink: 2,
        uid: 0,
        gid: 0,
        rdev: 0,
        size: 0,
        blocks: 0,
        atime: now,
        mtime: now,
        ctime: now,
        btime: now,
        flags: 0,
        version: 1,
        home: None,
        target: Vec::new(),
        layout: None,
        next_layout: 0,
        spec: None,
    }
}

fn each(
    store: &Arc<dyn Store>,
    kind: u8,
    mut f: impl FnMut(&[u8], &[u8]),
) -> Result<(), StoreError> {
    let end = keys::after(&[kind]);
    let mut from = vec![kind];
    loop {
        let part = store.scan(&from, end.as_deref(), SCAN)?;
        for (k, v) in &part {
            f(k, v);
        }
        match part.last() {
            Some((k, _)) if part.len() == SCAN => from = [k, &[0][..]].concat(),
            _ => return Ok(()),
        }
    }
}

fn fids(store: &Arc<dyn Store>, kind: u8) -> Result<Vec<Fid>, StoreError> {
    let mut found = Vec::new();
    each(store, kind, |k, _| found.extend(keys::fid_of(k)))?;
    Ok(found)
}

fn garbage(store: &Arc<dyn Store>, path: &str) -> Result<Vec<(Fid, Garbage)>, MdtError> {
    let fail = |source| MdtError::Store { path: path.to_string(), source };
    let mut found = Vec::new();
    each(store, keys::GARBAGE, |k, v| match (keys::fid_of(k), record::decode::<Garbage>(v)) {
        (Some(fid), Ok(g)) => found.push((fid, g)),
        _ => tracing::error!(key = %k.escape_ascii(), "damaged record; run fsck"),
    })
    .map_err(fail)?;
    Ok(found)
}
