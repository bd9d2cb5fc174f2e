//! Call-backs of the server, and their answers.
//!
//! Role: each is told once while it is worked on, and answered only in the session it came in: another
//! session's calls have the same numbers. Never does: remember what it was about.

use super::{Core, Phase, State};
use crate::NetError;
use crate::client::CallReply;
use crate::client::delivering::Delivering;
use crate::message::Frame;
use parking_lot::MutexGuard;
use proto::Errno;
use proto::frame::{F_CALLBACK, Header};

fn frame(call: &Header, status: i16, body: Vec<u8>) -> Frame {
    let mut header = call.reply(status);
    header.flags = (header.flags.get() | F_CALLBACK).into();
    Frame { header, body: body.into(), bulk: Vec::new() }
}

impl State {
    fn is_in(&self, call: &Header) -> bool {
        !self.expelled && self.welcome.as_ref().is_some_and(|w| w.session == call.session.get())
    }

    /// Whether it is worked on.
    fn awaits(&self, call: &Header) -> bool {
        self.is_in(call) && self.callbacks.contains(&call.xid.get())
    }
}

impl Core {
    /// The server calls, in the present session.
    pub(super) fn called(
        &self,
        mut state: MutexGuard<'_, State>,
        frame: Frame,
    ) -> Result<(), NetError> {
        let header = frame.header;
        if header.is_reply() {
            return Err(NetError::Protocol("an answer to a call-back".into()));
        }
        // Sent again after a reconnect while the first is still worked on.
        if !state.callbacks.insert(header.xid.get()) {
            return Ok(());
        }
        state.stats.callbacks += 1;
        drop(state);
        let reply = CallReply::new(self.this.clone(), header);
        let _delivering = Delivering::enter();
        self.options.events.call(header.opcode.get(), frame.body, reply);
        Ok(())
    }

    /// Answers a call-back; without a transport the server will ask again.
    pub(crate) fn answer(&self, call: &Header, status: i16, body: Vec<u8>) {
        let mut state = self.state.lock();
        // Nobody waits for answers of a session that is no more; another's calls have the same numbers.
        if !state.is_in(call) {
            return;
        }
        state.callbacks.remove(&call.xid.get());
        let Phase::Up(link) = &state.phase else { return };
        let link = link.clone();
        drop(state);
        link.send(frame(call, status, body));
    }

    /// Whether a call-back is worked on.
    pub(crate) fn is_awaited(&self, call: &Header) -> bool {
        self.state.lock().awaits(call)
    }

    /// Says that a call-back is worked on, if it still is.
    pub(crate) fn not_yet(&self, call: &Header) -> bool {
        let state = self.state.lock();
        if !state.awaits(call) {
            return false;
        }
        let Phase::Up(link) = &state.phase else { return false };
        let link = link.clone();
        drop(state);
        link.send(frame(call, Errno::EINPROGRESS.status(), Vec::new()))
    }

    /// Whether a call-back came in the present session.
    pub(crate) fn is_in(&self, call: &Header) -> bool {
        self.state.lock().is_in(call)
    }
}
