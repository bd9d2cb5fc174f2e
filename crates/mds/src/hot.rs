//! Records that are rewritten all the time: the inodes of directories names are made in, and the
//! answers kept for clients.
//!
//! Role: with thousands of clients every group changes such a record for nearly each of its
//! operations, and changes it again a moment later. Instead of a write each, a group carries all of
//! them in one record, its log; what is in a log counts before the record of that key, and a later
//! log before an earlier one. The last [`LOGS`] logs are kept. A value that is still the newest when
//! its log ends is written as a record of its own, so the store without its logs is what is cold.
//! Assumptions: all of a group becomes durable together (invariant 2); whoever reads a record that
//! may be here asks here first. Limits (invariant 8): [`LOGS`] and [`LOG_BYTES`]. Never does: I/O.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use bytes::Bytes;
use proto::Enc;
use proto::wire::List;
use rustc_hash::FxHashMap as HashMap;
use store::{Snapshot, StoreError, Value, Write};

use crate::keys;
use crate::record;

/// Logs kept: half a second of groups, several times what a client of thousands waits for its turn.
pub const LOGS: u64 = 128;
/// Bytes of logs kept, beside the newest.
pub const LOG_BYTES: usize = 8 << 20;
/// Bytes, and records, of logs that end with one group, if more than one does. What is left ends with the groups that
/// follow, each of which adds less.
pub const ENDED_BYTES: usize = 4 << 20;
/// See [`ENDED_BYTES`].
pub const ENDED_RECORDS: usize = 8192;

proto::wire_struct! {
    /// The newest value of a record; `None`: it is removed.
    Newer {
        /// Its key.
        key: Vec<u8>,
        /// Its value.
        value: Option<Bytes>,
    }

    /// What one group changed of hot records.
    Log {
        /// Counts the logs of a target.
        sequence: u64,
        /// By key, each once.
        list: List<Newer>,
    }
}

/// Bytes of a log in front of its list: version, sequence, count.
const HEAD: usize = 1 + 8 + 4;
/// All hot keys are so long: one byte, and a FID or a client.
pub const KEY: usize = 17;

/// A log that stands in the store.
struct Kept {
    sequence: u64,
    keys: Vec<[u8; KEY]>,
    bytes: usize,
}

/// See the module.
#[derive(Default)]
pub struct Hot {
    /// Of each key in a log, or just written by itself: its newest log, and the value. Keys lie in the
    /// table itself, values in their log: looking for one key among many is one miss of the
    /// processor's cache.
    values: HashMap<[u8; KEY], (u64, Option<Bytes>)>,
    /// Oldest first.
    logs: VecDeque<Kept>,
    bytes: usize,
    /// What got a record of its own: by which group, and of which log it was.
    leaving: VecDeque<(u64, u64, [u8; KEY])>,
    /// Of the last log.
    sequence: u64,
    /// Of the group that is being cut.
    gathered: Gathered,
}

/// The log of the group that is being cut.
#[derive(Default)]
struct Gathered {
    /// With room for its head, which is known when it ends; empty: nothing is in it.
    list: Vec<u8>,
    /// Bytes it may come to: what the last one had.
    expected: usize,
    /// Where the value of each key is in it.
    keys: Vec<([u8; KEY], Option<Range<usize>>)>,
}

impl Gathered {
    fn add(&mut self, key: [u8; KEY], value: Option<impl FnOnce(&mut Enc)>) {
        let mut e = Enc(std::mem::take(&mut self.list));
        if e.0.is_empty() {
            e.0.reserve(self.expected);
            e.0.resize(HEAD, 0);
        }
        e.put(&(KEY as u32)).raw(&key);
        e.put(&u8::from(value.is_some()));
        let at = value.map(|write| {
            e.put(&0u32);
            let begin = e.0.len();
            write(&mut e);
            let len = (e.0.len() - begin) as u32;
            e.0[begin - 4..begin].copy_from_slice(&len.to_le_bytes());
            begin..e.0.len()
        });
        self.keys.push((key, at));
        self.list = e.0;
    }
}

