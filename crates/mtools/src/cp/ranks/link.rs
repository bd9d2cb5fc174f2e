//! What carries frames between ranks. Nothing waits in here: who has nothing to do sleeps elsewhere.

use std::time::Duration;

pub trait Link {
    /// Ranks in all.
    fn size(&self) -> usize;

    /// Sends a frame, at once or while other functions are called; false: it never will.
    fn send(&mut self, to: usize, frame: Vec<u8>) -> bool;

    /// A frame that has come, and from whom.
    fn receive(&mut self) -> Option<(usize, Vec<u8>)>;

    /// Until everything is sent; false: not within `limit`.
    fn flush(&mut self, limit: Duration) -> bool;
}
