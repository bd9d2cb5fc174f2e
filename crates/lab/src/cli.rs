//! The command line of `pinstripe-lab`: each command works on any mounted directory.
//!
//! Exit codes: 0 all the same, 1 a difference or fault was found, 2 wrong usage or the run itself
//! could not be done. `--json` prints one JSON object on standard output; everything meant for
//! people goes to standard error.

mod coherence;
mod durable;
mod exerciser;
mod forgetful;
mod measure;
mod model;

use clap::{Parser, Subcommand};
use serde::Serialize;
use std::process::ExitCode;

#[derive(Parser)]
#[command(name = "pinstripe-lab", version, about = "Prove and measure a mounted file system")]
struct Cli {
    #[command(subcommand)]
    command: Command,
    /// Print one JSON object on standard output.
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Subcommand)]
enum Command {
    /// Random operations compared with a local directory.
    Model(model::Args),
    /// Several processes hammer one directory and verify what they read.
    Exerciser(exerciser::Args),
    /// Several processes do anything to a few names; nothing may hang or fail oddly.
    Racer(exerciser::Args),
    /// Several mounts of one file system: does one order explain what all of them saw?
    Coherence(coherence::Args),
    /// Write, sync and log what was synced.
    DurableWrite(durable::WriteArgs),
    /// Compare such a log with what is there.
    DurableCheck(durable::CheckArgs),
    /// A disk that forgets what was not synced.
    #[command(subcommand)]
    Forgetful(forgetful::Command),
    /// Time commands in interleaved rounds.
    Measure(measure::Args),
    #[command(hide = true)]
    ExerciseWorker(exerciser::WorkerArgs),
}

/// What a command found.
pub(crate) struct Verdict {
    /// No difference, no fault.
    pub same: bool,
    pub json: serde_json::Value,
    pub text: String,
}

impl Verdict {
    pub(crate) fn new(same: bool, report: &impl Serialize, text: String) -> anyhow::Result<Self> {
        Ok(Verdict { same, json: serde_json::to_value(report)?, text })
    }
}

/// Runs the command line of this process.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    let result = match cli.command {
        Command::Model(args) => model::run(args),
        Command::Exerciser(args) => exerciser::run(args, false),
        Command::Racer(args) => exerciser::run(args, true),
        Command::Coherence(args) => coherence::run(args),
        Command::DurableWrite(args) => durable::write(args),
        Command::DurableCheck(args) => durable::check(args),
        Command::Forgetful(command) => forgetful::run(command),
        Command::Measure(args) => measure::run(&args),
        Command::ExerciseWorker(args) => match exerciser::work(&args) {
            Ok(()) => return ExitCode::SUCCESS,
            Err(error) => Err(error),
        },
    };
    match result {
        Ok(verdict) => {
            eprintln!("{}", verdict.text);
            if cli.json {
                println!("{}", verdict.json);
            }
            ExitCode::from(u8::from(!verdict.same))
        }
        Err(error) => {
            eprintln!("pinstripe-lab: {error:#}");
            ExitCode::from(2)
        }
    }
}
