//! The model against itself: no false alarms between two local directories, and deliberately
//! wrong targets are found and cut down to a few steps.

use super::op::*;
use super::target::{Stamp, Target};
use super::tree::Tree;
use super::*;
use std::io;

fn dirs() -> (tempfile::TempDir, tempfile::TempDir) {
    let make = || tempfile::Builder::new().prefix("lab-model-").tempdir().unwrap();
    (make(), make())
}

#[test]
fn equal_file_systems_show_no_difference() {
    let (a, b) = dirs();
    for seed in 0..6 {
        let report = compare_dirs(a.path(), b.path(), &Options::new(seed, 1500)).unwrap();
        assert!(report.difference.is_none(), "seed {seed}: {:#?}", report.difference);
        assert!(report.succeeded > 500, "only {} steps succeeded", report.succeeded);
    }
}

/// A way of being wrong: may replace a step's result, or change the step done.
type Fault = fn(&Step, &mut dyn Target) -> Option<Outcome>;

struct Wrong {
    inner: PosixDir,
    fault: Fault,
    /// Steps after which no time seems to have changed.
    frozen: fn(&Step) -> bool,
}

impl Target for Wrong {
    fn apply(&mut self, step: &Step) -> Outcome {
        (self.fault)(step, &mut self.inner).unwrap_or_else(|| self.inner.apply(step))
    }
    fn stamps(&mut self, step: &Step) -> Vec<Stamp> {
        let stamps = self.inner.stamps(step);
        let freeze = (self.frozen)(step);
        stamps.into_iter().map(|s| if freeze { s.map(|s| (s.0, 0, 0)) } else { s }).collect()
    }
    fn tree(&mut self) -> io::Result<Tree> {
        self.inner.tree()
    }
    fn clean(&mut self) -> io::Result<()> {
        self.inner.clean()
    }
}

fn done_as(step: &Step, inner: &mut dyn Target, op: Op) -> Option<Outcome> {
    Some(inner.apply(&Step { op, ..step.clone() }))
}

fn finds(what: &str, fault: Fault) {
    finds_with(what, fault, |_| false);
}

fn finds_with(what: &str, fault: Fault, frozen: fn(&Step) -> bool) {
    let (a, b) = dirs();
    let mut count = 0;
    let mut pair = || {
        count += 1;
        let inner = PosixDir::create(a.path(), &format!("r{count}"))?;
        let reference = PosixDir::create(b.path(), &format!("r{count}"))?;
        let test = Wrong { inner, fault, frozen };
        Ok((Box::new(test) as Box<dyn Target>, Box::new(reference) as Box<dyn Target>))
    };
    // What is wrong may not be done in each run.
    let found =
        (7..12).find_map(|seed| run(&mut pair, &Options::new(seed, 6000)).unwrap().difference);
    let found = found.unwrap_or_else(|| panic!("{what}: not found"));
    assert!(found.reproducer.len() <= 8, "{what}: {:#?}", found.reproducer);
    assert!(replay(&mut pair, &found.reproducer).unwrap().is_some(), "{what} does not replay");
}

#[test]
fn finds_a_short_write_of_data() {
    finds("wrong data", |step, inner| match step.op {
        Op::Pwrite { slot, off, len, fill } if len > 4096 => {
            done_as(step, inner, Op::Pwrite { slot, off, len, fill: fill ^ 1 })
        }
        _ => None,
    });
}

#[test]
fn finds_an_ignored_noreplace() {
    finds("noreplace", |step, inner| match &step.op {
        Op::Rename { from, to, flags: 1 } => {
            done_as(step, inner, Op::Rename { from: from.clone(), to: to.clone(), flags: 0 })
        }
        _ => None,
    });
}

#[test]
fn finds_a_lost_truncate() {
    finds("truncate", |step, _| match &step.op {
        Op::Truncate { at: At::Slot(_), len: 4096 } => Some(Ok(Value::Unit)),
        _ => None,
    });
}

#[test]
fn finds_a_lost_attribute() {
    finds("xattr", |step, _| match &step.op {
        Op::SetXattr { at: At::Name(_), name, .. } if name.0 == b"user.a" => Some(Ok(Value::Unit)),
        _ => None,
    });
}

#[test]
fn finds_times_that_stand_still() {
    finds_with("times", |_, _| None, |step| matches!(step.op, Op::Pwrite { .. }));
}

#[test]
fn finds_a_lock_that_does_not_exclude() {
    finds("lock", |step, _| match &step.op {
        Op::Flock { op: LockOp::Exclusive, .. } => Some(Ok(Value::Unit)),
        _ => None,
    });
}

#[test]
fn steps_survive_json() {
    let mut source = Source::new(3, &Default::default());
    let steps: Vec<Step> = (0..2000).map(|_| source.step()).collect();
    let text = serde_json::to_string(&steps).unwrap();
    assert_eq!(serde_json::from_str::<Vec<Step>>(&text).unwrap(), steps);
}

#[test]
fn a_step_that_hangs_ends_the_run() {
    let (a, b) = dirs();
    let mut runs = 0;
    let mut pair = || {
        runs += 1;
        let inner = PosixDir::create(a.path(), &format!("r{runs}"))?;
        let reference = PosixDir::create(b.path(), &format!("r{runs}"))?;
        let fault: Fault = |step, _| match step.op {
            Op::Sync { .. } => Some(Err(libc::ETIMEDOUT)),
            _ => None,
        };
        let test = Wrong { inner, fault, frozen: |_| false };
        Ok((Box::new(test) as Box<dyn Target>, Box::new(reference) as Box<dyn Target>))
    };
    let found = run(&mut pair, &Options::new(3, 6000)).unwrap().difference.unwrap();
    assert!(found.what.starts_with("hangs: Sync"), "{}", found.what);
    assert_eq!((found.reproducer.len(), runs), (found.at + 1, 1));
}
