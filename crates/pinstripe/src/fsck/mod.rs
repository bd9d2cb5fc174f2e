//! `pinstripe fsck`: checks a stopped file system and repairs nothing.
//!
//! Role: brings together what each metadata target says it owns and what each object storage
//! target holds. Assumption: nobody serves the targets; their locks say so. Never does: write to a
//! target.

mod management;
mod objects;

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use mds::Mdt;
use oss::check::OstDir;
use oss::{Ost, OstError};
use serde::Serialize;
use serde_json::json;

use crate::cli::{Common, FsckArgs};
use crate::failure::{Doing, Failure, Outcome};
use crate::locked;
use crate::out;
use crate::targets::{self, Role};
use crate::volume::Volume;

use objects::Objects;

/// Problems shown as text; the JSON has all.
const SHOWN_MAX: usize = 1000;

/// Something that does not fit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// The target it was found in.
    pub target: String,
    /// Its kind, one of the names in `docs/operations.md`.
    pub kind: String,
    /// The FID of the file concerned, or the name of a target's own record.
    pub fid: String,
    /// What is wrong.
    pub text: String,
}

/// All that was found.
#[derive(Debug, Default, Serialize)]
pub struct Findings {
    /// What does not fit.
    pub problems: Vec<Problem>,
    /// What is odd but harms nothing.
    pub notes: Vec<String>,
    /// Inodes seen.
    pub inodes: u64,
    /// Directory entries seen.
    pub entries: u64,
    /// Objects seen.
    pub objects: u64,
    /// Blocks of data whose checksum is right (with --data-too).
    pub blocks_good: u64,
    /// Blocks nobody has a checksum of (with --data-too).
    pub blocks_unknown: u64,
}

impl Findings {
    fn problem(&mut self, target: &str, kind: &str, fid: String, text: String) {
        let (target, kind) = (target.to_string(), kind.to_string());
        self.problems.push(Problem { target, kind, fid, text });
    }
}

/// Runs the command.
pub fn run(args: &FsckArgs, common: &Common) -> Outcome<()> {
    let (parts, _volume) = places(args)?;
    let findings = check(&parts, args.data_too)?;
    let count = findings.problems.len();
    if common.json {
        out::json_pretty(&json!({ "clean": count == 0, "findings": findings }));
    } else {
        show(&findings, args.data_too);
    }
    match count {
        0 => Ok(()),
        1 => Err(Failure::answered("1 problem was found; nothing was changed")),
        n => Err(Failure::answered(format!("{n} problems were found; nothing was changed"))),
    }
}

/// The directories of what is checked.
#[derive(Debug, Default)]
pub struct Parts {
    /// The management target, where it is to be checked, too.
    pub mgs: Option<PathBuf>,
    /// Metadata targets.
    pub mdts: Vec<PathBuf>,
    /// Object storage targets.
    pub osts: Vec<PathBuf>,
}

/// The targets meant, and what keeps others from serving them meanwhile.
fn places(args: &FsckArgs) -> Outcome<(Parts, Option<Volume>)> {
    match &args.data {
        Some(data) => {
            let volume = Volume::open_stopped(data)?;
            let (mdts, osts) = (volume.mdts(), volume.osts());
            Ok((Parts { mgs: Some(volume.mgs()), mdts, osts }, Some(volume)))
        }
        None if args.mdt.is_empty() => {
            let text = "say what to check: --data DIR, or --mdt DIR and --ost DIR for each target";
            Err(Failure::usage(text))
        }
        None => {
            let (mgs, mdts, osts) = (args.mgs.clone(), args.mdt.clone(), args.ost.clone());
            Ok((Parts { mgs, mdts, osts }, None))
        }
    }
}

/// Opening a store replays its journal, so its place must be writable.
fn writable(name: &str, dir: &Path) -> Outcome<()> {
    match rustix::fs::access(dir, rustix::fs::Access::WRITE_OK) {
        Err(rustix::io::Errno::ROFS) => Err(Failure::run(format!(
            "cannot check {name} in {}: that is read-only, and opening a metadata store replays its journal, which \
             writes; check a copy of it, or an overlay: mount -t overlay none VIEW -o \
             lowerdir=DIR,upperdir=NEW/upper,workdir=NEW/work, where DIR is the directory this command was \
             given, VIEW an empty one to give it instead, and those in NEW are empty, too",
            dir.display(),
        ))),
        _ => Ok(()),
    }
}

