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
