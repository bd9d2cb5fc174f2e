//! Messages as GNU's error(3) prints them: `program: message: reason`.
//!
//! The program's name is the word it was called by, as with GNU.

use std::ffi::OsString;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::sync::OnceLock;

static PROGRAM: OnceLock<OsString> = OnceLock::new();

/// Set once, from argv[0].
pub fn set_program(name: OsString) {
    let _ = PROGRAM.set(name);
}

/// The word this program was called by.
pub fn program() -> &'static [u8] {
    PROGRAM.get().map_or(b"mtools", |name| name.as_bytes())
}

/// The system's words for an error, without Rust's number behind them.
pub fn reason(e: &std::io::Error) -> String {
    match e.raw_os_error() {
        Some(code) => strerror(code),
        None => e.to_string(),
    }
}

/// strerror(3).
pub fn strerror(code: i32) -> String {
    let mut text = [0u8; 256];
    // SAFETY: the buffer is ours and its length is told; the result is terminated.
    let rc = unsafe { libc::strerror_r(code, text.as_mut_ptr().cast(), text.len()) };
    let len = text.iter().position(|b| *b == 0).unwrap_or(0);
    if rc != 0 || len == 0 {
        return format!("Unknown error {code}");
    }
    String::from_utf8_lossy(&text[..len]).into_owned()
}

/// `program: message`, as one line of bytes.
pub fn line(message: &str) -> Vec<u8> {
    let mut out = program().to_vec();
    out.extend_from_slice(b": ");
    out.extend_from_slice(message.as_bytes());
    out.push(b'\n');
    out
}

/// Prints `program: message` on standard error at once.
pub fn error(message: &str) {
    // Nobody is left to tell when standard error cannot be written.
    let _ = std::io::stderr().write_all(&line(message));
}

/// `Try 'program --help' for more information.`
pub fn try_help() {
    let mut out = b"Try '".to_vec();
    out.extend_from_slice(program());
    out.extend_from_slice(b" --help' for more information.\n");
    let _ = std::io::stderr().write_all(&out);
}
