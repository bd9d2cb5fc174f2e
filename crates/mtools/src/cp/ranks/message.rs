//! What ranks say to each other, and its bytes (`docs/mcp-mpi.md`). The head of a frame, and the bodies of
//! [`Message::Refuse`], [`Message::End`] and [`Message::Bye`], are the same in all versions.

use super::super::output::Message as Line;
use super::wire::{FRAME_MOST, NAME_MOST, Reader, TEXT_MOST, Writer, Wrong};
use crate::engine::{Copied, Fault, PartFile, Reached, Seen};
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Version of what follows the head.
pub const VERSION: u16 = 1;
const MAGIC: u32 = u32::from_le_bytes(*b"PSMR");
/// Entries of one frame, at most.
pub const ENTRIES_MOST: usize = 64;
/// Bytes of a frame after which no further entry is added: one more always fits.
pub const FRAME_FULL: usize = FRAME_MOST / 2;
/// Messages of one file, at most; their bytes together are at most [`TEXT_MOST`].
const LINES_MOST: usize = 1024;

/// How rank 0 was started, for others to be the same.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Hello {
    pub program: String,
    /// SHA-256 of the arguments.
    pub arguments: [u8; 32],
    /// The working directory, where names are relative to it.
    pub directory: Option<(PathBuf, u64)>,
    pub umask: u32,
    pub user: u32,
}

/// A small file that is to be copied whole.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FileOrder {
    pub id: u64,
    /// Another may have begun it: what is there is removed first.
    pub anew: bool,
    pub seen: Seen,
    pub src: PathBuf,
    pub dst: PathBuf,
}

