//! A connection that carries several sessions.
//!
//! Role: hands each frame to the session it names, opens further sessions. The first one was set up as
//! on any connection; who may use the connection is settled by then, so those that follow prove
//! nothing (the proof is the connection's). A greeting that is refused ends nothing. Limits: sessions
//! per connection (`connection_sessions`); greetings are answered one after the other. Assumptions:
//! the sessions of a connection are of one process, which suffers as a whole when one of them breaks
//! the rules. Never does: end a session because the client has given up its part here; that is left to
//! the grace, as with a connection that broke.

use super::handshake::{MAX_SETUP_BODY, admit, put, read_hello, welcome_header};
use super::session::SessionInner;
use super::{ServerInner, refusal};
use crate::NetError;
use crate::link::Link;
use crate::message::Frame;
use crate::parts::Parts;
use crate::socket::outbox::Outbox;
use proto::{Errno, Wire, ops};
use std::sync::Arc;

/// What the connection knows of a session: which it is, and as which of its links.
type Held = (Arc<SessionInner>, u64);

/// The sessions of one connection; they are detached when it is dropped.
pub(crate) struct Trunk {
    server: Arc<ServerInner>,
    parts: Arc<Parts<Held>>,
}

impl Trunk {
    pub(crate) fn new(server: &Arc<ServerInner>, outbox: &Arc<Outbox>) -> Trunk {
        Trunk { server: server.clone(), parts: Parts::new(outbox.clone()) }
    }

    /// Attaches a session that was let in; if it ended meanwhile, the client is told.
    pub(crate) fn join(&self, session: &Arc<SessionInner>) {
        let part = self.parts.part(session.id);
        match session.attach(part.clone()) {
            Some(generation) => {
                if !self.parts.add(&part, (session.clone(), generation)) {
                    part.close("the session is here already");
                }
            }
            None => part.close("the session ended while it was opened"),
        }
    }

    /// Whether it carries no session; the next one may be on its way.
    pub(crate) fn is_empty(&self) -> bool {
        self.parts.len() == 0
    }

    /// A frame of the client. An error is the end of the connection, not of the sessions.
    pub(crate) fn receive(&self, frame: Frame) -> Result<(), NetError> {
        let header = &frame.header;
        let (id, opcode) = (header.session.get(), header.opcode.get());
        if id == 0 {
            return self.control(frame);
        }
        if opcode == ops::session::GONE {
            if let Some((session, generation)) = self.parts.remove(id) {
                session.detach(generation);
            }
            return Ok(());
        }
        match self.parts.find(id, Held::clone) {
            Some((session, generation)) => session.receive(generation, frame),
            None => {
                // It ended while this was on its way; whoever sent it is to know in any case.
                self.parts.tell_gone(id, "the session is not on this connection");
                Ok(())
            }
        }
    }

    /// What belongs to the connection, not to one of its sessions.
    fn control(&self, frame: Frame) -> Result<(), NetError> {
        match frame.header.opcode.get() {
            _ if frame.header.is_reply() || frame.header.is_callback() => {}
            ops::session::PING => {
                put(&self.parts.outbox, frame.header.reply(0), Vec::new());
                return Ok(());
            }
            ops::session::CONNECT
                if frame.body.len() <= MAX_SETUP_BODY && frame.bulk.is_empty() =>
            {
                self.connect(&frame);
                return Ok(());
            }
            _ => {}
        }
        Err(NetError::Protocol("neither a greeting nor a session's message".into()))
    }

    fn connect(&self, greeting: &Frame) {
        let most = self.server.options.connection_sessions;
        let admitted = match self.parts.len() < most {
            true => read_hello(greeting).and_then(|hello| admit(&self.server, &hello)),
            false => {
                let text = format!("the connection carries all {most} sessions it may");
                Err(refusal(Errno::EBUSY, text))
            }
        };
        match admitted {
            Ok(((session, _), welcome)) => {
                // Before the welcome, so that whatever follows it is of the new part.
                self.parts.close(session.id, "the session was taken up again");
                let header = welcome_header(&self.server, &greeting.header, &welcome);
                put(&self.parts.outbox, header, welcome.to_bytes());
                self.join(&session);
            }
            Err(why) => {
                let header = greeting.header.reply(why.errno.status());
                put(&self.parts.outbox, header, why.text.into_bytes());
            }
        }
    }
}

impl Drop for Trunk {
    fn drop(&mut self) {
        for (session, generation) in self.parts.end() {
            session.detach(generation);
        }
    }
}
