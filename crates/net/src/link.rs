//! What a session needs of a transport: somewhere to put frames.

use crate::message::Frame;
use std::time::Instant;

/// One transport connection, seen from one of its ends.
pub(crate) trait Link: Send + Sync {
    /// Hands a frame over, never blocks. `false`: the transport is gone and the frame with it; the
    /// session hears of the loss separately.
    fn send(&self, frame: Frame) -> bool;
    /// Like [`Link::send`] when nothing else is expected to follow soon: the sender's own thread
    /// rather writes it than have it wait for company.
    fn send_now(&self, frame: Frame) -> bool {
        self.send(frame)
    }
    /// Whether the other end is in this process: what comes and goes here never leaves memory.
    fn is_local(&self) -> bool {
        false
    }
    /// The caller waits for an answer until `done`, or that time: it may as well hand on what comes.
    /// Returns no later than either, and often sooner.
    fn attend(&self, _done: &dyn Fn() -> bool, _until: Option<Instant>) {}
    /// Ends the transport; both sessions hear of it.
    fn close(&self, why: &str);
}
