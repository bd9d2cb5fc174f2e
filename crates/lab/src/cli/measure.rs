//! `pinstripe-lab measure`.

use super::Verdict;
use crate::measure::{self, Case};
use anyhow::{Context, bail};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// A name and a shell command; the first is compared with the others.
    #[arg(long = "case", value_name = "NAME=COMMAND", required = true)]
    cases: Vec<String>,
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Drop the kernel's caches before each command.
    #[arg(long)]
    drop_caches: bool,
    /// Processes whose CPU time is counted as the servers'.
    #[arg(long = "pid")]
    pids: Vec<u32>,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<Verdict> {
    let mut cases = Vec::new();
    for case in &args.cases {
        let (name, script) = case.split_once('=').context("--case wants NAME=COMMAND")?;
        cases.push(Case::new(name, move |_| {
            if args.drop_caches {
                measure::drop_caches()?;
            }
            measure::command(&args.pids, script)
        }));
    }
    if args.rounds == 0 {
        bail!("--rounds must be at least 1");
    }
    let result = measure::interleave("commands", "runs", args.rounds, &mut cases)?;
    let text = result.to_string();
    Verdict::new(true, &result, text)
}