impl Hot {
    /// Takes a change of a record into the group that is being cut, if a log holds that record. The change
    /// comes back where it is to be written by itself.
    pub fn take(&mut self, key: Vec<u8>, value: Option<Vec<u8>>) -> Option<Write> {
        if let Ok(short) = <[u8; KEY]>::try_from(&key[..])
            && self.values.contains_key(&short)
        {
            let write = |v| {
                move |e: &mut Enc| {
                    e.raw(v);
                }
            };
            self.gathered.add(short, value.as_deref().map(write));
            return None;
        }
        Some(match value {
            Some(value) => Write::Put(key, value),
            None => Write::Del(key),
        })
    }

    /// Takes the new value of a record that will be changed again into the group that is being cut; `write`
    /// puts it where it will stand.
    pub fn gather(&mut self, key: [u8; KEY], write: impl FnOnce(&mut Enc)) {
        self.gathered.add(key, Some(write));
    }

    /// The newest value of a key, if the store may not have it; `Some(None)`: it is removed.
    pub fn get(&self, key: &[u8]) -> Option<Option<&Bytes>> {
        self.values.get(<&[u8; KEY]>::try_from(key).ok()?).map(|(_, value)| value.as_ref())
    }

    /// Whether the store is the same without its logs.
    pub fn is_empty(&self) -> bool {
        self.logs.is_empty()
    }

    /// Ends a group: its log, and what is left of logs that end with it. With `all` none is kept, but for
    /// those that are too much for one group.
    pub fn cut(&mut self, group: u64, writes: &mut Vec<Write>, all: bool) {
        let Gathered { mut list, keys, .. } = std::mem::take(&mut self.gathered);
        self.gathered.expected = list.len();
        if !keys.is_empty() {
            let mut head = Enc(Vec::with_capacity(HEAD));
            head.put(&record::VERSION).put(&(self.sequence + 1)).put(&(keys.len() as u32));
            list[..HEAD].copy_from_slice(&head.0);
            let log = Bytes::copy_from_slice(&list);
            let keys = keys.into_iter().map(|(key, at)| (key, at.map(|at| log.slice(at))));
            self.add(self.sequence + 1, list.len(), keys);
            writes.push(Write::Put(keys::log(self.sequence % LOGS), list));
        }
        let (before, mut ended) = (writes.len(), 0);
        // The log that this one takes the place of.
        while let Some(first) = self.logs.front()
            && first.sequence + LOGS <= self.sequence
        {
            ended += first.bytes;
            self.end_first(group, writes);
        }
        let most = if all { 0 } else { LOG_BYTES + self.logs.back().map_or(0, |l| l.bytes) };
        while self.bytes > most
            && let Some(first) = self.logs.front()
        {
            let records = writes.len() - before + first.keys.len();
            if ended > 0 && (ended + first.bytes > ENDED_BYTES || records > ENDED_RECORDS) {
                return;
            }
            ended += first.bytes;
            if let Some(gone) = self.end_first(group, writes) {
                writes.push(Write::Del(keys::log(gone % LOGS)));
            }
        }
    }

    fn add(
        &mut self,
        sequence: u64,
        bytes: usize,
        newer: impl ExactSizeIterator<Item = ([u8; KEY], Option<Bytes>)>,
    ) {
        self.sequence = sequence;
        self.bytes += bytes;
        let mut keys = Vec::with_capacity(newer.len());
        for (key, value) in newer {
            keys.push(key);
            self.values.insert(key, (sequence, value));
        }
        self.logs.push_back(Kept { sequence, keys, bytes });
    }

    /// Ends the oldest log: what no later one holds gets records of its own. Its number.
    fn end_first(&mut self, group: u64, writes: &mut Vec<Write>) -> Option<u64> {
        let ended = self.logs.pop_front()?;
        self.bytes -= ended.bytes;
        for key in ended.keys {
            let Some((newest, value)) = self.values.get(&key) else { continue };
            if *newest != ended.sequence {
                continue;
            }
            writes.push(match value {
                Some(value) => Write::Put(key.to_vec(), value.to_vec()),
                None => Write::Del(key.to_vec()),
            });
            // A reader may still find the record of before in the store.
            self.leaving.push_back((group, ended.sequence, key));
        }
        Some(ended.sequence)
    }

    /// Groups up to this one are in the store, and nobody reads who began before they were.
    pub fn stored(&mut self, group: u64) {
        while self.leaving.front().is_some_and(|(by, ..)| *by <= group) {
            let Some((_, log, key)) = self.leaving.pop_front() else { return };
            if self.values.get(&key).is_some_and(|(newest, _)| *newest == log) {
                self.values.remove(&key);
            }
        }
    }

