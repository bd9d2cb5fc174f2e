//! The options as words: GNU's tables in GNU's order, ours beside them. What they mean together is
//! settled in [`super::settle`].

use super::digest::{Algorithm, WORDS};
use super::own::{Advice, Own};
use super::program::Program;
use crate::gnu::getopt::{Getopt, Has, Spec};
use crate::gnu::{diag, quote};
use std::ffi::{OsStr, OsString};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Opt {
    Algorithm,
    Base64,
    Binary,
    Check,
    Debug,
    Help,
    IgnoreMissing,
    DigestLength,
    Quiet,
    Raw,
    Status,
    Strict,
    Tag,
    Text,
    Untagged,
    Version,
    Warn,
    Zero,
    HashType,
    Threads,
    BufferSize,
    SplitSize,
    Offset,
    Length,
    RangeLength,
    Switch(Switch, bool),
}

/// Those of ours that have a `--no-` form.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Switch {
    DirectRead,
    FadviseRead,
    DoubleBuffer,
    ReadStdin,
    PrintStats,
    Json,
    Progress,
    CheckTree,
}

type Long = (&'static str, Has, Opt);

/// What md5sum and those of SHA know.
const PLAIN: Spec<Opt> = Spec {
    shorts: &[
        (b'b', Has::No, Opt::Binary),
        (b'c', Has::No, Opt::Check),
        (b't', Has::No, Opt::Text),
        (b'w', Has::No, Opt::Warn),
        (b'z', Has::No, Opt::Zero),
    ],
    longs: &[
        ("check", Has::No, Opt::Check),
        ("ignore-missing", Has::No, Opt::IgnoreMissing),
        ("quiet", Has::No, Opt::Quiet),
        ("status", Has::No, Opt::Status),
        ("warn", Has::No, Opt::Warn),
        ("strict", Has::No, Opt::Strict),
        ("tag", Has::No, Opt::Tag),
        ("zero", Has::No, Opt::Zero),
        ("binary", Has::No, Opt::Binary),
        ("text", Has::No, Opt::Text),
        ("help", Has::No, Opt::Help),
        ("version", Has::No, Opt::Version),
    ],
};

const B2SUM: Spec<Opt> = Spec {
    shorts: &[
        (b'l', Has::Required, Opt::DigestLength),
        (b'b', Has::No, Opt::Binary),
        (b'c', Has::No, Opt::Check),
        (b't', Has::No, Opt::Text),
        (b'w', Has::No, Opt::Warn),
        (b'z', Has::No, Opt::Zero),
    ],
    longs: &[
        ("length", Has::Required, Opt::DigestLength),
        ("check", Has::No, Opt::Check),
        ("ignore-missing", Has::No, Opt::IgnoreMissing),
        ("quiet", Has::No, Opt::Quiet),
        ("status", Has::No, Opt::Status),
        ("warn", Has::No, Opt::Warn),
        ("strict", Has::No, Opt::Strict),
        ("tag", Has::No, Opt::Tag),
        ("zero", Has::No, Opt::Zero),
        ("binary", Has::No, Opt::Binary),
        ("text", Has::No, Opt::Text),
        ("help", Has::No, Opt::Help),
        ("version", Has::No, Opt::Version),
    ],
};

const CKSUM: Spec<Opt> = Spec {
    shorts: &[
        (b'a', Has::Required, Opt::Algorithm),
        (b'l', Has::Required, Opt::DigestLength),
        (b'b', Has::No, Opt::Binary),
        (b'c', Has::No, Opt::Check),
        (b't', Has::No, Opt::Text),
        (b'w', Has::No, Opt::Warn),
        (b'z', Has::No, Opt::Zero),
    ],
    longs: &[
        ("length", Has::Required, Opt::DigestLength),
        ("check", Has::No, Opt::Check),
        ("ignore-missing", Has::No, Opt::IgnoreMissing),
        ("quiet", Has::No, Opt::Quiet),
        ("status", Has::No, Opt::Status),
        ("warn", Has::No, Opt::Warn),
        ("strict", Has::No, Opt::Strict),
        ("tag", Has::No, Opt::Tag),
        ("zero", Has::No, Opt::Zero),
        ("algorithm", Has::Required, Opt::Algorithm),
        ("base64", Has::No, Opt::Base64),
        ("debug", Has::No, Opt::Debug),
        ("raw", Has::No, Opt::Raw),
        ("untagged", Has::No, Opt::Untagged),
        ("binary", Has::No, Opt::Binary),
        ("text", Has::No, Opt::Text),
        ("help", Has::No, Opt::Help),
        ("version", Has::No, Opt::Version),
    ],
};

/// Ours, under every name. Where the genuine program has a `--length`, that one is meant.
const OWN: &[Long] = &[
    ("threads", Has::Required, Opt::Threads),
    ("buffer-size", Has::Required, Opt::BufferSize),
    ("split-size", Has::Required, Opt::SplitSize),
    ("offset", Has::Required, Opt::Offset),
    ("range-length", Has::Required, Opt::RangeLength),
    ("direct-read", Has::No, Opt::Switch(Switch::DirectRead, true)),
    ("no-direct-read", Has::No, Opt::Switch(Switch::DirectRead, false)),
    ("fadvise-read", Has::No, Opt::Switch(Switch::FadviseRead, true)),
    ("no-fadvise-read", Has::No, Opt::Switch(Switch::FadviseRead, false)),
    ("double-buffer", Has::No, Opt::Switch(Switch::DoubleBuffer, true)),
    ("no-double-buffer", Has::No, Opt::Switch(Switch::DoubleBuffer, false)),
    ("read-stdin", Has::No, Opt::Switch(Switch::ReadStdin, true)),
    ("no-read-stdin", Has::No, Opt::Switch(Switch::ReadStdin, false)),
    ("print-stats", Has::No, Opt::Switch(Switch::PrintStats, true)),
    ("no-print-stats", Has::No, Opt::Switch(Switch::PrintStats, false)),
    ("json", Has::No, Opt::Switch(Switch::Json, true)),
    ("no-json", Has::No, Opt::Switch(Switch::Json, false)),
    ("progress", Has::No, Opt::Switch(Switch::Progress, true)),
    ("no-progress", Has::No, Opt::Switch(Switch::Progress, false)),
    ("check-tree", Has::No, Opt::Switch(Switch::CheckTree, true)),
    ("no-check-tree", Has::No, Opt::Switch(Switch::CheckTree, false)),
    // Those below are no options of b2sum and cksum: `own_options` leaves them out there.
    ("length", Has::Required, Opt::Length),
    // Those below are msum's alone.
    ("hash-type", Has::Required, Opt::HashType),
    ("digest-length", Has::Required, Opt::DigestLength),
    ("untagged", Has::No, Opt::Untagged),
];

/// How many at the end of [`OWN`] only msum has, and how many b2sum and cksum have not.
const ONLY_MSUM: usize = 3;
const NOT_WITH_LENGTH: usize = 4;

fn own_options(program: Program) -> &'static [Long] {
    match program {
        Program::Msum => OWN,
        Program::Plain(..) => &OWN[..OWN.len() - ONLY_MSUM],
        Program::B2sum | Program::Cksum => &OWN[..OWN.len() - NOT_WITH_LENGTH],
    }
}

