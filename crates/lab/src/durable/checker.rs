//! The checker: rebuilds from the log what must be there and looks.

use super::log::{self, Line};
use super::step::{self, Step};
use super::world::{FileState, Node, World};
use rustix::fs as rfs;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

#[derive(Debug, Default, Serialize)]
pub struct CheckReport {
    /// Steps whose sync returned before the cut.
    pub done: u64,
    /// Steps under way at the cut.
    pub open: u64,
    pub files: u64,
    pub bytes: u64,
    /// What is not as it must be; empty if all is well.
    pub violations: Vec<String>,
}

/// Compares `dir` with a log. `until` gives the operation count of the cut, if the log notes it.
pub fn check(dir: &Path, log: &Path, until: Option<u64>) -> io::Result<CheckReport> {
    let lines = log::read(log)?;
    let Some(Line::Run { top, threads, at, .. }) = lines.first() else {
        return Err(io::Error::other("no Run line"));
    };
    let top = super::writer::top(dir, top);
    let mut report = CheckReport::default();
    match (at, until) {
        (None, Some(_)) => return Err(io::Error::other("the log notes no operation counts")),
        (Some(at), Some(cut)) if cut < *at => return Ok(report),
        _ => {}
    }
    let mut seats: BTreeMap<u32, Seat> = (0..*threads).map(|t| (t, Seat::default())).collect();
    let before = |at: &Option<u64>, strict: bool| match (at, until) {
        (_, None) => true,
        (Some(at), Some(cut)) => {
            if strict {
                *at < cut
            } else {
                *at <= cut
            }
        }
        (None, Some(_)) => false,
    };
    for line in &lines {
        match line {
            Line::Begin { thread, at, step, .. } if before(at, true) => {
                seats.entry(*thread).or_default().open = Some(step.clone());
            }
            Line::Done { thread, at, .. } if before(at, false) => {
                let seat = seats.entry(*thread).or_default();
                if let Some(step) = seat.open.take() {
                    seat.world.done(&step);
                    report.done += 1;
                }
            }
            _ => {}
        }
    }
    for (thread, seat) in &seats {
        report.open += u64::from(seat.open.is_some());
        seat.check(&top, &format!("t{thread}"), &mut report);
    }
    Ok(report)
}

/// One thread's world and the step it was in.
#[derive(Default)]
struct Seat {
    world: World,
    open: Option<Step>,
}

impl Seat {
    fn check(&self, top: &Path, root: &str, report: &mut CheckReport) {
        let mut worlds = vec![self.world.clone()];
        if let Some(step) = &self.open {
            worlds.extend(self.after(step));
        }
        let found = match listing(top, root) {
            Ok(found) => found,
            Err(e) => return report.violations.push(format!("{root}: cannot be listed: {e}")),
        };
        let mut best: Option<CheckReport> = None;
        for world in &worlds {
            let mut one = CheckReport::default();
            self.compare(world, top, &found, &mut one);
            if best.as_ref().is_none_or(|b| one.violations.len() < b.violations.len()) {
                best = Some(one);
            }
        }
        let best = best.unwrap_or_default();
        report.files += best.files;
        report.bytes += best.bytes;
        let open = self.open.as_ref().map(|s| format!(" (under way: {s:?})")).unwrap_or_default();
        report.violations.extend(best.violations.into_iter().map(|v| format!("{v}{open}")));
    }

    /// Worlds a step under way may also have reached.
    fn after(&self, step: &Step) -> Vec<World> {
        let mut after = self.world.clone();
        match step {
            // Any mixture of bytes: the same as a write that nothing syncs.
            Step::Write { path, off, len, generation, .. }
            | Step::Unsynced { path, off, len, generation } => {
                let (path, off, len) = (path.clone(), *off, *len);
                after.done(&Step::Unsynced { path, off, len, generation: *generation });
            }
            Step::Truncate { .. } => {
                after.done(step);
                let mut kept = self.world.clone();
                keep_pending(&mut kept, step);
                return vec![after, kept];
            }
            _ => after.done(step),
        }
        vec![after]
    }

    /// Names that a step under way may have made or not, with any part of their contents.
    fn loose(&self, path: &str) -> bool {
        match &self.open {
            Some(Step::Create { path: p, .. }) => p == path,
            Some(Step::Replace { path: p, .. }) => path.strip_suffix(".new") == Some(p),
            Some(Step::Batch { path: p, count, .. }) => path
                .strip_prefix(p.as_str())
                .and_then(|n| n.parse::<u32>().ok())
                .is_some_and(|n| n < *count),
            _ => false,
        }
    }

