//! What a run prints: a line per check while it runs, the failures at the end, the totals last.

use crate::cx::Tally;
use crate::plan::Check;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Lines of a failed check's log shown at the end.
const SHOWN: usize = 60;
/// Of how many failed cases above that all is shown that was said.
const SHOWN_FAILURES: usize = 5;
/// Failures named as soon as their check has ended.
const AT_ONCE: usize = 10;

/// The outcome of one check.
#[derive(Serialize)]
pub struct Line {
    pub name: String,
    pub passed: u64,
    pub failed: u64,
    pub seconds: f64,
    pub failures: Vec<String>,
    pub notes: Vec<String>,
    pub log: PathBuf,
}

impl Line {
    pub fn new(check: &Check, tally: Tally, took: Duration, log: PathBuf) -> Self {
        Self {
            name: check.name.to_owned(),
            passed: tally.passed,
            failed: tally.failed,
            seconds: took.as_secs_f64(),
            failures: tally.failures,
            notes: tally.notes,
            log,
        }
    }
}

/// The outcome of a run.
#[derive(Default, Serialize)]
pub struct Report {
    pub lines: Vec<Line>,
    pub left_over: Vec<String>,
}

impl Report {
    pub fn add(&mut self, line: Line) {
        let word = if line.failed == 0 { "ok  " } else { "FAIL" };
        let counts = format!("{} passed, {} failed", line.passed, line.failed);
        println!("{word}  {:<16} {:>7.1} s  {counts}", line.name, line.seconds);
        // At once, since a run may be cut off before its end.
        for name in line.failures.iter().take(AT_ONCE) {
            println!("      {:<16} failed: {name}", "");
        }
        for note in &line.notes {
            println!("      {:<16} {note}", "");
        }
        self.lines.push(line);
    }

    /// Records what a check left behind although it ended by itself.
    pub fn left_over(&mut self, name: &str, things: Vec<String>) {
        self.left_over.extend(things.into_iter().map(|t| format!("{name}: {t}")));
    }

    /// Adds the check that nothing was left over.
    pub fn judge_left_over(&mut self) {
        let failed = u64::from(!self.left_over.is_empty());
        self.add(Line {
            name: "leftovers".to_owned(),
            passed: 1 - failed,
            failed,
            seconds: 0.0,
            failures: Vec::new(),
            notes: self.left_over.clone(),
            log: PathBuf::new(),
        });
    }

    pub fn passed(&self) -> u64 {
        self.lines.iter().map(|l| l.passed).sum()
    }

    pub fn failed(&self) -> u64 {
        self.lines.iter().map(|l| l.failed).sum()
    }

    /// Shows why checks failed, then what failed, for who sees only the end, and last the totals.
    pub fn print_end(&self) {
        let failed = || self.lines.iter().filter(|l| l.failed > 0);
        for line in failed() {
            println!("\n---- {} ({} failed)", line.name, line.failed);
            for name in &line.failures {
                println!("  failed: {name}");
            }
            for note in &line.notes {
                println!("  {note}");
            }
            print_log(&line.log);
        }
        for line in failed() {
            println!();
            let said = [&line.failures, &line.notes].into_iter().find(|said| !said.is_empty());
            for name in said.into_iter().flatten().take(AT_ONCE) {
                println!("FAIL  {}: {name}", line.name);
            }
        }
        println!("\n{} passed, {} failed", self.passed(), self.failed());
    }
}

fn print_log(log: &Path) {
    let Ok(bytes) = std::fs::read(log) else { return };
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<_> = text.lines().collect();
    let end = lines.len().saturating_sub(SHOWN);
    let told = lines[..end].iter().enumerate().filter(|(_, line)| line.starts_with("FAIL  "));
    for (at, _) in told.take(SHOWN_FAILURES) {
        println!("  line {} and on of {}:", at + 1, log.display());
        print_lines(failure(&lines[at..end]));
    }
    println!("  the last {} of {} lines of {}:", lines.len() - end, lines.len(), log.display());
    print_lines(&lines[end..]);
}

fn print_lines(lines: &[&str]) {
    for line in lines {
        println!("  | {line}");
    }
}

/// The line that says what failed, and why, up to what came next.
fn failure<'a, 'b>(lines: &'a [&'b str]) -> &'a [&'b str] {
    let next = |line: &&str| ["ok    ", "FAIL  ", "run   "].iter().any(|w| line.starts_with(w));
    let length = lines.iter().skip(1).position(next).map_or(lines.len(), |n| n + 1);
    &lines[..length.min(SHOWN)]
}

#[cfg(test)]
mod tests {
    use super::failure;

    #[test]
    fn a_failure_ends_where_the_next_case_begins() {
        let lines = ["FAIL  a: b", "caused by", "ok    c", "run   d"];
        assert_eq!(failure(&lines), &lines[..2]);
        assert_eq!(failure(&lines[..2]), &lines[..2]);
        assert_eq!(failure(&lines[..1]), &lines[..1]);
    }
}
