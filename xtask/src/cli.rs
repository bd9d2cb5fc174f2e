//! The command line of `cargo xtask`.

use crate::cx::{Cx, Settings};
use crate::plan::Check;
use crate::runner::{Options, Runner};
use crate::{checks, holder, locker, steps};
use anyhow::{Context, Result, bail};
use clap::{Parser, Subcommand};
use std::io::{ErrorKind, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Tests and measures the workspace")]
struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Run all checks, or those named
    Test(Test),
    /// Measure beside the local file system and bindfs
    Bench(crate::bench::Bench),
    /// Run GNU coreutils' own tests with mcp and msum in the place of cp and the checksum programs
    TestGnu(crate::gnu::TestGnu),
    /// Run one check in this process (used by `test`)
    #[command(hide = true)]
    One { settings: String },
    /// Take a lock and hold it (used by checks)
    #[command(hide = true)]
    Lock(crate::locker::Lock),
    /// Hold a file open and do what standard input says (used by checks)
    #[command(hide = true)]
    Hold(crate::holder::Hold),
    /// Clear up after a run that is killed (used by `test` and `bench`)
    #[command(hide = true)]
    Guard(crate::guard::Watch),
}

#[derive(clap::Args)]
struct Test {
    /// Names of checks; all when none is given
    names: Vec<String>,
    /// List the checks and stop
    #[arg(long)]
    list: bool,
    /// Smaller sizes, and without the slowest checks
    #[arg(long)]
    quick: bool,
    /// Seed of everything random
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many slots checks may take at once (default: number of processors, at least 2)
    #[arg(long)]
    jobs: Option<usize>,
    /// Test a release build
    #[arg(long)]
    release: bool,
    /// Test this program instead of building one
    #[arg(long, value_name = "FILE")]
    pinstripe: Option<PathBuf>,
    /// Keep the scratch directory
    #[arg(long)]
    keep: bool,
    /// Also write the results as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Minutes after which no check is started any more; those left have failed (default: 42 with four processors and
    /// more, 63 with fewer)
    #[arg(long, value_name = "MINUTES")]
    budget: Option<u64>,
    /// Only the cases with this in their names; others of their check may need those left out
    #[arg(long, value_name = "TEXT")]
    cases: Option<String>,
    /// Where the scratch directory is made; must be on a disk and open to every user
    #[arg(long, default_value = "/var/tmp", value_name = "DIR")]
    scratch: PathBuf,
    /// Mount options of the mounts that are not given any, such as io_uring=on
    #[arg(short = 'o', long = "mount-options", value_name = "OPTS")]
    options: Option<String>,
}

pub fn main() -> ExitCode {
    let result = match Args::parse().what {
        What::Test(args) => test(args),
        What::One { settings } => one(&settings),
        What::Bench(bench) => return code(crate::bench::run(bench).map(|()| true)),
        What::TestGnu(test) => crate::gnu::run(&test),
        What::Lock(lock) => return code(locker::run(&lock)),
        What::Hold(hold) => return code(holder::run(&hold)),
        What::Guard(watch) => return code(crate::guard::run(&watch)),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(e) => {
            eprintln!("xtask: {e:?}");
            println!("0 passed, 1 failed");
            ExitCode::FAILURE
        }
    }
}

/// The exit code of a helper, which prints no totals.
fn code(result: Result<bool>) -> ExitCode {
    match result {
        Ok(good) => ExitCode::from(u8::from(!good)),
        Err(e) => {
            eprintln!("{e:#}");
            ExitCode::from(2)
        }
    }
}

/// Shows the checks; whoever reads that may end before (`| head`).
fn list() -> Result<()> {
    let line = |check: &Check| format!("{:<16} {}\n", check.name, check.about);
    let text: String = checks::ALL.iter().map(|check| line(check)).collect();
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(e) if e.kind() != ErrorKind::BrokenPipe => Err(e).context("standard output"),
        _ => Ok(()),
    }
}

fn test(args: Test) -> Result<bool> {
    if args.list {
        return list().map(|()| true);
    }
    let chosen = choose(&args.names, args.quick)?;
    let jobs = args.jobs.unwrap_or_else(crate::runner::default_jobs);
    let runner = Runner::new(
        Options {
            seed: args.seed,
            quick: args.quick,
            jobs,
            release: args.release,
            pinstripe: args.pinstripe,
            keep: args.keep,
            budget: Duration::from_secs(
                60 * args.budget.unwrap_or_else(crate::runner::default_budget),
            ),
            scratch: args.scratch,
            options: args.options,
            cases: args.cases,
        },
        chosen,
    )?;
    let report = runner.run()?;
    if let Some(file) = args.json {
        std::fs::write(&file, serde_json::to_vec_pretty(&report)?)
            .with_context(|| file.display().to_string())?;
    }
    report.print_end();
    Ok(report.failed() == 0)
}

fn choose(names: &[String], quick: bool) -> Result<Vec<&'static Check>> {
    if names.is_empty() {
        return Ok(checks::ALL.iter().copied().filter(|c| !(quick && c.slow)).collect());
    }
    names
        .iter()
        .map(|name| {
            checks::ALL
                .iter()
                .chain(checks::BY_NAME)
                .copied()
                .find(|c| c.name == name)
                .with_context(|| format!("no check is called {name}; see --list"))
        })
        .collect()
}

fn one(settings: &str) -> Result<bool> {
    let settings: Settings = serde_json::from_str(settings)?;
    let all = checks::ALL.iter().chain(checks::BY_NAME).copied();
    let steps = steps::TOOL_STEPS.iter().chain([&steps::PACKAGES, &steps::BUILD]);
    let Some(check) = all.chain(steps).find(|c| c.name == settings.name) else {
        bail!("no check is called {}", settings.name)
    };
    println!("# {}: {} (seed {})", check.name, check.about, settings.seed);
    Ok(Cx::new(settings).settle(check.run))
}
