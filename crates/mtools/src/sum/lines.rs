//! Lines of a file or of standard input, read no further ahead than what is there.

use super::source::Input;
use crate::gnu::start;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::io;

/// Bytes read at once.
const PART: usize = 64 << 10;
/// The longest line.
const MAX_LINE: usize = 16 << 20;

pub struct Lines {
    input: Input,
    held: Vec<u8>,
    /// Where the next line begins in `held`.
    start: usize,
    ended: bool,
}

impl Lines {
    /// `-` is standard input. A standard input that is closed is told when it is read.
    pub fn open(name: &OsStr) -> io::Result<Self> {
        if name == "-" { Ok(Self::stdin()) } else { Input::open(name, false).map(Self::new) }
    }

    pub fn stdin() -> Self {
        Self::new(Input::Stdin)
    }

    fn new(input: Input) -> Self {
        Self { input, held: Vec::new(), start: 0, ended: false }
    }

    /// Whether the next line is not there yet.
    pub fn would_wait(&self, end: u8) -> bool {
        if self.ended || self.held[self.start..].contains(&end) {
            return false;
        }
        let fd = self.input.fd();
        let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
        poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })) == Ok(0)
    }

    /// The next line without its end; None when there is no more.
    pub fn next(&mut self, end: u8) -> io::Result<Option<&[u8]>> {
        let mut searched = self.start;
        loop {
            if let Some(len) = self.held[searched..].iter().position(|b| *b == end) {
                let line = self.start..searched + len;
                self.start = line.end + 1;
                return Ok(Some(&self.held[line]));
            }
            if self.ended {
                let line = std::mem::replace(&mut self.start, self.held.len());
                return Ok((line < self.held.len()).then(|| &self.held[line..]));
            }
            self.held.drain(..self.start);
            self.start = 0;
            searched = self.held.len();
            if searched > MAX_LINE {
                return Err(io::Error::other("line too long"));
            }
            self.fill()?;
        }
    }

    fn fill(&mut self) -> io::Result<()> {
        if matches!(self.input, Input::Stdin) && start::was_closed(0) {
            return Err(Errno::BADF.into());
        }
        let before = self.held.len();
        self.held.resize(before + PART, 0);
        let result = loop {
            match rustix::io::read(self.input.fd(), &mut self.held[before..]) {
                Err(Errno::INTR) => {}
                other => break other,
            }
        };
        let len = *result.as_ref().unwrap_or(&0);
        self.held.truncate(before + len);
        self.ended = len == 0;
        result.map(|_| ()).map_err(io::Error::from)
    }
}
