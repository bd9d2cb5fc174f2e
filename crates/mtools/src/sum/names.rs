//! The names of files: operands, or what standard input says (`--read-stdin`).

use super::lines::Lines;
use super::settle::Settings;
use crate::gnu::diag;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

pub struct Names {
    source: Source,
    /// Standard input was read, as a file or for names.
    pub used_stdin: bool,
    /// The names could not be read.
    pub failed: bool,
}

enum Source {
    Operands(std::vec::IntoIter<OsString>),
    /// And the byte that ends a name.
    Stdin(Lines, u8),
}

impl Names {
    pub fn new(settings: &Settings) -> Self {
        let source = if settings.own.read_stdin {
            Source::Stdin(Lines::stdin(), if settings.zero { 0 } else { b'\n' })
        } else if settings.operands.is_empty() {
            Source::Operands(vec!["-".into()].into_iter())
        } else {
            Source::Operands(settings.operands.clone().into_iter())
        };
        Self { source, used_stdin: settings.own.read_stdin, failed: false }
    }

    /// Whether the next name is not there yet.
    pub fn would_wait(&self) -> bool {
        match &self.source {
            Source::Operands(_) => false,
            Source::Stdin(lines, end) => lines.would_wait(*end),
        }
    }

    /// False when there is no further name for sure.
    pub fn may_go_on(&self) -> bool {
        match &self.source {
            Source::Operands(names) => names.len() > 0,
            Source::Stdin(..) => true,
        }
    }
}

impl Iterator for Names {
    type Item = OsString;

    fn next(&mut self) -> Option<OsString> {
        let name = match &mut self.source {
            Source::Operands(names) => names.next(),
            Source::Stdin(lines, end) => match lines.next(*end) {
                Ok(name) => name.map(|name| OsStr::from_bytes(name).to_os_string()),
                Err(e) => {
                    diag::error(&format!("cannot read names: {}", diag::reason(&e)));
                    self.failed = true;
                    None
                }
            },
        };
        self.used_stdin |= name.as_ref().is_some_and(|name| name == "-");
        name
    }
}
