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
use proto::frame::{F_CALLBACK, Header};

impl State {
    fn is_in(&self, call: &Header) -> bool {
        !self.expelled && self.welcome.as_ref().is_some_and(|w| w.session == call.session.get())
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
        let mut header = call.reply(status);
        header.flags = (header.flags.get() | F_CALLBACK).into();
        link.send(Frame { header, body: body.into(), bulk: Vec::new() });
    }

    /// Whether a call-back came in the present session.
    pub(crate) fn is_in(&self, call: &Header) -> bool {
        self.state.lock().is_in(call)
    }
}
