//! What tells whether two ranks were asked for the same.

use crate::sum::digest::{Algorithm, Digest};
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

/// SHA-256 over the arguments (without the program's name), each with its length, and over the one variable
/// of the environment that changes what they mean.
pub fn of(args: &[OsString]) -> [u8; 32] {
    let mut digest = Digest::new(Algorithm::Sha256);
    let posix = std::env::var_os("POSIXLY_CORRECT").is_some();
    digest.update(&[u8::from(posix)]);
    for arg in args {
        digest.update(&(arg.len() as u64).to_le_bytes());
        digest.update(arg.as_bytes());
    }
    digest.finish().try_into().unwrap_or([0; 32])
}