/// Checks these targets against each other.
pub fn check(parts: &Parts, data_too: bool) -> Outcome<Findings> {
    let mut findings = Findings::default();
    let mut fs: Option<[u8; 16]> = None;
    let mut same_fs = |name: &str, found: [u8; 16]| match fs.replace(found) {
        Some(other) if other != found => {
            Err(Failure::usage(format!("{name} belongs to another file system than the others")))
        }
        _ => Ok(()),
    };
    let mut objects = Objects::default();
    for dir in &parts.mdts {
        let who = targets::identify(Role::Mdt, dir)?;
        let name = targets::name(Role::Mdt, who.index);
        same_fs(&name, who.fs)?;
        writable(&name, dir)?;
        let check = || mds::check::check_dir(dir);
        let report = locked::opens(&Mdt::lock_file(dir), |e| e.is_busy(), check);
        let report = report.doing(|| format!("cannot check {name} in {}", dir.display()))?;
        findings.inodes += report.inodes;
        findings.entries += report.entries;
        if report.problems.iter().any(|p| p.kind == mds::check::STORE_LOST) {
            objects.own_unknown(&name, &mut findings);
        }
        // The root is on the first MDT only.
        let real = |p: &mds::check::Problem| who.index == 0 || p.kind != "no-root";
        for p in report.problems.into_iter().filter(real) {
            findings.problem(&name, p.kind, p.fid, p.text);
        }
        objects.own(&name, report.owners);
    }
    let mut open: HashMap<u32, OstDir> = HashMap::new();
    for dir in &parts.osts {
        let look = || OstDir::open(dir);
        let ost = locked::opens(&Ost::lock_file(dir), OstError::is_in_use, look);
        let ost = ost.map_err(|e| Failure::run(e.to_string()))?;
        let name = ost.label.name();
        same_fs(&name, ost.label.fs)?;
        if open.contains_key(&ost.label.index) {
            return Err(Failure::usage(format!("{} holds {name} once more", dir.display())));
        }
        let damaged = ost.damaged(dir).map_err(|e| Failure::run(e.to_string()))?;
        for (file, text) in damaged {
            findings.problem(&name, "damaged-record", file.to_string(), text);
        }
        objects.walk(dir, &ost, &mut findings)?;
        open.insert(ost.label.index, ost);
    }
    if let Some(fs) = parts.mgs.as_ref().and_then(|dir| management::check(dir, &mut findings)) {
        same_fs("the management target", fs)?;
    }
    objects.compare(&open, &mut findings);
    if data_too {
        for ost in open.values() {
            objects.verify(ost, &mut findings)?;
        }
    }
    findings
        .problems
        .sort_by(|a, b| (&a.target, &a.fid, &a.kind).cmp(&(&b.target, &b.fid, &b.kind)));
    Ok(findings)
}

fn show(f: &Findings, data_too: bool) {
    for p in f.problems.iter().take(SHOWN_MAX) {
        out::line(&format!("{}: {}: {}: {}", p.target, p.kind, p.fid, p.text));
    }
    if f.problems.len() > SHOWN_MAX {
        out::line(&format!("... and {} more; --json shows all", f.problems.len() - SHOWN_MAX));
    }
    f.notes.iter().take(SHOWN_MAX).for_each(|n| out::line(&format!("note: {n}")));
    let mut text = format!("{} inodes, {} entries, {} objects", f.inodes, f.entries, f.objects);
    if data_too {
        text += &format!(
            ", {} blocks of data have their checksum, {} have none",
            f.blocks_good, f.blocks_unknown
        );
    }
    out::line(&text);
    if f.problems.is_empty() {
        out::line("clean");
    }
}

#[cfg(test)]
mod tests;
