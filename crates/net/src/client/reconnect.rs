//! Getting a transport: the first one, and the next after a loss.

use super::core::Core;
use super::dial;
use crate::{Endpoint, NetError, local};
use std::sync::{Arc, Weak};

/// One attempt. On success the session is up.
pub(crate) async fn attempt(core: &Arc<Core>) -> Result<(), NetError> {
    let (generation, endpoint, hello) = core.begin()?;
    match endpoint {
        Endpoint::Local(server) => attach_local(core, generation, &server, &hello),
        socket => dial::attempt(core, generation, &socket, &hello).await,
    }
}

/// An attempt within the process, which needs no waiting.
pub(crate) fn attach_local(
    core: &Arc<Core>,
    generation: u64,
    server: &crate::LocalServer,
    hello: &proto::mgs::Hello,
) -> Result<(), NetError> {
    let (session, welcome) = server.admit(hello)?;
    core.welcomed(welcome);
    let link = local::join(core, generation, session)
        .ok_or_else(|| NetError::Lost("the session ended while it was opened".into()))?;
    core.adopt(generation, link)
}

/// Attempts until one succeeds or the session is closed.
pub(crate) async fn run(core: Weak<Core>) {
    let mut reason = None;
    for number in 0u32.. {
        let Some((delay, moved)) =
            core.upgrade().map(|c| (c.options.backoff.delay(number), c.moved.clone()))
        else {
            return;
        };
        tokio::select! {
            () = tokio::time::sleep(delay) => {}
            () = moved.notified() => {}
        }
        let Some(core) = core.upgrade() else { return };
        match attempt(&core).await {
            Ok(()) | Err(NetError::Shutdown) => return,
            Err(e) => {
                if reason.as_ref() != Some(&e) {
                    tracing::warn!(target = %core.options.target, "cannot reconnect: {e}");
                    core.options.events.lost(&e);
                    reason = Some(e);
                }
            }
        }
    }
}
