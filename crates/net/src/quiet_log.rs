//! Warnings that a stranger can cause, kept to a few lines a second.

use parking_lot::Mutex;
use std::time::{Duration, Instant};

/// Lines per second; more are counted, not written.
const MAX_LINES: u32 = 10;

/// Decides which lines are written.
pub(crate) struct QuietLog(Mutex<Window>);

struct Window {
    start: Instant,
    lines: u32,
    skipped: u64,
}

impl QuietLog {
    pub(crate) fn new() -> QuietLog {
        QuietLog(Mutex::new(Window { start: Instant::now(), lines: 0, skipped: 0 }))
    }

    /// One line about `peer`.
    pub(crate) fn warn(&self, peer: &str, text: &str) {
        if let Some(skipped) = self.admit(Instant::now()) {
            if skipped > 0 {
                tracing::warn!("{skipped} more warnings about connections were left out");
            }
            tracing::warn!(peer, "connection closed: {text}");
        }
    }

    /// Whether to write a line, and how many were left out before it.
    fn admit(&self, now: Instant) -> Option<u64> {
        let mut window = self.0.lock();
        if now.duration_since(window.start) >= Duration::from_secs(1) {
            window.start = now;
            window.lines = 0;
        }
        if window.lines >= MAX_LINES {
            window.skipped += 1;
            return None;
        }
        window.lines += 1;
        Some(std::mem::take(&mut window.skipped))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_beyond_the_limit_are_counted() {
        let log = QuietLog::new();
        let now = Instant::now();
        assert_eq!((0..25).filter(|_| log.admit(now).is_some()).count(), 10);
        assert_eq!(log.admit(now + Duration::from_secs(2)), Some(15));
        assert_eq!(log.admit(now + Duration::from_secs(2)), Some(0));
    }
}
