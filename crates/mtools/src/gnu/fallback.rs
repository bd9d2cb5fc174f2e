//! Handing over to the genuine program: what ours does not cover, it must not do half.
//!
//! - `PINSTRIPE_NO_FALLBACK=1`: refuse by name instead.
//! - `PINSTRIPE_FALLBACK_LOG=FILE`: a line `program: reason` is appended for each hand-over, so that they
//!   can be counted.

use super::diag;
use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

/// Exit code where nothing can be handed over, as GNU's for trouble.
const REFUSED: u8 = 1;

/// Replaces this process by the genuine `name` (such as `cp`) with the same arguments (without the
/// program's name); returns only when it cannot. `why` names what is not covered.
pub fn exec(name: &str, args: &[OsString], why: &str) -> ExitCode {
    if std::env::var_os("PINSTRIPE_NO_FALLBACK").is_some_and(|v| v == "1") {
        diag::error(&format!(
            "{why} is not covered, and PINSTRIPE_NO_FALLBACK=1 forbids to hand it to the genuine {name}"
        ));
        return ExitCode::from(REFUSED);
    }
    let Some(genuine) = find(name) else {
        diag::error(&format!("{why} is not covered, and no genuine {name} is in PATH"));
        return ExitCode::from(REFUSED);
    };
    count(name, why);
    let e = Command::new(&genuine).arg0(OsStr::new(name)).args(args).exec();
    diag::error(&format!("cannot run {}: {}", super::quote::always(&genuine), diag::reason(&e)));
    ExitCode::from(REFUSED)
}

fn count(name: &str, why: &str) {
    let Some(log) = std::env::var_os("PINSTRIPE_FALLBACK_LOG") else { return };
    let line = format!("{name}: {why}\n");
    // The copy matters more than the count of it.
    if let Ok(mut file) = std::fs::OpenOptions::new().create(true).append(true).open(log) {
        let _ = file.write_all(line.as_bytes());
    }
}

/// The first program of that name in PATH that is not this one.
pub fn find(name: &str) -> Option<PathBuf> {
    let own = std::fs::metadata("/proc/self/exe").ok().map(|m| (m.dev(), m.ino()));
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into());
    std::env::split_paths(&path).map(|dir| dir.join(name)).find(|file| {
        std::fs::metadata(file)
            .is_ok_and(|m| m.is_file() && m.mode() & 0o111 != 0 && Some((m.dev(), m.ino())) != own)
    })
}
