//! The algorithms: bytes in, a digest out.
//!
//! Assumes nothing about where the bytes come from; never reads and never prints. The copy engine uses
//! it as `msum` does.
//!
//! ```
//! use mtools::sum::digest::{Algorithm, Digest, hex};
//! let mut digest = Digest::new(Algorithm::Md5);
//! digest.update(b"a");
//! assert_eq!(hex(&digest.finish()), "0cc175b9c0f1b6a831c399e269772661");
//! ```

use super::weak::{Bsd, Crc, Sysv};
use sha2::Digest as _;

/// The longest digest of BLAKE2b, and the one that is meant where no length is told.
pub const BLAKE2B_MAX_BITS: u16 = 512;

/// What is computed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Algorithm {
    Bsd,
    Sysv,
    Crc,
    Crc32b,
    Md5,
    Sha1,
    Sha224,
    Sha256,
    Sha384,
    Sha512,
    /// With its length in bits: a multiple of 8, from 8 to [`BLAKE2B_MAX_BITS`].
    Blake2b(u16),
    Sm3,
}

/// The words of `cksum --algorithm`, in the order in which cksum lists them.
pub const WORDS: [(&str, Algorithm); 12] = [
    ("bsd", Algorithm::Bsd),
    ("sysv", Algorithm::Sysv),
    ("crc", Algorithm::Crc),
    ("crc32b", Algorithm::Crc32b),
    ("md5", Algorithm::Md5),
    ("sha1", Algorithm::Sha1),
    ("sha224", Algorithm::Sha224),
    ("sha256", Algorithm::Sha256),
    ("sha384", Algorithm::Sha384),
    ("sha512", Algorithm::Sha512),
    ("blake2b", Algorithm::Blake2b(BLAKE2B_MAX_BITS)),
    ("sm3", Algorithm::Sm3),
];

impl Algorithm {
    /// The algorithm of that word, as in `--hash-type` and `--algorithm`.
    pub fn from_word(word: &str) -> Option<Self> {
        WORDS.iter().find(|(known, _)| *known == word).map(|(_, algorithm)| *algorithm)
    }

    /// The algorithm's name in tagged lines, without the length of BLAKE2b.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bsd => "BSD",
            Self::Sysv => "SYSV",
            Self::Crc => "CRC",
            Self::Crc32b => "CRC32B",
            Self::Md5 => "MD5",
            Self::Sha1 => "SHA1",
            Self::Sha224 => "SHA224",
            Self::Sha256 => "SHA256",
            Self::Sha384 => "SHA384",
            Self::Sha512 => "SHA512",
            Self::Blake2b(_) => "BLAKE2b",
            Self::Sm3 => "SM3",
        }
    }

    /// The name with the length, where that is not the usual one: `BLAKE2b-128`.
    pub fn tag(self) -> String {
        match self {
            Self::Blake2b(bits) if bits != BLAKE2B_MAX_BITS => format!("BLAKE2b-{bits}"),
            _ => self.name().to_string(),
        }
    }

    /// A sum that is printed as a number with the file's size, and that `--check` cannot verify.
    pub fn is_sum(self) -> bool {
        matches!(self, Self::Bsd | Self::Sysv | Self::Crc | Self::Crc32b)
    }

    /// Whether reading takes so large a part of the time that it is worth a thread of its own.
    /// The others are faster than bytes can be handed from one processor to another.
    pub fn is_slow(self) -> bool {
        !matches!(self, Self::Sysv | Self::Crc | Self::Crc32b)
    }

    /// Bytes of a digest.
    pub fn len(self) -> usize {
        match self {
            Self::Bsd | Self::Sysv => 2,
            Self::Crc | Self::Crc32b => 4,
            Self::Md5 => 16,
            Self::Sha1 => 20,
            Self::Sha224 => 28,
            Self::Sha256 | Self::Sm3 => 32,
            Self::Sha384 => 48,
            Self::Sha512 => 64,
            Self::Blake2b(bits) => usize::from(bits / 8),
        }
    }

    pub fn is_empty(self) -> bool {
        false
    }
}

/// A digest in the making.
#[derive(Clone)]
pub struct Digest(State);

// The states differ in size; there is one per file being read, never a list of them.
#[allow(clippy::large_enum_variant)]
#[derive(Clone)]
enum State {
    Bsd(Bsd),
    Sysv(Sysv),
    Crc(Crc),
    Md5(md5::Md5),
    Sha1(sha1::Sha1),
    Sha224(sha2::Sha224),
    Sha256(sha2::Sha256),
    Sha384(sha2::Sha384),
    Sha512(sha2::Sha512),
    Blake2b(blake2b_simd::State),
    Sm3(sm3::Sm3),
}

