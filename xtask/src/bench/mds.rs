//! `cargo xtask bench mds`: one metadata target under 1 to 8,192 sessions. The target, and what
//! loads it, are processes of their own, so that what an operation costs each can be told apart: on
//! one machine both take from the same cores. The sessions share the connections of the load's
//! process, one for each of its threads, and by these the target is judged. Beside it, for two counts,
//! sessions that have a socket each, and, for all, messages to and fro over as many sockets with
//! nothing behind them: what the machine itself loses with the number of sockets.

use super::Bench;
use crate::cx::Cx;
use crate::servers::{Cluster, Transport};
use anyhow::{Context, Result};
use std::collections::BTreeMap;

const SESSIONS: &[usize] = &[1, 16, 64, 256, 1024, 4096, 8192];
/// Of these, also with a socket for each session.
const ALONE: &[usize] = &[64, 8192];
const DIRECTORIES: [&str; 2] = ["unique", "shared"];
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

/// What is loaded: whether each session has a socket of its own, the directory, how many sessions.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Case {
    alone: bool,
    directory: &'static str,
    sessions: usize,
}

type Medians = BTreeMap<Case, Run>;

pub fn measure(bench: &Bench, cx: &Cx) -> Result<()> {
    let mut cluster = Cluster::new(cx, "cluster", Transport::Unix, 1)?;
    let mut all: BTreeMap<Case, Vec<Run>> = BTreeMap::new();
    for round in 0..bench.rounds {
        for (alone, counts) in [(false, SESSIONS), (true, ALONE)] {
            for &sessions in counts {
                for directory in DIRECTORIES {
                    let case = Case { alone, directory, sessions };
                    let sockets = if alone { "own sockets" } else { "shared connections" };
                    eprintln!("round {round}: {sessions} sessions, {sockets}, {directory}");
                    let run = load(bench, cx, &cluster, round, case)?;
                    all.entry(case).or_default().push(run);
                }
            }
        }
    }
    let medians: Medians = all.into_iter().map(|(k, runs)| (k, medians(&runs))).collect();
    show(&medians);
    if let Some(file) = &bench.json {
        let row = |(case, run): (&Case, &Run)| {
            let kinds: serde_json::Map<_, _> = KINDS
                .iter()
                .zip(run.kinds)
                .map(|(k, f)| ((*k).to_owned(), serde_json::json!(f)))
                .collect();
            let shares = KINDS_OF.map(|of| of_peak(&medians, *case, of));
            let bare = of_peak(&medians, *case, |r| r.bare);
            serde_json::json!({"directory": case.directory, "sessions": case.sessions,
                "share_connections": !case.alone, "kinds": kinds, "percent_of_peak": shares, "bare_per_second": run.bare,
                "bare_percent_of_peak": bare})
        };
        let rows: Vec<_> = medians.iter().map(row).collect();
        std::fs::write(file, serde_json::to_vec_pretty(&rows)?)?;
    }
    cluster.stop_and_check()
}

fn load(bench: &Bench, cx: &Cx, cluster: &Cluster, round: usize, case: Case) -> Result<Run> {
    let Case { alone, directory, sessions } = case;
    let name = format!("{round}-{sessions}-{directory}-{alone}");
    let seconds = if bench.quick { "1" } else { "3" };
    let mut cmd = crate::proc::Cmd::new(cx.set.pinstripe.with_file_name(super::MDS))
        .args(["--mgs", &cluster.address(), "--seconds", seconds, "--name", &name])
        .args(["--sessions", &sessions.to_string(), "--key"])
        .arg(&cluster.key);
    if directory == "shared" {
        cmd = cmd.arg("--shared");
    }
    if !alone {
        cmd = cmd.arg("--share");
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

/// A rate as percent of the best with any number of sessions of its sort.
fn of_peak(medians: &Medians, case: Case, of: fn(&Run) -> f64) -> f64 {
    let alike = |c: &Case| (c.alone, c.directory) == (case.alone, case.directory);
    let rates = medians.iter().filter(|(c, _)| alike(c));
    let peak = rates.map(|(_, run)| of(run)).fold(0.0, f64::max);
    medians.get(&case).map_or(f64::NAN, |run| 100.0 * of(run) / peak)
}

fn show(medians: &Medians) {
    println!("operations per second, percent of the peak, CPU us per operation of load + target");
    for (alone, sockets) in
        [(false, "sessions share the load's connections"), (true, "sockets of their own")]
    {
        for directory in DIRECTORIES {
            println!("{directory} directory, {sockets}");
            let [creates, stats, unlinks] = KINDS;
            println!("{:<8}{creates:>31}{stats:>31}{unlinks:>31}{:>18}", "", "as many sockets");
            for &sessions in SESSIONS {
                let case = Case { alone, directory, sessions };
                if let Some(run) = medians.get(&case) {
                    show_row(medians, case, run);
                }
            }
        }
    }
    for directory in DIRECTORIES {
        let most = |alone| Case { alone, directory, sessions: 8192 };
        for (kind, of) in KINDS.iter().zip(KINDS_OF) {
            let percent = of_peak(medians, most(false), of);
            if percent < WANTED {
                println!(
                    "below {WANTED} %: {kind} in the {directory} directory, {percent:.0} % (with \
                     sockets of their own {:.0} % of that with 64)",
                    of_peak(medians, most(true), of)
                );
            }
        }
    }
}

fn show_row(medians: &Medians, case: Case, run: &Run) {
    print!("{:>8}", case.sessions);
    for (f, of) in run.kinds.iter().zip(KINDS_OF) {
        let percent = of_peak(medians, case, of);
        let cpu = format!("{:.1} + {:.1}", f.client_us, f.server_us);
        print!("{:>12.0} {percent:>4.0} % {cpu:>12}", f.per_second);
    }
    println!("{:>11.0} {:>4.0} %", run.bare, of_peak(medians, case, |r| r.bare));
}
