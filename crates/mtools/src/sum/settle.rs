//! What the options mean together, and which of them contradict one another; in the order in which
//! the genuine programs look, so that of two mistakes the same one is told.

use super::digest::{Algorithm, BLAKE2B_MAX_BITS};
use super::options::{Asked, Stop};
use super::own::{DEFAULT_SPLIT, Own};
use super::program::Program;
use crate::gnu::{diag, quote};
use std::ffi::OsString;

/// How a digest is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    Hex,
    Base64,
    Raw,
}

pub struct Settings {
    pub program: Program,
    pub algorithm: Algorithm,
    /// cksum only: `--check` takes the algorithm from each line.
    pub any_algorithm: bool,
    pub form: Form,
    pub tag: bool,
    /// The asterisk before the name.
    pub binary: bool,
    pub zero: bool,
    pub debug: bool,
    pub check: bool,
    pub ignore_missing: bool,
    pub quiet: bool,
    pub status: bool,
    pub strict: bool,
    pub warn: bool,
    pub own: Own,
    pub operands: Vec<OsString>,
}

pub fn settle(program: Program, mut asked: Asked) -> Result<Settings, Stop> {
    // With `--check` the lines tell.
    if asked.own.check_tree && !asked.check {
        asked.own.split.get_or_insert(DEFAULT_SPLIT);
    }
    let algorithm = length(program, &asked)?;
    contradictions(program, algorithm, &asked)?;
    own_contradictions(algorithm, &asked)?;
    let form = match (asked.base64, asked.raw) {
        (_, true) => Form::Raw,
        (true, false) => Form::Base64,
        _ => Form::Hex,
    };
    Ok(Settings {
        program,
        algorithm,
        any_algorithm: program == Program::Cksum && asked.algorithm.is_none(),
        form,
        tag: asked.tag.unwrap_or(program == Program::Cksum),
        binary: asked.binary == Some(true),
        zero: asked.zero,
        debug: asked.debug,
        check: asked.check,
        ignore_missing: asked.ignore_missing,
        quiet: asked.quiet,
        status: asked.status,
        strict: asked.strict,
        warn: asked.warn,
        own: asked.own,
        operands: asked.operands,
    })
}

fn wrong(message: &str) -> Stop {
    diag::error(message);
    Stop::Wrong
}

fn usage(message: &str) -> Result<(), Stop> {
    diag::error(message);
    diag::try_help();
    Err(Stop::Wrong)
}

/// The algorithm with the length of its digest.
fn length(program: Program, asked: &Asked) -> Result<Algorithm, Stop> {
    let algorithm = asked.algorithm.unwrap_or(program.algorithm());
    let Some((written, bits)) = asked.digest_length.as_ref().filter(|(_, bits)| *bits != 0) else {
        return Ok(algorithm);
    };
    if !matches!(algorithm, Algorithm::Blake2b(_)) {
        return Err(wrong(match program {
            Program::Msum => "--digest-length is only supported with --hash-type=blake2b",
            _ => "--length is only supported with --algorithm=blake2b",
        }));
    }
    let invalid = |why: &str| {
        diag::error(&format!("invalid length: {}", quote::locale(written)));
        wrong(why)
    };
    if bits % 8 != 0 {
        return Err(invalid("length is not a multiple of 8"));
    }
    if *bits > u64::from(BLAKE2B_MAX_BITS) {
        let name = quote::locale("BLAKE2b");
        return Err(invalid(&format!(
            "maximum digest length for {name} is {BLAKE2B_MAX_BITS} bits"
        )));
    }
    Ok(Algorithm::Blake2b(*bits as u16))
}

fn contradictions(program: Program, algorithm: Algorithm, asked: &Asked) -> Result<(), Stop> {
    let cksum = program == Program::Cksum;
    if asked.check && algorithm.is_sum() && asked.algorithm.is_some() {
        return Err(wrong(match program {
            Program::Msum => "--check is not supported with --hash-type={bsd,sysv,crc,crc32b}",
            _ => "--check is not supported with --algorithm={bsd,sysv,crc,crc32b}",
        }));
    }
    if asked.base64 && asked.raw {
        usage("--base64 and --raw are mutually exclusive")?;
    }
    if asked.tag.unwrap_or(cksum) && asked.binary == Some(false) {
        usage(match cksum {
            true => "--text mode is only supported with --untagged",
            false => "--tag does not support --text mode",
        })?;
    }
    if asked.check {
        with_check(cksum, asked)?;
    } else {
        without_check(asked)?;
    }
    if asked.raw && asked.operands.len() > 1 {
        return Err(wrong("the --raw option is not supported with multiple files"));
    }
    Ok(())
}

fn with_check(cksum: bool, asked: &Asked) -> Result<(), Stop> {
    if asked.zero {
        usage("the --zero option is not supported when verifying checksums")?;
    }
    if asked.tag == Some(true) && !cksum {
        usage("the --tag option is meaningless when verifying checksums")?;
    }
    if asked.binary.is_some() {
        usage("the --binary and --text options are meaningless when verifying checksums")?;
    }
    Ok(())
}

fn without_check(asked: &Asked) -> Result<(), Stop> {
    let only = [
        ("ignore-missing", asked.ignore_missing),
        ("status", asked.status),
        ("warn", asked.warn),
        ("quiet", asked.quiet),
        ("strict", asked.strict),
    ];
    match only.iter().find(|(_, given)| *given) {
        Some((name, _)) => {
            usage(&format!("the --{name} option is meaningful only when verifying checksums"))
        }
        None => Ok(()),
    }
}

/// What of ours cannot go together, or not with GNU's.
fn own_contradictions(algorithm: Algorithm, asked: &Asked) -> Result<(), Stop> {
    let own = &asked.own;
    if own.split.is_some() && algorithm.is_sum() {
        return Err(wrong(&format!(
            "--split-size makes no tree hash of the sum {}: choose a digest such as sha256, or leave \
             --split-size out",
            algorithm.name()
        )));
    }
    if own.split.is_some() && asked.check {
        return Err(wrong(
            "--split-size cannot be told to --check, which takes it from the lines: leave it out",
        ));
    }
    if own.partial() && own.split.is_some() {
        return Err(wrong(
            "--split-size makes tree hashes of whole files: leave --offset and --length out",
        ));
    }
    if own.read_stdin && !asked.operands.is_empty() {
        return Err(wrong(
            "--read-stdin takes the names from standard input: leave the operands out, or the option",
        ));
    }
    if own.read_stdin && asked.raw {
        return Err(wrong(
            "--read-stdin may read several names, of which --raw cannot tell the \
             sums apart: leave one of them out",
        ));
    }
    Ok(())
}
