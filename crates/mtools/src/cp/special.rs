//! What is not copied by its bytes: symbolic links, FIFOs, devices, sockets, and the links that
//! `-l`, `-s` and kept hard links make.

use super::attrs::{self, Copy};
use super::place::Place;
use super::run::{Item, Run};
use super::same;
use super::stat::Stat;
use crate::gnu::quote;
use rustix::fs::{AtFlags, CWD, FileType, Mode};
use rustix::io::{Errno, Result};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// Tries for a temporary name that nobody has.
const TRIES: u32 = 100;

/// Makes the item, which is no regular file.
pub fn make(run: &Run, mut item: Item) {
    let made = match item.st.kind() {
        FileType::Symlink => symlink(run, &mut item),
        FileType::Fifo => node(run, &mut item, "fifo"),
        FileType::BlockDevice | FileType::CharacterDevice | FileType::Socket => {
            node(run, &mut item, "special file")
        }
        _ => {
            item.notes.error(&format!("{} has unknown file type", quote::always(&item.src)));
            false
        }
    };
    if !made {
        item.failed(run);
        return;
    }
    let carried = match Stat::nofollow(&item.dst) {
        Err(e) => {
            item.notes.errno(&format!("cannot stat {}", quote::always(&item.dst)), &e);
            false
        }
        Ok(dst_st) => {
            let copy = Copy {
                src: Place::source(&item.src, item.st.is_symlink()),
                dst: Place::Name(&item.dst),
                st: &item.st,
                dst_st: &dst_st,
                new: true,
                omitted: omitted(run, &item.st),
                restore: None,
            };
            attrs::carry(&copy, &run.options, &run.process, &mut item.notes)
        }
    };
    if !carried {
        item.notes.fail();
    }
    // It is there, whatever it lacks.
    run.counts.other();
    item.done(run);
}

fn omitted(run: &Run, st: &Stat) -> u32 {
    if run.options.preserve.ownership { st.perm() & 0o077 } else { 0 }
}

fn symlink(run: &Run, item: &mut Item) -> bool {
    let target = match rustix::fs::readlinkat(CWD, &item.src, Vec::new()) {
        Ok(target) => target,
        Err(e) => {
            item.notes.errno(
                &format!("cannot read symbolic link {}", quote::always(&item.src)),
                &e.into(),
            );
            return false;
        }
    };
    let target = OsStr::from_bytes(target.as_bytes());
    match force_symlink(Path::new(target), &item.dst, run.options.force) {
        Ok(()) => true,
        // With -u the link may be as it should be already.
        Err(_)
            if run.options.update
                && item.dst_st.is_some_and(|st| st.is_symlink())
                && std::fs::read_link(&item.dst).is_ok_and(|there| there == target) =>
        {
            true
        }
        Err(e) => {
            item.notes.errno(
                &format!("cannot create symbolic link {}", quote::always(&item.dst)),
                &e.into(),
            );
            false
        }
    }
}

fn node(run: &Run, item: &mut Item, what: &str) -> bool {
    let perm = Mode::from_raw_mode(item.st.perm() & !omitted(run, &item.st));
    match rustix::fs::mknodat(CWD, &item.dst, item.st.kind(), perm, item.st.rdev) {
        Ok(()) => true,
        Err(e) => {
            item.notes
                .errno(&format!("cannot create {what} {}", quote::always(&item.dst)), &e.into());
            false
        }
    }
}

/// `-s`: a symbolic link to the source.
pub fn link_symbolically(run: &Run, mut item: Item) {
    let shown = || (quote::always(&item.dst), quote::always(&item.src));
    if !item.src.is_absolute() && !in_current_directory(&item.dst) {
        let message = format!(
            "{}: can make relative symbolic links only in current directory",
            quote::maybe(&item.dst)
        );
        item.notes.error(&message);
        return item.failed(run);
    }
    match force_symlink(&item.src, &item.dst, run.options.force) {
        Ok(()) => finish_link(run, item),
        Err(e) => {
            let (dst, src) = shown();
            item.notes.errno(&format!("cannot create symbolic link {dst} to {src}"), &e.into());
            item.failed(run);
        }
    }
}

/// Times and extended attributes of a link that was made for `-s`.
fn finish_link(run: &Run, mut item: Item) {
    if let Ok(dst_st) = Stat::nofollow(&item.dst) {
        let copy = Copy {
            src: Place::Name(&item.src),
            dst: Place::Name(&item.dst),
            st: &item.st,
            dst_st: &Stat { uid: item.st.uid, gid: item.st.gid, ..dst_st },
            new: false,
            omitted: 0,
            restore: None,
        };
        if !attrs::carry(&copy, &run.options, &run.process, &mut item.notes) {
            item.notes.fail();
        }
    }
    run.counts.other();
    item.done(run);
}

fn in_current_directory(dst: &Path) -> bool {
    let (dir, _) = same::split(dst);
    if dir == Path::new(".") {
        return true;
    }
    match (Stat::follow(Path::new(".")), Stat::follow(dir)) {
        (Ok(here), Ok(there)) => here.same(&there),
        _ => true,
    }
}

/// `-l`, and names of one file that are kept together: a hard link to `from`.
pub fn link(run: &Run, mut item: Item, from: &Path, replace: bool, tell_removed: bool) {
    let follow = run.options.follows(item.operand);
    match force_link(from, &item.dst, replace, follow) {
        Ok(replaced) => {
            if replaced && tell_removed && run.options.verbose {
                item.notes.say(&format!("removed {}", quote::always(&item.dst)));
            }
            run.counts.other();
            item.done(run);
        }
        Err(e) => {
            let message = format!(
                "cannot create hard link {} to {}",
                quote::always(&item.dst),
                quote::always(from)
            );
            item.notes.errno(&message, &e.into());
            item.failed(run);
        }
    }
}

/// Whether something was replaced.
fn force_link(from: &Path, to: &Path, replace: bool, follow: bool) -> Result<bool> {
    let flags = if follow { AtFlags::SYMLINK_FOLLOW } else { AtFlags::empty() };
    match rustix::fs::linkat(CWD, from, CWD, to, flags) {
        Err(Errno::EXIST) if replace => {
            by_rename(to, |name| rustix::fs::linkat(CWD, from, CWD, name, flags)).map(|()| true)
        }
        result => result.map(|()| false),
    }
}

fn force_symlink(target: &Path, to: &Path, force: bool) -> Result<()> {
    match rustix::fs::symlinkat(target, CWD, to) {
        Err(Errno::EXIST) if force => {
            by_rename(to, |name| rustix::fs::symlinkat(target, CWD, name))
        }
        result => result,
    }
}

/// Makes something under another name of the same directory and moves it over `to`, so that there is
/// always one or the other.
fn by_rename(to: &Path, make: impl Fn(&Path) -> Result<()>) -> Result<()> {
    // Each name is used once in a process, so that no thread removes another's.
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let (dir, _) = same::split(to);
    for _ in 0..TRIES {
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let name: PathBuf = dir.join(format!(".mcp-{}-{n}", std::process::id()));
        match make(&name) {
            Err(Errno::EXIST) => {}
            Err(e) => return Err(e),
            Ok(()) => {
                let result = rustix::fs::renameat(CWD, &name, CWD, to);
                // Two links to one file: rename leaves both names.
                let _ = rustix::fs::unlinkat(CWD, &name, AtFlags::empty());
                return result;
            }
        }
    }
    Err(Errno::EXIST)
}
