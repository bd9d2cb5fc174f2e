//! Deadlines of clients, watched by a process that may have stood still itself.
//!
//! Role: a server that was stopped (its machine suspended, moved, out of memory) finds all deadlines passed, and what
//! its clients said in time still unread. What is due is over only when it is so at a second look, a while later.
//! Assumption: in that while what waits in sockets is read. Never: ends anything before its deadline.

use std::time::{Duration, Instant};

/// A second look comes after this part of the time that was given.
const PART: u32 = 10;

/// When something was seen to be due.
#[derive(Debug, Default)]
pub(super) struct SecondLook(Option<Instant>);

impl SecondLook {
    /// Whether what had `time` until `deadline` is over.
    ///
    /// # Errors
    /// When to look again.
    pub(super) fn is_over(
        &mut self,
        now: Instant,
        deadline: Instant,
        time: Duration,
    ) -> Result<(), Instant> {
        if now < deadline {
            self.0 = None;
            return Err(deadline);
        }
        let look = *self.0.get_or_insert(now) + time / PART;
        if now < look { Err(look) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIME: Duration = Duration::from_secs(20);
    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn what_is_due_is_over_a_while_after_that_was_seen() {
        let begun = Instant::now();
        let deadline = begun + TIME;
        let mut look = SecondLook::default();
        assert_eq!(look.is_over(begun, deadline, TIME), Err(deadline));
        // Stopped for a minute.
        let woken = begun + 60 * SECOND;
        assert_eq!(look.is_over(woken, deadline, TIME), Err(woken + TIME / PART));
        assert_eq!(look.is_over(woken + SECOND, deadline, TIME), Err(woken + TIME / PART));
        assert_eq!(look.is_over(woken + TIME / PART, deadline, TIME), Ok(()));
    }

    #[test]
    fn a_later_deadline_is_looked_at_anew() {
        let begun = Instant::now();
        let mut look = SecondLook::default();
        assert!(look.is_over(begun + TIME, begun + TIME, TIME).is_err());
        let later = begun + 2 * TIME;
        assert_eq!(look.is_over(begun + TIME + SECOND, later, TIME), Err(later));
        assert_eq!(look.is_over(later, later, TIME), Err(later + TIME / PART));
    }
}
