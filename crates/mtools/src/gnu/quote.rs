//! Names in messages, quoted as gnulib's quotearg does in the styles GNU tools use.
//!
//! Names are bytes: what is no printable character is shown escaped. Characters are UTF-8 where the
//! locale says so, single bytes of ASCII elsewhere (see [`utf8_locale`]).

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::OnceLock;

/// Whether the environment's locale (LC_ALL, LC_CTYPE, LANG) exists here and is one of UTF-8.
pub fn utf8_locale() -> bool {
    static UTF8: OnceLock<bool> = OnceLock::new();
    *UTF8.get_or_init(|| {
        // SAFETY: called with valid, terminated strings; the answer is copied before anybody else may ask.
        let (set, name) = unsafe {
            let set = libc::setlocale(libc::LC_CTYPE, c"".as_ptr());
            (
                !set.is_null(),
                std::ffi::CStr::from_ptr(libc::nl_langinfo(libc::CODESET)).to_bytes().to_vec(),
            )
        };
        set && name.eq_ignore_ascii_case(b"UTF-8")
    })
}

/// Always in quotes, such that a shell would read the name: `quoteaf` of coreutils.
pub fn always(name: impl AsRef<OsStr>) -> String {
    shell(name.as_ref().as_bytes(), utf8_locale())
}

/// In quotes only where a shell would need them, or the name holds a colon: `quotef` of coreutils.
pub fn maybe(name: impl AsRef<OsStr>) -> String {
    let bytes = name.as_ref().as_bytes();
    if plain(bytes, utf8_locale()) && !bytes.contains(&b':') {
        String::from_utf8_lossy(bytes).into_owned()
    } else {
        always(name)
    }
}

/// In the locale's own quotes: `quote` of coreutils.
pub fn locale(text: impl AsRef<OsStr>) -> String {
    let utf8 = utf8_locale();
    let (open, close) = if utf8 { ('\u{2018}', '\u{2019}') } else { ('\'', '\'') };
    let mut out = String::from(open);
    for piece in pieces(text.as_ref().as_bytes(), utf8) {
        match piece {
            Piece::Char('\\') => out.push_str("\\\\"),
            Piece::Char(c) if c == close => out.extend(['\\', c]),
            Piece::Char(c) => out.push(c),
            Piece::Escape(byte, next_is_digit) => out.push_str(&escape(byte, next_is_digit)),
        }
    }
    out.push(close);
    out
}

enum Piece {
    Char(char),
    /// A byte that is not printable, and whether a digit follows.
    Escape(u8, bool),
}

fn pieces(bytes: &[u8], utf8: bool) -> Vec<Piece> {
    let mut out = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let Some(&first) = rest.first() {
        let (c, len) = if first.is_ascii() || !utf8 {
            (first.is_ascii().then_some(first as char), 1)
        } else {
            first_char(rest)
        };
        match c {
            Some(c) if printable(c) => out.push(Piece::Char(c)),
            _ => {
                for i in 0..len {
                    out.push(Piece::Escape(
                        rest[i],
                        rest.get(i + 1).is_some_and(u8::is_ascii_digit),
                    ));
                }
            }
        }
        rest = &rest[len..];
    }
    out
}

/// The character bytes begin with, and its length; None for a byte that begins none.
fn first_char(bytes: &[u8]) -> (Option<char>, usize) {
    let part = &bytes[..bytes.len().min(4)];
    let valid = match std::str::from_utf8(part) {
        Ok(text) => text,
        Err(e) => std::str::from_utf8(&part[..e.valid_up_to()]).unwrap_or_default(),
    };
    match valid.chars().next() {
        Some(c) => (Some(c), c.len_utf8()),
        None => (None, 1),
    }
}

fn printable(c: char) -> bool {
    if c.is_ascii() {
        return !c.is_ascii_control();
    }
    unsafe extern "C" {
        fn iswprint(wc: libc::c_uint) -> libc::c_int;
    }
    // SAFETY: takes any value; `utf8_locale` has set the locale whose table it reads.
    unsafe { iswprint(c as libc::c_uint) != 0 }
}

