//! The grammar of getopt_long(3): abbreviations, bundles, `--`, operands anywhere, POSIXLY_CORRECT.
//!
//! A library for arguments would print its own messages and take no ambiguous abbreviation as GNU
//! does; the messages are part of what users and their scripts see. Never prints: errors are values.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// Whether an option has an argument.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Has {
    No,
    Required,
    /// `--name=value` or `-nvalue` only.
    Optional,
}

/// The options of a program: `T` says which one was found.
pub struct Spec<T: 'static> {
    pub shorts: &'static [(u8, Has, T)],
    /// In the order in which ambiguous possibilities are listed.
    pub longs: &'static [(&'static str, Has, T)],
}

/// Reads arguments one by one, as getopt_long does: what comes first takes effect first, so that
/// `--help` before a wrong option helps.
pub struct Getopt<'a, T: 'static> {
    spec: &'a Spec<T>,
    /// Options of ours beside the genuine program's.
    own: &'static [(&'static str, Has, T)],
    args: VecDeque<OsString>,
    /// What is left of a bundle such as `-abc`.
    bundle: Vec<u8>,
    operands: Vec<OsString>,
    /// Options end at the first operand (POSIXLY_CORRECT, or the program's wish).
    stop_early: bool,
}

impl<'a, T: Copy + PartialEq> Getopt<'a, T> {
    /// `args` without the program's name.
    pub fn new(spec: &'a Spec<T>, args: impl IntoIterator<Item = OsString>) -> Self {
        let stop_early = std::env::var_os("POSIXLY_CORRECT").is_some();
        Self {
            spec,
            own: &[],
            args: args.into_iter().collect(),
            bundle: Vec::new(),
            operands: Vec::new(),
            stop_early,
        }
    }

    /// Long options that the genuine program lacks. They are looked at only where it knows nothing of
    /// that name, so that none of its abbreviations becomes ambiguous.
    pub fn own(mut self, own: &'static [(&'static str, Has, T)]) -> Self {
        self.own = own;
        self
    }

    /// Operands end the options, or do not, whatever the environment says.
    pub fn stop_early(mut self, stop: bool) -> Self {
        self.stop_early = stop;
        self
    }

    /// What is no option; call it when [`Self::next`] has returned None.
    pub fn operands(self) -> Vec<OsString> {
        let mut all = self.operands;
        all.extend(self.args);
        all
    }

    /// The next option and its argument; an error is the message behind the program's name.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Option<Result<(T, Option<OsString>), String>> {
        if !self.bundle.is_empty() {
            return Some(self.short());
        }
        loop {
            let arg = self.args.pop_front()?;
            let bytes = arg.as_bytes();
            if bytes == b"--" {
                return None;
            }
            if let Some(long) = bytes.strip_prefix(b"--") {
                let long = long.to_vec();
                return Some(self.long(&long));
            }
            if bytes.len() > 1 && bytes[0] == b'-' {
                self.bundle = bytes[1..].to_vec();
                return Some(self.short());
            }
            if self.stop_early {
                self.args.push_front(arg);
                return None;
            }
            self.operands.push(arg);
        }
    }

    fn short(&mut self) -> Result<(T, Option<OsString>), String> {
        let letter = self.bundle.remove(0);
        let shown = OsString::from_vec(vec![letter]);
        let shown = shown.to_string_lossy();
        let Some((_, has, id)) = self.spec.shorts.iter().find(|(c, ..)| *c == letter) else {
            return Err(format!("invalid option -- '{shown}'"));
        };
        let argument = match has {
            Has::No => None,
            _ if !self.bundle.is_empty() => {
                Some(OsString::from_vec(std::mem::take(&mut self.bundle)))
            }
            Has::Optional => None,
            Has::Required => Some(
                self.args
                    .pop_front()
                    .ok_or_else(|| format!("option requires an argument -- '{shown}'"))?,
            ),
        };
        Ok((*id, argument))
    }

    fn long(&mut self, text: &[u8]) -> Result<(T, Option<OsString>), String> {
        let (name, value) = match text.iter().position(|b| *b == b'=') {
            Some(at) => (&text[..at], Some(OsStr::from_bytes(&text[at + 1..]).to_os_string())),
            None => (text, None),
        };
        let (full, has, id) = self.find(name, text)?;
        let argument = match (has, value) {
            (Has::No, Some(_)) => {
                return Err(format!("option '--{full}' doesn't allow an argument"));
            }
            (Has::Required, None) => Some(
                self.args
                    .pop_front()
                    .ok_or_else(|| format!("option '--{full}' requires an argument"))?,
            ),
            (_, value) => value,
        };
        Ok((id, argument))
    }

    /// An exact name wins; else the one name that begins so, or several that mean the same.
    fn find(&self, name: &[u8], text: &[u8]) -> Result<(&'static str, Has, T), String> {
        let exactly_ours = self.own.iter().any(|(full, ..)| full.as_bytes() == name);
        let genuine = self.spec.longs.iter().any(|(full, ..)| full.as_bytes().starts_with(name));
        let longs = if genuine && !exactly_ours { self.spec.longs } else { self.own };
        if let Some(exact) = longs.iter().find(|(full, ..)| full.as_bytes() == name) {
            return Ok(*exact);
        }
        let shown = String::from_utf8_lossy(text);
        let begins: Vec<_> =
            longs.iter().filter(|(full, ..)| full.as_bytes().starts_with(name)).collect();
        let Some(first) = begins.first() else {
            return Err(format!("unrecognized option '--{shown}'"));
        };
        if begins.iter().any(|(_, has, id)| *has != first.1 || *id != first.2) {
            let all: String = begins.iter().map(|(full, ..)| format!(" '--{full}'")).collect();
            return Err(format!("option '--{shown}' is ambiguous; possibilities:{all}"));
        }
        Ok(**first)
    }
}

