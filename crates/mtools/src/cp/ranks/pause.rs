//! How long a rank sleeps that has nothing to do: MPI's own waiting takes a processor.

use std::time::Duration;

/// After something happened, and after nothing has for long.
pub const LEAST: Duration = Duration::from_micros(50);
pub const MOST: Duration = Duration::from_millis(4);

/// Doubles from [`LEAST`] to [`MOST`].
pub struct Pause(Duration);

impl Default for Pause {
    fn default() -> Self {
        Self(LEAST)
    }
}

impl Pause {
    /// Something happened.
    pub fn reset(&mut self) {
        self.0 = LEAST;
    }

    /// How long to sleep now.
    pub fn next(&mut self) -> Duration {
        let now = self.0;
        self.0 = (now * 2).min(MOST);
        now
    }
}
