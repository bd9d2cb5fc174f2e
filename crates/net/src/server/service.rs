//! What a target implements.

use crate::{Request, Responder, SessionRef};
use proto::mgs::Hello;
use std::time::Instant;

/// Why a session is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closed {
    /// The client said goodbye.
    Goodbye,
    /// The client stayed away longer than the grace.
    Lost,
    /// [`SessionRef::evict`].
    Evicted,
    /// [`crate::Server::shutdown`].
    Shutdown,
}

/// A target: what it is called and what it does with requests.
pub trait Service: Send + Sync + 'static {
    /// Its name: `MGS`, `MDT0000`, `OST0001`.
    fn target(&self) -> String;
    /// Its file system; a client that means another is refused. All zero: any.
    fn fs(&self) -> [u8; 16];
    /// Its boot.
    fn epoch(&self) -> u32;
    /// A session opens, or is taken up again by the same client (`resumed`). Returns what goes into
    /// `Welcome.data`.
    ///
    /// # Errors
    /// A refusal, in words the client shows.
    fn open(&self, session: &SessionRef, hello: &Hello, resumed: bool) -> Result<Vec<u8>, String>;
    /// A request. Must not block: answer here only when that is quick, else hand over. Requests of
    /// one session arrive in the order sent (several threads of an in-process client may call this
    /// at once).
    fn request(&self, session: &SessionRef, request: Request, reply: Responder);
    /// Until when it kept its clients waiting itself, for its disk, so that they could not answer call-backs: of the time they
    /// have for these what was before does not count. Must be quick.
    fn behind_until(&self) -> Option<Instant> {
        None
    }
    /// The session is over; called once, after `open` succeeded for it.
    fn closed(&self, session: &SessionRef, why: Closed);
}
