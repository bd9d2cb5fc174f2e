//! Medians, ratios and how they are shown.

use super::systems::FLOOR;
use super::{Unit, Workload};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;

/// One workload's figures on every system.
#[derive(Serialize)]
pub struct Row {
    name: &'static str,
    unit: &'static str,
    mark: f64,
    mark_against: &'static str,
    /// Of each system and round: amount per second.
    speeds: BTreeMap<&'static str, Vec<f64>>,
    /// Of each system and round: daemon's processor microseconds per MiB or operation.
    cpu_us: BTreeMap<&'static str, Vec<f64>>,
}

impl Row {
    pub fn new(workload: &Workload) -> Self {
        Self {
            name: workload.name,
            unit: if workload.unit == Unit::Throughput { "MiB/s" } else { "op/s" },
            mark: workload.mark.0,
            mark_against: workload.mark.1,
            speeds: BTreeMap::new(),
            cpu_us: BTreeMap::new(),
        }
    }

    pub fn add(&mut self, system: &'static str, speed: f64, cpu_seconds: f64) {
        self.speeds.entry(system).or_default().push(speed);
        self.cpu_us.entry(system).or_default().push(cpu_seconds * 1e6);
    }

    fn speed(&self, system: &str) -> f64 {
        median(self.speeds.get(system))
    }
}

fn median(values: Option<&Vec<f64>>) -> f64 {
    middle(values.map_or(&[], |v| v))
}

/// The median.
pub fn middle(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => sorted[middle],
        _ => f64::midpoint(sorted[middle - 1], sorted[middle]),
    }
}

/// Said where sizes were made smaller.
pub const NOT_JUDGED: &str =
    "--quick: sizes are smaller than the marks are meant for, none is judged";

/// All of a run.
#[derive(Serialize)]
pub struct Table {
    rows: Vec<Row>,
    facts: Vec<(&'static str, f64)>,
    /// Sizes are those the marks are meant for.
    judged: bool,
}

impl Table {
    pub fn new(rows: Vec<Row>, judged: bool) -> Self {
        Self { rows, facts: Vec::new(), judged }
    }

    /// A figure beside the table.
    pub fn fact(&mut self, name: &'static str, value: f64) {
        self.facts.push((name, value));
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<34} {:>6} {:>10} {:>10} {:>10} {:>7} {:>9} {:>9} {:>12}  ",
            "", "", "ext4", "bindfs", "pinstripe", "/ext4", "/bindfs", "us of CPU", "mark"
        )?;
        for row in &self.rows {
            let (local, bind, ours) =
                (row.speed("ext4"), row.speed("bindfs"), row.speed("pinstripe"));
            let against = row.speed(row.mark_against);
            let word = match ours / against >= row.mark {
                _ if !self.judged => "",
                true => "met",
                false => "missed",
            };
            writeln!(
                f,
                "{:<34} {:>6} {local:>10.1} {bind:>10.1} {ours:>10.1} {:>7.2} {:>9.2} {:>9.1} \
                 {:>5.2} {:>6}  {word}",
                row.name,
                row.unit,
                ours / local,
                ours / bind,
                median(row.cpu_us.get("pinstripe")),
                row.mark,
                row.mark_against,
            )?;
            if row.mark_against == FLOOR {
                let about = "a FUSE file system that does nothing";
                writeln!(f, "    {about}: {against:.1}, ours {:.2} of it", ours / against)?;
            }
        }
        if !self.judged {
            writeln!(f, "{NOT_JUDGED}")?;
        }
        for (name, value) in &self.facts {
            writeln!(f, "{name:<44} {value:.2}")?;
        }
        Ok(())
    }
}
