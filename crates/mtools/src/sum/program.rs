//! Which of the programs we are called as.

use super::digest::{Algorithm, BLAKE2B_MAX_BITS};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The genuine program in whose place we stand, or `msum`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Program {
    /// md5sum and those of SHA: one algorithm, with the same options.
    Plain(&'static str, Algorithm),
    B2sum,
    Cksum,
    Msum,
}

const PLAIN: [(&str, Algorithm); 6] = [
    ("md5sum", Algorithm::Md5),
    ("sha1sum", Algorithm::Sha1),
    ("sha224sum", Algorithm::Sha224),
    ("sha256sum", Algorithm::Sha256),
    ("sha384sum", Algorithm::Sha384),
    ("sha512sum", Algorithm::Sha512),
];

impl Program {
    /// By the last part of argv[0]; every name that is not a genuine program's is msum's.
    pub fn from_argv0(argv0: &OsStr) -> Self {
        let name = Path::new(argv0).file_name().unwrap_or_default().as_bytes();
        match name {
            b"b2sum" => Self::B2sum,
            b"cksum" => Self::Cksum,
            _ => PLAIN
                .iter()
                .find(|(plain, _)| plain.as_bytes() == name)
                .map_or(Self::Msum, |(plain, algorithm)| Self::Plain(plain, *algorithm)),
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Plain(name, _) => name,
            Self::B2sum => "b2sum",
            Self::Cksum => "cksum",
            Self::Msum => "msum",
        }
    }

    /// What is computed where no option says otherwise.
    pub fn algorithm(self) -> Algorithm {
        match self {
            Self::Plain(_, algorithm) => algorithm,
            Self::B2sum => Algorithm::Blake2b(BLAKE2B_MAX_BITS),
            Self::Cksum => Algorithm::Crc,
            Self::Msum => Algorithm::Sha256,
        }
    }
}
