//! The bytes of one file, part by part, as fast as they can be hashed.
//!
//! Reading and hashing alternate in one thread at first; what is longer than [`OVERLAP_FROM`] is read by
//! a second thread while the first one hashes, where the budget of threads allows it. Standard input
//! and what cannot seek are read as they come. Never opens by itself anything but what it is told.

use super::budget::Budget;
use super::own::{Advice, Own};
use crate::gnu::start;
use rustix::fs::{Advice as Kernel, OFlags, fadvise};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::num::NonZeroU64;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes from which a second thread is worth its start.
const OVERLAP_FROM: u64 = 4 << 20;
/// Buffers between the thread that reads and the one that hashes.
const BUFFERS: usize = 2;
/// Where a direct read may begin, and its length, on every device we know.
const ALIGN: usize = 4096;
/// How often pages that were read are given back (`--fadvise-read`).
const DROP_EVERY: u64 = 8 << 20;

/// What all files are read with.
pub struct Reading<'a> {
    pub own: &'a Own,
    pub budget: &'a Budget,
    /// Bytes read so far, for statistics.
    pub bytes: &'a AtomicU64,
}

/// An open file, or standard input.
pub enum Input {
    File(File),
    Stdin,
}

impl Input {
    /// `-` is standard input.
    pub fn open(name: &OsStr, direct: bool) -> io::Result<Self> {
        if name == "-" {
            if start::was_closed(0) {
                return Err(Errno::BADF.into());
            }
            return Ok(Self::Stdin);
        }
        let mut options = File::options();
        options.read(true);
        if direct {
            options.custom_flags(OFlags::DIRECT.bits() as i32);
            // What cannot be read directly is read as usual, and tells its own errors then.
            if let Ok(file) = options.open(name) {
                return Ok(Self::File(file));
            }
            options.custom_flags(0);
        }
        Ok(Self::File(options.open(name)?))
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::File(file) => file.as_fd(),
            Self::Stdin => rustix::stdio::stdin(),
        }
    }
}

/// A buffer whose part for reading begins where direct reads want it.
pub struct Buffer {
    bytes: Vec<u8>,
    start: usize,
}

impl Buffer {
    pub fn new(size: usize) -> Self {
        let bytes = vec![0; size + ALIGN];
        let start = bytes.as_ptr().align_offset(ALIGN).min(ALIGN);
        Self { bytes, start }
    }

    /// In the place of one that is lent.
    fn none() -> Self {
        Self { bytes: Vec::new(), start: 0 }
    }

    pub fn space(&mut self) -> &mut [u8] {
        let end = self.bytes.len() - ALIGN + self.start;
        &mut self.bytes[self.start..end]
    }

    fn filled(&self, len: usize) -> &[u8] {
        &self.bytes[self.start..self.start + len]
    }
}

impl Reading<'_> {
    /// Gives `sink` the bytes of `input` (the part of it that was asked for) in order; returns how many.
    pub fn feed(
        &self,
        input: &Input,
        buffer: &mut Buffer,
        overlap: bool,
        mut sink: impl FnMut(&[u8]),
    ) -> io::Result<u64> {
        let mut stream = Stream::new(input.fd(), self);
        stream.skip_to_offset(buffer)?;
        let Some(len) = stream.next(buffer.space())? else { return Ok(0) };
        sink(buffer.filled(len.get() as usize));
        let mut total = len.get();
        // Most files end here: they need no advice about what is to be read ahead.
        if len.get() as usize == buffer.space().len() {
            stream.advise();
        }
        while total < OVERLAP_FROM || !overlap || !self.own.double_buffer {
            let Some(len) = stream.next(buffer.space())? else { return Ok(total) };
            sink(buffer.filled(len.get() as usize));
            total += len.get();
        }
        match self.budget.helper() {
            Some(_helper) => overlapped(stream, buffer, &mut sink).map(|rest| total + rest),
            None => alternate(stream, buffer, &mut sink).map(|rest| total + rest),
        }
    }
}

/// Reads and hashes in turn.
fn alternate(
    mut stream: Stream<'_>,
    buffer: &mut Buffer,
    sink: &mut impl FnMut(&[u8]),
) -> io::Result<u64> {
    let mut total = 0;
    while let Some(len) = stream.next(buffer.space())? {
        sink(buffer.filled(len.get() as usize));
        total += len.get();
    }
    Ok(total)
}