    fn compare(
        &self,
        world: &World,
        top: &Path,
        found: &BTreeSet<String>,
        report: &mut CheckReport,
    ) {
        for path in found {
            if !world.nodes.contains_key(path) && !self.loose(path) {
                report.violations.push(format!("{path} should not be there"));
            }
        }
        for (path, node) in &world.nodes {
            if self.loose(path) {
                continue;
            }
            if !found.contains(path) {
                report.violations.push(format!("{path} is lost"));
                continue;
            }
            if let Err(why) = self.node(world, top, path, node, report) {
                report.violations.push(format!("{path}: {why}"));
            }
        }
    }

    fn node(
        &self,
        world: &World,
        top: &Path,
        path: &str,
        node: &Node,
        report: &mut CheckReport,
    ) -> Result<(), String> {
        let full = top.join(path);
        let text = |e: io::Error| e.to_string();
        let kind = std::fs::symlink_metadata(&full).map_err(text)?;
        match node {
            Node::Dir if kind.is_dir() => Ok(()),
            Node::Symlink(target) if kind.is_symlink() => {
                let have = std::fs::read_link(&full).map_err(text)?;
                match have.to_str() == Some(target) {
                    true => Ok(()),
                    false => Err(format!("points to {have:?}, not {target}")),
                }
            }
            Node::File(id) if kind.is_file() => {
                let want = &world.files[*id];
                let have = std::fs::read(&full).map_err(text)?;
                report.files += 1;
                report.bytes += have.len() as u64;
                contents(want, &have)?;
                self.attributes(path, want, &full)
            }
            _ => Err(format!("is {:?}, not {node:?}", kind.file_type())),
        }
    }

    fn attributes(&self, path: &str, want: &FileState, full: &Path) -> Result<(), String> {
        let mut room = [0u8; 100];
        let have = rfs::getxattr(full, c"user.durable", &mut room[..])
            .map(|len| String::from_utf8_lossy(&room[..len]).into_owned())
            .ok();
        let wanted = want.xattr.map(step::value);
        let coming = match &self.open {
            Some(Step::Xattr { path: p, generation }) if p == path => {
                Some(step::value(*generation))
            }
            _ => None,
        };
        if have != wanted && (have.is_none() || have != coming) {
            return Err(format!("attribute is {have:?}, not {wanted:?}"));
        }
        let mode =
            std::fs::metadata(full).map_err(|e| e.to_string())?.permissions().mode() & 0o7777;
        let coming = match &self.open {
            Some(Step::Chmod { path: p, mode }) if p == path => Some(*mode),
            _ => None,
        };
        match want.mode {
            Some(wanted) if wanted != mode && coming != Some(mode) => {
                Err(format!("mode is {mode:o}, not {wanted:o}"))
            }
            _ => Ok(()),
        }
    }
}

/// A truncate to a smaller size may have cut the tail while pending bytes are still open.
fn keep_pending(world: &mut World, step: &Step) {
    let Step::Truncate { path, len } = step else { return };
    if let Some(Node::File(id)) = world.nodes.get(path).cloned() {
        let file = &mut world.files[id];
        file.data.resize(*len as usize, 0);
        for (off, bytes) in &mut file.pending {
            bytes.truncate(len.saturating_sub(*off) as usize);
        }
    }
}

/// Each byte must be the synced one or that of some pending write over it.
fn contents(want: &FileState, have: &[u8]) -> Result<(), String> {
    let (low, high) = (want.data.len(), want.reach() as usize);
    if have.len() < low || have.len() > high {
        return Err(format!("size is {}, not within {low}..={high}", have.len()));
    }
    for (at, &byte) in have.iter().enumerate() {
        let sure = want.data.get(at).copied().unwrap_or(0);
        let may = |(off, bytes): &(u64, Vec<u8>)| {
            (at as u64).checked_sub(*off).and_then(|i| bytes.get(i as usize)) == Some(&byte)
        };
        if byte != sure && !want.pending.iter().any(may) {
            return Err(format!(
                "byte {at} of {} is {byte:#04x}, not {sure:#04x} ({} pending writes)",
                have.len(),
                want.pending.len()
            ));
        }
    }
    Ok(())
}

fn listing(top: &Path, root: &str) -> io::Result<BTreeSet<String>> {
    let mut out = BTreeSet::new();
    let mut dirs = vec![root.to_string()];
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(top.join(&dir))? {
            let entry = entry?;
            let path = format!("{dir}/{}", entry.file_name().to_string_lossy());
            if entry.file_type()?.is_dir() {
                dirs.push(path.clone());
            }
            out.insert(path);
        }
    }
    Ok(out)
}
