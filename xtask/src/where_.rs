//! Where things lie: the workspace, the target directory, the tools.

use std::path::{Path, PathBuf};

/// The root of the workspace this xtask was built from.
pub fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_path_buf()
}

/// Cargo's target directory, as an absolute path.
pub fn target() -> PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(dir) => root().join(dir),
        None => root().join("target"),
    }
}

/// Root of the test-only cargo tools; the programs are in `bin` under it.
pub fn tools() -> PathBuf {
    target().join("tools")
}

/// Logs and results of the last run.
pub fn logs() -> PathBuf {
    target().join("xtask")
}