/// What was asked for, word by word.
#[derive(Default)]
pub struct Asked {
    pub algorithm: Option<Algorithm>,
    /// As it was written, and in bits.
    pub digest_length: Option<(OsString, u64)>,
    pub base64: bool,
    pub raw: bool,
    pub check: bool,
    pub debug: bool,
    pub ignore_missing: bool,
    pub quiet: bool,
    pub status: bool,
    pub strict: bool,
    pub warn: bool,
    pub zero: bool,
    pub tag: Option<bool>,
    pub binary: Option<bool>,
    pub own: Own,
    pub operands: Vec<OsString>,
}

/// How reading the options ended, if not with a program to run.
pub enum Stop {
    Help,
    Version,
    /// Already told on standard error.
    Wrong,
    /// The genuine program must do it; why.
    Fallback(String),
}

fn wrong(message: &str) -> Stop {
    diag::error(message);
    Stop::Wrong
}

fn wrong_usage(message: &str) -> Stop {
    diag::error(message);
    diag::try_help();
    Stop::Wrong
}

/// Reads the arguments (without the program's name).
pub fn read(program: Program, args: Vec<OsString>) -> Result<Asked, Stop> {
    let spec = match program {
        Program::Plain(..) | Program::Msum => &PLAIN,
        Program::B2sum => &B2SUM,
        Program::Cksum => &CKSUM,
    };
    let mut getopt = Getopt::new(spec, args).own(own_options(program));
    let mut asked = Asked::default();
    while let Some(next) = getopt.next() {
        let (opt, value) = next.map_err(|e| wrong_usage(&e))?;
        asked.take(opt, &value.unwrap_or_default())?;
    }
    asked.operands = getopt.operands();
    Ok(asked)
}