/// Reads ahead by a thread; the calling one hashes.
fn overlapped(
    stream: Stream<'_>,
    first: &mut Buffer,
    sink: &mut impl FnMut(&[u8]),
) -> io::Result<u64> {
    let size = first.space().len();
    let (give_full, full) = crossbeam_channel::bounded(BUFFERS);
    let (give_empty, empty) = crossbeam_channel::bounded(BUFFERS);
    let _ = give_empty.send(Buffer::new(size));
    let mut ahead = stream.clone();
    std::thread::scope(|scope| {
        let reader = move || {
            while let Ok(mut buffer) = empty.recv() {
                let part = ahead.next(buffer.space());
                let more = matches!(part, Ok(Some(_)));
                if give_full.send((part, buffer)).is_err() || !more {
                    return;
                }
            }
        };
        if std::thread::Builder::new().spawn_scoped(scope, reader).is_err() {
            return alternate(stream, first, sink);
        }
        // The caller's buffer is one of the two, so that the promised limit of memory holds.
        let _ = give_empty.send(std::mem::replace(first, Buffer::none()));
        let mut total = 0;
        while let Ok((part, buffer)) = full.recv() {
            let Ok(Some(len)) = part else {
                *first = buffer;
                return part.map(|_| total);
            };
            sink(buffer.filled(len.get() as usize));
            total += len.get();
            // Fails only when the reader is gone, and then the next receive tells.
            let _ = give_empty.send(buffer);
        }
        Ok(total)
    })
}

/// Where in a file we are, and what is left to read.
#[derive(Clone)]
struct Stream<'a> {
    fd: BorrowedFd<'a>,
    advice: Advice,
    direct: bool,
    offset: u64,
    left: u64,
    position: u64,
    dropped: u64,
    bytes: &'a AtomicU64,
}

impl<'a> Stream<'a> {
    fn new(fd: BorrowedFd<'a>, reading: &Reading<'a>) -> Self {
        let own = reading.own;
        Self {
            fd,
            advice: own.advice,
            direct: own.direct,
            offset: own.offset,
            left: own.length.unwrap_or(u64::MAX),
            position: 0,
            dropped: 0,
            bytes: reading.bytes,
        }
    }

    fn advise(&self) {
        if self.advice != Advice::No {
            // Advice to a pipe is refused, and not needed.
            let _ = fadvise(self.fd, 0, None, Kernel::Sequential);
        }
    }

    /// By seeking, or by reading where that cannot be.
    fn skip_to_offset(&mut self, buffer: &mut Buffer) -> io::Result<()> {
        if self.offset == 0 {
            return Ok(());
        }
        match rustix::fs::seek(self.fd, rustix::fs::SeekFrom::Current(self.offset as i64)) {
            Ok(at) => {
                self.position = at;
                return Ok(());
            }
            Err(Errno::SPIPE) => {}
            Err(e) => return Err(e.into()),
        }
        let mut left = self.offset;
        while left > 0 {
            let space = buffer.space();
            let most = space.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            let len = self.read(&mut space[..most])?;
            if len == 0 {
                break;
            }
            left -= len as u64;
        }
        Ok(())
    }

    /// None at the end.
    fn next(&mut self, space: &mut [u8]) -> io::Result<Option<NonZeroU64>> {
        let most = space.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        if most == 0 {
            return Ok(None);
        }
        let len = self.read(&mut space[..most])? as u64;
        self.left -= len;
        self.position += len;
        self.bytes.fetch_add(len, Ordering::Relaxed);
        if self.advice == Advice::Once && (len == 0 || self.position - self.dropped >= DROP_EVERY) {
            self.drop_pages();
        }
        Ok(NonZeroU64::new(len))
    }

    fn drop_pages(&mut self) {
        if let Some(len) = NonZeroU64::new(self.position - self.dropped) {
            // It is advice: a file system that takes none loses nothing.
            let _ = fadvise(self.fd, self.dropped, Some(len), Kernel::DontNeed);
        }
        self.dropped = self.position;
    }

    fn read(&mut self, space: &mut [u8]) -> io::Result<usize> {
        loop {
            match rustix::io::read(self.fd, &mut *space) {
                Ok(len) => {
                    if len % ALIGN != 0 {
                        self.buffered();
                    }
                    return Ok(len);
                }
                Err(Errno::INTR) => {}
                Err(Errno::INVAL) if self.direct => self.buffered(),
                Err(e) => return Err(e.into()),
            }
        }
    }

    /// From a position that no direct read may begin at, the rest is read as usual.
    fn buffered(&mut self) {
        if !self.direct {
            return;
        }
        self.direct = false;
        if let Ok(flags) = rustix::fs::fcntl_getfl(self.fd) {
            let _ = rustix::fs::fcntl_setfl(self.fd, flags - OFlags::DIRECT);
        }
    }
}

/// Reads `space` full from `offset` on, or to the end of the file.
pub fn read_at(file: &File, mut space: &mut [u8], mut offset: u64) -> io::Result<usize> {
    let mut total = 0;
    while !space.is_empty() {
        match rustix::io::pread(file, &mut *space, offset) {
            Ok(0) => break,
            Ok(len) => {
                total += len;
                offset += len as u64;
                space = &mut space[len..];
            }
            Err(Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(total)
}
