//! Runs steps on a directory under test and a reference and stops at the first difference; then
//! looks for a shorter list of steps that still differs.

use super::op::{Op, Outcome, Step, Value};
use super::source::Source;
use super::target::{Stamp, Target};
use super::tree;
use rustix::fs::RenameFlags;
use serde::Serialize;
use std::collections::BTreeSet;
use std::io;
use std::time::{Duration, Instant};

/// Runs spent on shortening a reproducer.
pub const SHRINK_RUNS: usize = 400;
/// How a finding of a step that does not return starts.
const HANGS: &str = "hangs";
/// How often, and how far apart, a lock is asked for again that another closed descriptor still
/// seems to hold: on FUSE the kernel tells of the last close only when the write-back of mapped
/// pages has let go of the file, which may be a moment after close(2) returned.
const LOCK_TRIES: usize = 200;
const LOCK_PAUSE: Duration = Duration::from_millis(10);
/// Differences of a tree that are printed.
const PRINTED: usize = 8;

pub struct Options {
    pub seed: u64,
    /// Steps to run; the time limit may end it earlier.
    pub ops: usize,
    pub limit: Option<Duration>,
    /// Compare whole trees after so many steps (0: only at the end).
    pub tree_every: usize,
    /// Parts left out, of [`super::FEATURES`].
    pub without: BTreeSet<String>,
    pub shrink_runs: usize,
}

impl Options {
    pub fn new(seed: u64, ops: usize) -> Self {
        Options {
            seed,
            ops,
            limit: None,
            tree_every: 200,
            without: BTreeSet::new(),
            shrink_runs: SHRINK_RUNS,
        }
    }
}

#[derive(Debug, Serialize)]
pub struct Report {
    pub seed: u64,
    pub ops: usize,
    /// Steps that succeeded on the reference, to see that the run was worth something.
    pub succeeded: usize,
    pub difference: Option<Difference>,
}

#[derive(Debug, Serialize)]
pub struct Difference {
    /// Number of the step (from 0) after which it showed.
    pub at: usize,
    pub what: String,
    /// Steps that show it on two empty directories, as short as was found.
    pub reproducer: Vec<Step>,
    /// What the shortened reproducer shows.
    pub reproduced: Option<String>,
}

/// Makes a pair of fresh targets (under test, reference) for one run.
pub type Pair<'a> = &'a mut dyn FnMut() -> io::Result<(Box<dyn Target>, Box<dyn Target>)>;

/// A seeded run; on a difference, also the shortened reproducer.
pub fn run(pair: Pair<'_>, options: &Options) -> io::Result<Report> {
    let (mut test, mut reference) = pair()?;
    let mut source = Source::new(options.seed, &options.without);
    let (mut done, mut succeeded, mut found) = (Vec::new(), 0, None);
    let began = Instant::now();
    while done.len() < options.ops && options.limit.is_none_or(|l| began.elapsed() < l) {
        let step = source.step();
        let (outcome, what) = one(test.as_mut(), reference.as_mut(), &step);
        source.note(&step, &outcome);
        succeeded += usize::from(outcome.is_ok());
        done.push(step);
        let due = options.tree_every > 0 && done.len() % options.tree_every == 0;
        found = match what {
            None if due => trees(test.as_mut(), reference.as_mut())?,
            what => what,
        };
        if found.is_some() {
            break;
        }
    }
    if found.is_none() {
        found = trees(test.as_mut(), reference.as_mut())?;
    }
    let ops = done.len();
    let found = clean(test, reference, found)?;
    let difference = match found {
        // Each try would hang as long again.
        Some(what) if what.starts_with(HANGS) => {
            Some(Difference { at: ops.saturating_sub(1), what, reproducer: done, reproduced: None })
        }
        Some(what) => {
            let (reproducer, reproduced) = shrink(pair, done, options.shrink_runs)?;
            Some(Difference { at: ops.saturating_sub(1), what, reproducer, reproduced })
        }
        None => None,
    };
    Ok(Report { seed: options.seed, ops, succeeded, difference })
}

/// Runs a stored list of steps; gives the step number and the difference, if any.
pub fn replay(pair: Pair<'_>, steps: &[Step]) -> io::Result<Option<(usize, String)>> {
    let (mut test, mut reference) = pair()?;
    let mut found = None;
    for (at, step) in steps.iter().enumerate() {
        if let (_, Some(what)) = one(test.as_mut(), reference.as_mut(), step) {
            found = Some((at, what));
            break;
        }
    }
    if found.is_none() {
        let at = steps.len().saturating_sub(1);
        found = trees(test.as_mut(), reference.as_mut())?.map(|what| (at, what));
    }
    let (at, what) = found.map_or((steps.len().saturating_sub(1), None), |(a, w)| (a, Some(w)));
    Ok(clean(test, reference, what)?.map(|what| (at, what)))
}

/// Removes both trees; that the one under test cannot be removed is a difference too.
fn clean(
    mut test: Box<dyn Target>,
    mut reference: Box<dyn Target>,
    found: Option<String>,
) -> io::Result<Option<String>> {
    let (cleaned, wanted) = (test.clean(), reference.clean());
    wanted?;
    let stuck = |e| format!("the tree cannot be removed: {e}");
    Ok(found.or_else(|| cleaned.err().map(stuck)))
}

