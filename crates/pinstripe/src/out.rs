//! What a command answers, on standard output. A reader that went away ends the command quietly.

use std::io::Write;

/// Prints one line.
pub fn line(text: &str) {
    raw(&format!("{text}\n"));
}

/// Prints text as it is.
pub fn text(text: &str) {
    raw(text);
}

/// Prints a JSON value on a line of its own.
pub fn json(value: &serde_json::Value) {
    raw(&format!("{value}\n"));
}

/// Prints a JSON value over several lines.
pub fn json_pretty(value: &serde_json::Value) {
    raw(&format!("{value:#}\n"));
}

fn raw(text: &str) {
    let mut out = std::io::stdout().lock();
    if let Err(e) = out.write_all(text.as_bytes()).and_then(|()| out.flush())
        && e.kind() == std::io::ErrorKind::BrokenPipe
    {
        std::process::exit(0);
    }
}
