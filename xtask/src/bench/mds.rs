//! `cargo xtask bench mds`: one metadata target under 1 to 8,192 sessions. The target, and what
//! loads it, are processes of their own, so that what an operation costs each can be told apart: on
//! one machine both take from the same cores. Beside it, messages to and fro over as many sockets with
//! nothing behind them: what the machine itself loses with their number.

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

/// Of one run.
#[derive(Clone, Copy)]
struct Run {
    /// In the order of [`KINDS`].
    kinds: [Figures; 3],
    /// Exchanges per second over bare sockets.
    bare: f64,
}
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
                .zip(run.kinds)
                .map(|(k, f)| ((*k).to_owned(), serde_json::json!(f)))
                .collect();
            let shares = KINDS_OF.map(|of| of_peak(&medians, directory, *sessions, of));
            let bare = of_peak(&medians, directory, *sessions, |r| r.bare);
            serde_json::json!({"directory": directory, "sessions": sessions, "kinds": kinds,
                "percent_of_peak": shares, "bare_per_second": run.bare,
                "bare_percent_of_peak": bare})
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
    let number = |at: &serde_json::Value, what: &str| {
        at[what].as_f64().with_context(|| format!("no {what}: {said}"))
    };
    let figures = |kind: &str| -> Result<Figures> {
        let of = &said[kind];
        let (per_second, client_us) = (number(of, "per_second")?, number(of, "client_us")?);
        Ok(Figures { per_second, client_us, server_us: number(of, "server_us")? })
    };
    let [creates, stats, unlinks] = KINDS.map(figures);
    Ok(Run { kinds: [creates?, stats?, unlinks?], bare: number(&said, "bare_per_second")? })
}

fn medians(runs: &[Run]) -> Run {
    let median = |of: &dyn Fn(&Run) -> f64| {
        let mut values: Vec<f64> = runs.iter().map(of).collect();
        values.sort_by(f64::total_cmp);
        values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
    };
    let kind = |kind: usize| Figures {
        per_second: median(&|r| r.kinds[kind].per_second),
        client_us: median(&|r| r.kinds[kind].client_us),
        server_us: median(&|r| r.kinds[kind].server_us),
    };
    Run { kinds: [kind(0), kind(1), kind(2)], bare: median(&|r| r.bare) }
}

/// The rates of each kind of operation.
const KINDS_OF: [fn(&Run) -> f64; 3] =
    [|r| r.kinds[0].per_second, |r| r.kinds[1].per_second, |r| r.kinds[2].per_second];

/// A rate as percent of the best with any number of sessions.
fn of_peak(medians: &Medians, directory: &str, sessions: usize, of: fn(&Run) -> f64) -> f64 {
    let rates = medians.iter().filter(|((d, _), _)| *d == directory);
    let peak = rates.map(|(_, run)| of(run)).fold(0.0, f64::max);
    let run = medians.iter().find(|((d, n), _)| *d == directory && *n == sessions);
    run.map_or(f64::NAN, |(_, run)| 100.0 * of(run) / peak)
}

fn show(medians: &Medians) {
    println!("operations per second, percent of the peak, CPU us per operation of load + target");
    for directory in ["unique", "shared"] {
        let [creates, stats, unlinks] = KINDS;
        println!("{directory:<8}{creates:>31}{stats:>31}{unlinks:>31}{:>18}", "bare sockets");
        for &sessions in SESSIONS {
            let Some(run) = medians.get(&(directory, sessions)) else { continue };
            print!("{sessions:>8}");
            for (f, of) in run.kinds.iter().zip(KINDS_OF) {
                let percent = of_peak(medians, directory, sessions, of);
                let cpu = format!("{:.1} + {:.1}", f.client_us, f.server_us);
                print!("{:>12.0} {percent:>4.0} % {cpu:>12}", f.per_second);
            }
            let percent = of_peak(medians, directory, sessions, |r| r.bare);
            println!("{:>11.0} {percent:>4.0} %", run.bare);
        }
    }
    for directory in ["unique", "shared"] {
        let bare = of_peak(medians, directory, 8192, |r| r.bare);
        for (kind, of) in KINDS.iter().zip(KINDS_OF) {
            let percent = of_peak(medians, directory, 8192, of);
            if percent < WANTED {
                println!(
                    "below {WANTED} %: {kind} in the {directory} directory, {percent:.0} % \
                     (bare sockets {bare:.0} %)"
                );
            }
        }
    }
}
