//! Lines of sums, as the genuine programs print them.

use super::digest::{Algorithm, base64, hex};
use super::hash::{Job, Sum};
use super::lane::Teller;
use super::line::TREE_TAG;
use super::out::Out;
use super::settle::{Form, Settings};
use crate::gnu::{diag, quote};
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;

/// Prints sums in order.
pub struct Printer<'a> {
    settings: &'a Settings,
    /// Sums of 16 and 32 bits are printed without a name when no file was named.
    named: bool,
    debug: bool,
    pub out: Out,
    pub ok: bool,
}

impl<'a> Printer<'a> {
    pub fn new(settings: &'a Settings, named: bool) -> Self {
        let out = Out::new(!settings.zero && settings.form != Form::Raw);
        Self { settings, named, debug: settings.debug, out, ok: true }
    }
}

impl Teller for Printer<'_> {
    type Note = ();

    fn tell(&mut self, (): (), done: Option<(Job, io::Result<Sum>)>) {
        let Some((job, done)) = done else { return };
        match done {
            Ok(sum) => {
                if std::mem::take(&mut self.debug) {
                    debug(self.settings.algorithm);
                }
                let line = line(self.settings, &job, &sum, self.named);
                self.out.print(&line);
            }
            Err(e) => {
                self.ok = false;
                self.out.error(&format!("{}: {}", quote::maybe(&job.name), diag::reason(&e)));
            }
        }
    }

    fn flush(&mut self) {
        self.out.flush();
    }
}

/// Whether a name must be escaped for a line to stay one line with one meaning.
pub fn is_odd(name: &OsStr) -> bool {
    name.as_bytes().iter().any(|b| matches!(b, b'\\' | b'\n' | b'\r'))
}

/// Appends a name, escaped if need be; the backslash before the line is the caller's.
pub fn push_name(out: &mut Vec<u8>, name: &OsStr, escape: bool) {
    for byte in name.as_bytes() {
        match byte {
            b'\\' if escape => out.extend_from_slice(b"\\\\"),
            b'\n' if escape => out.extend_from_slice(b"\\n"),
            b'\r' if escape => out.extend_from_slice(b"\\r"),
            other => out.push(*other),
        }
    }
}

fn line(settings: &Settings, job: &Job, sum: &Sum, named: bool) -> Vec<u8> {
    if settings.form == Form::Raw {
        return sum.digest.clone();
    }
    let mut out = Vec::with_capacity(256);
    if job.algorithm.is_sum() {
        push_sum(&mut out, job, sum, named);
    } else {
        push_digest(&mut out, settings, job, sum);
    }
    out.push(if settings.zero { 0 } else { b'\n' });
    out
}

/// The sum as a number, and the size.
fn push_sum(out: &mut Vec<u8>, job: &Job, sum: &Sum, named: bool) {
    let value = sum.digest.iter().fold(0u32, |value, byte| value << 8 | u32::from(*byte));
    let text = match job.algorithm {
        Algorithm::Bsd => format!("{value:05} {:5}", sum.bytes.div_ceil(1024)),
        Algorithm::Sysv => format!("{value} {}", sum.bytes.div_ceil(512)),
        _ => format!("{value} {}", sum.bytes),
    };
    out.extend_from_slice(text.as_bytes());
    if named {
        out.push(b' ');
        out.extend_from_slice(job.name.as_bytes());
    }
}

fn push_digest(out: &mut Vec<u8>, settings: &Settings, job: &Job, sum: &Sum) {
    let digest = match settings.form {
        Form::Base64 => base64(&sum.digest),
        _ => hex(&sum.digest),
    };
    let escape = !settings.zero && is_odd(&job.name);
    if escape {
        out.push(b'\\');
    }
    // A tree hash is always tagged, so that nobody takes it for a plain one.
    let tag = match job.split {
        Some(split) => Some(tree_tag(job.algorithm, split)),
        None => settings.tag.then(|| job.algorithm.tag()),
    };
    match tag {
        Some(tag) => {
            push_tagged(out, &tag, &job.name, escape, &digest);
        }
        None => {
            out.extend_from_slice(digest.as_bytes());
            out.extend_from_slice(if settings.binary { b" *" } else { b"  " });
            push_name(out, &job.name, escape);
        }
    }
}

pub fn tree_tag(algorithm: Algorithm, split: u64) -> String {
    format!("{TREE_TAG}{}-{split}", algorithm.tag())
}

/// `TAG (NAME) = DIGEST`; the backslash before it is the caller's.
pub fn push_tagged(out: &mut Vec<u8>, tag: &str, name: &OsStr, escape: bool, digest: &str) {
    out.extend_from_slice(tag.as_bytes());
    out.extend_from_slice(b" (");
    push_name(out, name, escape);
    out.extend_from_slice(b") = ");
    out.extend_from_slice(digest.as_bytes());
}

/// `cksum --debug`: the machine's help that is used.
fn debug(algorithm: Algorithm) {
    if !matches!(algorithm, Algorithm::Crc | Algorithm::Crc32b) {
        return;
    }
    diag::error(&format!("using {} hardware support", hardware()));
}

#[cfg(target_arch = "x86_64")]
fn hardware() -> &'static str {
    if is_x86_feature_detected!("avx512vl") && is_x86_feature_detected!("vpclmulqdq") {
        "avx512"
    } else if is_x86_feature_detected!("pclmulqdq") {
        "pclmul"
    } else {
        "generic"
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn hardware() -> &'static str {
    "generic"
}
