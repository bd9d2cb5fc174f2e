//! Operands: which is the destination, and what each source is called there.

use super::links::Names;
use super::options::Options;
use super::output::Notes;
use super::run::Run;
use super::stat::Stat;
use super::walk::Walk;
use super::{parents, same};
use crate::gnu::{diag, quote};
use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Where the sources go.
pub enum Target {
    /// Into this directory, under their last components.
    Into(PathBuf, Vec<PathBuf>),
    /// The one source gets this name.
    As { src: PathBuf, dst: PathBuf },
}

impl Target {
    /// The last operand.
    pub fn name(&self) -> &Path {
        match self {
            Self::Into(dir, _) => dir,
            Self::As { dst, .. } => dst,
        }
    }

    /// What it was when nothing had been made of it yet.
    pub fn restored(self, directory: bool) -> Self {
        match self {
            Self::Into(dst, mut sources) if !directory && sources.len() == 1 => {
                Self::As { src: sources.remove(0), dst }
            }
            target => target,
        }
    }
}

/// A message, and whether the hint to `--help` follows.
pub type Wrong = (String, bool);

fn wrong<T>(message: impl Into<String>, hint: bool) -> Result<T, Wrong> {
    Err((message.into(), hint))
}

/// `--read-stdin`: a source in each line of standard input, before the destination.
pub fn read_names(o: &mut Options) -> std::io::Result<()> {
    let mut text = Vec::new();
    std::io::stdin().lock().read_to_end(&mut text)?;
    let names = text.split(|b| *b == b'\n').filter(|name| !name.is_empty());
    let names = names.map(|name| OsString::from_vec(name.to_vec()));
    let at = if o.target.is_some() { o.operands.len() } else { o.operands.len().saturating_sub(1) };
    o.operands.splice(at..at, names);
    Ok(())
}

/// Finds out what the operands mean.
pub fn settle(o: &Options) -> Result<Target, Wrong> {
    let files = &o.operands;
    let least = usize::from(o.target.is_none());
    if files.len() <= least {
        return match files.first() {
            None => wrong("missing file operand", true),
            Some(only) => wrong(
                format!("missing destination file operand after {}", quote::always(only)),
                true,
            ),
        };
    }
    let paths = |names: &[OsString]| names.iter().map(PathBuf::from).collect::<Vec<_>>();
    if o.no_target {
        return without_target(o);
    }
    if let Some(dir) = &o.target {
        return match directory(Path::new(dir)) {
            Ok(()) => Ok(Target::Into(dir.into(), paths(files))),
            Err(e) => {
                let message =
                    format!("target directory {}: {}", quote::always(dir), diag::reason(&e));
                wrong(message, false)
            }
        };
    }
    let (last, sources) =
        files.split_last().ok_or_else(|| ("missing file operand".to_owned(), true))?;
    match directory(Path::new(last)) {
        Ok(()) => Ok(Target::Into(last.into(), paths(sources))),
        Err(e) if sources.len() > 1 => {
            wrong(format!("target {}: {}", quote::always(last), diag::reason(&e)), false)
        }
        Err(_) if o.parents => wrong("with --parents, the destination must be a directory", true),
        Err(_) => Ok(Target::As { src: (&sources[0]).into(), dst: last.into() }),
    }
}

fn without_target(o: &Options) -> Result<Target, Wrong> {
    let files = &o.operands;
    if o.target.is_some() {
        return wrong(
            "cannot combine --target-directory (-t) and --no-target-directory (-T)",
            false,
        );
    }
    if let Some(extra) = files.get(2) {
        return wrong(format!("extra operand {}", quote::always(extra)), true);
    }
    if o.parents {
        return wrong("with --parents, the destination must be a directory", true);
    }
    Ok(Target::As { src: (&files[0]).into(), dst: (&files[1]).into() })
}

/// As opening it for entries to be made in it would answer.
fn directory(path: &Path) -> std::io::Result<()> {
    let st = Stat::follow(path)?;
    if st.is_dir() { Ok(()) } else { Err(rustix::io::Errno::NOTDIR.into()) }
}

/// Copies everything.
pub fn copy(run: &Arc<Run>, target: Target) {
    match target {
        Target::Into(dir, sources) => {
            if sources.len() > 1 {
                *run.made.lock() = Some(Names::default());
                *run.named.lock() = Some(Names::default());
            }
            for src in sources {
                run.operands.fetch_add(1, Ordering::Relaxed);
                into(run, &dir, &src);
            }
        }
        Target::As { src, dst } => as_name(run, &src, dst),
    }
}

fn as_name(run: &Arc<Run>, src: &Path, dst: PathBuf) {
    let o = &run.options;
    // cp --force --backup foo foo: the backup is the copy.
    let itself = o.force && o.backup.on() && src == dst;
    if itself && Stat::follow(&dst).is_ok_and(|st| st.is_file()) {
        match o.backup.name(&dst) {
            Ok(name) => return Walk::operand(run, src, &name, false),
            Err(e) => {
                let mut notes = run.output.take_place();
                return notes.errno(&format!("cannot backup {}", quote::always(&dst)), &e);
            }
        }
    }
    Walk::operand(run, src, &dst, false);
}

fn into(run: &Arc<Run>, dir: &Path, src: &Path) {
    let o = &run.options;
    let stripped = same::strip(src.as_os_str().as_bytes());
    let src = if o.strip_slashes { Path::new(OsStr::from_bytes(stripped)) } else { src };
    if !o.parents {
        return Walk::operand(run, src, &dir_entry(dir, last(stripped)), false);
    }
    let bare = Path::new(OsStr::from_bytes(stripped));
    let dst = parents::below(dir, bare);
    let mut notes: Notes = run.output.take_place();
    let Some((above, made)) = parents::make(run, dir, bare, &mut notes) else {
        return notes.fail();
    };
    drop(notes);
    Walk::operand(run, src, &dst, made);
    if parents::matters(run, &above) {
        run.engine.drain();
        let mut notes = run.output.take_place();
        parents::protect(run, &above, &mut notes);
    }
}

/// The last component; `..` stays in the directory.
fn last(stripped: &[u8]) -> &[u8] {
    let base = match stripped.iter().rposition(|b| *b == b'/') {
        Some(at) => &stripped[at + 1..],
        None => stripped,
    };
    if base == b".." { b"." } else { base }
}

/// `dir/name` with one slash between, as it is shown.
fn dir_entry(dir: &Path, name: &[u8]) -> PathBuf {
    let mut path = dir.as_os_str().as_bytes().to_vec();
    if !path.ends_with(b"/") {
        path.push(b'/');
    }
    path.extend_from_slice(name);
    PathBuf::from(OsString::from_vec(path))
}
