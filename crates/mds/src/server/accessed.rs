//! Who may show attributes of a file hears when others have read it.
//!
//! Role: when a file was read last is told late and often, so that it calls no lease back (which would cost its holders
//! all they know of the file): who holds `LS_ATTR` of it is told the new attributes instead. Nobody waits for that. Limits:
//! what is read gathers for a [`ROUND`], each file once; then each client has one message at a time, of [`MAX_FILES`] files as
//! they are by then. So where a thousand clients have read the same files, each hears of all others together, and it
//! costs no more than a look at each lease in a round. Where it cannot be told (the client does not answer, the inode is no
//! longer in memory) the lease is called back after all. Never does: keep an operation waiting.

use std::collections::BTreeSet;
use std::time::Duration;

use proto::Fid;
use proto::mds::{Accessed, LS_ATTR};
use proto::wire::List;
use rustc_hash::FxHashMap as HashMap;

use super::recall::Leases;
use super::state::State;
use crate::cache::Changes;
use crate::leases::EXCLUSIVE;
use crate::leases::calls::Conflict;

/// Files of one message: well within a body.
const MAX_FILES: usize = 1024;

/// How long what was read gathers.
pub const ROUND: Duration = Duration::from_secs(1);

/// Of one client.
#[derive(Debug, Default)]
struct News {
    /// What it holds attributes of, and was not told; as many as it holds leases at most.
    waiting: BTreeSet<Fid>,
    /// What it is being told.
    told: Vec<Fid>,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Reads {
    /// Files that were read in this round, and by whom alone. As many as there are leases at most.
    moved: HashMap<Fid, Option<u64>>,
    by_session: HashMap<u64, News>,
    /// Clients with something waiting that are not being told.
    ready: BTreeSet<u64>,
}

impl Reads {
    /// A client is gone.
    pub fn drop_session(&mut self, session: u64) {
        self.by_session.remove(&session);
        self.ready.remove(&session);
    }
}

/// Whether a holder of these leases is told. Who excludes others got that after the file was read, with attributes that say
/// so, and may have changed it since.
fn is_told(bits: u8) -> bool {
    bits & LS_ATTR != 0 && bits & EXCLUSIVE == 0
}

impl State {
    /// A session tells, among other changes, when it read files; leases on what else it changes are called back by now.
    pub(super) fn note_accessed(&mut self, session: u64, changes: &Changes) {
        for (fid, new) in &changes.inodes {
            let old = self.ns.cache.inode(*fid).flatten();
            let moves = matches!((old, new), (Some(old), Some(new)) if old.atime != new.atime);
            if moves && self.leases.table.others(*fid, session).any(|(_, has)| has & LS_ATTR != 0) {
                let by = self.leases.reads.moved.entry(*fid).or_insert(Some(session));
                *by = by.filter(|by| *by == session);
            }
        }
    }

    /// A round is over: who holds what was read in it is told.
    pub(super) fn gather_accessed(&mut self) {
        let Leases { table, reads, .. } = &mut self.leases;
        for (fid, by) in reads.moved.drain() {
            for (holder, bits) in table.holders(fid) {
                if !is_told(bits) || by == Some(holder) {
                    continue;
                }
                let news = reads.by_session.entry(holder).or_default();
                news.waiting.insert(fid);
                if news.told.is_empty() {
                    reads.ready.insert(holder);
                }
            }
        }
    }

    /// What is to be told goes out.
    pub(super) fn tell_accessed(&mut self) {
        while let Some(session) = self.leases.reads.ready.pop_first() {
            let Some(news) = self.leases.reads.by_session.get_mut(&session) else { continue };
            let mut files = Vec::new();
            let mut lost = Vec::new();
            while files.len() < MAX_FILES
                && let Some(fid) = news.waiting.pop_first()
            {
                if !is_told(self.leases.table.of(fid, session)) {
                    continue;
                }
                match self.ns.cache.inode(fid).flatten() {
                    Some(inode) => files.push(inode.attr(fid)),
                    None => lost.push(fid),
                }
            }
            news.told = files.iter().map(|attr| attr.fid).collect();
            self.call_attributes_back(session, &lost);
            match self.clients.get(&session).map(|c| c.session.clone()) {
                Some(client) if !files.is_empty() => {
                    self.leases.figures.accessed += files.len() as u64;
                    self.out.accessed.push((client, Accessed { files: List(files) }));
                }
                _ => self.leases.reads.drop_session(session),
            }
        }
    }

    /// A session has taken what it was told, or has not answered.
    pub(super) fn heard_accessed(&mut self, session: u64, heard: bool) {
        let Some(news) = self.leases.reads.by_session.get_mut(&session) else { return };
        let told = std::mem::take(&mut news.told);
        match news.waiting.is_empty() {
            true => self.leases.reads.drop_session(session),
            false => drop(self.leases.reads.ready.insert(session)),
        }
        if !heard {
            self.call_attributes_back(session, &told);
        }
    }

    fn call_attributes_back(&mut self, session: u64, fids: &[Fid]) {
        for fid in fids {
            let bits = self.leases.table.of(*fid, session) & LS_ATTR;
            if bits != 0 {
                let conflict = Conflict { fid: *fid, session, bits, written: false };
                self.leases.figures.recalls += u64::from(self.leases.calls.ask(conflict));
            }
        }
    }
}
