//! Counters of a client session.

use std::collections::BTreeMap;

/// Counters of a session since it was made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionStats {
    /// Requests sent, by opcode (sent again: counted again).
    pub sent: BTreeMap<u16, u64>,
    /// Replies received, by opcode.
    pub received: BTreeMap<u16, u64>,
    /// Call-backs received.
    pub callbacks: u64,
    /// Requests sent again.
    pub resent: u64,
    /// Times the transport was lost.
    pub lost: u64,
    /// Bytes of bodies and bulk sent.
    pub bytes_sent: u64,
    /// Bytes of bodies and bulk received.
    pub bytes_received: u64,
    /// Requests waiting now, for credits or for a reply.
    pub waiting: u64,
    /// Times a caller had to wait because of `max_waiting`.
    pub blocked: u64,
}

/// Of one opcode.
pub(crate) struct Count {
    opcode: u16,
    pub(crate) sent: u64,
    pub(crate) received: u64,
}

/// Requests and replies by opcode. A session uses few: side by side they cost less memory that every
/// request has to touch than two maps do, which is felt with thousands of sessions.
#[derive(Default)]
pub(crate) struct Counts(Vec<Count>);

impl Counts {
    pub(crate) fn of(&mut self, opcode: u16) -> &mut Count {
        let at = self.0.iter().position(|c| c.opcode == opcode).unwrap_or(self.0.len());
        if at == self.0.len() {
            self.0.push(Count { opcode, sent: 0, received: 0 });
        }
        &mut self.0[at]
    }

    /// `stats` with what is counted here.
    pub(crate) fn fill(&self, stats: SessionStats) -> SessionStats {
        let some = |of: fn(&Count) -> u64| {
            self.0.iter().map(|c| (c.opcode, of(c))).filter(|(_, n)| *n > 0).collect()
        };
        SessionStats { sent: some(|c| c.sent), received: some(|c| c.received), ..stats }
    }
}
