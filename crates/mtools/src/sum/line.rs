//! Lines of check files: what they claim of which file.
//!
//! Formats: `DIGEST  NAME` and `DIGEST *NAME`, `DIGEST NAME` (BSD's, reversed), `TAG (NAME) = DIGEST`
//! (BSD's and OpenSSL's), a backslash before the line where its name is escaped, and the lines of our
//! tree hashes (see `docs/mtools.md`).

use super::digest::{Algorithm, BLAKE2B_MAX_BITS, WORDS, base64_len};
use super::own::MIN_SPLIT;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

/// What the lines of our tree hashes begin with: no genuine program takes such a line for one of its own.
pub const TREE_TAG: &str = "MSUM-TREE-";

/// What a line claims.
#[derive(PartialEq, Eq, Debug)]
pub struct Claim {
    pub name: OsString,
    pub algorithm: Algorithm,
    /// The chunk of a tree hash.
    pub split: Option<u64>,
    /// Hexadecimal digits or base64, as written.
    pub digest: Vec<u8>,
}

/// How lines are read, and what earlier lines have settled.
pub struct Reader {
    /// The algorithm that is meant; the one of the last tag where each line names its own.
    algorithm: Algorithm,
    any: bool,
    /// As cksum reads: digests may be in base64, and the blank behind a tag is part of it.
    cksum: bool,
    /// Untagged lines that are shorter are none.
    shortest: usize,
    /// Whether untagged lines have one separator (BSD's reversed format) or two characters. Both are
    /// never mixed, so that a name's leading blank is not taken for a separator.
    reversed: Option<bool>,
}

impl Reader {
    /// `any`: lines tell their algorithm; `cksum`: they are read as cksum does.
    pub fn new(algorithm: Algorithm, any: bool, cksum: bool) -> Self {
        let shortest = match algorithm {
            // A blank must follow the digest, but no name.
            _ if cksum => 0,
            Algorithm::Blake2b(_) => 0,
            other => other.len() * 2 + 2,
        };
        Self { algorithm, any, cksum, shortest, reversed: None }
    }