impl Asked {
    fn take(&mut self, opt: Opt, value: &OsStr) -> Result<(), Stop> {
        match opt {
            Opt::Algorithm => self.algorithm = Some(algorithm(value)?),
            Opt::HashType => self.algorithm = Some(hash_type(value)?),
            Opt::DigestLength => {
                let bits = digest_length(value).map_err(|e| wrong(&e))?;
                self.digest_length = Some((value.to_os_string(), bits));
            }
            Opt::Base64 => self.base64 = true,
            Opt::Raw => self.raw = true,
            Opt::Binary => self.binary = Some(true),
            Opt::Text => self.binary = Some(false),
            Opt::Check => self.check = true,
            Opt::Debug => self.debug = true,
            Opt::IgnoreMissing => self.ignore_missing = true,
            Opt::Strict => self.strict = true,
            // Each of the three undoes the others.
            Opt::Quiet => (self.quiet, self.status, self.warn) = (true, false, false),
            Opt::Status => (self.quiet, self.status, self.warn) = (false, true, false),
            Opt::Warn => (self.quiet, self.status, self.warn) = (false, false, true),
            Opt::Tag => (self.tag, self.binary) = (Some(true), Some(true)),
            Opt::Untagged => {
                // The binary mode that `--tag` has set goes with it.
                if self.tag == Some(true) {
                    self.binary = None;
                }
                self.tag = Some(false);
            }
            Opt::Zero => self.zero = true,
            Opt::Help => return Err(Stop::Help),
            Opt::Version => return Err(Stop::Version),
            _ => self.take_own(opt, value).map_err(|e| wrong(&e))?,
        }
        Ok(())
    }

    fn take_own(&mut self, opt: Opt, value: &OsStr) -> Result<(), String> {
        let own = &mut self.own;
        match opt {
            Opt::Threads => own.set_threads(value)?,
            Opt::BufferSize => own.set_buffer(value)?,
            Opt::SplitSize => own.set_split(value)?,
            Opt::Offset => own.set_offset(value)?,
            Opt::Length => own.set_length("--length", value)?,
            Opt::RangeLength => own.set_length("--range-length", value)?,
            Opt::Switch(switch, on) => match switch {
                Switch::DirectRead => own.direct = on,
                Switch::FadviseRead => own.advice = if on { Advice::Once } else { Advice::No },
                Switch::DoubleBuffer => own.double_buffer = on,
                Switch::ReadStdin => own.read_stdin = on,
                Switch::PrintStats => own.stats = on,
                Switch::Json => own.json = on,
                Switch::Progress => own.progress = on,
                Switch::CheckTree => own.check_tree = on,
            },
            _ => {}
        }
        Ok(())
    }
}

/// `cksum --algorithm`: whole words only. Words of later versions are the genuine program's.
fn algorithm(value: &OsStr) -> Result<Algorithm, Stop> {
    if let Some(found) = value.to_str().and_then(Algorithm::from_word) {
        return Ok(found);
    }
    if value == "sha2" || value == "sha3" {
        return Err(Stop::Fallback(format!("--algorithm={}", value.display())));
    }
    let list: String =
        WORDS.iter().map(|(word, _)| format!("\n  - {}", quote::locale(word))).collect();
    Err(wrong_usage(&format!(
        "invalid argument {} for {}\nValid arguments are:{list}",
        quote::locale(value),
        quote::locale("--algorithm")
    )))
}

/// `msum --hash-type`.
fn hash_type(value: &OsStr) -> Result<Algorithm, Stop> {
    value.to_str().and_then(Algorithm::from_word).ok_or_else(|| {
        let words: Vec<_> = WORDS.iter().map(|(word, _)| *word).collect();
        let quoted = quote::locale(value);
        wrong(&format!("invalid --hash-type value {quoted}: give one of {}", words.join(", ")))
    })
}

/// A number of bits, in decimal digits behind blanks and a plus sign.
fn digest_length(value: &OsStr) -> Result<u64, String> {
    let invalid = || format!("invalid length: {}", quote::locale(value));
    let text = value.to_str().ok_or_else(invalid)?.trim_ascii_start();
    let digits = text.strip_prefix('+').unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(invalid());
    }
    digits.parse().map_err(|_| format!("{}: {}", invalid(), diag::strerror(libc::EOVERFLOW)))
}
