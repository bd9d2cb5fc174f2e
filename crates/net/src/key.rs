//! The secret that servers and clients of one cluster share.
//!
//! Role: holds it, keeps it in a file only its owner can read. Never does: show it; logs get the
//! fingerprint.

use crate::NetError;
use rand::RngCore;
use sha2::{Digest, Sha256};
use std::fmt;
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

/// The shared secret of a cluster.
#[derive(Clone, PartialEq, Eq)]
pub struct ClusterKey(pub(crate) [u8; 32]);

impl ClusterKey {
    /// A new random key.
    pub fn generate() -> ClusterKey {
        let mut key = [0; 32];
        rand::rng().fill_bytes(&mut key);
        ClusterKey(key)
    }

    /// Tells keys apart without showing them: the start of a hash.
    pub fn fingerprint(&self) -> String {
        let digest = Sha256::new().chain_update(b"pinstripe key fingerprint").chain_update(self.0);
        hex(&digest.finalize()[..8])
    }

    /// From bytes that come from elsewhere.
    pub fn from_bytes(key: [u8; 32]) -> ClusterKey {
        ClusterKey(key)
    }

    /// Reads a key file (64 hexadecimal digits).
    ///
    /// # Errors
    /// The file cannot be read, is no key, or others than its owner may read or write it.
    pub fn load(path: &Path) -> Result<ClusterKey, NetError> {
        let fail = |why: String| NetError::Lost(format!("key file {}: {why}", path.display()));
        let mut file = std::fs::File::open(path).map_err(|e| fail(e.to_string()))?;
        let mode = file.metadata().map_err(|e| fail(e.to_string()))?.mode();
        if mode & 0o077 != 0 {
            return Err(fail(format!(
                "mode {:04o} lets others read it; chmod 0600 and make a new key",
                mode & 0o7777
            )));
        }
        let mut text = String::new();
        (&mut file).take(1024).read_to_string(&mut text).map_err(|e| fail(e.to_string()))?;
        parse(text.trim()).ok_or_else(|| fail("not 64 hexadecimal digits".into()))
    }

    /// Writes the key to a new file of mode 0600.
    ///
    /// # Errors
    /// The file exists or cannot be written.
    pub fn store(&self, path: &Path) -> Result<(), NetError> {
        let write = || {
            let mut file =
                std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
            writeln!(file, "{}", hex(&self.0))?;
            file.sync_all()
        };
        write().map_err(|e| NetError::Lost(format!("key file {}: {e}", path.display())))
    }
}

impl fmt::Debug for ClusterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ClusterKey({})", self.fingerprint())
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

fn parse(text: &str) -> Option<ClusterKey> {
    if text.len() != 64 || !text.is_ascii() {
        return None;
    }
    let mut key = [0; 32];
    for (i, byte) in key.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(2 * i..2 * i + 2)?, 16).ok()?;
    }
    Some(ClusterKey(key))
}

#[cfg(test)]
mod tests;
