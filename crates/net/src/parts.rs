//! The sessions that share a connection (a trunk), seen from one of its ends.
//!
//! Role: each session has a [`Part`], a link of its own that puts frames in the connection's outbox
//! until it is closed; then it tells the peer ([`ops::session::GONE`]), as its last word, and is known
//! no more. So nothing of a part that was closed can be taken for the next one of the same session.
//! Assumptions: the outbox keeps order and never blocks. Never does: end the connection; call anybody
//! with the table locked.

use crate::link::Link;
use crate::message::Frame;
use crate::socket::outbox::Outbox;
use parking_lot::Mutex;
use proto::frame::Header;
use proto::ops;
use rustc_hash::FxHashMap as HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// All parts of a connection; `T` is what its end knows of a session.
pub(crate) struct Parts<T> {
    pub(crate) outbox: Arc<Outbox>,
    table: Mutex<HashMap<u64, (Arc<Part<T>>, T)>>,
    count: AtomicUsize,
}

/// One session's part of the connection.
pub(crate) struct Part<T> {
    parts: Arc<Parts<T>>,
    session: u64,
    /// Locked while something is sent: whoever closed it knows that nothing follows.
    open: Mutex<bool>,
}

impl<T: Send + 'static> Parts<T> {
    pub(crate) fn new(outbox: Arc<Outbox>) -> Arc<Parts<T>> {
        Arc::new(Parts { outbox, table: Mutex::default(), count: AtomicUsize::new(0) })
    }

    /// A part for `session`; it is found once it is added.
    pub(crate) fn part(self: &Arc<Self>, session: u64) -> Arc<Part<T>> {
        Arc::new(Part { parts: self.clone(), session, open: Mutex::new(true) })
    }

    /// Makes a part known, unless it was closed already. `false`: the session has another one here.
    pub(crate) fn add(&self, part: &Arc<Part<T>>, what: T) -> bool {
        let open = part.open.lock();
        let mut table = self.table.lock();
        if table.contains_key(&part.session) {
            return false;
        }
        if *open {
            table.insert(part.session, (part.clone(), what));
            self.count.store(table.len(), Relaxed);
        }
        true
    }

    /// What is known of a session.
    pub(crate) fn find<R>(&self, session: u64, of: impl FnOnce(&T) -> R) -> Option<R> {
        self.table.lock().get(&session).map(|(_, what)| of(what))
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.count.load(Relaxed)
    }

    /// Closes a part of this side as told by the peer, which is not told.
    pub(crate) fn remove(&self, session: u64) -> Option<T> {
        let (part, what) = {
            let mut table = self.table.lock();
            let found = table.remove(&session)?;
            self.count.store(table.len(), Relaxed);
            found
        };
        *part.open.lock() = false;
        Some(what)
    }

    /// Closes the part of a session, if it has one here, and tells the peer.
    pub(crate) fn close(&self, session: u64, why: &str) {
        let part = self.table.lock().get(&session).map(|(part, _)| part.clone());
        if let Some(part) = part {
            Link::close(&*part, why);
        }
    }

    /// What is known of all sessions.
    pub(crate) fn all<R>(&self, of: impl Fn(&T) -> R) -> Vec<R> {
        self.table.lock().values().map(|(_, what)| of(what)).collect()
    }

    /// The connection ended: so did all parts.
    pub(crate) fn end(&self) -> Vec<T> {
        let table = std::mem::take(&mut *self.table.lock());
        self.count.store(0, Relaxed);
        table
            .into_values()
            .map(|(part, what)| {
                *part.open.lock() = false;
                what
            })
            .collect()
    }

    /// Tells the peer that this side has no such session (any more).
    pub(crate) fn tell_gone(&self, session: u64, why: &str) {
        self.outbox.send(gone(session, why));
    }
}

/// What tells the peer so.
fn gone(session: u64, why: &str) -> Frame {
    let mut header = Header::request(ops::session::GONE, 0);
    header.session = session.into();
    Frame { header, body: why.as_bytes().to_vec().into(), bulk: Vec::new() }
}

impl<T: Send + 'static> Link for Part<T> {
    fn send(&self, frame: Frame) -> bool {
        let open = self.open.lock();
        *open && self.parts.outbox.send(frame)
    }

    /// With others on the connection, writing at once would cost each of them a system call and the
    /// peer a wake-up.
    fn send_now(&self, frame: Frame) -> bool {
        let open = self.open.lock();
        match self.parts.len() {
            _ if !*open => false,
            0 | 1 => self.parts.outbox.send_now(frame),
            _ => self.parts.outbox.send(frame),
        }
    }

    fn close(&self, why: &str) {
        let mut open = self.open.lock();
        if !std::mem::take(&mut *open) {
            return;
        }
        self.parts.tell_gone(self.session, why);
        drop(open);
        let mut table = self.parts.table.lock();
        // Another part of the session may have come in its place.
        let mine = table.get(&self.session).is_some_and(|(p, _)| std::ptr::eq(&**p, self));
        let removed = if mine { table.remove(&self.session) } else { None };
        self.parts.count.store(table.len(), Relaxed);
        drop(table);
        drop(removed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_bytes_of_gone() {
        let frame = gone(0x0102, "bye");
        let bytes = crate::encode_frame(frame.header, &frame.body, &[]);
        let mut expect = vec![b'P', b'S', b'T', 3, 5, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0];
        expect.extend([0; 8]);
        expect.extend([2, 1, 0, 0, 0, 0, 0, 0]);
        expect.extend([0; 28]);
        assert_eq!(bytes[..60], expect);
        assert_eq!(bytes[64..], *b"bye");
    }
}
