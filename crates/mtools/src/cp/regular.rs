//! Regular files, and special files that are read as such: opening both sides, handing the bytes to the
//! engine, finishing.

use super::attrs::{self, Copy};
use super::options::Follow;
use super::output::Notes;
use super::place::Place;
use super::resume;
use super::run::{Item, Run};
use super::stat::Stat;
use super::stripes::Striped;
use super::verify::{self, Verdict};
use crate::engine::{Copied, Data, Detection, Fault, Tried};
use crate::gnu::quote;
use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::fd::IntoRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

const OWNER_WRITE: u32 = 0o200;

/// Both sides are open.
pub struct Opened {
    item: Item,
    src: File,
    dst: File,
    dst_st: Stat,
    new: bool,
    omitted: u32,
    /// The mode to come back to where more was needed for the making.
    restore: Option<u32>,
}

/// A file that was copied, still open.
pub struct Sides<'a> {
    pub src: &'a File,
    pub dst: &'a File,
    pub src_name: &'a Path,
    pub dst_name: &'a Path,
}

impl Opened {
    /// Later operands, and names that lead to the same file, are to find it.
    pub fn note(&self, run: &Run) {
        run.written.lock().insert(self.dst_st.id());
        if self.item.operand {
            run.note_made(&self.item.dst);
        }
    }
}

/// Opens both sides; where that fails the item has been told so.
pub fn open(run: &Run, mut item: Item) -> Option<Box<Opened>> {
    let Some(src) = open_source(run, &mut item) else {
        item.failed(run);
        return None;
    };
    match open_destination(run, &mut item) {
        Some((dst, new, omitted, restore)) => match Stat::open(&dst) {
            Ok(dst_st) => {
                resume::made(run, &item.dst, &dst_st);
                Some(Box::new(Opened { item, src, dst, dst_st, new, omitted, restore }))
            }
            Err(e) => {
                item.notes.errno(&format!("cannot fstat {}", quote::always(&item.dst)), &e);
                item.failed(run);
                None
            }
        },
        None => {
            item.failed(run);
            None
        }
    }
}

fn open_source(run: &Run, item: &mut Item) -> Option<File> {
    let shown = || quote::always(&item.src);
    let mut flags = OFlags::RDONLY | OFlags::CLOEXEC;
    if run.options.follow(item.operand) == Follow::Never {
        flags |= OFlags::NOFOLLOW;
    }
    let file = match rustix::fs::openat(CWD, &item.src, flags, Mode::empty()) {
        Ok(fd) => File::from(fd),
        Err(e) => {
            item.notes.errno(&format!("cannot open {} for reading", shown()), &e.into());
            return None;
        }
    };
    match Stat::open(&file) {
        Err(e) => {
            item.notes.errno(&format!("cannot fstat {}", shown()), &e);
            None
        }
        Ok(st) if !st.same(&item.st) => {
            let message =
                format!("skipping file {}, as it was replaced while being copied", shown());
            item.notes.error(&message);
            None
        }
        Ok(_) => Some(file),
    }
}

/// The destination, whether it is new, and the permissions left out and to be restored.
fn open_destination(run: &Run, item: &mut Item) -> Option<(File, bool, u32, Option<u32>)> {
    if let Some(opened) = reopen(run, item) {
        return Some(opened);
    }
    let o = &run.options;
    let mut new = item.new_dst();
    let mut result = Err(Errno::NOENT);
    if !new {
        let mut flags = OFlags::WRONLY | OFlags::CLOEXEC;
        flags.set(OFlags::TRUNC, !o.attributes_only && !o.own.engine.ranged());
        result = rustix::fs::openat(CWD, &item.dst, flags, Mode::empty());
        if let Err(e) = result
            && o.force
        {
            match rustix::fs::unlinkat(CWD, &item.dst, rustix::fs::AtFlags::empty()) {
                Ok(()) if o.verbose => {
                    item.notes.say(&format!("removed {}", quote::always(&item.dst)))
                }
                Ok(()) | Err(Errno::NOENT) => {}
                Err(e) => {
                    item.notes
                        .errno(&format!("cannot remove {}", quote::always(&item.dst)), &e.into());
                    return None;
                }
            }
            new = true;
            result = Err(e);
        }
    }
    let (mut omitted, mut restore) = (0, None);
    if new {
        let made;
        (made, omitted, restore) = permissions(run, item);
        match create(run, item, made) {
            Created::File(file) => return Some((file, true, omitted, restore)),
            Created::Told => return None,
            Created::Failed(e) => result = Err(e),
        }
    }
    match result {
        Ok(fd) => Some((File::from(fd), new, omitted, restore)),
        Err(e) => {
            item.notes.errno(
                &format!("cannot create regular file {}", quote::always(&item.dst)),
                &e.into(),
            );
            None
        }
    }
}

