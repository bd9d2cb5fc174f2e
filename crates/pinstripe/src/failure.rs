//! Errors as the command line shows them: one line that says what, which value, and the remedy.
//!
//! Role: carries the exit code with the text. Never does: print.

use std::fmt;

/// Exit code of a command that could not do what it was asked.
pub const RUNTIME: u8 = 1;
/// Exit code of a command line or configuration that makes no sense.
pub const USAGE: u8 = 2;

/// A command's failure: its exit code and one clear line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Exit code, never 0.
    pub code: u8,
    /// What went wrong, with the value and the remedy.
    pub text: String,
    /// The command's own answer says so already: JSON is not printed twice.
    pub answered: bool,
}

/// Result of a command.
pub type Outcome<T> = Result<T, Failure>;

impl Failure {
    /// Something did not work: exit code 1.
    pub fn run(text: impl Into<String>) -> Failure {
        Failure { code: RUNTIME, text: text.into(), answered: false }
    }
    /// The request itself is wrong: exit code 2.
    pub fn usage(text: impl Into<String>) -> Failure {
        Failure { code: USAGE, text: text.into(), answered: false }
    }
    /// The command's own answer said so already.
    pub fn answered(text: impl Into<String>) -> Failure {
        Failure { answered: true, ..Failure::run(text) }
    }
    /// With an exit code of the caller's choice.
    pub fn with_code(code: u8, text: impl Into<String>) -> Failure {
        Failure { code: code.max(1), text: text.into(), answered: false }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Failure {}

/// Names what was being done when an error came up.
pub trait Doing<T> {
    /// The error becomes a runtime failure: `doing: error`.
    fn doing(self, doing: impl FnOnce() -> String) -> Outcome<T>;
}

impl<T, E: fmt::Display> Doing<T> for Result<T, E> {
    fn doing(self, doing: impl FnOnce() -> String) -> Outcome<T> {
        self.map_err(|e| Failure::run(format!("{}: {e}", doing())))
    }
}
