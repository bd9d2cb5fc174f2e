//! Operations done here, in order, until they are sent.
//!
//! Assumptions: as [`super`]. Never does: I/O.

use std::collections::VecDeque;

use proto::mds::{Cred, Op};
use proto::{Fid, TimeSpec};

/// Operations of the log in one message; the rest of [`proto::mds::MAX_OPS`] is for what rides on it.
pub(crate) const BATCH_OPS: usize = 240;
/// Bytes of the log in one message, about.
pub(crate) const BATCH_BYTES: usize = 512 << 10;
/// Operations at which sending begins without being asked.
pub(crate) const SEND_AT: usize = 128;
/// Operations that may wait; more make their callers wait (invariant 8).
pub(crate) const MAX_LOG: usize = 2048;
/// Bytes that may wait.
pub(crate) const MAX_LOG_BYTES: usize = 4 << 20;

/// One operation.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) cred: Cred,
    pub(crate) op: Op,
    pub(crate) at: TimeSpec,
    /// Inodes it touches; none: they are not looked for ([`super::among`]).
    pub(crate) fids: Vec<Fid>,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Log {
    entries: VecDeque<Entry>,
    bytes: usize,
}

fn bytes_of(op: &Op) -> usize {
    96 + match op {
        Op::WriteInline { data, .. } => data.len(),
        Op::Create { name, target, .. } => name.len() + target.len(),
        Op::Unlink { name, .. } => name.len(),
        Op::Rename { from, to, .. } => from.len() + to.len(),
        _ => 0,
    }
}

/// Whether it matters on whose behalf the MDT does it.
fn by_cred(op: &Op) -> bool {
    matches!(op, Op::Create { .. } | Op::Whiteout { .. })
}

impl Log {
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn push(&mut self, entry: Entry) {
        self.bytes += bytes_of(&entry.op);
        self.entries.push_back(entry);
    }

    /// Whether it is time to send.
    pub(crate) fn is_long(&self) -> bool {
        self.len() >= SEND_AT || self.bytes >= BATCH_BYTES / 2
    }

    /// Whether more must wait.
    pub(crate) fn is_full(&self) -> bool {
        self.len() >= MAX_LOG || self.bytes >= MAX_LOG_BYTES
    }

    /// What goes into the next message, and on whose behalf it is sent.
    pub(crate) fn take(&mut self) -> Vec<Entry> {
        let mut taken: Vec<Entry> = Vec::new();
        let mut cred: Option<Cred> = None;
        let mut bytes = 0;
        while let Some(next) = self.entries.front() {
            let size = bytes_of(&next.op);
            let other = by_cred(&next.op) && cred.as_ref().is_some_and(|c| *c != next.cred);
            if other || taken.len() == BATCH_OPS || (bytes > 0 && bytes + size > BATCH_BYTES) {
                break;
            }
            if by_cred(&next.op) {
                cred = Some(next.cred.clone());
            }
            bytes += size;
            self.bytes -= size;
            taken.extend(self.entries.pop_front());
        }
        taken
    }

    /// Puts back what was taken.
    pub(crate) fn untake(&mut self, entries: Vec<Entry>) {
        for entry in entries.into_iter().rev() {
            self.bytes += bytes_of(&entry.op);
            self.entries.push_front(entry);
        }
    }
}

/// On whose behalf a message of these is sent: that of what is made in it.
pub(crate) fn cred_of(entries: &[Entry], op: Option<(&Cred, &Op)>) -> Option<Cred> {
    let made = entries.iter().find(|e| by_cred(&e.op)).map(|e| e.cred.clone());
    match op {
        Some((cred, op)) if by_cred(op) => match made {
            Some(made) if made != *cred => None,
            _ => Some(cred.clone()),
        },
        Some((cred, _)) => Some(made.unwrap_or_else(|| cred.clone())),
        None => made.or_else(|| entries.first().map(|e| e.cred.clone())),
    }
}