/// The permissions a new file is made with, those left out, and those to come back to.
fn permissions(run: &Run, item: &Item) -> (u32, u32, Option<u32>) {
    let preserve = &run.options.preserve;
    let perm = item.st.perm() & 0o777;
    let omitted = perm & if preserve.ownership { 0o077 } else { 0 };
    let made = perm & !omitted;
    // Extended attributes can be set by whoever may write.
    if preserve.xattr && made & OWNER_WRITE == 0 && !run.process.root {
        return (made | OWNER_WRITE, omitted, Some(perm & !run.process.umask & !omitted));
    }
    (made, omitted, None)
}

/// A destination whose parts, or all of whose bytes, an earlier run has copied, with what is in it.
fn reopen(run: &Run, item: &mut Item) -> Option<(File, bool, u32, Option<u32>)> {
    let again = item.again.filter(|again| again.kept)?;
    let flags = OFlags::WRONLY | OFlags::CLOEXEC;
    if let Ok(fd) = rustix::fs::openat(CWD, &item.dst, flags, Mode::empty()) {
        let (_, omitted, restore) = if again.new { permissions(run, item) } else { (0, 0, None) };
        return Some((File::from(fd), again.new, omitted, restore));
    }
    // It is copied from its start.
    item.again = None;
    resume::begin(run, &item.st, &item.dst, again.new, false);
    if again.new && rustix::fs::unlinkat(CWD, &item.dst, rustix::fs::AtFlags::empty()).is_ok() {
        item.dst_st = None;
    }
    None
}

enum Created {
    File(File),
    Failed(Errno),
    /// Failed, with a message.
    Told,
}

fn create(run: &Run, item: &mut Item, perm: u32) -> Created {
    let delayed = run.stripes.flags(run.options.own.stripes, item.st.size, &item.dst);
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::CLOEXEC | delayed;
    let mode = Mode::from_raw_mode(perm);
    let e = match rustix::fs::openat(CWD, &item.dst, flags | OFlags::EXCL, mode) {
        Ok(fd) => return Created::File(fd.into()),
        Err(e) => e,
    };
    if e == Errno::EXIST && rustix::fs::readlinkat(CWD, &item.dst, Vec::new()).is_ok() {
        // Nobody can tell safely where writing through it would create a file.
        if std::env::var_os("POSIXLY_CORRECT").is_none() {
            let message =
                format!("not writing through dangling symlink {}", quote::always(&item.dst));
            item.notes.error(&message);
            return Created::Told;
        }
        return match rustix::fs::openat(CWD, &item.dst, flags, mode) {
            Ok(fd) => Created::File(fd.into()),
            Err(e) => Created::Failed(e),
        };
    }
    if e == Errno::ISDIR && item.dst.as_os_str().as_bytes().ends_with(b"/") {
        return Created::Failed(Errno::NOTDIR);
    }
    Created::Failed(e)
}

/// Copies the bytes and finishes the file, here or on other threads.
pub fn copy(run: &Arc<Run>, opened: Box<Opened>) {
    let o = &run.options;
    let Opened { mut item, src, dst, dst_st, new, omitted, restore } = *opened;
    let again = item.again.filter(|again| again.kept);
    let fresh = again.is_none() && (new || !o.own.engine.ranged());
    if fresh {
        let file = Striped { size: item.st.size, src: &src, dst: &dst, name: &item.dst };
        run.stripes.set(o.own.stripes, &file, new, &mut item.notes);
    }
    let data = Data {
        src,
        dst,
        src_name: item.src.clone(),
        dst_name: item.dst.clone(),
        size: item.st.size,
        sparse: o.sparse,
        reflink: o.reflink,
        fresh,
        marks: resume::marks(run, &item, &dst_st),
    };
    let finish = {
        let run = run.clone();
        move |data: Data, result: Result<Copied, Fault>| {
            let opened =
                Opened { item, src: data.src, dst: data.dst, dst_st, new, omitted, restore };
            end(&run, opened, result);
        }
    };
    if o.attributes_only || again.is_some_and(|again| again.whole) {
        finish(data, Ok(Copied::default()));
    } else {
        run.engine.copy(data, Box::new(finish));
    }
}

