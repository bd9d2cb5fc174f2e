//! `lfs df`: space or inodes of each target, and of the whole.
//!
//! Targets are asked through the process that mounts; a user who may not ask it sees the whole
//! only. OSTs on one local file system share its space: the summary counts it once.

use std::path::Path;

use serde_json::{Value, json};

use super::whole::{mount_of, mounts};
use crate::cli::{Common, DfArgs};
use crate::failure::{Doing, Failure, Outcome};
use crate::out;
use crate::status::Place;

/// One line: name, total, used, free, and where.
struct Row {
    name: String,
    total: u64,
    used: u64,
    free: u64,
    place: String,
}

/// Shows the mounts that hold the path, or all.
pub fn run(args: &DfArgs, common: &Common) -> Outcome<()> {
    let mountpoints = match &args.path {
        Some(path) => vec![mount_of(path)?],
        None => mounts()?,
    };
    if mountpoints.is_empty() {
        return Err(Failure::run("lfs df: no Pinstripe file system is mounted"));
    }
    let (mut all, mut failed) = (Vec::new(), None);
    for mountpoint in mountpoints {
        let state = Place::of_mount(&mountpoint).and_then(|p| p.ask());
        let shown = match (&state, common.json) {
            (Err(e), true) => {
                let mountpoint = mountpoint.display().to_string();
                all.push(json!({ "mountpoint": mountpoint, "error": e.text }));
                Err(e.clone())
            }
            (Ok(state), true) => {
                all.push(state.clone());
                Ok(())
            }
            (_, false) => {
                if let Err(e) = &state {
                    eprintln!("lfs df: targets are not shown: {e}");
                }
                show(args, &mountpoint, state.as_ref().unwrap_or(&Value::Null))
            }
        };
        // One mount that is dead does not hide the others.
        if let Err(e) = shown
            && let Some(earlier) = failed.replace(e)
        {
            eprintln!("{earlier}");
        }
    }
    if common.json {
        out::json_pretty(&Value::from(all));
    }
    match failed {
        Some(e) => Err(Failure { answered: common.json, ..e }),
        None => Ok(()),
    }
}

fn show(args: &DfArgs, mountpoint: &Path, state: &Value) -> Outcome<()> {
    let (total, used, free, percent) = match (args.inodes, args.human) {
        (true, _) => ("Inodes", "IUsed", "IFree", "IUse%"),
        (false, true) => ("bytes", "Used", "Available", "Use%"),
        (false, false) => ("1K-blocks", "Used", "Available", "Use%"),
    };
    out::line(&format!("{:<20} {total:>11} {used:>11} {free:>11} {percent:<5} Mounted on", "UUID"));
    for target in state["targets"].as_array().into_iter().flatten() {
        out::line(&line(args, &target_row(args, mountpoint, state, target)));
    }
    let summary = summary(args, mountpoint)?;
    out::text(&format!("\n{}\n\n", line(args, &summary).trim_end()));
    Ok(())
}

fn target_row(args: &DfArgs, mountpoint: &Path, state: &Value, target: &Value) -> Row {
    let number = |key: &str| target[key].as_u64().unwrap_or(0);
    let (total, free) = match args.inodes {
        true => (number("files"), number("files_free")),
        false => (number("total") / 1024, number("free") / 1024),
    };
    let text = |v: &Value| v.as_str().unwrap_or("?").to_string();
    let place = format!("{}[{}:{}] ", mountpoint.display(), text(&target["kind"]), target["index"]);
    let name = format!("{}-{}_UUID", text(&state["fs"]["name"]), text(&target["name"]));
    let place = match target["error"].as_str() {
        Some(e) => format!("{place}: {e}"),
        None => place,
    };
    Row { name, total, used: total.saturating_sub(free), free, place }
}

fn summary(args: &DfArgs, mountpoint: &Path) -> Outcome<Row> {
    let vfs =
        rustix::fs::statvfs(mountpoint).doing(|| format!("lfs df: {}", mountpoint.display()))?;
    let (total, used, free) = match args.inodes {
        true => (vfs.f_files, vfs.f_files.saturating_sub(vfs.f_ffree), vfs.f_favail),
        false => {
            let kb = |blocks: u64| blocks.saturating_mul(vfs.f_frsize) / 1024;
            (kb(vfs.f_blocks), kb(vfs.f_blocks.saturating_sub(vfs.f_bfree)), kb(vfs.f_bavail))
        }
    };
    let place = mountpoint.display().to_string();
    Ok(Row { name: "filesystem_summary:".into(), total, used, free, place })
}

fn line(args: &DfArgs, r: &Row) -> String {
    let known = r.used.saturating_add(r.free);
    let percent = if known == 0 { 0 } else { (u128::from(r.used) * 100).div_ceil(known.into()) };
    let show = |n: u64| match (args.human, args.inodes) {
        (true, true) => scaled(n, 1000),
        (true, false) => scaled(n.saturating_mul(1024), 1024),
        (false, _) => n.to_string(),
    };
    format!(
        "{:<20} {:>11} {:>11} {:>11} {percent:>3}%  {}",
        r.name,
        show(r.total),
        show(r.used),
        show(r.free),
        r.place
    )
}

/// A number with one digit after the point and a letter.
fn scaled(n: u64, base: u64) -> String {
    let letters = ["", "K", "M", "G", "T", "P", "E"];
    let mut value = n as f64;
    let mut at = 0;
    while value >= base as f64 && at + 1 < letters.len() {
        value /= base as f64;
        at += 1;
    }
    if at == 0 { n.to_string() } else { format!("{value:.1}{}", letters[at]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lines real Lustre 2.17 printed.
    #[test]
    fn lines_are_lustres() {
        let row = |name: &str, total, place: &str| Row {
            name: name.into(),
            total,
            used: 0,
            free: total,
            place: place.into(),
        };
        let args = DfArgs::default();
        let expect = "lustre-MDT0000_UUID      1232992           0     1232992   0%  /mnt[MDT:0] ";
        assert_eq!(line(&args, &row("lustre-MDT0000_UUID", 1232992, "/mnt[MDT:0] ")), expect);
        let expect = "filesystem_summary:      4931968           0     4931968   0%  /mnt";
        assert_eq!(line(&args, &row("filesystem_summary:", 4931968, "/mnt")), expect);
    }

    #[test]
    fn numbers_are_scaled() {
        for (n, base, text) in [(5, 1024, "5"), (1536, 1024, "1.5K"), (2_000_000, 1000, "2.0M")] {
            assert_eq!(scaled(n, base), text);
        }
    }
}
