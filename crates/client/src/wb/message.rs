//! One message to the MDT, and what it set down because of others' leases.
//!
//! Role: the wish for leases, what of the grants counts, and sending again. Never does: interpret
//! results.

use std::time::{Duration, Instant};

use net::{NetError, Outstanding, Patience, Reply};
use proto::mds::*;
use proto::wire::List;
use proto::{Errno, Fid, TimeSpec, Wire, ops};

use crate::leases::{Got, Mark};
use crate::mdt::{Mdt, answer, changed, own_cred};

/// How long operations are sent again that others' leases stand in the way of, and how fast.
const RESTARTS: Duration = Duration::from_secs(60);
const RESTART_PAUSE: Duration = Duration::from_millis(1);
const RESTART_PAUSE_MAX: Duration = Duration::from_millis(32);

/// Results up to the first failure, and the leases that came along.
pub(super) type Answer = Result<(Vec<Res>, Got), Errno>;

/// How often one looks whether this client ends meanwhile.
const LOOK: Duration = Duration::from_secs(1);

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

/// A message on its way, or set down by the MDT and to be sent again.
pub(super) struct Sending {
    message: Message,
    patience: Patience,
    begun: Instant,
    pause: Duration,
    done: Vec<Res>,
    got: Got,
    asked: Option<(Outstanding, Mark)>,
}

impl Sending {
    /// To be sent; `patience` is that of each request this takes.
    pub(super) fn new(message: Message, patience: Patience) -> Sending {
        let (begun, pause) = (Instant::now(), RESTART_PAUSE);
        let (done, got, asked) = (Vec::new(), Got::default(), None);
        Sending { message, patience, begun, pause, done, got, asked }
    }

    /// Sees to it that it is answered, until then; None: that came first. What the MDT set down because of
    /// others' leases ([`CF_LEASES`]) is sent again, by itself.
    pub(super) fn run(&mut self, mdt: &Mdt, until: Option<Instant>) -> Option<Answer> {
        loop {
            let (asked, mark) = match self.asked.take() {
                Some(asked) => asked,
                None => self.ask(mdt),
            };
            let reply = match until {
                None => asked.wait(),
                Some(until) => match asked.wait_until(until) {
                    Ok(reply) => reply,
                    Err(asked) => {
                        self.asked = Some((asked, mark));
                        return None;
                    }
                },
            };
            match self.answered(mdt, reply, mark) {
                Ok(true) => {
                    return Some(Ok((
                        std::mem::take(&mut self.done),
                        std::mem::take(&mut self.got),
                    )));
                }
                Ok(false) => {}
                Err(e) => return Some(Err(e)),
            }
        }
    }

    fn ask(&self, mdt: &Mdt) -> (Outstanding, Mark) {
        let message = &self.message;
        mdt.counters.compound(&message.ops);
        let mut flags = if message.goes_on { CF_CONTINUE } else { 0 };
        let trust = &mdt.wb.trust;
        if trust.any() && !trust.alone() {
            flags |= CF_LEASES | CF_SHARED_LEASES | CF_FILE_WRITES | CF_NAME_WRITES | CF_LATE;
        }
        let mark = trust.leases.mark();
        mdt.pauses.point();
        let (at, ops) = (List(message.at.clone()), List(message.ops.clone()));
        let body = Compound { cred: message.cred.clone(), flags, at, ops }.to_bytes();
        (mdt.session.start(ops::mds::COMPOUND, body, Vec::new(), self.patience), mark)
    }

    /// Takes an answer; whether it is that to all of the message.
    fn answered(
        &mut self,
        mdt: &Mdt,
        reply: Result<Reply, NetError>,
        mark: Mark,
    ) -> Result<bool, Errno> {
        let message = &mut self.message;
        let changed = changed(&message.ops);
        let (mut results, leases) = answer(message.ops.len(), &changed, reply, &mdt.promises)?;
        mdt.pauses.point();
        self.got.add(mdt.wb.trust.leases.granted(leases, mark, &message.changes));
        mdt.pauses.point();
        let restart = Res::Failed { errno: Errno::ERESTART.0 as u16 };
        if results.last() != Some(&restart) {
            self.done.extend(results);
            return Ok(true);
        }
        if self.begun.elapsed() > RESTARTS {
            return Err(Errno::EIO);
        }
        results.pop();
        message.skip(results.len());
        if !results.is_empty() {
            // What stands first now waits at the MDT for what is in its way.
            self.done.extend(results);
            self.pause = RESTART_PAUSE;
            return Ok(false);
        }
        std::thread::sleep(self.pause);
        self.pause = (self.pause * 2).min(RESTART_PAUSE_MAX);
        Ok(false)
    }
}

impl Mdt {
    /// Sends without looking for what could be done here, and waits as long as a request may.
    pub(super) fn send(&self, message: Message) -> Answer {
        Sending::new(message, Patience::Request).run(self, None).unwrap_or(Err(Errno::EIO))
    }

    /// Sends without looking for what could be done here, and waits as long as it takes; while this client ends, as long as a request may.
    pub(super) fn insist(&self, message: Message) -> Answer {
        let begun = Instant::now();
        let mut sending = Sending::new(message, Patience::Session);
        loop {
            if let Some(answer) = sending.run(self, Some(Instant::now() + LOOK)) {
                return answer;
            }
            if self.wb.is_leaving() && begun.elapsed() >= self.wb.patience {
                return Err(Errno::EIO);
            }
        }
    }
}