fn end(run: &Run, opened: Opened, result: Result<Copied, Fault>) {
    let Opened { mut item, src, dst, dst_st, new, omitted, restore } = opened;
    match result {
        Err(fault) => {
            tell(&mut item, &fault);
            if matches!(fault, Fault::Clone(_)) && new {
                // Nothing of the source is in it, and nobody asked for an empty file.
                let _ = rustix::fs::unlinkat(CWD, &item.dst, rustix::fs::AtFlags::empty());
            }
            item.failed(run);
        }
        Ok(copied) => {
            if run.options.debug {
                item.notes.say(&debug_line(&copied));
            }
            let copy = Copy {
                src: Place::Open(&src, &item.src),
                dst: Place::Open(&dst, &item.dst),
                st: &item.st,
                dst_st: &dst_st,
                new,
                omitted,
                restore,
            };
            let carried = attrs::carry(&copy, &run.options, &run.process, &mut item.notes);
            run.counts.file(&copied);
            item.notes.count(&copied);
            let sides = Sides { src: &src, dst: &dst, src_name: &item.src, dst_name: &item.dst };
            let carried = carried & told(verify::look(&run.options.own, &sides), &mut item.notes);
            match (close(dst), carried) {
                (Ok(()), true) => item.done(run),
                (Ok(()), false) => item.failed(run),
                (Err(e), _) => {
                    item.notes.errno(&format!("failed to close {}", quote::always(&item.dst)), &e);
                    lost(run, &item.dst, &dst_st);
                    item.failed(run);
                }
            }
        }
    }
}

/// Whether the copy counts as good.
fn told(verdict: Verdict, notes: &mut Notes) -> bool {
    match verdict {
        Verdict::Quiet => true,
        Verdict::Line(line) => {
            notes.say_bytes(line);
            true
        }
        Verdict::Wrong(message) => {
            notes.error(&message);
            false
        }
    }
}

fn tell(item: &mut Item, fault: &Fault) {
    let (src, dst) = (quote::always(&item.src), quote::always(&item.dst));
    let (message, e) = match fault {
        Fault::Read(e) => (format!("error reading {src}"), e),
        Fault::Write(e) => (format!("error writing {dst}"), e),
        Fault::Clone(e) => (format!("failed to clone {dst} from {src}"), e),
        Fault::Extend(e) => (format!("failed to extend {dst}"), e),
        Fault::Seek(e) => (format!("cannot lseek {src}"), e),
        // Whoever sent the signal knows.
        Fault::Interrupted => return item.notes.fail(),
    };
    item.notes.errno(&message, e);
}

/// Bytes were lost that had been taken, nobody knows which: the file is not to look complete, as it does with its
/// size and times. The parts a journal knows do not count behind its end, so `--resume` begins anew. Where more
/// is in it than this copy, it stays.
fn lost(run: &Run, name: &Path, made: &Stat) {
    let o = &run.options;
    if o.own.engine.ranged() || o.attributes_only || !made.is_file() {
        return;
    }
    let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let Ok(fd) = rustix::fs::openat(CWD, name, flags, Mode::empty()) else { return };
    let file = File::from(fd);
    if Stat::open(&file).is_ok_and(|now| now.id() == made.id()) {
        // The fault that brought us here is told.
        let _ = file.set_len(0);
    }
}

/// close(2), whose error a dropped `File` would swallow: some file systems tell of a full disk there.
fn close(file: File) -> io::Result<()> {
    // SAFETY: the descriptor is ours, and nobody uses it afterwards.
    match unsafe { libc::close(file.into_raw_fd()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// What `--debug` says of a file that was copied.
fn debug_line(copied: &Copied) -> String {
    let tried = |tried| match tried {
        Tried::Unknown => "unknown",
        Tried::No => "no",
        Tried::Yes => "yes",
        Tried::Avoided => "avoided",
        Tried::Unsupported => "unsupported",
    };
    let holes = match copied.sparse {
        Detection::Unknown => "unknown",
        Detection::No => "no",
        Detection::Zeros => "zeros",
        Detection::SeekHole => "SEEK_HOLE",
        Detection::SeekHoleZeros => "SEEK_HOLE + zeros",
    };
    format!(
        "copy offload: {}, reflink: {}, sparse detection: {holes}",
        tried(copied.offload),
        tried(copied.reflink)
    )
}
