//! What stands at the destination, and whether and how it gets out of the way.

use super::options::{Clobber, Follow, Options};
use super::output::Notes;
use super::prompt;
use super::run::Run;
use super::same::{self, Sides, Verdict};
use super::stat::Stat;
use crate::gnu::quote;
use rustix::fs::{AtFlags, CWD};
use rustix::io::Errno;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// What the copy finds.
pub enum Way {
    /// Nothing is there (any more).
    Free { backup: Option<PathBuf> },
    /// A file to be written to, or a directory to be copied into.
    There(Stat),
    /// What is there stays, and that is as it should be.
    Kept,
    /// It cannot be; a message has been given.
    Blocked,
}

/// Clears the way for a copy of `src` to `dst`.
pub fn clear(
    run: &Run,
    src: &Path,
    st: &Stat,
    dst: &Path,
    operand: bool,
    notes: &mut Notes,
) -> Way {
    let o = &run.options;
    let dst_st = match look(o, st, dst) {
        Ok(Some(dst_st)) => dst_st,
        Ok(None) => return Way::Free { backup: None },
        // A loop of links, which -f will remove.
        Err(e) if e.raw_os_error() == Some(Errno::LOOP.raw_os_error()) && o.force => {
            return Way::There(Stat { mode: 0o120_777, ..*st });
        }
        Err(e) => {
            notes.errno(&format!("cannot stat {}", quote::always(dst)), &e);
            return Way::Blocked;
        }
    };
    let sides = Sides { src, src_st: st, dst, dst_st: &dst_st, follow: o.follow(operand) };
    if let Some(way) = may_copy(run, &sides, notes) {
        return way;
    }
    if let Some(way) = kinds(run, &sides, operand, notes) {
        return way;
    }
    remove(run, &sides, notes)
}

/// The destination as the copy would meet it: behind a symbolic link where writing follows it.
fn look(o: &Options, st: &Stat, dst: &Path) -> io::Result<Option<Stat>> {
    let writes = st.is_file() || o.as_regular && !st.is_dir() && !st.is_symlink();
    let name_itself =
        !writes || o.symbolic_link || o.hard_link || o.backup.on() || o.remove_destination;
    let keeps_link = o.keep_directory_symlink && st.is_dir();
    let found = if name_itself && !keeps_link { Stat::nofollow(dst) } else { Stat::follow(dst) };
    match found {
        Ok(found) => Ok(Some(found)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e),
    }
}

/// Whether this file may be overwritten by that one at all.
fn may_copy(run: &Run, sides: &Sides, notes: &mut Notes) -> Option<Way> {
    let Sides { src, src_st: st, dst, dst_st, .. } = *sides;
    let o = &run.options;
    if same::matters(o) {
        match same::verdict(sides, o) {
            Verdict::Copy => {}
            Verdict::Done => return Some(Way::Kept),
            Verdict::SameFile => {
                let (src, dst) = (quote::always(src), quote::always(dst));
                notes.error(&format!("{src} and {dst} are the same file"));
                return Some(Way::Blocked);
            }
        }
    }
    if st.is_dir() {
        return None;
    }
    if o.update && newer_or_same(o, st, dst_st) {
        notes_skipped(o, dst, notes);
        return Some(Way::Kept);
    }
    match o.clobber {
        Clobber::Always => None,
        Clobber::Skip => {
            notes_skipped(o, dst, notes);
            Some(Way::Kept)
        }
        Clobber::Fail => {
            notes.error(&format!("not replacing {}", quote::always(dst)));
            Some(Way::Blocked)
        }
        Clobber::Ask => {
            run.engine.drain();
            (!prompt::overwrite(o, dst, dst_st, notes)).then(|| {
                notes_skipped(o, dst, notes);
                Way::Kept
            })
        }
    }
}

fn notes_skipped(o: &Options, dst: &Path, notes: &mut Notes) {
    if let Some(line) = o.skipped(dst) {
        notes.say(&line);
    }
}