/// What became of a file, or a chunk, at the rank it was given to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    Done,
    Failed,
    /// Nothing was done, because that host does not see the files as rank 0 does; the error it got.
    Unseen(i32),
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FileEnd {
    pub id: u64,
    pub outcome: Outcome,
    /// The exit code is to say so.
    pub failed: bool,
    pub copied: Option<Copied>,
    pub lines: Vec<Line>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PartOrder {
    pub id: u64,
    pub from: u64,
    pub to: u64,
    pub file: PartFile,
}

#[derive(Debug)]
pub struct PartEnd {
    pub id: u64,
    pub outcome: Outcome,
    pub reached: Reached,
}

#[derive(Debug)]
pub enum Message {
    Hello(Hello),
    /// The host's name and how many chunks it copies at once.
    Ready(String, u16),
    /// The host's name and why it does not take part.
    Refuse(String, String),
    Files(Vec<FileOrder>),
    FileEnds(Vec<FileEnd>),
    Part(PartOrder),
    PartEnd(PartEnd),
    Ping,
    Pong,
    End,
    Bye,
}

impl Message {
    fn kind(&self) -> u8 {
        match self {
            Self::Hello(_) => 1,
            Self::Ready(..) => 2,
            Self::Refuse(..) => 3,
            Self::Files(_) => 4,
            Self::FileEnds(_) => 5,
            Self::Part(_) => 6,
            Self::PartEnd(_) => 7,
            Self::Ping => 8,
            Self::Pong => 9,
            Self::End => 10,
            Self::Bye => 11,
        }
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut w = Writer::default();
        w.u32(MAGIC);
        w.u16(VERSION);
        w.u8(self.kind());
        match self {
            Self::Hello(hello) => hello.encode(&mut w),
            Self::Ready(host, threads) => {
                w.text(host.as_bytes(), NAME_MOST);
                w.u16(*threads);
            }
            Self::Refuse(host, why) => {
                w.text(host.as_bytes(), NAME_MOST);
                w.text(why.as_bytes(), TEXT_MOST);
            }
            Self::Files(files) => {
                w.u16(files.len() as u16);
                files.iter().for_each(|file| file.encode(&mut w));
            }
            Self::FileEnds(ends) => {
                w.u16(ends.len() as u16);
                ends.iter().for_each(|end| end.encode(&mut w));
            }
            Self::Part(part) => part.encode(&mut w),
            Self::PartEnd(end) => end.encode(&mut w),
            Self::Ping | Self::Pong | Self::End | Self::Bye => {}
        }
        w.end()
    }

    pub fn decode(frame: &[u8]) -> Result<Self, Wrong> {
        if frame.len() > FRAME_MOST {
            return Err("it is longer than the limit");
        }
        let mut r = Reader::new(frame);
        if r.u32()? != MAGIC {
            return Err("it does not begin as a message of mcp");
        }
        let version = r.u16()?;
        let kind = r.u8()?;
        if version != VERSION && !matches!(kind, 3 | 10 | 11) {
            return Err("it is of another version of mcp");
        }
        let message = match kind {
            1 => Self::Hello(Hello::decode(&mut r)?),
            2 => Self::Ready(string(r.text(NAME_MOST)?), r.u16()?),
            3 => Self::Refuse(string(r.text(NAME_MOST)?), string(r.text(TEXT_MOST)?)),
            4 => Self::Files(entries(&mut r, FileOrder::decode)?),
            5 => Self::FileEnds(entries(&mut r, FileEnd::decode)?),
            6 => Self::Part(PartOrder::decode(&mut r)?),
            7 => Self::PartEnd(PartEnd::decode(&mut r)?),
            8 => Self::Ping,
            9 => Self::Pong,
            10 => Self::End,
            11 => Self::Bye,
            _ => return Err("its kind is unknown"),
        };
        r.end()?;
        Ok(message)
    }
}

fn string(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn entries<T>(
    r: &mut Reader<'_>,
    decode: impl Fn(&mut Reader<'_>) -> Result<T, Wrong>,
) -> Result<Vec<T>, Wrong> {
    let count = usize::from(r.u16()?);
    if count > ENTRIES_MOST {
        return Err("it has more entries than the limit");
    }
    (0..count).map(|_| decode(r)).collect()
}

fn name(w: &mut Writer, path: &Path) {
    w.text(path.as_os_str().as_bytes(), NAME_MOST);
}

fn path(r: &mut Reader<'_>) -> Result<PathBuf, Wrong> {
    let bytes = r.text(NAME_MOST)?;
    if bytes.is_empty() || bytes.contains(&0) {
        return Err("a name is none");
    }
    Ok(OsStr::from_bytes(bytes).into())
}

impl Hello {
    fn encode(&self, w: &mut Writer) {
        w.text(self.program.as_bytes(), NAME_MOST);
        w.raw(&self.arguments);
        w.u32(self.umask);
        w.u32(self.user);
        w.u8(u8::from(self.directory.is_some()));
        if let Some((directory, ino)) = &self.directory {
            name(w, directory);
            w.u64(*ino);
        }
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, Wrong> {
        let program = string(r.text(NAME_MOST)?);
        let arguments = r.raw(32)?.try_into().map_err(|_| "it ends too early")?;
        let (umask, user) = (r.u32()?, r.u32()?);
        let directory = if r.flag()? { Some((path(r)?, r.u64()?)) } else { None };
        Ok(Self { program, arguments, directory, umask: umask & 0o777, user })
    }
}

fn seen(w: &mut Writer, seen: &Seen) {
    w.u64(seen.ino);
    w.u64(seen.size);
    w.i64(seen.mtime.0);
    w.i64(seen.mtime.1);
}

fn seen_of(r: &mut Reader<'_>) -> Result<Seen, Wrong> {
    Ok(Seen { ino: r.u64()?, size: r.u64()?, mtime: (r.i64()?, r.i64()?) })
}

impl FileOrder {
    fn encode(&self, w: &mut Writer) {
        w.u64(self.id);
        w.u8(u8::from(self.anew));
        seen(w, &self.seen);
        name(w, &self.src);
        name(w, &self.dst);
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, Wrong> {
        let (id, anew, seen) = (r.u64()?, r.flag()?, seen_of(r)?);
        Ok(Self { id, anew, seen, src: path(r)?, dst: path(r)? })
    }
}

impl Outcome {
    fn encode(self, w: &mut Writer) {
        let (kind, errno) = match self {
            Self::Done => (0, 0),
            Self::Failed => (1, 0),
            Self::Unseen(errno) => (2, errno),
        };
        w.u8(kind);
        w.u32(errno.cast_unsigned());
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, Wrong> {
        match (r.u8()?, r.u32()?) {
            (0, _) => Ok(Self::Done),
            (1, _) => Ok(Self::Failed),
            (2, errno) => Ok(Self::Unseen(errno.cast_signed())),
            _ => Err("an outcome is unknown"),
        }
    }
}

impl FileEnd {
    fn encode(&self, w: &mut Writer) {
        w.u64(self.id);
        self.outcome.encode(w);
        w.u8(u8::from(self.failed));
        w.u8(u8::from(self.copied.is_some()));
        if let Some(copied) = &self.copied {
            w.u64(copied.bytes);
            w.u64(copied.moved);
            w.u8(u8::from(copied.reflinked));
        }
        let fitting = fitting(&self.lines);
        w.u16(fitting.len() as u16);
        for line in fitting {
            let (kind, bytes) = match line {
                Line::Out(bytes) => (1, bytes),
                Line::Err(bytes) => (2, bytes),
            };
            w.u8(kind);
            w.text(bytes, TEXT_MOST);
        }
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, Wrong> {
        let (id, outcome, failed) = (r.u64()?, Outcome::decode(r)?, r.flag()?);
        let copied = if r.flag()? {
            let (bytes, moved, reflinked) = (r.u64()?, r.u64()?, r.flag()?);
            Some(Copied { bytes, moved, reflinked, ..Copied::default() })
        } else {
            None
        };
        let count = usize::from(r.u16()?);
        if count > LINES_MOST {
            return Err("it has more messages than the limit");
        }
        let line = |r: &mut Reader<'_>| match r.u8()? {
            1 => Ok(Line::Out(r.text(TEXT_MOST)?.to_vec())),
            2 => Ok(Line::Err(r.text(TEXT_MOST)?.to_vec())),
            _ => Err("a message goes nowhere"),
        };
        let lines = (0..count).map(|_| line(r)).collect::<Result<_, _>>()?;
        Ok(Self { id, outcome, failed, copied, lines })
    }
}

/// As many messages as fit; a file that has more of them has told enough.
fn fitting(lines: &[Line]) -> &[Line] {
    let mut room = TEXT_MOST;
    let fits = lines.iter().take(LINES_MOST).take_while(|line| {
        let (Line::Out(bytes) | Line::Err(bytes)) = line;
        let fits = bytes.len() <= room;
        room = room.saturating_sub(bytes.len());
        fits
    });
    &lines[..fits.count()]
}

impl PartOrder {
    fn encode(&self, w: &mut Writer) {
        w.u64(self.id);
        w.u64(self.from);
        w.u64(self.to);
        seen(w, &self.file.src);
        w.u64(self.file.dst_ino);
        w.u64(self.file.had);
        w.u64(self.file.end);
        name(w, &self.file.src_name);
        name(w, &self.file.dst_name);
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, Wrong> {
        let (id, from, to) = (r.u64()?, r.u64()?, r.u64()?);
        let src = seen_of(r)?;
        let (dst_ino, had, end) = (r.u64()?, r.u64()?, r.u64()?);
        if from > to || to > end || end > i64::MAX as u64 {
            return Err("a range is none");
        }
        let (src_name, dst_name) = (path(r)?, path(r)?);
        let file = PartFile { src_name, dst_name, src, dst_ino, had, end };
        Ok(Self { id, from, to, file })
    }
}

impl PartEnd {
    fn encode(&self, w: &mut Writer) {
        w.u64(self.id);
        self.outcome.encode(w);
        w.u64(self.reached.at);
        w.u64(self.reached.written);
        w.u64(self.reached.moved);
        w.u8(u8::from(self.reached.ended));
        w.u8(u8::from(self.reached.offloaded));
        let (kind, e) = match &self.reached.fault {
            None => (0, None),
            Some(Fault::Read(e)) => (1, Some(e)),
            Some(Fault::Write(e)) => (2, Some(e)),
            Some(Fault::Clone(e)) => (3, Some(e)),
            Some(Fault::Extend(e)) => (4, Some(e)),
            Some(Fault::Seek(e)) => (5, Some(e)),
            Some(Fault::Interrupted) => (6, None),
        };
        w.u8(kind);
        if kind != 0 {
            let errno = e.map_or(libc::EINTR, |e| e.raw_os_error().unwrap_or(libc::EIO));
            w.u32(errno.cast_unsigned());
        }
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, Wrong> {
        let (id, outcome) = (r.u64()?, Outcome::decode(r)?);
        let (at, written, moved) = (r.u64()?, r.u64()?, r.u64()?);
        let (ended, offloaded) = (r.flag()?, r.flag()?);
        let kind = r.u8()?;
        let fault = if kind == 0 {
            None
        } else {
            let e = io::Error::from_raw_os_error(r.u32()?.cast_signed());
            Some(match kind {
                1 => Fault::Read(e),
                2 => Fault::Write(e),
                3 => Fault::Clone(e),
                4 => Fault::Extend(e),
                5 => Fault::Seek(e),
                6 => Fault::Interrupted,
                _ => return Err("a fault is unknown"),
            })
        };
        Ok(Self { id, outcome, reached: Reached { at, written, moved, ended, offloaded, fault } })
    }
}
