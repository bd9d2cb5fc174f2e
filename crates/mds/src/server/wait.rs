//! Requests that step aside: for a reader, a commit or a lock; and how they go on.
//!
//! Never does: I/O, waiting of its own.

use std::time::Instant;

use proto::mds::Res;
use proto::{Errno, Fid};

use super::loader::{LoadError, Loaded};
use super::pace::Of;
use super::state::State;
use super::task::{Parked, Task};
use crate::txn::Need;

/// What a request waits for.
pub enum Place {
    /// That everything up to a transaction number is durable.
    Commit(u64),
    /// A lock, by its ticket.
    Lock(u64),
}

impl State {
    pub fn wait(&mut self, mut task: Task, place: Place) {
        match place {
            Place::Commit(transno) => {
                self.suspend(&mut task);
                self.waiting_commit.entry(transno).or_default().push(task);
                self.maybe_cut();
            }
            Place::Lock(ticket) => {
                self.suspend(&mut task);
                self.waiting_lock.insert(ticket, task);
            }
        }
    }

    /// Locks were given back: whoever waited for them goes on.
    pub fn wake_locks(&mut self, fid: Fid) {
        for ticket in self.ns.locks.wake(fid) {
            self.end_wait(ticket, Ok(Res::Done {}));
        }
    }

    /// A wait for a lock ends.
    pub fn end_wait(&mut self, ticket: u64, how: Result<Res, Errno>) {
        let Some(mut task) = self.waiting_lock.remove(&ticket) else { return };
        match how {
            Ok(res) => {
                task.results.push(res);
                task.next += 1;
                self.step(task);
            }
            Err(e) => self.fail_op(task, e),
        }
    }

    /// Drops the waits of a session that is gone.
    pub fn drop_waits(&mut self, tickets: Vec<u64>) {
        for t in tickets {
            if let Some(task) = self.waiting_lock.remove(&t) {
                self.fail(task, Errno::ESTALE);
            }
        }
    }

    pub fn park(&mut self, need: Need, mut parked: Parked) {
        if let Parked::Client(task) = &mut parked {
            self.suspend(task);
            task.fetches();
            self.starved += usize::from(task.is_starved());
        }
        if let Some((_, waiting)) = self.parked.get_mut(&need) {
            return waiting.push(parked);
        }
        let load = self.ns.cache.begin_load();
        self.pace.waits(Of::Load, Instant::now());
        self.out.needs.push(need.clone());
        self.parked.insert(need, (load, vec![parked]));
    }

    /// A reader is back: what waited runs again.
    pub fn loaded(&mut self, need: Need, result: Result<Loaded, LoadError>) {
        let Some((load, waiting)) = self.parked.remove(&need) else { return };
        self.pace.came(Of::Load, !self.parked.is_empty(), Instant::now());
        let failed = result.is_err();
        let mut links = None;
        match result {
            Ok(Loaded::Inodes(found)) => {
                for (fid, inode) in found {
                    self.ns.cache.loaded_inode(fid, inode);
                }
            }
            Ok(Loaded::Entries { dir, found, all_of, absent }) => {
                self.ns.cache.loaded_entries(dir, found, all_of, absent.as_deref());
            }
            Ok(Loaded::Links(fid, found)) => links = Some((fid, found)),
            Ok(Loaded::Blob(key, value)) => self.ns.cache.loaded_blob(key, value),
            Err(e) if self.failed => tracing::debug!(?need, error = %e, "cannot read the store"),
            Err(e) => tracing::error!(?need, error = %e, "cannot read the store"),
        }
        self.ns.cache.end_load(load);
        for parked in waiting {
            if let Parked::Client(task) = &parked {
                self.starved -= usize::from(task.is_starved());
            }
            match parked {
                Parked::Client(task) if failed => self.fail_op(*task, Errno::EIO),
                Parked::Client(mut task) => {
                    task.links = links.clone().or(task.links.take());
                    self.step(*task);
                }
                Parked::Reap(fid) => self.reap_loaded(fid, failed),
            }
        }
        self.make_room();
    }

    /// Forgets what memory has no room for, unless an operation never gets together what it needs: where much waits
    /// to become durable that may be all there is room for, and others fetch, too.
    pub(super) fn make_room(&mut self) {
        if self.starved == 0 {
            self.ns.cache.shrink();
        }
    }
}
