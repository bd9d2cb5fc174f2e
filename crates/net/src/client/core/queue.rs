//! What waits to be sent, and when it may be.
//!
//! Role: order, credits, and what a request says of itself when it goes again. Never does: send.

use super::{Pending, Phase, State};
use crate::link::Link;
use crate::message::Frame;
use proto::frame::{F_RESENT, Header};
use std::collections::BTreeMap;
use std::sync::Arc;

impl State {
    /// Everything unanswered is to be sent on the next transport: replay first, then by xid.
    pub(super) fn requeue(&mut self) {
        self.outstanding = 0;
        for request in self.pending.values_mut() {
            request.sent = false;
        }
        let of = |replay: bool| {
            self.pending.iter().filter(move |(_, p)| p.replay == replay).map(|(xid, _)| *xid)
        };
        self.queue = of(true).chain(of(false)).collect();
    }

    pub(super) fn take(&mut self, which: impl Fn(&Pending) -> bool) -> BTreeMap<u64, Box<Pending>> {
        let xids: Vec<u64> =
            self.pending.iter().filter(|(_, p)| which(p)).map(|(xid, _)| *xid).collect();
        xids.into_iter().filter_map(|xid| Some((xid, self.pending.remove(&xid)?))).collect()
    }

    /// The next frame credits allow to send, and where to.
    pub(super) fn next_frame(&mut self) -> Option<(Arc<dyn Link>, Frame)> {
        let Phase::Up(link) = &self.phase else { return None };
        if self.outstanding >= self.credits {
            return None;
        }
        let lowest = self.pending.first_key_value().map_or(0, |(xid, _)| *xid);
        loop {
            let xid = self.queue.pop_front()?;
            // Absent: timed out, or answered on this transport before it was sent again.
            let Some(request) = self.pending.get_mut(&xid) else { continue };
            let mut header = Header::request(request.opcode, xid);
            if let Some(welcome) = &self.welcome {
                header.session = welcome.session.into();
                header.epoch = welcome.epoch.into();
            }
            header.last_committed = lowest.into();
            if request.ever_sent {
                header.flags = F_RESENT.into();
                self.stats.resent += 1;
            }
            request.sent = true;
            request.ever_sent = true;
            self.outstanding += 1;
            self.counts.of(request.opcode).sent += 1;
            let frame = Frame { header, body: request.body.clone(), bulk: request.bulk.clone() };
            self.stats.bytes_sent += (frame.body.len() + frame.bulk_len()) as u64;
            return Some((link.clone(), frame));
        }
    }
}
