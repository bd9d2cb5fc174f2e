//! `pinstripe-lab forgetful`.

use super::Verdict;
use crate::forgetful::{self, Journal, Options};
use crate::sys;
use anyhow::Context;
use serde_json::json;
use std::path::PathBuf;

#[derive(clap::Subcommand)]
pub(crate) enum Command {
    /// Mount the mirror; ends on unmount, SIGINT or SIGTERM.
    Mount(MountArgs),
    /// Say how many operations a journal has and where its sync points are.
    Info {
        #[arg(long)]
        journal: PathBuf,
    },
    /// Build the directory that a power cut would have left.
    Cut(CutArgs),
}

#[derive(clap::Args)]
pub(crate) struct MountArgs {
    /// Holds the live data; nobody else may change it meanwhile.
    #[arg(long)]
    backing: PathBuf,
    #[arg(long)]
    mountpoint: PathBuf,
    /// New file, outside the backing directory.
    #[arg(long)]
    journal: PathBuf,
    /// Kept up to date with the number of operations (8 bytes, little-endian).
    #[arg(long)]
    seq_file: Option<PathBuf>,
}

#[derive(clap::Args)]
pub(crate) struct CutArgs {
    #[arg(long)]
    journal: PathBuf,
    /// Operations that reached the disk's cache.
    #[arg(long)]
    at: usize,
    /// Let a random part of what was not synced arrive.
    #[arg(long)]
    seed: Option<u64>,
    /// New directory.
    #[arg(long)]
    out: PathBuf,
}

pub(crate) fn run(command: Command) -> anyhow::Result<Verdict> {
    match command {
        Command::Mount(args) => mount(args),
        Command::Info { journal } => {
            let journal = Journal::read(&journal)?;
            let (operations, barriers) = (journal.entries.len(), journal.barriers());
            let text = format!("{operations} operations, {} sync points", barriers.len());
            let report = json!({ "operations": operations, "barriers": barriers });
            Verdict::new(true, &report, text)
        }
        Command::Cut(args) => {
            let journal = Journal::read(&args.journal)?;
            let report = forgetful::cut(&journal, args.at, args.seed, &args.out)
                .with_context(|| args.out.display().to_string())?;
            let text = format!(
                "cut at {} of {}: metadata up to {}, {} files, {} bytes arrived, {} lost",
                report.cut,
                report.operations,
                report.metadata,
                report.files,
                report.kept_bytes,
                report.lost_bytes
            );
            Verdict::new(true, &report, text)
        }
    }
}

fn mount(args: MountArgs) -> anyhow::Result<Verdict> {
    let waiter = sys::EndSignals::block()?;
    let mounted = forgetful::mount(&Options {
        backing: args.backing,
        mountpoint: args.mountpoint.clone(),
        journal: args.journal,
        seq_file: args.seq_file,
    })?;
    eprintln!("forgetful: mounted on {}", args.mountpoint.display());
    while !mounted.is_over() && !waiter.wait(std::time::Duration::from_millis(200)) {}
    mounted.unmount();
    Verdict::new(true, &json!({ "unmounted": true }), "forgetful: unmounted".into())
}
