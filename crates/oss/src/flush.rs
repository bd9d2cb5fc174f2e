//! Work behind the requests: beginning write-out early, and commits when too much is unstable.

use std::sync::{Arc, Weak};
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, TrySendError, bounded};

use crate::object::Object;
use crate::ost::Ost;

/// Most notes waiting for the flusher; more are left out (a later sync does their work).
pub(crate) const FLUSH_QUEUE: usize = 256;

/// How long nothing was to be done when memory that was not needed is given back.
const QUIET: Duration = Duration::from_secs(10);

pub(crate) enum Note {
    /// Begin writing out this range.
    WriteOut(Arc<Object>, u64, u64),
    /// Too many objects have unstable writes: commit them.
    CommitAll,
}

/// Where notes go; the thread ends when this is dropped.
pub(crate) struct Flusher(Sender<Note>);

impl Flusher {
    pub(crate) fn new() -> (Flusher, Receiver<Note>) {
        let (send, receive) = bounded(FLUSH_QUEUE);
        (Flusher(send), receive)
    }

    /// Hands over a note if there is room.
    pub(crate) fn note(&self, note: Note) {
        if let Err(TrySendError::Full(_)) = self.0.try_send(note) {
            tracing::trace!("flusher is busy, a note was left out");
        }
    }
}

/// The flusher's thread.
pub(crate) fn run(notes: &Receiver<Note>, ost: &Weak<Ost>) {
    loop {
        let note = match notes.recv_timeout(QUIET) {
            Ok(note) => note,
            Err(RecvTimeoutError::Timeout) => {
                crate::buffer::trim(QUIET);
                continue;
            }
            Err(RecvTimeoutError::Disconnected) => return,
        };
        match note {
            Note::WriteOut(object, start, len) => {
                crate::io::start_write_out(object.fd(), start, len);
            }
            Note::CommitAll => {
                let Some(ost) = ost.upgrade() else { return };
                if let Err(e) = ost.commit_all() {
                    tracing::error!(ost = ost.name(), error = %e, "background commit failed");
                }
            }
        }
    }
}