/// The destination is not older. Where times are kept, what its file system cannot hold of them does not
/// make it older.
fn newer_or_same(o: &Options, st: &Stat, dst_st: &Stat) -> bool {
    let key = |st: &Stat| (st.mtime.tv_sec, st.mtime.tv_nsec);
    let (src, dst) = (key(st), key(dst_st));
    let whole_seconds = dst_st.mtime.tv_nsec == 0 && dst_st.ctime_nsec == 0;
    if o.preserve.timestamps && whole_seconds && dst.0 == src.0 {
        return true;
    }
    dst >= src
}

/// A directory over a file, a file over a directory, one copy over another.
fn kinds(run: &Run, sides: &Sides, operand: bool, notes: &mut Notes) -> Option<Way> {
    let Sides { src, src_st: st, dst, dst_st, .. } = *sides;
    let (shown_src, shown_dst) = (quote::always(src), quote::always(dst));
    if st.is_dir() {
        if dst_st.is_dir() {
            return None;
        }
        notes.error(&format!(
            "cannot overwrite non-directory {shown_dst} with directory {shown_src}"
        ));
        return Some(Way::Blocked);
    }
    if dst_st.is_dir() {
        notes.error(&format!("cannot overwrite directory {shown_dst} with non-directory"));
        return Some(Way::Blocked);
    }
    let numbered = run.options.backup.numbered();
    if operand && !numbered && run.was_made(dst, dst_st) {
        notes.error(&format!("will not overwrite just-created {shown_dst} with {shown_src}"));
        return Some(Way::Blocked);
    }
    None
}

/// Moves what is there to its backup, or removes it where it cannot be written to in place.
fn remove(run: &Run, sides: &Sides, notes: &mut Notes) -> Way {
    let Sides { src, src_st: st, dst, dst_st, follow } = *sides;
    let o = &run.options;
    if dst_st.is_dir() {
        return Way::There(*dst_st);
    }
    let (_, base) = same::split(src);
    if o.backup.on() && !matches!(base, b"." | b"..") {
        return back_up(run, sides, notes);
    }
    let not_by_writing =
        o.preserve.links && dst_st.nlink > 1 || follow == Follow::Never && !st.is_file();
    let must_go = o.remove_destination || not_by_writing && !o.attributes_only;
    if !must_go || o.preserve.links && is_its_copy(run, st, dst) {
        return Way::There(*dst_st);
    }
    match rustix::fs::unlinkat(CWD, dst, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => {
            if o.verbose {
                notes.say(&format!("removed {}", quote::always(dst)));
            }
            Way::Free { backup: None }
        }
        Err(e) => {
            notes.errno(&format!("cannot remove {}", quote::always(dst)), &e.into());
            Way::Blocked
        }
    }
}

/// This name is the copy of this very file, made for another name of it, to which a link is about to be
/// made. (cp removes it, and then misses it.)
fn is_its_copy(run: &Run, st: &Stat, dst: &Path) -> bool {
    let copy = run.links.lock().copied(st.id());
    copy.is_some_and(|copy| same::same_entry(&copy, dst))
}

fn back_up(run: &Run, sides: &Sides, notes: &mut Notes) -> Way {
    let Sides { src, src_st: st, dst, .. } = *sides;
    let backup = &run.options.backup;
    let shown = || (quote::always(dst), quote::always(src));
    // The backup's own name may be the source's.
    let (_, src_base) = same::split(src);
    let (_, dst_base) = same::split(dst);
    let simple = backup.simple_name(dst);
    let like_backup =
        src_base.len() > dst_base.len() && simple.as_os_str().as_bytes().ends_with(src_base);
    if like_backup
        && Stat::nofollow(&simple).is_ok_and(|there| there.same(st))
        && simple_would_be_made(run, dst)
    {
        let (dst, src) = shown();
        notes.error(&format!("backing up {dst} might destroy source;  {src} not copied"));
        return Way::Blocked;
    }
    match backup.make(dst) {
        Ok(backup) => Way::Free { backup },
        Err(e) => {
            notes.errno(&format!("cannot backup {}", shown().0), &e);
            Way::Blocked
        }
    }
}

fn simple_would_be_made(run: &Run, dst: &Path) -> bool {
    let backup = &run.options.backup;
    backup.name(dst).is_ok_and(|name| name == backup.simple_name(dst))
}
