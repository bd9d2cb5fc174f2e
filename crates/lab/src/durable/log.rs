//! The writer's log: JSON lines, in the order things happened.

use super::step::Step;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::Path;

/// First line's version; other versions are refused.
pub const LOG_VERSION: u32 = 1;

/// A line of the log. `at` is the operation count of the disk below, if one was given: taken
/// before the step for `Begin`, after its sync for `Done`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Line {
    Run { version: u32, seed: u64, threads: u32, top: String, at: Option<u64> },
    Begin { n: u64, thread: u32, at: Option<u64>, step: Step },
    Done { n: u64, thread: u32, at: Option<u64> },
    Failed { n: u64, thread: u32, errno: i32 },
}

/// Reads a log; a torn last line is left out.
pub(crate) fn read(path: &Path) -> io::Result<Vec<Line>> {
    let text = std::fs::read(path)?;
    let mut lines = Vec::new();
    let whole = text.iter().rposition(|&b| b == b'\n').map_or(0, |at| at + 1);
    for (number, line) in text[..whole].split(|&b| b == b'\n').enumerate() {
        if line.is_empty() {
            continue;
        }
        let line = serde_json::from_slice(line)
            .map_err(|e| io::Error::other(format!("log line {}: {e}", number + 1)))?;
        lines.push(line);
    }
    match lines.first() {
        Some(Line::Run { version: LOG_VERSION, .. }) => Ok(lines),
        Some(Line::Run { version, .. }) => {
            Err(io::Error::other(format!("log version {version}, this reads {LOG_VERSION}")))
        }
        _ => Err(io::Error::other("the log does not start with a Run line")),
    }
}
