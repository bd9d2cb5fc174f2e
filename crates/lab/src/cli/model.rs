//! `pinstripe-lab model`.

use super::Verdict;
use crate::model::{self, FEATURES, Options, SHRINK_RUNS, Step};
use anyhow::{Context, bail};
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
    eprintln!("model: seed {}, {} steps on {}", args.seed, args.ops, args.dir.display());
    let options = Options {
        limit: args.minutes.map(|m| Duration::from_secs_f64(m * 60.0)),
        tree_every: args.tree_every,
        without: args.without.iter().cloned().collect(),
        shrink_runs: args.shrink,
        ..Options::new(args.seed, args.ops)
    };
    let report = model::compare_dirs(&args.dir, &args.reference, &options)?;
    let Some(found) = &report.difference else {
        let text = format!("same: {} steps, {} succeeded", report.ops, report.succeeded);
        return Verdict::new(true, &report, text);
    };
    if let Some(path) = &args.save {
        let text = serde_json::to_string_pretty(&found.reproducer)?;
        std::fs::write(path, text).with_context(|| path.display().to_string())?;
    }
    let mut text =
        format!("DIFFERENT at step {} of seed {}: {}", found.at, report.seed, found.what);
    text.push_str("\nshortest steps found:");
    text.push_str(&list(&found.reproducer));
    if let Some(what) = &found.reproduced {
        text.push_str(&format!("\nwhich show: {what}"));
    }
    Verdict::new(false, &report, text)
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
