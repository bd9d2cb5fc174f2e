//! What `--progress` draws on a terminal's last line, and takes away when something else is to be printed.
//!
//! Never looks whether there is a terminal: who draws has done so.

use parking_lot::Mutex;
use std::io::Write;

/// Characters between the brackets.
const WIDTH: u64 = 30;

/// Whether a line stands on the terminal.
static SHOWN: Mutex<bool> = Mutex::new(false);

/// Draws what `line` says, in the place of what stood there; nothing where it says `None`.
pub fn draw(line: impl FnOnce() -> Option<String>) {
    // What is to take the line away waits, or it would stand again behind what was printed.
    let mut shown = SHOWN.lock();
    if let Some(line) = line() {
        // Erase to the end of the line: ECMA-48, EL.
        let text = format!("\r{line}\x1b[K");
        *shown = std::io::stderr().write_all(text.as_bytes()).is_ok();
    }
}

/// Takes the line away, so that something else can be printed.
pub fn clear() {
    let mut shown = SHOWN.lock();
    if std::mem::take(&mut *shown) {
        // Where the terminal is gone, nobody sees the rest of a line.
        let _ = std::io::stderr().write_all(b"\r\x1b[K");
    }
}

/// A bar of what is done of the whole, with a blank behind it; nothing of a whole that is not known.
pub fn bar(done: u64, whole: u64) -> String {
    if whole == 0 {
        return String::new();
    }
    let done = (u128::from(done.min(whole)) * u128::from(WIDTH) / u128::from(whole)) as usize;
    format!("[{}{}] ", "#".repeat(done), " ".repeat(WIDTH as usize - done))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_is_as_long_whatever_is_done() {
        assert_eq!(bar(0, 0), "");
        assert_eq!(bar(0, 9), format!("[{}] ", " ".repeat(30)));
        assert_eq!(bar(3, 9), format!("[{}{}] ", "#".repeat(10), " ".repeat(20)));
        assert_eq!(bar(u64::MAX, u64::MAX - 1), format!("[{}] ", "#".repeat(30)));
    }
}
