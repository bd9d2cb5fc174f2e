//! `cargo xtask bench mds`: one metadata target under 1 to 8,192 sessions. The target, and what
//! loads it, are processes of their own, so that what an operation costs each can be told apart: on
//! one machine both take from the same cores.

use super::Bench;
use crate::cx::Cx;
use crate::servers::{Cluster, Transport};
use anyhow::{Context, Result};
use std::collections::BTreeMap;

const SESSIONS: &[usize] = &[1, 16, 64, 256, 1024, 4096, 8192];
const KINDS: [&str; 3] = ["creates", "stats", "unlinks"];
/// Share of the best rate that is to be held with the most sessions, percent.
const WANTED: f64 = 90.0;

/// Of one kind of operation.
#[derive(Clone, Copy, serde::Serialize)]
struct Figures {
    per_second: f64,
    /// Processor microseconds per operation, of the load and of the target.
    client_us: f64,
    server_us: f64,
}

/// Of one run, in the order of [`KINDS`].
type Run = [Figures; 3];
/// Medians by (directory, sessions).
type Medians = BTreeMap<(&'static str, usize), Run>;

pub fn measure(bench: &Bench, cx: &Cx) -> Result<()> {
    let mut cluster = Cluster::new(cx, "cluster", Transport::Unix, 1)?;
    let mut all: BTreeMap<(&str, usize), Vec<Run>> = BTreeMap::new();
    for round in 0..bench.rounds {
        for &sessions in SESSIONS {
            for directory in ["unique", "shared"] {
                eprintln!("round {round}: {sessions} sessions, {directory}");
                let name = format!("{round}-{sessions}-{directory}");
                let run = load(bench, cx, &cluster, &name, sessions, directory == "shared")?;
                all.entry((directory, sessions)).or_default().push(run);
            }
        }
    }
    let medians: Medians = all.into_iter().map(|(k, runs)| (k, medians(&runs))).collect();
    show(&medians);
    if let Some(file) = &bench.json {
        let row = |((directory, sessions), run): (&(&str, usize), &Run)| {
            let kinds: serde_json::Map<_, _> = KINDS
                .iter()
                .zip(run)
                .map(|(k, f)| ((*k).to_owned(), serde_json::json!(f)))
                .collect();
            let of_peak = of_peak(&medians, directory, *sessions);
            serde_json::json!({"directory": directory, "sessions": sessions, "kinds": kinds,
                "percent_of_peak": of_peak})
        };
        let rows: Vec<_> = medians.iter().map(row).collect();
        std::fs::write(file, serde_json::to_vec_pretty(&rows)?)?;
    }
    cluster.stop_and_check()
}

fn load(
    bench: &Bench,
    cx: &Cx,
    cluster: &Cluster,
    name: &str,
    sessions: usize,
    shared: bool,
) -> Result<Run> {
    let seconds = if bench.quick { "1" } else { "3" };
    let mut cmd = crate::proc::Cmd::new(cx.set.pinstripe.with_file_name(super::MDS))
        .args(["--mgs", &cluster.address(), "--seconds", seconds, "--name", name])
        .args(["--sessions", &sessions.to_string(), "--key"])
        .arg(&cluster.key);
    if shared {
        cmd = cmd.arg("--shared");
    }
    if let Some(pid) = cluster.find("mdt0").ok().and_then(|at| cluster.pid(at)) {
        cmd = cmd.args(["--server", &pid.to_string()]);
    }
    let out = cmd.quiet().limit(300).ok()?;
    let said: serde_json::Value = serde_json::from_slice(&out.stdout)?;
    let mut run = [Figures { per_second: 0.0, client_us: 0.0, server_us: 0.0 }; 3];
    for (figures, kind) in run.iter_mut().zip(KINDS) {
        let of = |what: &str| {
            said[kind][what].as_f64().with_context(|| format!("no {what} of {kind}: {said}"))
        };
        *figures = Figures {
            per_second: of("per_second")?,
            client_us: of("client_us")?,
            server_us: of("server_us")?,
        };
    }
    Ok(run)
}

fn medians(runs: &[Run]) -> Run {
    let median = |of: &dyn Fn(&Run) -> f64| {
        let mut values: Vec<f64> = runs.iter().map(of).collect();
        values.sort_by(f64::total_cmp);
        values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
    };
    [0, 1, 2].map(|kind| Figures {
        per_second: median(&|r| r[kind].per_second),
        client_us: median(&|r| r[kind].client_us),
        server_us: median(&|r| r[kind].server_us),
    })
}

/// Rates as percents of the best with any number of sessions.
fn of_peak(medians: &Medians, directory: &str, sessions: usize) -> [f64; 3] {
    [0, 1, 2].map(|kind| {
        let rates = medians.iter().filter(|((d, _), _)| *d == directory);
        let peak = rates.map(|(_, run)| run[kind].per_second).fold(0.0, f64::max);
        let run = medians.iter().find(|((d, n), _)| *d == directory && *n == sessions);
        run.map_or(f64::NAN, |(_, run)| 100.0 * run[kind].per_second / peak)
    })
}

fn show(medians: &Medians) {
    println!("operations per second, percent of the peak, CPU us per operation of load + target");
    for directory in ["unique", "shared"] {
        println!("{directory:<8}{:>31}{:>31}{:>31}", KINDS[0], KINDS[1], KINDS[2]);
        for &sessions in SESSIONS {
            let Some(run) = medians.get(&(directory, sessions)) else { continue };
            print!("{sessions:>8}");
            for (f, percent) in run.iter().zip(of_peak(medians, directory, sessions)) {
                let cpu = format!("{:.1} + {:.1}", f.client_us, f.server_us);
                print!("{:>12.0} {percent:>4.0} % {cpu:>12}", f.per_second);
            }
            println!();
        }
    }
    for directory in ["unique", "shared"] {
        for (kind, percent) in KINDS.iter().zip(of_peak(medians, directory, 8192)) {
            if percent < WANTED {
                println!("below {WANTED} %: {kind} in the {directory} directory, {percent:.0} %");
            }
        }
    }
}
