//! `--parents`: the directories of a source's whole name, made below the target, and given what they have
//! at the source when the copy in them is there.

use super::acl;
use super::output::Notes;
use super::place::Place;
use super::resume;
use super::run::Run;
use super::stat::Stat;
use crate::gnu::quote;
use rustix::fs::{AtFlags, CWD, Mode, Timestamps};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

const OWNER_ALL: u32 = 0o700;

/// A directory on the way to the copy.
pub struct Above {
    src: PathBuf,
    dst: PathBuf,
    st: Stat,
    /// The mode it is to have, where it was made with another.
    restore: Option<u32>,
}

/// Makes the directories above `dst`, which is `target` with `src` behind it. The directories, outermost
/// first, and whether the last was made; None where it could not be.
pub fn make(run: &Run, target: &Path, src: &Path, notes: &mut Notes) -> Option<(Vec<Above>, bool)> {
    let bytes = super::same::strip(src.as_os_str().as_bytes());
    let mut above = Vec::new();
    // Where all of them are there, they stay as they are.
    let (last, _) = super::same::split(src);
    let last = if last == Path::new(".") { target.to_path_buf() } else { below(target, last) };
    match Stat::follow(&last) {
        Ok(there) if there.is_dir() && resume::made_with(run, &last).is_some() => {}
        Ok(there) if there.is_dir() => return Some((above, false)),
        Ok(_) => {
            notes.error(&format!("{} exists but is not a directory", quote::always(&last)));
            return None;
        }
        Err(_) => {}
    }
    let mut made = false;
    for (at, _) in
        bytes.iter().enumerate().filter(|(at, b)| **b == b'/' && *at > 0 && bytes[at - 1] != b'/')
    {
        let part = Path::new(OsStr::from_bytes(&bytes[..at]));
        let dst = below(target, part);
        made = one(run, part, &dst, &mut above, notes)?;
    }
    Some((above, made))
}

/// `target/src`, also where `src` is absolute.
pub fn below(target: &Path, src: &Path) -> PathBuf {
    let bytes = src.as_os_str().as_bytes();
    let relative = &bytes[bytes.iter().take_while(|b| **b == b'/').count()..];
    target.join(OsStr::from_bytes(relative))
}

/// Whether the directory had to be made.
fn one(
    run: &Run,
    src: &Path,
    dst: &Path,
    above: &mut Vec<Above>,
    notes: &mut Notes,
) -> Option<bool> {
    let there = Stat::follow(dst);
    let before = resume::made_with(run, dst);
    if there.is_err() || before.is_some() || keeps(run) {
        let st = match Stat::follow(src) {
            Ok(st) if st.is_dir() => st,
            Ok(_) => {
                notes.errno(&unknown(src), &rustix::io::Errno::NOTDIR.into());
                return None;
            }
            Err(e) => {
                notes.errno(&unknown(src), &e);
                return None;
            }
        };
        above.push(Above { src: src.into(), dst: dst.into(), st, restore: None });
    }
    match (there, above.last_mut()) {
        (Ok(there), Some(entry)) if there.is_dir() && before.is_some() => {
            entry.restore = before.and_then(|perm| later(run, &entry.st, perm).1);
            Some(false)
        }
        (Ok(there), _) if there.is_dir() => Some(false),
        (Ok(_), _) => {
            notes.error(&format!("{} exists but is not a directory", quote::always(dst)));
            None
        }
        (Err(_), Some(entry)) => {
            entry.restore = make_one(run, src, dst, &entry.st, notes)?;
            Some(true)
        }
        (Err(_), None) => None,
    }
}

fn keeps(run: &Run) -> bool {
    let p = &run.options.preserve;
    p.timestamps || p.ownership || p.mode
}

fn unknown(path: &Path) -> String {
    format!("failed to get attributes of {}", quote::always(path))
}

/// The mode it is to have when the copy is there, where that is not what it was made with.
fn make_one(
    run: &Run,
    src: &Path,
    dst: &Path,
    st: &Stat,
    notes: &mut Notes,
) -> Option<Option<u32>> {
    let perm = if run.options.preserve.default_mode { 0o777 } else { st.perm() };
    let omitted = omitted(run, st);
    if !resume::begin(run, st, dst, true, false) {
        return None;
    }
    if let Err(e) = rustix::fs::mkdirat(CWD, dst, Mode::from_raw_mode(perm & !omitted)) {
        notes.errno(&format!("cannot make directory {}", quote::always(dst)), &e.into());
        return None;
    }
    if run.options.verbose {
        notes.say(&format!("{} -> {}", src.display(), dst.display()));
    }
    let there = match Stat::nofollow(dst) {
        Ok(there) => there,
        Err(e) => {
            notes.errno(&unknown(dst), &e);
            return None;
        }
    };
    resume::made(run, dst, &there);
    let (_, restore) = later(run, st, there.perm());
    if there.mode & OWNER_ALL != OWNER_ALL {
        let wide = Mode::from_raw_mode(there.perm() | OWNER_ALL);
        if let Err(e) = rustix::fs::chmodat(CWD, dst, wide, AtFlags::empty()) {
            notes.errno(&format!("setting permissions for {}", quote::always(dst)), &e.into());
            return None;
        }
    }
    Some(restore)
}

/// Permissions that are left out as long as it is worked in.
fn omitted(run: &Run, st: &Stat) -> u32 {
    let p = &run.options.preserve;
    let left_out = match (p.ownership, p.mode) {
        (true, _) => 0o077,
        (false, true) => 0o022,
        _ => 0,
    };
    st.perm() & left_out
}

/// The mode it is to have at the end, also as something to be done, for one made with `perm`.
fn later(run: &Run, st: &Stat, perm: u32) -> (u32, Option<u32>) {
    let later = perm | omitted(run, st) & !run.process.umask;
    let narrow = perm & OWNER_ALL != OWNER_ALL;
    (later, (later != perm || narrow).then_some(later))
}

/// Something is left to be done when the copy is there.
pub fn matters(run: &Run, above: &[Above]) -> bool {
    !above.is_empty() && (keeps(run) || above.iter().any(|entry| entry.restore.is_some()))
}

/// Gives the directories what they have at the source, innermost first.
pub fn protect(run: &Run, above: &[Above], notes: &mut Notes) {
    let p = &run.options.preserve;
    for entry in above.iter().rev() {
        let (src, dst) = (Place::source(&entry.src, false), Place::Name(&entry.dst));
        let tell = |notes: &mut Notes, what: &str, e: rustix::io::Errno| {
            let what = format!("failed to preserve {what} for {}", quote::always(&entry.dst));
            notes.errno(&what, &e.into());
        };
        if p.timestamps {
            let times =
                Timestamps { last_access: entry.st.atime, last_modification: entry.st.mtime };
            if let Err(e) = dst.set_times(&times) {
                tell(notes, "times", e);
            }
        }
        if p.ownership
            && let Err(e) = dst.set_owner(Some(entry.st.uid), Some(entry.st.gid))
        {
            if run.process.root {
                tell(notes, "ownership", e);
            }
            let _ = dst.set_owner(None, Some(entry.st.gid));
        }
        let set = if p.mode {
            acl::copy(src, dst, entry.st.perm(), true)
        } else if let Some(perm) = entry.restore {
            dst.set_mode(perm).map_err(acl::Failed::Write)
        } else {
            Ok(())
        };
        if let Err(acl::Failed::Read(e) | acl::Failed::Write(e)) = set {
            tell(notes, "permissions", e);
        }
    }
}