    /// The name of the algorithm that the last line should have had.
    pub fn algorithm_name(&self) -> &'static str {
        self.algorithm.name()
    }

    /// None: no line of any format that is meant. `line` is without its line end.
    pub fn read(&mut self, line: &[u8]) -> Option<Claim> {
        let line = trim(line);
        let (escaped, line) = match line.strip_prefix(b"\\") {
            Some(rest) => (true, rest),
            None => (false, line),
        };
        if let Some(rest) = line.strip_prefix(TREE_TAG.as_bytes()) {
            return self.tree(rest, escaped);
        }
        match self.tag(line) {
            Some((algorithm, rest)) => {
                let (algorithm, behind) = blake_length(algorithm, rest)?;
                // cksum takes no heed of the byte that ends the tag.
                let length = behind.len() < rest.len();
                let ends = self.cksum && !length && rest.first().is_some_and(|b| *b != b'(');
                let rest = &behind[usize::from(ends)..];
                let rest = rest.strip_prefix(b" ").unwrap_or(rest).strip_prefix(b"(")?;
                self.tagged(algorithm, None, rest, escaped)
            }
            None if self.any => None,
            None => self.untagged(line, escaped),
        }
    }

    /// The algorithm whose name the line begins with.
    fn tag<'l>(&mut self, line: &'l [u8]) -> Option<(Algorithm, &'l [u8])> {
        if self.any {
            let ends = |b: &u8| matches!(b, b' ' | b'\t' | b'-' | b'(');
            let len = line.iter().position(ends).unwrap_or(line.len());
            self.algorithm = by_name(&line[..len])?;
        }
        Some((self.algorithm, line.strip_prefix(self.algorithm.name().as_bytes())?))
    }

    /// `NAME) = DIGEST`.
    fn tagged(
        &self,
        algorithm: Algorithm,
        split: Option<u64>,
        rest: &[u8],
        escaped: bool,
    ) -> Option<Claim> {
        let end = rest.iter().rposition(|b| *b == b')')?;
        let name = name(&rest[..end], escaped)?;
        let digest = trim(trim(&rest[end + 1..]).strip_prefix(b"=")?);
        let digest = until_nul(digest);
        self.is_digest(algorithm, digest).then(|| Claim {
            name,
            algorithm,
            split,
            digest: digest.to_vec(),
        })
    }

    /// `ALGORITHM-CHUNK (NAME) = DIGEST`.
    fn tree(&mut self, rest: &[u8], escaped: bool) -> Option<Claim> {
        let open = rest.windows(2).position(|two| two == b" (")?;
        let head = std::str::from_utf8(&rest[..open]).ok()?;
        let (tag, split) = head.rsplit_once('-')?;
        let split: u64 = split.parse().ok().filter(|n| *n >= MIN_SPLIT && *n <= i64::MAX as u64)?;
        let named = match tag.strip_prefix("BLAKE2b") {
            Some(length) => {
                blake_length(Algorithm::Blake2b(0), length.as_bytes())
                    .filter(|(_, left)| left.is_empty())?
                    .0
            }
            None => by_name(tag.as_bytes())?,
        };
        if !self.any && named.name() != self.algorithm.name() {
            return None;
        }
        self.tagged(named, Some(split), &rest[open + 2..], escaped)
    }

    fn untagged(&mut self, line: &[u8], escaped: bool) -> Option<Claim> {
        let blank = line.iter().position(|b| is_blank(*b))?;
        let (digest, rest) = line.split_at(blank);
        let algorithm = match self.algorithm {
            Algorithm::Blake2b(_) => blake_of_digits(digest)?,
            other => other,
        };
        if line.len() < self.shortest || !self.is_digest(algorithm, digest) {
            return None;
        }
        let rest = self.separator(&rest[1..])?;
        let name = name(rest, escaped)?;
        Some(Claim { name, algorithm, split: None, digest: digest.to_vec() })
    }

    /// The name behind the first separator, which the second one may be part of.
    fn separator<'l>(&mut self, rest: &'l [u8]) -> Option<&'l [u8]> {
        if rest.len() == 1 || !matches!(rest.first(), Some(b' ' | b'*')) {
            if self.reversed == Some(false) {
                return None;
            }
            self.reversed = Some(true);
        } else if self.reversed != Some(true) {
            self.reversed = Some(false);
            return Some(&rest[1..]);
        }
        Some(rest)
    }

    fn is_digest(&self, algorithm: Algorithm, digest: &[u8]) -> bool {
        let bytes = algorithm.len();
        if digest.len() == bytes * 2 {
            return digest.iter().all(u8::is_ascii_hexdigit);
        }
        if !self.cksum || digest.len() != base64_len(bytes) {
            return false;
        }
        let padding = (3 - bytes % 3) % 3;
        let (body, end) = digest.split_at(digest.len() - padding);
        body.iter().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'/'))
            && end.iter().all(|b| *b == b'=')
    }
}

fn by_name(name: &[u8]) -> Option<Algorithm> {
    WORDS.iter().map(|(_, a)| *a).find(|a| !a.is_sum() && a.name().as_bytes() == name)
}

/// For BLAKE2b the length in bits that may follow its name.
fn blake_length(algorithm: Algorithm, rest: &[u8]) -> Option<(Algorithm, &[u8])> {
    if !matches!(algorithm, Algorithm::Blake2b(_)) {
        return Some((algorithm, rest));
    }
    let Some(number) = rest.strip_prefix(b"-") else {
        return Some((Algorithm::Blake2b(BLAKE2B_MAX_BITS), rest));
    };
    let number = number.trim_ascii_start();
    let number = number.strip_prefix(b"+").unwrap_or(number);
    let len = number.iter().take_while(|b| b.is_ascii_alphanumeric()).count();
    let bits = c_number(std::str::from_utf8(&number[..len]).ok()?)?;
    let good = bits > 0 && bits <= BLAKE2B_MAX_BITS && bits.is_multiple_of(8);
    good.then(|| (Algorithm::Blake2b(bits), &number[len..]))
}

