//! The cluster key's file: found, read, made.

use std::path::{Path, PathBuf};

use net::ClusterKey;

use crate::failure::{Doing, Failure, Outcome};
use crate::places::{Env, make_private};

/// A key with where it came from and what identities are derived from.
#[derive(Clone)]
pub struct KeyFile {
    /// Where it lies.
    pub path: PathBuf,
    /// The key.
    pub key: ClusterKey,
    /// The file's text, for [`crate::label::fs_uuid`].
    pub text: String,
}

/// The key file meant: the one named, or the default.
pub fn path(named: Option<&Path>) -> PathBuf {
    named.map_or_else(|| Env::real().key(), Path::to_path_buf)
}

/// Reads a key; `None` when the file does not exist.
pub fn load(path: &Path) -> Outcome<Option<KeyFile>> {
    match std::fs::read_to_string(path) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(Failure::run(format!("cannot read the key {}: {e}", path.display()))),
        Ok(_) => {}
    }
    // The key's own reader checks mode and form before anything is made of the text.
    let key = ClusterKey::load(path).map_err(|e| {
        let text = e.to_string();
        Failure::run(text.strip_prefix("connection lost: ").unwrap_or(&text).to_string())
    })?;
    let text = std::fs::read_to_string(path).doing(|| format!("{}", path.display()))?;
    Ok(Some(KeyFile { path: path.into(), key, text }))
}

/// Reads a key, or makes it; tells whether it is new.
pub fn load_or_make(path: &Path) -> Outcome<(KeyFile, bool)> {
    if let Some(found) = load(path)? {
        return Ok((found, false));
    }
    if let Some(dir) = path.parent().filter(|d| !d.as_os_str().is_empty() && !d.exists()) {
        make_private(dir)?;
    }
    ClusterKey::generate().store(path).doing(|| "cannot make the key".into())?;
    let made = load(path)?;
    let gone = || Failure::run(format!("the key {} vanished", path.display()));
    Ok((made.ok_or_else(gone)?, true))
}

/// Reads a key that must be there.
pub fn need(path: &Path) -> Outcome<KeyFile> {
    let text = || {
        Failure::run(format!(
            "there is no cluster key {}; copy the one `pinstripe format` made, or name it with \
             --key FILE",
            path.display()
        ))
    };
    load(path)?.ok_or_else(text)
}
