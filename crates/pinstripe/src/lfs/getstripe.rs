//! `lfs getstripe`.

use std::path::{Path, PathBuf};

use proto::lov::Lov;
use proto::{Errno, Fid};

use super::show::{Show, ShowFlags};
use super::xattr;
use crate::cli::GetstripeArgs;
use crate::failure::{Failure, Outcome};
use crate::out;

/// How deep directories are gone into: not at all, their entries, or everything.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Depth {
    Itself,
    Entries,
    All,
}

/// Shows each path; goes on after a failure and then answers with the first one's code.
pub fn run(args: &GetstripeArgs) -> Outcome<()> {
    let flags = ShowFlags {
        count: args.count,
        size: args.size,
        index: args.index,
        quiet: args.quiet,
        verbose: args.verbose,
        yaml: args.yaml,
    };
    let depth = match (args.recursive, args.directory || flags.single()) {
        (true, _) => Depth::All,
        (false, true) => Depth::Itself,
        (false, false) => Depth::Entries,
    };
    let mut worst = None;
    for path in &args.paths {
        if let Err(e) = walk(path, depth, flags) {
            eprintln!("lfs getstripe: {}", e.text);
            worst = worst.or(Some(e.code));
        }
    }
    match (worst, args.paths.as_slice()) {
        (None, _) => Ok(()),
        (Some(code), [one]) => {
            Err(Failure::with_code(code, format!("getstripe failed for {}.", one.display())))
        }
        (Some(code), _) => Err(Failure::with_code(code, "getstripe failed.")),
    }
}

fn walk(top: &Path, depth: Depth, flags: ShowFlags) -> Outcome<()> {
    // A stack of our own, so that a deep tree cannot exhaust the thread's.
    let mut todo = vec![(top.to_path_buf(), 0usize)];
    while let Some((path, level)) = todo.pop() {
        let meta =
            std::fs::symlink_metadata(&path).map_err(|e| cannot_open(&path, Errno::of(&e)))?;
        let kind = meta.file_type();
        if level == 0 || kind.is_file() || kind.is_dir() {
            let name = (depth != Depth::Itself).then(|| path.display().to_string());
            show(&path, kind.is_dir(), name.as_deref(), flags)?;
        }
        let deeper = match depth {
            Depth::Itself => false,
            Depth::Entries => level == 0,
            Depth::All => true,
        };
        if kind.is_dir() && deeper {
            let mut inside = entries(&path)?;
            inside.sort_by(|a, b| b.cmp(a));
            todo.extend(inside.into_iter().map(|p| (p, level + 1)));
        }
    }
    Ok(())
}

fn show(path: &Path, dir: bool, name: Option<&str>, flags: ShowFlags) -> Outcome<()> {
    let lov = match xattr::get(path, xattr::LOV) {
        Ok(bytes) => {
            let lov = Lov::decode(&bytes);
            let mut lov = lov.map_err(|e| Failure::run(format!("{}: {e}", path.display())))?;
            if !dir && lov.owner == (0, 0) {
                // A file without objects yet: its layout does not say whose it is.
                lov.owner = fid(path).map_or((0, 0), |f| (f.oid.into(), f.seq));
            }
            Some(lov)
        }
        Err(Errno::ENODATA) if xattr::get(path, xattr::FID).is_ok() => None,
        Err(Errno::ENODATA | Errno::EOPNOTSUPP) => {
            return Err(Failure::with_code(
                xattr::code(Errno::ENOTTY),
                format!("'{}' is not in a Pinstripe file system", path.display()),
            ));
        }
        Err(e) => return Err(cannot_open(path, e)),
    };
    if lov.is_none() && !dir {
        out::line(&format!("{} has no stripe info", path.display()));
        return Ok(());
    }
    out::text(&Show { lov: lov.as_ref(), dir, path: name }.text(flags));
    Ok(())
}

fn fid(path: &Path) -> Option<Fid> {
    let value = xattr::get(path, xattr::FID).ok()?;
    String::from_utf8_lossy(&value).trim_end_matches('\0').parse().ok()
}

fn entries(dir: &Path) -> Outcome<Vec<PathBuf>> {
    let fail = |e: std::io::Error| cannot_open(dir, Errno::of(&e));
    let read = std::fs::read_dir(dir).map_err(fail)?;
    read.map(|e| e.map(|e| e.path()).map_err(fail)).collect()
}

fn cannot_open(path: &Path, e: Errno) -> Failure {
    let text = format!("cannot open '{}': {} ({})", path.display(), xattr::text(e), e.0);
    Failure::with_code(xattr::code(e), text)
}