fn trees(test: &mut dyn Target, reference: &mut dyn Target) -> io::Result<Option<String>> {
    let want = reference.tree()?;
    let have = match test.tree() {
        Ok(have) => have,
        Err(e) => return Ok(Some(format!("the tree cannot be read: {e}"))),
    };
    let differences = tree::compare(&have, &want, PRINTED);
    Ok((!differences.is_empty()).then(|| format!("trees differ:\n  {}", differences.join("\n  "))))
}

/// One step on both; the reference's outcome and the difference in words, if any.
fn one(
    test: &mut dyn Target,
    reference: &mut dyn Target,
    step: &Step,
) -> (Outcome, Option<String>) {
    let before = step.watch.then(|| {
        let reference = reference.stamps(step);
        wait_past(&reference);
        (test.stamps(step), reference)
    });
    let mut have = test.apply(step);
    if have == Err(libc::ETIMEDOUT) {
        return (have, Some(format!("{HANGS}: {:?}", step.op)));
    }
    let want = reference.apply(step);
    for _ in 0..LOCK_TRIES {
        if have == want || !step.op.asks_for_lock() {
            break;
        }
        std::thread::sleep(LOCK_PAUSE);
        have = test.apply(step);
    }
    if have != want {
        let what = format!("has {}, want {}", show(&have), show(&want));
        return (want, Some(what));
    }
    if let Ok(Value::Broken(why)) = &want {
        return (want.clone(), Some(format!("broken on both sides: {why}")));
    }
    let what = before.and_then(|(test_before, reference_before)| {
        let quiet = want.is_err() || step.op.reads_only();
        let have = changes(&test_before, &test.stamps(step));
        let mut wanted = changes(&reference_before, &reference.stamps(step));
        // ext4 makes a whiteout before it finds that it cannot rename, and takes it back.
        if untimed(&step.op) || (want.is_err() && leaves_whiteout(&step.op)) {
            wanted.iter_mut().for_each(|c| *c = None);
        }
        times_differ(&have, &wanted, quiet)
    });
    (want, what)
}

fn show(outcome: &Outcome) -> String {
    match outcome {
        Ok(value) => format!("{value:?}"),
        Err(errno) => format!("errno {errno} ({})", io::Error::from_raw_os_error(*errno)),
    }
}

fn leaves_whiteout(op: &Op) -> bool {
    matches!(op, Op::Rename { flags, .. } if flags & RenameFlags::WHITEOUT.bits() != 0)
}

/// When a mapped write shows in the times is not promised before msync or close.
fn untimed(op: &Op) -> bool {
    matches!(op, Op::MmapWrite { .. })
}

/// Waits until the kernel's coarse clock has passed the newest change, so that a further change
/// must show. Bounded: a clock that stands still, or times set in the future, end it.
fn wait_past(stamps: &[Stamp]) {
    let newest = stamps.iter().flatten().map(|s| s.2).max().unwrap_or(0);
    for _ in 0..100 {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::RealtimeCoarse);
        if i128::from(now.tv_sec) * 1_000_000_000 + i128::from(now.tv_nsec) > newest {
            return;
        }
        std::thread::sleep(Duration::from_micros(200));
    }
}

/// (mtime changed, ctime changed) of the files that are the same before and after.
fn changes(before: &[Stamp], after: &[Stamp]) -> Vec<Option<(bool, bool)>> {
    let one = |(b, a): (&Stamp, &Stamp)| match (b, a) {
        (Some(b), Some(a)) if b.0 == a.0 => Some((b.1 != a.1, b.2 != a.2)),
        _ => None,
    };
    before.iter().zip(after).map(one).collect()
}

fn times_differ(
    have: &[Option<(bool, bool)>],
    want: &[Option<(bool, bool)>],
    quiet: bool,
) -> Option<String> {
    for (n, (have, want)) in have.iter().zip(want).enumerate() {
        let (Some(have), Some(want)) = (have, want) else { continue };
        let stale = (want.0 && !have.0) || (want.1 && !have.1);
        let restless = quiet && (have.0 && !want.0 || have.1 && !want.1);
        if stale || restless {
            return Some(format!(
                "times of watched file {n} changed (mtime, ctime): has {have:?}, want {want:?}"
            ));
        }
    }
    None
}

/// Drops steps, largest pieces first, as long as a difference remains.
fn shrink(
    pair: Pair<'_>,
    steps: Vec<Step>,
    runs: usize,
) -> io::Result<(Vec<Step>, Option<String>)> {
    let mut left = runs;
    let mut best = steps;
    let mut what = None;
    let mut piece = best.len().div_ceil(2);
    while piece > 0 && left > 0 {
        let mut from = 0;
        let mut dropped = false;
        while from < best.len() && left > 0 {
            let end = (from + piece).min(best.len());
            let candidate: Vec<Step> = [&best[..from], &best[end..]].concat();
            left -= 1;
            match replay(pair, &candidate)? {
                Some((at, why)) => {
                    best = candidate;
                    best.truncate(at + 1);
                    what = Some(why);
                    dropped = true;
                }
                None => from = end,
            }
        }
        if !dropped || piece > 1 {
            piece /= 2;
        }
    }
    Ok((best, what))
}
