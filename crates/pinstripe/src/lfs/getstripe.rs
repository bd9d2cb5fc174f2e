//! `lfs getstripe`.

use std::path::{Path, PathBuf};

use proto::lov::Lov;
use proto::{Errno, Fid};
use serde_json::{Value, json};

use super::show::{Show, ShowFlags};
use super::xattr;
use crate::cli::{Common, GetstripeArgs};
use crate::failure::{Failure, Outcome};
use crate::out;

/// How deep directories are gone into: not at all, their entries, or everything.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Depth {
    Itself,
    Entries,
    All,
}

/// Where what is found goes.
enum Sink {
    Text(ShowFlags),
    /// One list in the end.
    Json(Vec<Value>),
}

/// Shows each path; goes on after a failure and then answers with the first one's code.
pub fn run(args: &GetstripeArgs, common: &Common) -> Outcome<()> {
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
    let mut sink = if common.json { Sink::Json(Vec::new()) } else { Sink::Text(flags) };
    let mut worst = None;
    for path in &args.paths {
        if let Err(e) = walk(path, depth, &mut sink) {
            eprintln!("lfs getstripe: {}", e.text);
            if let Sink::Json(all) = &mut sink {
                let top = path.to_string_lossy();
                all.push(json!({ "path": top, "error": e.text, "code": e.code }));
            }
            worst = worst.or(Some(e.code));
        }
    }
    if let Sink::Json(all) = sink {
        out::json_pretty(&Value::from(all));
    }
    let Some(code) = worst else { return Ok(()) };
    let text = match args.paths.as_slice() {
        [one] => format!("getstripe failed for {}.", one.display()),
        _ => "getstripe failed.".to_string(),
    };
    Err(Failure { answered: common.json, ..Failure::with_code(code, text) })
}

fn walk(top: &Path, depth: Depth, sink: &mut Sink) -> Outcome<()> {
    // A stack of our own, so that a deep tree cannot exhaust the thread's.
    let mut todo = vec![(top.to_path_buf(), 0usize)];
    while let Some((path, level)) = todo.pop() {
        let meta =
            std::fs::symlink_metadata(&path).map_err(|e| cannot_open(&path, Errno::of(&e)))?;
        let kind = meta.file_type();
        if level == 0 || kind.is_file() || kind.is_dir() {
            let name = (depth != Depth::Itself).then(|| path.display().to_string());
            show(&path, kind.is_dir(), name.as_deref(), sink)?;
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

fn show(path: &Path, dir: bool, name: Option<&str>, sink: &mut Sink) -> Outcome<()> {
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
    let shown = Show { lov: lov.as_ref(), dir, path: name };
    match sink {
        Sink::Json(all) => all.push(shown.json(path, fid(path))),
        Sink::Text(_) if lov.is_none() && !dir => {
            out::line(&format!("{} has no stripe info", path.display()));
        }
        Sink::Text(flags) => out::text(&shown.text(*flags)),
    }
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
