//! Measuring fairly: cases run in interleaved rounds, medians and ratios come from the same run,
//! and time is shown next to the CPU it took, in this process, its children and given servers.
//!
//! ```text
//! pinstripe-lab measure --rounds 3 [--drop-caches] [--pid PID]... [--json] \
//!     --case 'ours=tar xf t.tar -C /mnt/ours' --case 'ext4=tar xf t.tar -C /tmp/x'
//! ```
//! The first case is compared with each other one: `ratio` is its speed divided by theirs, so above
//! 1 is faster. From code: [`interleave`], [`sample`], [`command`], [`memory`], [`drop_caches`] and
//! the plain workloads of [`io`] and [`tree`]. Seconds are wall-clock; CPU is user plus system
//! seconds; memory is in bytes. Never judges: limits are the caller's.

pub mod io;
mod process;
pub mod tree;

pub use process::{Memory, cpu_of, drop_caches, memory};

use serde::Serialize;
use std::io::Result;
use std::time::Instant;

/// One run of one case.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Sample {
    pub seconds: f64,
    /// CPU seconds of this process and its waited-for children.
    pub cpu: f64,
    /// CPU seconds of the given server processes.
    pub server_cpu: f64,
    /// Work done, in units of the case (bytes, operations, files).
    pub work: f64,
}

impl Sample {
    /// Units a second.
    pub fn rate(&self) -> f64 {
        if self.seconds > 0.0 { self.work / self.seconds } else { 0.0 }
    }
}

/// Times a piece of work, which says how many units it did. `pids` are the servers' processes.
pub fn sample(pids: &[u32], work: impl FnOnce() -> Result<f64>) -> Result<Sample> {
    let servers = |pids: &[u32]| -> f64 { pids.iter().filter_map(|p| cpu_of(*p)).sum() };
    let (cpu, server_cpu, began) = (process::own_cpu(), servers(pids), Instant::now());
    let work = work()?;
    let seconds = began.elapsed().as_secs_f64();
    let (cpu, server_cpu) = (process::own_cpu() - cpu, servers(pids) - server_cpu);
    Ok(Sample { seconds, cpu, server_cpu, work })
}

/// Times a command given to `sh -c`; one that fails is an error. Its work is 1.
pub fn command(pids: &[u32], script: &str) -> Result<Sample> {
    sample(pids, || {
        let status = std::process::Command::new("sh").args(["-c", script]).status()?;
        match status.success() {
            true => Ok(1.0),
            false => Err(std::io::Error::other(format!("{script}: {status}"))),
        }
    })
}

/// A case: its name and what one round of it does (given the round's number).
pub struct Case<'a> {
    pub name: String,
    pub run: Box<dyn FnMut(usize) -> Result<Sample> + 'a>,
}

impl<'a> Case<'a> {
    pub fn new(name: &str, run: impl FnMut(usize) -> Result<Sample> + 'a) -> Self {
        Case { name: name.into(), run: Box::new(run) }
    }
}

#[derive(Clone, Debug, Serialize)]
pub struct Measured {
    pub name: String,
    /// Medians over the rounds.
    pub median: Sample,
    /// Units a second, median.
    pub rate: f64,
    pub samples: Vec<Sample>,
}

#[derive(Clone, Debug, Serialize)]
pub struct Ratio {
    pub against: String,
    /// Median over the rounds of (first case's rate / this case's rate).
    pub ratio: f64,
}

#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    pub name: String,
    /// What a unit of work is.
    pub unit: String,
    pub cases: Vec<Measured>,
    pub ratios: Vec<Ratio>,
}

/// Runs every case once a round, each round starting with another case, so that drift and leftover
/// heat hit all alike.
pub fn interleave(
    name: &str,
    unit: &str,
    rounds: usize,
    cases: &mut [Case<'_>],
) -> Result<Comparison> {
    let mut samples: Vec<Vec<Sample>> = cases.iter().map(|_| Vec::new()).collect();
    for round in 0..rounds {
        for turn in 0..cases.len() {
            let at = (turn + round) % cases.len();
            samples[at].push((cases[at].run)(round)?);
        }
    }
    let ratios = cases.iter().zip(&samples).skip(1).map(|(case, theirs)| {
        let each = samples[0].iter().zip(theirs).map(|(a, b)| a.rate() / b.rate());
        Ratio { against: case.name.clone(), ratio: median(each) }
    });
    let ratios = ratios.collect();
    let cases = cases.iter().zip(samples).map(|(case, samples)| summary(&case.name, samples));
    Ok(Comparison { name: name.into(), unit: unit.into(), cases: cases.collect(), ratios })
}

fn summary(name: &str, samples: Vec<Sample>) -> Measured {
    let of = |f: fn(&Sample) -> f64| median(samples.iter().map(f));
    let median = Sample {
        seconds: of(|s| s.seconds),
        cpu: of(|s| s.cpu),
        server_cpu: of(|s| s.server_cpu),
        work: of(|s| s.work),
    };
    Measured { name: name.into(), median, rate: of(Sample::rate), samples }
}

/// The middle value, or the mean of the two middle ones; NaN of nothing.
pub fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    match (values.len(), values.len() / 2) {
        (0, _) => f64::NAN,
        (n, mid) if n % 2 == 1 => values[mid],
        (_, mid) => (values[mid - 1] + values[mid]) / 2.0,
    }
}

impl std::fmt::Display for Comparison {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "{} ({})", self.name, self.unit)?;
        for case in &self.cases {
            let m = &case.median;
            write!(f, "  {:<16} {:>14.1}/s {:>9.3} s", case.name, case.rate, m.seconds)?;
            write!(f, "  cpu {:>8.3} s", m.cpu)?;
            if m.server_cpu > 0.0 {
                write!(f, "  servers {:>8.3} s", m.server_cpu)?;
            }
            let ratio = self.ratios.iter().find(|r| r.against == case.name);
            writeln!(
                f,
                "{}",
                ratio.map(|r| format!("  ratio {:.2}", r.ratio)).unwrap_or_default()
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