fn letter(byte: u8) -> Option<char> {
    Some(match byte {
        0x07 => 'a',
        0x08 => 'b',
        0x0b => 'v',
        0x0c => 'f',
        b'\n' => 'n',
        b'\r' => 'r',
        b'\t' => 't',
        _ => return None,
    })
}

fn escape(byte: u8, next_is_digit: bool) -> String {
    match letter(byte) {
        Some(c) => format!("\\{c}"),
        None if byte == 0 && !next_is_digit => "\\0".into(),
        None => format!("\\{byte:03o}"),
    }
}

/// Nothing in it means anything to a shell.
fn plain(bytes: &[u8], utf8: bool) -> bool {
    if bytes.is_empty() || matches!(bytes, b"{" | b"}") {
        return false;
    }
    pieces(bytes, utf8).iter().enumerate().all(|(i, piece)| match piece {
        Piece::Char('#' | '~') => i != 0,
        Piece::Char(c) => !SPECIAL.contains(*c),
        Piece::Escape(..) => false,
    })
}

/// Characters for which a name is quoted, other than the apostrophe and blanks.
const SPECIAL: &str = "?!\"$&()*;<=>[^`|\\' ";

fn shell(bytes: &[u8], utf8: bool) -> String {
    let pieces = pieces(bytes, utf8);
    let apostrophe = pieces.iter().any(|p| matches!(p, Piece::Char('\'')));
    // With an apostrophe, double quotes are shorter where nothing else needs care in them.
    let mild = |(i, p): (usize, &Piece)| match p {
        Piece::Char('#' | '~') => i == 0,
        Piece::Char('{' | '}') => pieces.len() == 1,
        Piece::Char(' ' | '\'') => true,
        Piece::Char(c) => !SPECIAL.contains(*c),
        Piece::Escape(..) => false,
    };
    if apostrophe && pieces.iter().enumerate().all(mild) {
        return format!("\"{}\"", String::from_utf8_lossy(bytes));
    }
    let mut out = String::from("'");
    // quotearg reads a name with an apostrophe twice, and the second time begins as the first ended.
    let mut escaping = apostrophe && matches!(pieces.last(), Some(Piece::Escape(..)));
    for piece in pieces {
        match piece {
            Piece::Escape(byte, next_is_digit) => {
                if !escaping {
                    out.push_str("'$'");
                }
                escaping = true;
                out.push_str(&escape(byte, next_is_digit));
            }
            Piece::Char('\'') => {
                // The closing of $'...' and the opening of the next quotes would be empty.
                out.push_str("'\\''");
                escaping = false;
            }
            Piece::Char(c) => {
                if escaping {
                    out.push_str("''");
                    escaping = false;
                }
                out.push(c);
            }
        }
    }
    out.push('\'');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ascii(name: &[u8]) -> String {
        shell(name, false)
    }

    /// What `LC_ALL=C ls --quoting-style=shell-escape-always` prints for these names.
    #[test]
    fn names_are_quoted_as_ls_does() {
        assert_eq!(ascii(b"a b"), "'a b'");
        assert_eq!(ascii(b"it's"), "\"it's\"");
        assert_eq!(ascii(b"it's $"), "'it'\\''s $'");
        assert_eq!(ascii(b"a\nb"), "'a'$'\\n''b'");
        assert_eq!(ascii(b"\xc3\xa4"), "''$'\\303\\244'");
        assert_eq!(ascii(b"it's\xc3"), "'''it'\\''s'$'\\303'");
        // What is printable beyond ASCII, the locale says.
        if utf8_locale() {
            assert_eq!(shell("\u{e4}".as_bytes(), true), "'\u{e4}'");
        }
        assert_eq!(ascii(b""), "''");
    }

    #[test]
    fn plain_names_stay() {
        assert!(plain(b"a-b_c.d", false));
        for odd in [&b"a b"[..], b"", b"#a", b"a\x01", b"it's", b"a$"] {
            assert!(!plain(odd, false), "{odd:?}");
        }
        assert!(plain(b"a#", false));
    }
}
