//! `cargo xtask bench mds`: one metadata target under 1 to 8,192 sessions.

use super::Bench;
use crate::cx::Cx;
use crate::servers::{Cluster, Transport};
use anyhow::{Context, Result};
use std::collections::BTreeMap;

const SESSIONS: &[usize] = &[1, 16, 64, 256, 1024, 4096, 8192];
const KINDS: &[&str] = &["creates", "stats", "unlinks"];

/// Of one run: rates in the order of [`KINDS`], and the server's CPU microseconds per operation.
type Rates = [f64; 4];
/// Medians by (directory, sessions).
type Medians = BTreeMap<(&'static str, usize), Rates>;

pub fn measure(bench: &Bench, cx: &Cx) -> Result<()> {
    let mut cluster = Cluster::new(cx, "cluster", Transport::Unix, 1)?;
    let seconds = if bench.quick { "1" } else { "3" };
    let mut all: BTreeMap<(&str, usize), Vec<Rates>> = BTreeMap::new();
    for round in 0..bench.rounds {
        for &sessions in SESSIONS {
            for directory in ["unique", "shared"] {
                eprintln!("round {round}: {sessions} sessions, {directory}");
                let name = format!("{round}-{sessions}-{directory}");
                let mut cmd = crate::proc::Cmd::new(cx.set.pinstripe.with_file_name(super::MDS))
                    .args(["--mgs", &cluster.address(), "--seconds", seconds, "--name", &name])
                    .args(["--sessions", &sessions.to_string(), "--key"])
                    .arg(&cluster.key);
                if directory == "shared" {
                    cmd = cmd.arg("--shared");
                }
                let pid = cluster.find("mdt0").ok().and_then(|at| cluster.pid(at));
                let cpu =
                    || pid.map_or(0.0, |p| super::systems::processor_seconds(p.cast_signed()));
                let before = cpu();
                let out = cmd.quiet().limit(300).ok()?;
                let said: serde_json::Value = serde_json::from_slice(&out.stdout)?;
                let operations = said["operations"].as_f64().context("no operations")?;
                let mut rates = [0.0; 4];
                rates[3] = (cpu() - before) * 1e6 / operations;
                for (rate, kind) in rates.iter_mut().zip(KINDS) {
                    *rate = said[kind].as_f64().with_context(|| format!("no {kind}"))?;
                }
                all.entry((directory, sessions)).or_default().push(rates);
            }
        }
    }
    let medians = all.into_iter().map(|(k, rounds)| (k, medians(&rounds))).collect();
    show(&medians);
    if let Some(file) = &bench.json {
        let rows: Vec<_> = medians
            .iter()
            .map(|((d, n), r)| serde_json::json!({"directory": d, "sessions": n, "rates": r}))
            .collect();
        std::fs::write(file, serde_json::to_vec_pretty(&rows)?)?;
    }
    cluster.stop_and_check()
}

fn medians(rounds: &[Rates]) -> Rates {
    [0, 1, 2, 3].map(|kind| {
        let mut values: Vec<f64> = rounds.iter().map(|r| r[kind]).collect();
        values.sort_by(f64::total_cmp);
        values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
    })
}

fn show(medians: &Medians) {
    for directory in ["unique", "shared"] {
        println!(
            "{directory} directory{:>9} {:>12} {:>12} {:>12}",
            KINDS[0], KINDS[1], KINDS[2], "CPU us/op"
        );
        let mut peak = [0.0f64; 3];
        for &sessions in SESSIONS {
            let Some(rates) = medians.get(&(directory, sessions)) else { continue };
            let [creates, stats, unlinks, cpu] = rates;
            println!("{sessions:>10} {creates:>12.0} {stats:>12.0} {unlinks:>12.0} {cpu:>12.1}");
            for (peak, rate) in peak.iter_mut().zip(rates) {
                *peak = peak.max(*rate);
            }
        }
        if let Some(last) = medians.get(&(directory, 8192)) {
            let of = |kind: usize| 100.0 * last[kind] / peak[kind];
            println!("of the peak {:>10.0}% {:>11.0}% {:>11.0}%", of(0), of(1), of(2));
        }
    }
}
