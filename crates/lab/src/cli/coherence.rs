//! `pinstripe-lab coherence`.

use super::Verdict;
use crate::coherence::{FEATURES, Options, drive};
use anyhow::{bail, ensure};
use std::path::PathBuf;
use std::time::Duration;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The same directory as seen by each mount; two at least.
    #[arg(long = "dir", required = true)]
    dirs: Vec<PathBuf>,
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[arg(long, default_value_t = 30)]
    seconds: u64,
    /// Threads for each mount.
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Operations of a thread in a round.
    #[arg(long, default_value_t = 300)]
    operations: usize,
    /// Sync each write before it counts as done (for runs in which mounts are given up).
    #[arg(long)]
    sync: bool,
    /// Metadata targets are killed meanwhile: for each kill `kill` is printed on a line, and a line of standard
    /// input says that it was done and they run again.
    #[arg(long)]
    kills: bool,
    /// Parts left out: bytes, same-page, kept, mapped, mode, names, append, made, strides.
    #[arg(long, value_delimiter = ',')]
    without: Vec<String>,
}

pub(crate) fn run(args: Args) -> anyhow::Result<Verdict> {
    ensure!(args.dirs.len() > 1, "--dir must be given at least twice, once for each mount");
    if let Some(name) = args.without.iter().find(|w| !FEATURES.contains(&w.as_str())) {
        bail!("--without {name}: not one of {}", FEATURES.join(", "));
    }
    let options = Options {
        dirs: args.dirs,
        seed: args.seed,
        time: Duration::from_secs(args.seconds),
        threads: args.threads,
        operations: args.operations,
        sync: args.sync,
        kills: args.kills,
        without: args.without.into_iter().collect(),
    };
    let report = drive(&options)?;
    let text = match report.violations.is_empty() {
        true => format!(
            "coherent: {} operations in {} rounds, {} of unknown outcome, {} synced, {} kills (seed {})",
            report.operations,
            report.rounds,
            report.unknown,
            report.synced,
            report.kills,
            report.seed
        ),
        false => {
            format!("NOT COHERENT (seed {}):\n  {}", report.seed, report.violations.join("\n  "))
        }
    };
    Verdict::new(report.violations.is_empty(), &report, text)
}
