//! `pinstripe-lab model`.

use super::Verdict;
use crate::model::{self, Difference, FEATURES, Options, Report, SHRINK_RUNS, Step};
use anyhow::{Context, bail};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Directory under test.
    #[arg(long)]
    dir: PathBuf,
    /// Directory on a file system taken to be right.
    #[arg(long)]
    reference: PathBuf,
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Runs, with one seed after the other; differences are listed once for each kind.
    #[arg(long, default_value_t = 1, conflicts_with_all = ["save", "replay"])]
    seeds: u64,
    /// Steps to run.
    #[arg(long, default_value_t = 10_000)]
    ops: usize,
    /// Stop after so many minutes even if steps are left.
    #[arg(long)]
    minutes: Option<f64>,
    /// Compare whole trees after so many steps (0: only at the end).
    #[arg(long, default_value_t = 200)]
    tree_every: usize,
    /// Parts to leave out: users, devices, locks, mmap, direct, acl, xattr, tmpfile, holes, huge,
    /// copy, oddnames, btime.
    #[arg(long, value_delimiter = ',')]
    without: Vec<String>,
    /// Runs spent on shortening a reproducer.
    #[arg(long, default_value_t = SHRINK_RUNS)]
    shrink: usize,
    /// Write the reproducer as JSON here.
    #[arg(long)]
    save: Option<PathBuf>,
    /// Run the steps of such a file instead of random ones.
    #[arg(long, conflicts_with = "save")]
    replay: Option<PathBuf>,
}

pub(crate) fn run(args: Args) -> anyhow::Result<Verdict> {
    if let Some(name) = args.without.iter().find(|w| !FEATURES.contains(&w.as_str())) {
        bail!("--without {name}: not one of {}", FEATURES.join(", "));
    }
    if let Some(file) = &args.replay {
        return replay(&args, file);
    }
    if args.seeds > 1 {
        return many(&args);
    }
    let report = one(&args, args.seed)?;
    let Some(found) = &report.difference else {
        let text = format!("same: {} steps, {} succeeded", report.ops, report.succeeded);
        return Verdict::new(true, &report, text);
    };
    if let Some(path) = &args.save {
        let text = serde_json::to_string_pretty(&found.reproducer)?;
        std::fs::write(path, text).with_context(|| path.display().to_string())?;
    }
    Verdict::new(false, &report, describe(report.seed, found))
}

fn one(args: &Args, seed: u64) -> anyhow::Result<Report> {
    eprintln!("model: seed {seed}, {} steps on {}", args.ops, args.dir.display());
    let options = Options {
        limit: args.minutes.map(|m| Duration::from_secs_f64(m * 60.0)),
        tree_every: args.tree_every,
        without: args.without.iter().cloned().collect(),
        shrink_runs: args.shrink,
        ..Options::new(seed, args.ops)
    };
    Ok(model::compare_dirs(&args.dir, &args.reference, &options)?)
}

/// Many seeds; a difference whose shortest steps end in the same kind of operation with the same
/// finding is told once, with the number of seeds that met it.
fn many(args: &Args) -> anyhow::Result<Verdict> {
    let mut kinds: BTreeMap<String, (u64, Report)> = BTreeMap::new();
    let (mut steps, mut different) = (0, 0);
    for seed in args.seed..args.seed + args.seeds {
        let report = one(args, seed)?;
        steps += report.ops;
        if let Some(found) = &report.difference {
            different += 1;
            kinds.entry(kind(found)).or_insert((0, report)).0 += 1;
        }
    }
    let mut text = format!("{steps} steps with {} seeds, {different} differ", args.seeds);
    for (count, report) in kinds.values() {
        if let Some(found) = &report.difference {
            text.push_str(&format!("\n\n{count} seeds: {}", describe(report.seed, found)));
        }
    }
    let reports: Vec<_> = kinds.into_values().collect();
    Verdict::new(different == 0, &reports, text)
}

/// The last operation's name and what was seen, without numbers.
fn kind(found: &Difference) -> String {
    let last = found.reproducer.last().map(|s| format!("{:?}", s.op)).unwrap_or_default();
    let name = last.split([' ', '{']).next().unwrap_or_default().to_string();
    let what = found.reproduced.as_ref().unwrap_or(&found.what);
    let words: String = what.chars().take(60).filter(|c| !c.is_ascii_digit()).collect();
    format!("{name} {words}")
}

fn describe(seed: u64, found: &Difference) -> String {
    let mut text = format!("DIFFERENT at step {} of seed {seed}: {}", found.at, found.what);
    text.push_str("\nshortest steps found:");
    text.push_str(&list(&found.reproducer));
    if let Some(what) = &found.reproduced {
        text.push_str(&format!("\nwhich show: {what}"));
    }
    text
}

fn list(steps: &[Step]) -> String {
    let line = |s: &Step| {
        let watched = if s.watch { " watched" } else { "" };
        format!("\n  as {} umask {:03o}{watched}: {:?}", s.who, s.umask, s.op)
    };
    steps.iter().map(line).collect()
}

fn replay(args: &Args, file: &PathBuf) -> anyhow::Result<Verdict> {
    let text = std::fs::read_to_string(file).with_context(|| file.display().to_string())?;
    let without = args.without.iter().cloned().collect();
    let steps: Vec<Step> = serde_json::from_str(&text).context("not a list of steps")?;
    let found = model::replay_dirs(&args.dir, &args.reference, &steps, &without)?;
    let text = match &found {
        Some((at, what)) => format!("DIFFERENT at step {at}: {what}{}", list(&steps[..=*at])),
        None => format!("same: {} steps", steps.len()),
    };
    Verdict::new(found.is_none(), &found, text)
}