    /// What the logs of a store say, by its scanner of keys from the first to before the second.
    pub fn read<E>(
        scan: impl FnOnce(&[u8], Option<&[u8]>, usize) -> Result<Vec<(Vec<u8>, Value)>, E>,
        damaged: impl Fn(&[u8], String) -> E,
    ) -> Result<Hot, E> {
        let from = [keys::LOG];
        let mut logs = Vec::new();
        for (key, value) in scan(&from, keys::after(&from).as_deref(), LOGS as usize + 1)? {
            let log: Log = record::decode(&value).map_err(|e| damaged(&key, e.to_string()))?;
            if key != keys::log(log.sequence % LOGS) {
                return Err(damaged(&key, format!("log {} is out of its place", log.sequence)));
            }
            logs.push((log, value.len()));
        }
        logs.sort_by_key(|(log, _)| log.sequence);
        let mut hot = Hot::default();
        for (log, bytes) in logs {
            let newer: Result<Vec<_>, _> = log.list.0.into_iter().map(readable).collect();
            let newer = newer.map_err(|why| damaged(&keys::log(log.sequence % LOGS), why))?;
            hot.add(log.sequence, bytes, newer.into_iter());
        }
        Ok(hot)
    }
}

/// A change of a log that was read: values are used later without another look.
fn readable(newer: Newer) -> Result<([u8; KEY], Option<Bytes>), String> {
    let shown = newer.key.escape_ascii().to_string();
    let stray = || format!("it holds the key {shown}");
    let key = <[u8; KEY]>::try_from(&newer.key[..]).map_err(|_| stray())?;
    let value = newer.value.as_deref().unwrap_or_default();
    let wrong = match key[0] {
        keys::INODE => record::decode::<record::Inode>(value).err(),
        keys::REPLIES => record::decode::<record::Replies>(value).err(),
        _ => return Err(stray()),
    };
    match wrong.filter(|_| newer.value.is_some()) {
        Some(e) => Err(format!("its record {shown} cannot be read: {e}")),
        None => Ok((key, newer.value)),
    }
}

/// A snapshot as it is with what its logs say.
pub struct Newest<'a> {
    older: &'a dyn Snapshot,
    newer: BTreeMap<Vec<u8>, Option<Bytes>>,
}

impl<'a> Newest<'a> {
    /// Reads the logs. `Corrupt` if one cannot be read.
    pub fn of(older: &'a dyn Snapshot) -> Result<Newest<'a>, StoreError> {
        let damaged = |key: &[u8], why: String| {
            StoreError::Corrupt(format!("the record {}: {why}", key.escape_ascii()))
        };
        let hot = Hot::read(|from, to, limit| older.scan(from, to, limit), damaged)?;
        Ok(Newest {
            older,
            newer: hot.values.into_iter().map(|(k, v)| (k.to_vec(), v.1)).collect(),
        })
    }
}

impl Snapshot for Newest<'_> {
    fn get(&self, key: &[u8]) -> Result<Option<Value>, StoreError> {
        match self.newer.get(key) {
            Some(value) => Ok(value.clone()),
            None => self.older.get(key),
        }
    }

    fn scan(
        &self,
        from: &[u8],
        to: Option<&[u8]>,
        limit: usize,
    ) -> Result<Vec<(Vec<u8>, Value)>, StoreError> {
        let mut found: BTreeMap<Vec<u8>, Value> = BTreeMap::new();
        let mut at = from.to_vec();
        // Each look may lose entries that are removed: until it is full, or there are no more.
        loop {
            let part = self.older.scan(&at, to, limit)?;
            let last = part.last().map(|(key, _)| key.clone()).filter(|_| part.len() == limit);
            let known = |key: &Vec<u8>| self.newer.contains_key(key);
            found.extend(part.into_iter().filter(|(key, _)| !known(key)));
            let within = self.newer.range(at.clone()..).take_while(|(key, _)| {
                to.is_none_or(|to| key.as_slice() < to) && last.as_ref().is_none_or(|l| *key <= l)
            });
            found.extend(within.filter_map(|(key, v)| Some((key.clone(), v.clone()?))));
            match last {
                Some(last) if found.len() < limit => at = [&last[..], &[0]].concat(),
                _ => break,
            }
        }
        Ok(found.into_iter().take(limit).collect())
    }
}

#[cfg(test)]
mod tests;