impl Digest {
    pub fn new(algorithm: Algorithm) -> Self {
        Self(match algorithm {
            Algorithm::Bsd => State::Bsd(Bsd::default()),
            Algorithm::Sysv => State::Sysv(Sysv::default()),
            Algorithm::Crc => State::Crc(Crc::posix()),
            Algorithm::Crc32b => State::Crc(Crc::v42()),
            Algorithm::Md5 => State::Md5(md5::Md5::new()),
            Algorithm::Sha1 => State::Sha1(sha1::Sha1::new()),
            Algorithm::Sha224 => State::Sha224(sha2::Sha224::new()),
            Algorithm::Sha256 => State::Sha256(sha2::Sha256::new()),
            Algorithm::Sha384 => State::Sha384(sha2::Sha384::new()),
            Algorithm::Sha512 => State::Sha512(sha2::Sha512::new()),
            Algorithm::Blake2b(_) => {
                let length = algorithm.len().clamp(1, blake2b_simd::OUTBYTES);
                State::Blake2b(blake2b_simd::Params::new().hash_length(length).to_state())
            }
            Algorithm::Sm3 => State::Sm3(sm3::Sm3::new()),
        })
    }

    pub fn update(&mut self, bytes: &[u8]) {
        match &mut self.0 {
            State::Bsd(state) => state.update(bytes),
            State::Sysv(state) => state.update(bytes),
            State::Crc(state) => state.update(bytes),
            State::Md5(state) => state.update(bytes),
            State::Sha1(state) => state.update(bytes),
            State::Sha224(state) => state.update(bytes),
            State::Sha256(state) => state.update(bytes),
            State::Sha384(state) => state.update(bytes),
            State::Sha512(state) => state.update(bytes),
            State::Blake2b(state) => drop(state.update(bytes)),
            State::Sm3(state) => state.update(bytes),
        }
    }

    /// The digest; a sum's most significant byte comes first.
    pub fn finish(self) -> Vec<u8> {
        match self.0 {
            State::Bsd(state) => state.finish().to_be_bytes().to_vec(),
            State::Sysv(state) => state.finish().to_be_bytes().to_vec(),
            State::Crc(state) => state.finish().to_be_bytes().to_vec(),
            State::Md5(state) => state.finalize().to_vec(),
            State::Sha1(state) => state.finalize().to_vec(),
            State::Sha224(state) => state.finalize().to_vec(),
            State::Sha256(state) => state.finalize().to_vec(),
            State::Sha384(state) => state.finalize().to_vec(),
            State::Sha512(state) => state.finalize().to_vec(),
            State::Blake2b(state) => state.finalize().as_bytes().to_vec(),
            State::Sm3(state) => state.finalize().to_vec(),
        }
    }
}

/// In hexadecimal digits, as the tools print digests.
pub fn hex(digest: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut out = String::with_capacity(digest.len() * 2);
    for byte in digest {
        out.push(char::from(DIGITS[usize::from(byte >> 4)]));
        out.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
    out
}

/// In base64 with padding, as `cksum --base64` prints digests.
pub fn base64(digest: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::with_capacity(base64_len(digest.len()));
    for group in digest.chunks(3) {
        let byte = |i: usize| u32::from(group.get(i).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for i in 0..4 {
            if i <= group.len() {
                out.push(char::from(DIGITS[(bits >> (18 - 6 * i)) as usize & 63]));
            } else {
                out.push('=');
            }
        }
    }
    out
}

/// Characters of so many bytes in base64.
pub fn base64_len(bytes: usize) -> usize {
    bytes.div_ceil(3) * 4
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(algorithm: Algorithm, bytes: &[u8]) -> String {
        let mut whole = Digest::new(algorithm);
        whole.update(bytes);
        let mut parts = Digest::new(algorithm);
        for part in bytes.chunks(7) {
            parts.update(part);
        }
        let digest = whole.finish();
        assert_eq!(digest, parts.finish());
        assert_eq!(digest.len(), algorithm.len());
        hex(&digest)
    }

    /// From RFC 1321, FIPS 180 (appendices), RFC 7693, GB/T 32905 and POSIX's cksum of "123456789".
    #[test]
    fn published_examples() {
        assert_eq!(of(Algorithm::Md5, b"abc"), "900150983cd24fb0d6963f7d28e17f72");
        assert_eq!(of(Algorithm::Sha1, b"abc"), "a9993e364706816aba3e25717850c26c9cd0d89d");
        assert_eq!(
            of(Algorithm::Sha256, b"abc"),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
        assert_eq!(
            of(Algorithm::Sm3, b"abc"),
            "66c7f0f462eeedd9d1f2d46bdc10e4e24167c4875cf2f7a2297da02b8f4ba8e0"
        );
        assert!(
            of(Algorithm::Blake2b(512), b"abc").starts_with("ba80a53f981c4d0d6a2797b69f12f6e9")
        );
        assert_eq!(of(Algorithm::Crc, b"123456789"), "377a6011");
        assert_eq!(of(Algorithm::Crc32b, b"123456789"), "cbf43926");
    }

    /// From RFC 4648.
    #[test]
    fn base64_pads() {
        for (plain, coded) in
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg==")]
        {
            assert_eq!(base64(plain.as_bytes()), coded);
            assert_eq!(base64_len(plain.len()), coded.len());
        }
    }
}
