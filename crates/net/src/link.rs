//! What a session needs of a transport: somewhere to put frames.

use crate::message::Frame;

/// One transport connection, seen from one of its ends.
pub(crate) trait Link: Send + Sync {
    /// Hands a frame over, never blocks. `false`: the transport is gone and the frame with it; the
    /// session hears of the loss separately.
    fn send(&self, frame: Frame) -> bool;
    /// Ends the transport; both sessions hear of it.
    fn close(&self, why: &str);
}
