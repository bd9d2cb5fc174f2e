//! `pinstripe-lab durable-write` and `durable-check`.

use super::Verdict;
use crate::durable::{self, WriteOptions};
use std::path::PathBuf;
use std::time::Duration;

#[derive(clap::Args)]
pub(crate) struct WriteArgs {
    /// Directory under test.
    #[arg(long)]
    dir: PathBuf,
    /// Log file, on a file system that survives; must not exist yet.
    #[arg(long)]
    log: PathBuf,
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[arg(long, default_value_t = 4)]
    threads: u32,
    #[arg(long, default_value_t = 30)]
    seconds: u64,
    /// Steps of each thread.
    #[arg(long, default_value_t = u64::MAX)]
    ops: u64,
    /// Seconds to wait, after the time is over, for a thread stuck in a call.
    #[arg(long, default_value_t = 60)]
    grace: u64,
    /// Leave syncfs out: FUSE file systems such as the forgetful disk are never told of it.
    #[arg(long)]
    without_syncfs: bool,
    /// File with the operation count of the forgetful disk below.
    #[arg(long)]
    seq_file: Option<PathBuf>,
}

#[derive(clap::Args)]
pub(crate) struct CheckArgs {
    /// Directory under test, the same place in the file system as when writing.
    #[arg(long)]
    dir: PathBuf,
    #[arg(long)]
    log: PathBuf,
    /// Operation count at which the forgetful disk was cut.
    #[arg(long)]
    until_seq: Option<u64>,
}

pub(crate) fn write(args: WriteArgs) -> anyhow::Result<Verdict> {
    let report = durable::write(&WriteOptions {
        dir: args.dir,
        log: args.log,
        seed: args.seed,
        threads: args.threads,
        limit: Duration::from_secs(args.seconds),
        ops: args.ops,
        grace: Duration::from_secs(args.grace),
        syncfs: !args.without_syncfs,
        seq_file: args.seq_file,
    })?;
    let text = format!(
        "{} steps synced; stopped by errnos {:?}, {} stuck{}",
        report.done,
        report.stopped,
        report.stuck,
        report.odd.iter().map(|o| format!("\n  ODD {o}")).collect::<String>()
    );
    Verdict::new(report.odd.is_empty(), &report, text)
}

pub(crate) fn check(args: CheckArgs) -> anyhow::Result<Verdict> {
    let report = durable::check(&args.dir, &args.log, args.until_seq)?;
    let mut text = format!(
        "{} steps synced, {} under way: {} files, {} bytes compared, {} violations",
        report.done,
        report.open,
        report.files,
        report.bytes,
        report.violations.len()
    );
    for violation in report.violations.iter().take(20) {
        text.push_str(&format!("\n  {violation}"));
    }
    Verdict::new(report.violations.is_empty(), &report, text)
}
