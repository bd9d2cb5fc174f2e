//! Which threads deliver answers: they must not wait for room, for only they make room.

use std::cell::Cell;

thread_local! {
    /// Answers being delivered on this thread, one within the other.
    static DELIVERING: Cell<u32> = const { Cell::new(0) };
}

/// While it lives this thread delivers an answer.
pub(crate) struct Delivering;

impl Delivering {
    pub(crate) fn enter() -> Delivering {
        DELIVERING.set(DELIVERING.get() + 1);
        Delivering
    }

    /// Whether this thread does.
    pub(crate) fn here() -> bool {
        DELIVERING.get() > 0
    }
}

impl Drop for Delivering {
    fn drop(&mut self) {
        DELIVERING.set(DELIVERING.get() - 1);
    }
}
