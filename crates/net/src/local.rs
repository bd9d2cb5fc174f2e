//! The transport within a process: a function call each way.
//!
//! Role: a request runs on the caller's thread straight into the service, a reply on the answering
//! thread straight into the caller's session. Assumptions: both sides never hold a lock while they
//! send. Never does: copy bulk that comes in one piece; checksums (nothing leaves memory).

use crate::NetError;
use crate::client::core::Core;
use crate::link::Link;
use crate::message::Frame;
use crate::server::ServerInner;
use crate::server::session::SessionInner;
use proto::mgs::{Hello, Welcome};
use std::fmt;
use std::sync::{Arc, Weak};

/// The way to a [`crate::Server`] of this process; does not keep it alive.
#[derive(Clone)]
pub struct LocalServer(Weak<ServerInner>);

impl fmt::Debug for LocalServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LocalServer")
    }
}

impl LocalServer {
    pub(crate) fn new(server: &Arc<ServerInner>) -> LocalServer {
        LocalServer(Arc::downgrade(server))
    }

    pub(crate) fn admit(&self, hello: &Hello) -> Result<(Arc<SessionInner>, Welcome), NetError> {
        let server = self.0.upgrade().ok_or_else(|| NetError::Lost("the server is gone".into()))?;
        server.admit(hello).map_err(|r| NetError::refused(r.text, hello.client))
    }
}

/// The server's end: what it sends arrives at the client.
struct ToClient {
    core: Weak<Core>,
    generation: u64,
}

impl Link for ToClient {
    fn send(&self, frame: Frame) -> bool {
        let Some(core) = self.core.upgrade() else { return false };
        if let Err(e) = core.receive(self.generation, frame) {
            core.lost(self.generation, e);
            return false;
        }
        true
    }

    fn is_local(&self) -> bool {
        true
    }

    fn close(&self, why: &str) {
        if let Some(core) = self.core.upgrade() {
            core.lost(self.generation, NetError::Lost(why.into()));
        }
    }
}

/// The client's end: what it sends arrives at the service.
struct ToServer {
    session: Arc<SessionInner>,
    generation: u64,
}

impl Link for ToServer {
    fn send(&self, frame: Frame) -> bool {
        if self.session.is_over() {
            return false;
        }
        if let Err(e) = self.session.receive(self.generation, frame) {
            tracing::warn!("in-process client: {e}");
            self.session.cut(&e.to_string());
            return false;
        }
        true
    }

    fn close(&self, _why: &str) {
        self.session.detach(self.generation);
    }
}

/// Joins a client's session to the server's; `generation` is the client's.
pub(crate) fn join(
    core: &Arc<Core>,
    generation: u64,
    session: Arc<SessionInner>,
) -> Option<Arc<dyn Link>> {
    let to_client = Arc::new(ToClient { core: Arc::downgrade(core), generation });
    let generation = session.attach(to_client)?;
    Some(Arc::new(ToServer { session, generation }))
}
