//! `pinstripe-lab exerciser` and `racer`, and the hidden `exercise-worker` their processes run.

use super::Verdict;
use crate::exerciser::{self, HANG_SECONDS, Options, WORKLOADS};
use anyhow::bail;
use std::path::PathBuf;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Directory under test.
    #[arg(long)]
    dir: PathBuf,
    /// The same directory through another mount; may be repeated. Processes take turns among them.
    #[arg(long)]
    beside: Vec<PathBuf>,
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[arg(long, default_value_t = 3)]
    processes: u64,
    /// Threads of each racer process.
    #[arg(long, default_value_t = 3)]
    threads: usize,
    #[arg(long, default_value_t = 30)]
    seconds: u64,
    /// Workloads to run: private, append, counter, strided, exclusive, names, links, replace.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Leave O_DIRECT out.
    #[arg(long)]
    without_direct: bool,
    /// Seconds without any finished operation that count as a hang.
    #[arg(long, default_value_t = HANG_SECONDS)]
    hang_seconds: u64,
}

#[derive(clap::Args)]
pub(crate) struct WorkerArgs {
    task: String,
}

pub(crate) fn run(args: Args, racer: bool) -> anyhow::Result<Verdict> {
    if let Some(name) = args.only.iter().find(|w| !WORKLOADS.contains(&w.as_str())) {
        bail!("--only {name}: not one of {}", WORKLOADS.join(", "));
    }
    let exe = std::env::current_exe()?;
    let mut options = match racer {
        true => Options::racer(&args.dir, &exe, args.seed, args.seconds, args.threads),
        false => Options::verified(&args.dir, &exe, args.seed, args.seconds),
    };
    if !racer && !args.only.is_empty() {
        options.workloads = args.only;
    }
    options.beside = args.beside;
    options.processes = args.processes;
    options.direct = !args.without_direct;
    options.hang_seconds = args.hang_seconds;
    let report = exerciser::exercise(&options)?;
    let text = match report.faults.is_empty() {
        true => format!("no fault (seed {}): {:?}", report.seed, report.totals),
        false => format!("FAULTS (seed {}):\n  {}", report.seed, report.faults.join("\n  ")),
    };
    Verdict::new(report.faults.is_empty(), &report, text)
}

/// The worker prints its own lines; its exit code says only whether it could run.
pub(crate) fn work(args: &WorkerArgs) -> anyhow::Result<()> {
    exerciser::work(&serde_json::from_str(&args.task)?)?;
    Ok(())
}