/// The argument of an option that takes one of several words, which may be abbreviated as options are.
///
/// Errors are gnulib's: the message for `invalid argument` and the list of valid ones, in two parts.
pub fn keyword<T: Copy + PartialEq>(
    option: &str,
    value: &OsStr,
    words: &[(&'static str, T)],
) -> Result<T, String> {
    let bytes = value.as_bytes();
    if let Some((_, meant)) = words.iter().find(|(word, _)| word.as_bytes() == bytes) {
        return Ok(*meant);
    }
    let begins: Vec<_> =
        words.iter().filter(|(word, _)| word.as_bytes().starts_with(bytes)).collect();
    if let Some((_, first)) = begins.first()
        && begins.iter().all(|(_, meant)| meant == first)
    {
        return Ok(*first);
    }
    let what = if begins.is_empty() { "invalid" } else { "ambiguous" };
    let quoted = super::quote::locale(value);
    let mut message = format!(
        "{what} argument {quoted} for {}\nValid arguments are:",
        super::quote::locale(OsStr::new(option))
    );
    let mut before = None;
    for (word, meant) in words {
        let word = super::quote::locale(OsStr::new(word));
        if before == Some(*meant) {
            message.push_str(&format!(", {word}"));
        } else {
            message.push_str(&format!("\n  - {word}"));
        }
        before = Some(*meant);
    }
    Err(message)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPEC: Spec<char> = Spec {
        shorts: &[(b'a', Has::No, 'a'), (b'b', Has::Optional, 'b'), (b't', Has::Required, 't')],
        longs: &[
            ("archive", Has::No, 'a'),
            ("attributes-only", Has::No, 'A'),
            ("backup", Has::Optional, 'b'),
            ("strip-trailing-slashes", Has::No, 'S'),
            ("target-directory", Has::Required, 't'),
        ],
    };

    fn all(args: &[&str]) -> (Vec<String>, Vec<String>) {
        let mut getopt = Getopt::new(&SPEC, args.iter().map(OsString::from)).stop_early(false);
        let mut seen = Vec::new();
        while let Some(next) = getopt.next() {
            seen.push(match next {
                Ok((id, value)) => {
                    format!("{id}{}", value.map_or(String::new(), |v| format!("={}", v.display())))
                }
                Err(e) => e,
            });
        }
        (seen, getopt.operands().into_iter().map(|o| o.into_string().unwrap()).collect())
    }

    #[test]
    fn options_and_operands_mix_as_in_getopt_long() {
        assert_eq!(
            all(&["x", "-abfoo", "--targ", "d", "--backup=t", "-t", "e", "--", "-a", "y"]),
            (
                ["a", "b=foo", "t=d", "b=t", "t=e"].map(String::from).to_vec(),
                ["x", "-a", "y"].map(String::from).to_vec()
            )
        );
    }

    #[test]
    fn options_of_ours_take_no_abbreviation_from_the_genuine_program() {
        const OWN: &[(&str, Has, char)] =
            &[("backups", Has::No, '1'), ("threads", Has::Required, '2')];
        let args = ["--back", "--backups", "--t=d", "--th=4"].map(OsString::from);
        let mut getopt = Getopt::new(&SPEC, args).own(OWN).stop_early(false);
        let mut seen = Vec::new();
        while let Some(next) = getopt.next() {
            seen.push(next.unwrap().0);
        }
        assert_eq!(seen, ['b', '1', 't', '2']);
    }

    #[test]
    fn wrong_options_are_told_in_glibcs_words() {
        let (seen, _) =
            all(&["--a", "--nothing=x", "--archive=x", "-z", "--target", "d", "--target"]);
        assert_eq!(
            seen,
            [
                "option '--a' is ambiguous; possibilities: '--archive' '--attributes-only'",
                "unrecognized option '--nothing=x'",
                "option '--archive' doesn't allow an argument",
                "invalid option -- 'z'",
                "t=d",
                "option '--target-directory' requires an argument",
            ]
        );
    }
}
