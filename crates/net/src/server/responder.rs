//! The duty to answer one request.

use super::session::{SessionInner, SessionRef};
use crate::Response;
use proto::Errno;
use proto::frame::Header;
use std::sync::Arc;

/// The duty to answer one request: from any thread, at any time, once. Dropped unused it answers
/// `EIO`.
pub struct Responder {
    session: Arc<SessionInner>,
    request: Header,
    answered: bool,
}

impl Responder {
    pub(crate) fn new(session: Arc<SessionInner>, request: Header) -> Responder {
        Responder { session, request, answered: false }
    }

    /// Answers. Goes to whatever transport the session has now; if it has none, to the next one.
    pub fn send(mut self, response: Response) {
        self.answered = true;
        self.session.answer(&self.request, response);
    }

    /// The session that asked.
    pub fn session(&self) -> SessionRef {
        SessionRef(self.session.clone())
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        if !self.answered {
            self.session.answer(&self.request, Response::error(Errno::EIO));
        }
    }
}
