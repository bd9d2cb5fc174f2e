//! `--check`: files of sums, verified line by line.

use super::digest::{base64, hex};
use super::hash::{Job, Sum};
use super::lane::{Lane, Teller};
use super::line::{Claim, Reader};
use super::lines::Lines;
use super::out::Out;
use super::print::{is_odd, push_name};
use super::program::Program;
use super::settle::Settings;
use crate::gnu::{diag, quote};
use std::ffi::{OsStr, OsString};
use std::io;

/// An entry of a check file.
pub enum Note {
    /// What the digest should be.
    Digest(Vec<u8>),
    /// No line of a format that is meant: its number, and the algorithm that was expected.
    Bad(u64, &'static str),
}

/// Compares and counts, for one check file after the other.
pub struct Checker<'a> {
    settings: &'a Settings,
    /// The check file's name, as shown in messages.
    list: String,
    count: Count,
    pub out: Out,
    pub ok: bool,
}

#[derive(Default)]
struct Count {
    good_lines: u64,
    bad_lines: u64,
    mismatched: u64,
    unreadable: u64,
    matched: bool,
}

impl<'a> Checker<'a> {
    pub fn new(settings: &'a Settings) -> Self {
        let count = Count::default();
        Self { settings, list: String::new(), count, out: Out::new(true), ok: true }
    }

    fn failed(&mut self, name: &OsStr, e: &io::Error) {
        self.out.error(&format!("{}: {}", quote::maybe(name), diag::reason(e)));
        self.count.unreadable += 1;
        if !self.settings.status {
            self.verdict(name, b": FAILED open or read\n");
        }
    }

    fn compare(&mut self, job: &Job, sum: &Sum, claimed: &[u8]) {
        let same = if claimed.len() == sum.digest.len() * 2 {
            hex(&sum.digest).as_bytes().eq_ignore_ascii_case(claimed)
        } else {
            base64(&sum.digest).as_bytes() == claimed
        };
        if same {
            self.count.matched = true;
            if !self.settings.status && !self.settings.quiet {
                self.verdict(&job.name, b": OK\n");
            }
        } else {
            self.count.mismatched += 1;
            if !self.settings.status {
                self.verdict(&job.name, b": FAILED\n");
            }
        }
    }

    fn verdict(&mut self, name: &OsStr, words: &[u8]) {
        let escape = is_odd(name);
        let mut line = Vec::with_capacity(256);
        if escape {
            line.push(b'\\');
        }
        push_name(&mut line, name, escape);
        line.extend_from_slice(words);
        self.out.print(&line);
    }

    /// The totals of a check file that was read to its end.
    fn totals(&mut self) {
        let count = std::mem::take(&mut self.count);
        if count.good_lines == 0 {
            let list = &self.list;
            self.out.error(&format!("{list}: no properly formatted checksum lines found"));
            self.ok = false;
            return;
        }
        let unverified = self.settings.ignore_missing && !count.matched;
        if !self.settings.status {
            self.warn(
                count.bad_lines,
                "line is improperly formatted",
                "lines are improperly formatted",
            );
            let listed = ("listed file could not be read", "listed files could not be read");
            self.warn(count.unreadable, listed.0, listed.1);
            let sums = ("computed checksum did NOT match", "computed checksums did NOT match");
            self.warn(count.mismatched, sums.0, sums.1);
            if unverified {
                self.out.error(&format!("{}: no file was verified", self.list));
            }
        }
        let bad_lines = self.settings.strict && count.bad_lines > 0;
        self.ok &= !(unverified || bad_lines || count.mismatched > 0 || count.unreadable > 0);
    }

    fn warn(&mut self, number: u64, one: &str, several: &str) {
        match number {
            0 => {}
            1 => self.out.error(&format!("WARNING: 1 {one}")),
            _ => self.out.error(&format!("WARNING: {number} {several}")),
        }
    }
}

impl Teller for Checker<'_> {
    type Note = Note;

    fn tell(&mut self, note: Note, done: Option<(Job, io::Result<Sum>)>) {
        match (note, done) {
            (Note::Bad(number, algorithm), _) => {
                self.count.bad_lines += 1;
                if self.settings.warn {
                    self.out.error(&format!(
                        "{}: {number}: improperly formatted {algorithm} checksum line",
                        self.list
                    ));
                }
            }
            (Note::Digest(claimed), Some((job, Ok(sum)))) => {
                self.count.good_lines += 1;
                self.compare(&job, &sum, &claimed);
            }
            (Note::Digest(_), Some((job, Err(e)))) => {
                self.count.good_lines += 1;
                let missing = e.raw_os_error() == Some(libc::ENOENT);
                if !(missing && self.settings.ignore_missing) {
                    self.failed(&job.name, &e);
                }
            }
            (Note::Digest(_), None) => {}
        }
    }

    fn flush(&mut self) {
        self.out.flush();
    }
}

/// Reads the lines of all check files.
pub struct Lists {
    reader: Reader,
}

impl Lists {
    pub fn new(settings: &Settings) -> Self {
        let cksum = settings.program == Program::Cksum;
        Self { reader: Reader::new(settings.algorithm, settings.any_algorithm, cksum) }
    }

    /// Verifies one check file.
    pub fn check(&mut self, list: &OsString, lane: &mut Lane<'_, '_, Checker<'_>>) {
        let shown: &OsStr = if list == "-" { OsStr::new("standard input") } else { list };
        lane.teller.list = quote::maybe(shown);
        let mut lines = match Lines::open(list) {
            Ok(lines) => lines,
            Err(e) => return fail(lane, &diag::reason(&e)),
        };
        let end = self.entries(list, &mut lines, lane);
        lane.tell_all();
        match end {
            Ok(()) => lane.teller.totals(),
            Err(_) => fail(lane, "read error"),
        }
    }

    fn entries(
        &mut self,
        list: &OsString,
        lines: &mut Lines,
        lane: &mut Lane<'_, '_, Checker<'_>>,
    ) -> io::Result<()> {
        let mut number = 0;
        loop {
            // Who writes lines into a pipe may wait for our answer to the last one.
            while lane.is_waiting() && lines.would_wait(b'\n') {
                lane.tell_first();
            }
            if lines.would_wait(b'\n') {
                lane.teller.out.flush();
            }
            let Some(line) = lines.next(b'\n')? else { return Ok(()) };
            number += 1;
            if line.first() == Some(&b'#') {
                continue;
            }
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            if line.is_empty() {
                continue;
            }
            match self.reader.read(line).filter(|claim| !(list == "-" && claim.name == "-")) {
                Some(Claim { name, algorithm, split, digest }) => {
                    lane.put(Note::Digest(digest), Job { name, algorithm, split }, true);
                }
                None => lane.note(Note::Bad(number, self.reader.algorithm_name())),
            }
        }
    }
}

/// A check file that cannot be read.
fn fail(lane: &mut Lane<'_, '_, Checker<'_>>, why: &str) {
    let message = format!("{}: {why}", lane.teller.list);
    lane.teller.out.error(&message);
    lane.teller.count = Count::default();
    lane.teller.ok = false;
}
