//! One message to the MDT, and what it set down because of others' leases.
//!
//! Role: the wish for leases, what of the grants counts, and sending again. Never does: interpret
//! results.

use std::time::{Duration, Instant};

use bytes::Bytes;
use proto::mds::*;
use proto::wire::List;
use proto::{Errno, Fid, TimeSpec, Wire, ops};

use crate::leases::Got;
use crate::mdt::{Mdt, answer, changed, own_cred};

/// How long operations are sent again that others' leases stand in the way of, and how fast.
const RESTARTS: Duration = Duration::from_secs(60);
const RESTART_PAUSE: Duration = Duration::from_millis(1);
const RESTART_PAUSE_MAX: Duration = Duration::from_millis(32);

/// What is sent.
pub(super) struct Message {
    pub(super) cred: Cred,
    pub(super) at: Vec<TimeSpec>,
    pub(super) ops: Vec<Op>,
    pub(super) goes_on: bool,
    /// Inodes it changes of which others may have something ([`crate::leases::Leases::changing`]).
    pub(super) changes: Vec<Fid>,
}

impl Message {
    /// What is this client's own concern, and changes nothing that others have something of.
    pub(super) fn plain(ops: Vec<Op>) -> Message {
        let (at, changes) = (Vec::new(), Vec::new());
        Message { cred: own_cred(), at, ops, goes_on: true, changes }
    }

    /// The first operations are done.
    fn skip(&mut self, ops: usize) {
        self.ops.drain(..ops);
        self.at.drain(..ops.min(self.at.len()));
    }
}

impl Mdt {
    /// Sends without looking for what could be done here. What the MDT set down because of others'
    /// leases ([`CF_LEASES`]) is sent again, by itself.
    pub(super) fn send(&self, mut message: Message) -> Result<(Vec<Res>, Got), Errno> {
        let (begun, mut pause) = (Instant::now(), RESTART_PAUSE);
        let (mut done, mut got) = (Vec::new(), Got::default());
        loop {
            let (mut results, came) = self.send_once(&message)?;
            got.add(came);
            let restart = Res::Failed { errno: Errno::ERESTART.0 as u16 };
            if results.last() != Some(&restart) {
                done.extend(results);
                return Ok((done, got));
            }
            if begun.elapsed() > RESTARTS {
                return Err(Errno::EIO);
            }
            results.pop();
            message.skip(results.len());
            if !results.is_empty() {
                // What stands first now waits at the MDT for what is in its way.
                done.extend(results);
                pause = RESTART_PAUSE;
                continue;
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(RESTART_PAUSE_MAX);
        }
    }

    fn send_once(&self, message: &Message) -> Result<(Vec<Res>, Got), Errno> {
        self.counters.compound(&message.ops);
        let mut flags = if message.goes_on { CF_CONTINUE } else { 0 };
        let trust = &self.wb.trust;
        if trust.any() && !trust.alone() {
            flags |= CF_LEASES | CF_SHARED_LEASES | CF_FILE_WRITES | CF_NAME_WRITES | CF_LATE;
        }
        let mark = trust.leases.mark();
        self.pauses.point();
        let (at, ops) = (List(message.at.clone()), List(message.ops.clone()));
        let body = Compound { cred: message.cred.clone(), flags, at, ops }.to_bytes();
        let reply = self.session.call(ops::mds::COMPOUND, body, Vec::<Bytes>::new());
        let changed = changed(&message.ops);
        let (results, leases) = answer(message.ops.len(), &changed, reply, &self.promises)?;
        self.pauses.point();
        let got = trust.leases.granted(leases, mark, &message.changes);
        self.pauses.point();
        Ok((results, got))
    }
}
