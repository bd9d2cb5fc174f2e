//! `cargo xtask bench`: the file system beside the local one that holds its data and beside
//! bindfs, a plain FUSE mirror, in the same run. Rounds are interleaved, the median counts, and
//! ratios say more than figures: nothing here is asserted.

mod build;
mod data;
mod far;
mod level;
mod mds;
mod peers;
mod rpc;
mod shared;
mod systems;
mod table;
mod tools;
mod trees;

use crate::cx::{Cx, Settings, TAG};
use crate::guard::Guard;
use crate::proc::{ends, kill_group};
use crate::runner::{build_now, default_jobs, stop_flag};
use crate::sweep::{Scope, sweep, tag};
use anyhow::{Context, Result};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use systems::{FLOOR, System};
use table::{Row, Table};

/// `cargo xtask bench`
#[derive(clap::Args)]
pub struct Bench {
    /// Names of workloads, or parts of them; all when none is given. `mds` alone measures a
    /// metadata target with 1 to 8,192 sessions, `rpc` alone counts the messages of a small job,
    /// `shared` alone compares one file that four mounts write with four files, `build` alone builds a
    /// C project on two mounts in turn, `tools` alone times mcp and msum beside cp and sha256sum, xcp and cpz
    names: Vec<String>,
    /// Rounds; the median counts
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Smaller sizes, by which no mark is judged
    #[arg(long)]
    quick: bool,
    /// Measure this program instead of building one with the `release` profile
    #[arg(long, value_name = "FILE")]
    pinstripe: Option<PathBuf>,
    /// Also write the figures as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Where the scratch directory is made; the disk under it is what is measured
    #[arg(long, default_value = "/var/tmp", value_name = "DIR")]
    scratch: PathBuf,
    /// Mount options of the mounts that are not given any, such as io_uring=on
    #[arg(short = 'o', long = "mount-options", value_name = "OPTS")]
    options: Option<String>,
    /// Set in the process that measures
    #[arg(long, hide = true)]
    inner: Option<String>,
}

/// Between two looks whether a signal has come.
const LOOK: Duration = Duration::from_millis(200);

/// The program that loads a metadata target.
pub const MDS: &str = "pinstripe-mdsbench";

/// How a workload's result is read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// MiB/s.
    Throughput,
    /// Operations per second.
    Rate,
}

/// One workload: what it does on one system, and what is hoped for.
pub struct Workload {
    pub name: &'static str,
    pub unit: Unit,
    /// Hoped-for ratio and to what: `ext4`, `bindfs` or `floor`.
    pub mark: (f64, &'static str),
    /// Runs it; the result is the amount (MiB or operations) and the seconds it took.
    pub run: fn(&Cx, &mut System, &Sizes) -> Result<(f64, f64)>,
}

/// How much of everything.
pub struct Sizes {
    /// Large files, in MiB.
    pub large: usize,
    /// Files of the tree.
    pub files: usize,
    /// Random reads.
    pub reads: usize,
}

/// Runs the bench in a process of its own, so that whatever it leaves can be swept.
pub fn run(bench: Bench) -> Result<()> {
    if let Some(settings) = &bench.inner {
        let cx = Cx::new(serde_json::from_str(settings)?);
        return match &bench.names[..] {
            [one] if one == "mds" => mds::measure(&bench, &cx),
            [one] if one == "build" => build::measure(&bench, &cx),
            [one] if one == "rpc" => rpc::measure(&bench, &cx),
            [one] if one == "shared" => shared::measure(&bench, &cx),
            [one] if one == "tools" => tools::measure(&bench, &cx),
            _ => measure(&bench, cx),
        };
    }
    let scratch = bench.scratch.join(format!("px-{}", std::process::id()));
    std::fs::create_dir_all(&scratch)?;
    let stop = stop_flag()?;
    let guard = Guard::over(&scratch, false)?;
    let settings = Settings {
        name: "bench".into(),
        scratch: scratch.clone(),
        tally: scratch.join("tally.json"),
        pinstripe: scratch.join("bin/pinstripe"),
        seed: 1,
        quick: bench.quick,
        jobs: default_jobs(),
        wanted: ["bindfs", "fuse3", "gcc", "git", "make"].map(str::to_owned).to_vec(),
        release: true,
        tests: false,
        options: bench.options.clone(),
        cases: None,
    };
    build_now(&settings, bench.pinstripe.as_deref())?;
    let mut words: Vec<_> = std::env::args_os().skip(1).collect();
    words.extend(["--inner".into(), serde_json::to_string(&settings)?.into()]);
    let status = until_told(
        &stop,
        std::process::Command::new(std::env::current_exe()?)
            .args(words)
            .env(TAG, tag(&scratch))
            .env("RUST_LIB_BACKTRACE", "0")
            .process_group(0),
    );
    for left in sweep(&Scope { dir: scratch.clone(), tag: tag(&scratch) }) {
        eprintln!("left over: {left}");
    }
    let _ = std::fs::remove_dir_all(&scratch);
    guard.clear()?;
    anyhow::ensure!(status?.success(), "the bench failed");
    Ok(())
}

/// Runs it to its end, or until a signal tells to end: what it has left is swept in both cases.
fn until_told(stop: &AtomicBool, command: &mut Command) -> Result<ExitStatus> {
    let mut child = command.spawn()?;
    while !ends(&child, LOOK)? {
        if stop.load(Ordering::Relaxed) {
            kill_group(child.id());
            child.wait()?;
            anyhow::bail!("interrupted");
        }
    }
    Ok(child.wait()?)
}

fn workloads(names: &[String]) -> Vec<&'static Workload> {
    let wanted =
        |w: &&Workload| names.is_empty() || names.iter().any(|n| w.name.contains(n.as_str()));
    data::ALL.iter().chain(trees::ALL).filter(wanted).collect()
}

fn measure(bench: &Bench, cx: Cx) -> Result<()> {
    let sizes = if bench.quick {
        Sizes { large: 64, files: 2_000, reads: 4_000 }
    } else {
        Sizes { large: 1024, files: 20_000, reads: 40_000 }
    };
    let mut systems = System::all(&cx)?;
    let chosen = workloads(&bench.names);
    if chosen.iter().any(|w| w.mark.1 == FLOOR) {
        systems.push(System::floor(&cx)?);
    }
    let mut rows: Vec<Row> = chosen.iter().map(|w| Row::new(w)).collect();
    for round in 0..bench.rounds {
        for (workload, row) in chosen.iter().zip(&mut rows) {
            let here = |s: &&mut System| s.name() != FLOOR || workload.mark.1 == FLOOR;
            for system in systems.iter_mut().filter(here) {
                eprintln!("round {round}: {} on {}", workload.name, system.name());
                system.mark();
                let (amount, seconds) = (workload.run)(&cx, system, &sizes)
                    .with_context(|| format!("{} on {}", workload.name, system.name()))?;
                row.add(system.name(), amount / seconds, system.spent() / amount);
            }
        }
    }
    let mut table = Table::new(rows, !bench.quick);
    for system in systems {
        system.end(&cx, &mut table)?;
    }
    println!("{table}");
    if let Some(file) = &bench.json {
        std::fs::write(file, serde_json::to_vec_pretty(&table)?)?;
    }
    Ok(())
}
