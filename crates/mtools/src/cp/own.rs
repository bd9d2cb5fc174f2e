//! Options the genuine cp does not have.

use super::ranks;
use super::stripes;
use super::words::Word;
use crate::engine::{BUFFER_RANGE, SPLIT_MIN, Settings, Switch, THREADS_MAX};
use crate::gnu::getopt::Has;
use crate::gnu::quote;
use crate::sum::digest::{Algorithm, WORDS};
use std::ffi::{OsStr, OsString};
use std::ops::RangeInclusive;

/// What was asked for beyond cp.
pub struct Own {
    pub engine: Settings,
    pub print_stats: bool,
    pub json: bool,
    pub progress: Option<bool>,
    pub read_stdin: bool,
    pub print_hash: bool,
    pub verify: bool,
    pub hash: Algorithm,
    /// Tree hashes, of chunks of `split_size`.
    pub check_tree: bool,
    pub stripes: stripes::Count,
    /// With a journal: where, if it was said.
    pub resume: Option<Option<OsString>>,
    /// Every option that says what is copied or how, in the order given.
    pub said: Vec<(String, Option<OsString>)>,
    pub mpi: bool,
    /// Seconds; see [`ranks::SILENCE_DEFAULT`].
    pub mpi_timeout: usize,
}

impl Default for Own {
    fn default() -> Self {
        Self {
            engine: Settings::default(),
            print_stats: false,
            json: false,
            progress: None,
            read_stdin: false,
            print_hash: false,
            verify: false,
            hash: Algorithm::Sha256,
            check_tree: false,
            stripes: stripes::Count::default(),
            resume: None,
            said: Vec::new(),
            mpi: false,
            mpi_timeout: ranks::SILENCE_DEFAULT,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OwnWord {
    Threads,
    BufferSize,
    SplitSize,
    Offset,
    Length,
    DoubleBuffer(bool),
    DirectRead(bool),
    DirectWrite(bool),
    FadviseRead(bool),
    FadviseWrite(bool),
    Preallocate(bool),
    PrintStats(bool),
    Json(bool),
    Progress(bool),
    ReadStdin(bool),
    PrintHash(bool),
    Verify(bool),
    HashType,
    CheckTree(bool),
    StripeCount,
    Resume(bool),
    Mpi,
    MpiTimeout,
}

const fn own(name: &'static str, has: Has, word: OwnWord) -> (&'static str, Has, Word) {
    (name, has, Word::Own(word))
}

pub static LONGS: &[(&str, Has, Word)] = &[
    own("threads", Has::Required, OwnWord::Threads),
    own("buffer-size", Has::Required, OwnWord::BufferSize),
    own("split-size", Has::Required, OwnWord::SplitSize),
    own("offset", Has::Required, OwnWord::Offset),
    own("length", Has::Required, OwnWord::Length),
    own("double-buffer", Has::No, OwnWord::DoubleBuffer(true)),
    own("no-double-buffer", Has::No, OwnWord::DoubleBuffer(false)),
    own("direct-read", Has::No, OwnWord::DirectRead(true)),
    own("no-direct-read", Has::No, OwnWord::DirectRead(false)),
    own("direct-write", Has::No, OwnWord::DirectWrite(true)),
    own("no-direct-write", Has::No, OwnWord::DirectWrite(false)),
    own("fadvise-read", Has::No, OwnWord::FadviseRead(true)),
    own("no-fadvise-read", Has::No, OwnWord::FadviseRead(false)),
    own("fadvise-write", Has::No, OwnWord::FadviseWrite(true)),
    own("no-fadvise-write", Has::No, OwnWord::FadviseWrite(false)),
    own("preallocate", Has::No, OwnWord::Preallocate(true)),
    own("no-preallocate", Has::No, OwnWord::Preallocate(false)),
    own("print-stats", Has::No, OwnWord::PrintStats(true)),
    own("no-print-stats", Has::No, OwnWord::PrintStats(false)),
    own("json", Has::No, OwnWord::Json(true)),
    own("no-json", Has::No, OwnWord::Json(false)),
    own("progress", Has::No, OwnWord::Progress(true)),
    own("no-progress", Has::No, OwnWord::Progress(false)),
    own("print-hash", Has::No, OwnWord::PrintHash(true)),
    own("no-print-hash", Has::No, OwnWord::PrintHash(false)),
    own("verify", Has::No, OwnWord::Verify(true)),
    own("no-verify", Has::No, OwnWord::Verify(false)),
    own("hash-type", Has::Required, OwnWord::HashType),
    own("check-tree", Has::No, OwnWord::CheckTree(true)),
    own("no-check-tree", Has::No, OwnWord::CheckTree(false)),
    own("stripe-count", Has::Required, OwnWord::StripeCount),
    own("resume", Has::Optional, OwnWord::Resume(true)),
    own("no-resume", Has::No, OwnWord::Resume(false)),
    own("mpi", Has::No, OwnWord::Mpi),
    own("mpi-timeout", Has::Required, OwnWord::MpiTimeout),
    own("read-stdin", Has::No, OwnWord::ReadStdin(true)),
    own("no-read-stdin", Has::No, OwnWord::ReadStdin(false)),
];

/// Bytes of the longest file there can be.
const MOST: u64 = i64::MAX as u64;

/// Keeps what an option asks for; an error is a message that names option, value and remedy.
pub fn take(own: &mut Own, word: OwnWord, value: Option<&OsStr>) -> Result<(), String> {
    if let OwnWord::Resume(on) = word {
        own.resume = on.then(|| value.map(OsStr::to_owned));
        return Ok(());
    }
    let value = value.unwrap_or_default();
    let switch = |on| if on { Switch::On } else { Switch::Off };
    let engine = &mut own.engine;
    match word {
        OwnWord::Threads => {
            engine.threads = number("threads", value, 1..=THREADS_MAX)?;
        }
        OwnWord::BufferSize => {
            let (least, most) = BUFFER_RANGE;
            engine.buffer_size = bytes("buffer-size", value, least as u64..=most as u64)? as usize;
        }
        OwnWord::SplitSize => engine.split_size = bytes("split-size", value, SPLIT_MIN..=MOST)?,
        OwnWord::Offset => engine.offset = bytes("offset", value, 0..=MOST)?,
        OwnWord::Length => engine.length = Some(bytes("length", value, 0..=MOST)?),
        OwnWord::DoubleBuffer(on) => engine.double_buffer = switch(on),
        OwnWord::DirectRead(on) => engine.direct_read = switch(on),
        OwnWord::DirectWrite(on) => engine.direct_write = switch(on),
        OwnWord::FadviseRead(on) => engine.fadvise_read = switch(on),
        OwnWord::FadviseWrite(on) => engine.fadvise_write = switch(on),
        OwnWord::Preallocate(on) => engine.preallocate = switch(on),
        OwnWord::PrintStats(on) => own.print_stats = on,
        OwnWord::Json(on) => own.json = on,
        OwnWord::Progress(on) => own.progress = Some(on),
        OwnWord::ReadStdin(on) => own.read_stdin = on,
        OwnWord::PrintHash(on) => own.print_hash = on,
        OwnWord::Verify(on) => own.verify = on,
        OwnWord::HashType => own.hash = hash(value)?,
        OwnWord::CheckTree(on) => own.check_tree = on,
        OwnWord::Mpi if !ranks::BUILT => return Err(ranks::REFUSED.into()),
        OwnWord::Mpi => own.mpi = true,
        OwnWord::MpiTimeout => {
            own.mpi_timeout = number("mpi-timeout", value, 1..=ranks::SILENCE_MOST)?;
        }
        OwnWord::StripeCount => own.stripes = stripes::parse(value)?,
        OwnWord::Resume(_) => {}
    }
    Ok(())
}

/// What contradicts one another.
pub fn contradiction(own: &Own) -> Option<String> {
    if !own.check_tree {
        return None;
    }
    if !own.print_hash && !own.verify {
        Some("--check-tree says how --print-hash and --verify compute: give one of them".into())
    } else if own.engine.ranged() {
        let message =
            "--check-tree makes tree hashes of whole files: leave --offset and --length out";
        Some(message.into())
    } else if own.hash.is_sum() {
        Some(format!(
            "--check-tree makes no tree hash of the sum {}: choose a digest such as sha256, or leave --check-tree out",
            own.hash.name()
        ))
    } else {
        None
    }
}

fn hash(value: &OsStr) -> Result<Algorithm, String> {
    value.to_str().and_then(Algorithm::from_word).ok_or_else(|| {
        let words: Vec<_> = WORDS.iter().map(|(word, _)| *word).collect();
        format!(
            "invalid value {} for '--hash-type': give one of {}",
            quote::always(value),
            words.join(", ")
        )
    })
}

fn number(option: &str, value: &OsStr, range: RangeInclusive<usize>) -> Result<usize, String> {
    let parsed = value.to_str().and_then(|text| text.parse().ok());
    parsed.filter(|n| range.contains(n)).ok_or_else(|| {
        let (least, most) = range.into_inner();
        format!(
            "invalid value {} for '--{option}': give a number from {least} to {most}",
            quote::always(value)
        )
    })
}

/// A number of bytes with an optional suffix K, M, G or T (powers of 1024).
fn bytes(option: &str, value: &OsStr, range: RangeInclusive<u64>) -> Result<u64, String> {
    let text = value.to_string_lossy();
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match &text[digits.len()..] {
        "" => 0,
        "k" | "K" | "KiB" => 10,
        "M" | "MiB" => 20,
        "G" | "GiB" => 30,
        "T" | "TiB" => 40,
        _ => u32::MAX,
    };
    digits
        .parse::<u64>()
        .ok()
        .filter(|_| shift != u32::MAX)
        .and_then(|n| n.checked_mul(1 << shift))
        .filter(|n| range.contains(n))
        .ok_or_else(|| {
            let (least, most) = (range.start(), range.end());
            format!(
                "invalid value {} for '--{option}': give {least} to {most} bytes, or a number with K, M, G or T",
                quote::always(value)
            )
        })
}

pub const HELP: &str = "\
Sizes are bytes, or numbers with K, M, G or T.
      --threads=N              files and chunks copied at once (default: the processors, 8 to 16)
      --buffer-size=SIZE       bytes of one read or write (default 1M)
      --split-size=SIZE        larger files are copied in chunks by all threads (default 32M)
      --offset=SIZE            first byte copied, to the same place; the rest of DEST stays
      --length=SIZE            bytes copied
      --[no-]double-buffer     read the next block while one is written
      --[no-]direct-read       read, or write, past the page cache
      --[no-]direct-write        (default: where it is measured to be faster)
      --[no-]fadvise-read      drop what was read, or written, from the page cache
      --[no-]fadvise-write
      --[no-]preallocate       allocate DEST before it is written
      --[no-]print-hash        the digest of each file, as msum prints it
      --[no-]verify            write out, read back and compare each file
      --[no-]check-tree        these two by tree hashes, as msum --split-size makes them
      --hash-type=TYPE         md5, sha1, sha256 (default), sha512, blake2b, ...
      --stripe-count=COUNT     stripes of new files on Lustre and Pinstripe: auto (default), keep, a
                               number, -1 (all), or a number with s or l (see mcp(1))
      --resume[=JOURNAL]       note what was done; the same command again finishes what was interrupted
                               (default: a file in ~/.local/state/mcp)
      --mpi                    with others of the same, on several hosts, started by mpirun
      --mpi-timeout=SECONDS    a rank silent for that long has its work given to others (default 60)
      --[no-]read-stdin        further SOURCEs from standard input, a line each
      --[no-]print-stats       files, bytes and rate on standard error at the end
      --[no-]json              the same as JSON
      --[no-]progress          how far it is, on a terminal (default: never)

PINSTRIPE_NO_FALLBACK=1 refuses what would be handed to the genuine cp.
";
