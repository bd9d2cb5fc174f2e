//! The commit thread's side of the fjall engine: space, write, sync, note.
//!
//! Never: writes after a failure whose extent is unknown; the handle is poisoned instead.

use std::sync::Arc;

use super::committed::CommittedFile;
use super::database::Handle;
use super::room::Waker;
use super::space;
use crate::chain::CommitRecord;
use crate::committer::{Backend, Refusal};
use crate::{StoreError, Write};

/// Syncs of the journal between two of the side file while commits keep coming.
const NOTE_SYNC_EVERY: u32 = 1024;

pub(super) struct FjallBackend {
    handle: Arc<Handle>,
    room: Waker,
    committed: CommittedFile,
    reserve: u64,
    since_note_sync: u32,
}

impl FjallBackend {
    pub(super) fn new(
        handle: Arc<Handle>,
        room: Waker,
        committed: CommittedFile,
        reserve: u64,
    ) -> Self {
        FjallBackend { handle, room, committed, reserve, since_note_sync: 0 }
    }
}

impl Backend for FjallBackend {
    fn apply(&mut self, record: &CommitRecord, writes: &[Write]) -> Result<(), Refusal> {
        space::check(&self.handle, &self.room, self.reserve, writes).map_err(|e| match e {
            StoreError::Uncertain(_) => Refusal::Fatal(e),
            e => Refusal::Clean(e),
        })?;
        // Once fjall has begun to write, only reading the store again can tell what is there.
        self.handle.write(record, writes).map_err(|e| Refusal::Fatal(uncertain(e)))
    }

    fn sync(&mut self, newest: &CommitRecord) -> Result<(), StoreError> {
        self.handle.sync().map_err(uncertain)?;
        // The commit is durable; the note only helps the next owner, so a failure is no failure of it.
        self.since_note_sync += 1;
        let mut noted = self.committed.note(newest);
        if noted.is_ok() && self.since_note_sync >= NOTE_SYNC_EVERY {
            self.since_note_sync = 0;
            noted = self.committed.sync();
        }
        if let Err(e) = noted {
            tracing::warn!(error = %e, "the store's `committed` file falls behind");
        }
        Ok(())
    }

    fn idle(&mut self) {
        self.since_note_sync = 0;
        if let Err(e) = self.committed.sync() {
            tracing::warn!(error = %e, "the store's `committed` file falls behind");
        }
    }
}

fn uncertain(e: StoreError) -> StoreError {
    match e {
        StoreError::Uncertain(_) => e,
        other => StoreError::Uncertain(other.to_string()),
    }
}