/// A number as C writes it: decimal, octal behind 0, hexadecimal behind 0x.
fn c_number(text: &str) -> Option<u16> {
    if !text.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    if let Some(hex) = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        return u16::from_str_radix(hex, 16).ok();
    }
    match text.strip_prefix('0') {
        Some(octal) if !octal.is_empty() => u16::from_str_radix(octal, 8).ok(),
        _ => text.parse().ok(),
    }
}

/// BLAKE2b with the length that so many hexadecimal digits make.
fn blake_of_digits(digest: &[u8]) -> Option<Algorithm> {
    let bits = digest.len().checked_mul(4)?;
    let good = bits > 0 && bits <= usize::from(BLAKE2B_MAX_BITS) && bits.is_multiple_of(8);
    (good && digest.iter().all(u8::is_ascii_hexdigit)).then_some(Algorithm::Blake2b(bits as u16))
}

fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t')
}

/// Without leading blanks.
fn trim(line: &[u8]) -> &[u8] {
    let blanks = line.iter().take_while(|b| is_blank(**b)).count();
    &line[blanks..]
}

fn until_nul(bytes: &[u8]) -> &[u8] {
    bytes.split(|b| *b == 0).next().unwrap_or_default()
}

/// The name that is written; None for a backslash that means nothing.
fn name(written: &[u8], escaped: bool) -> Option<OsString> {
    if !escaped {
        return Some(OsString::from_vec(until_nul(written).to_vec()));
    }
    let mut name = Vec::with_capacity(written.len());
    let mut bytes = written.iter();
    while let Some(byte) = bytes.next() {
        name.push(match byte {
            b'\\' => match bytes.next()? {
                b'n' => b'\n',
                b'r' => b'\r',
                b'\\' => b'\\',
                _ => return None,
            },
            0 => return None,
            other => *other,
        });
    }
    Some(OsString::from_vec(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    const A: &str = "0cc175b9c0f1b6a831c399e269772661";

    fn md5(line: &str) -> Option<String> {
        let claim = Reader::new(Algorithm::Md5, false, false).read(line.as_bytes())?;
        assert_eq!(claim.digest, A.as_bytes());
        Some(claim.name.into_string().unwrap())
    }

    #[test]
    fn formats_that_are_read() {
        for line in ["A  a", "A *a", " \tA  a", "MD5 (a) = A", "MD5(a)= A", "\\A  a", "A a"] {
            assert_eq!(md5(&line.replace('A', A)).as_deref(), Some("a"), "{line}");
        }
        assert_eq!(md5(&format!("\\{A}  a\\nb\\\\")).as_deref(), Some("a\nb\\"));
    }

    #[test]
    fn formats_that_are_not() {
        for line in [
            "A",
            "A ",
            "Aa  b",
            "MD5  (a) = A",
            "MD5 (a) A",
            "SHA1 (a) = A",
            "\\A  a\\x",
            "\\A  a\\",
        ] {
            assert_eq!(
                md5(&line.replace("A", A).replace(&format!("SH{A}1"), "SHA1")),
                None,
                "{line}"
            );
        }
    }

    #[test]
    fn a_tree_hash_is_read_by_its_own_tag_only() {
        let line = format!("MSUM-TREE-MD5-65536 (a (b)) = {A}");
        let claim = Reader::new(Algorithm::Md5, false, false).read(line.as_bytes()).unwrap();
        assert_eq!((claim.split, claim.name), (Some(65536), "a (b)".into()));
        assert_eq!(Reader::new(Algorithm::Sm3, false, false).read(line.as_bytes()), None);
        let line = line.replace("MD5", "BLAKE2b-128");
        let claim = Reader::new(Algorithm::Crc, true, true).read(line.as_bytes()).unwrap();
        assert_eq!(claim.algorithm, Algorithm::Blake2b(128));
    }
}
