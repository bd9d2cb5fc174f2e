//! One process of the exerciser: a thread for each workload, a line of JSON on standard output
//! every second with the operations each has done, and one at the end with what it found.

use super::{names, private, racer, shared};
use crate::pattern::mix;
use rand::SeedableRng;
use rand::rngs::StdRng;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// What a process is to do; passed as JSON.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Task {
    /// The run's own directory, made by the parent.
    pub dir: PathBuf,
    pub seed: u64,
    /// This process's number, below `processes`.
    pub index: u64,
    pub processes: u64,
    pub seconds: u64,
    /// A thread for each, in order; names may repeat.
    pub workloads: Vec<String>,
    pub direct: bool,
    /// Other processes use other mounts.
    pub several_mounts: bool,
}

/// A line of a child's output.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Line {
    Progress(Vec<u64>),
    Done { totals: BTreeMap<String, u64>, faults: Vec<String> },
}

/// What a workload works with.
pub(crate) struct Context {
    pub(crate) task: Task,
    pub(crate) rng: StdRng,
    /// Number of the thread in the process.
    pub(crate) thread: usize,
    deadline: Instant,
    counters: Arc<Vec<AtomicU64>>,
    /// Totals the parent checks in the end.
    pub(crate) totals: BTreeMap<String, u64>,
}

impl Context {
    /// Counts an operation; false when time is over.
    pub(crate) fn tick(&self) -> bool {
        self.counters[self.thread].fetch_add(1, Ordering::Relaxed);
        Instant::now() < self.deadline
    }

    pub(crate) fn add(&mut self, total: &str, count: u64) {
        *self.totals.entry(total.to_string()).or_default() += count;
    }
}

/// A violated promise, or an error that must not happen.
#[derive(Debug)]
pub(crate) struct Fault(pub(crate) String);

impl From<io::Error> for Fault {
    fn from(e: io::Error) -> Self {
        Fault(format!("unexpected error: {e}"))
    }
}

impl From<rustix::io::Errno> for Fault {
    fn from(e: rustix::io::Errno) -> Self {
        io::Error::from(e).into()
    }
}

pub(crate) type Tried = Result<(), Fault>;

/// Adds what was being done to an error.
pub(crate) trait During<T> {
    fn during(self, what: &str) -> Result<T, Fault>;
}

impl<T, E: std::fmt::Display> During<T> for Result<T, E> {
    fn during(self, what: &str) -> Result<T, Fault> {
        self.map_err(|e| Fault(format!("{what}: {e}")))
    }
}

fn workload(name: &str) -> Option<fn(&mut Context) -> Tried> {
    Some(match name {
        "private" => private::run,
        "append" => shared::append,
        "counter" => shared::counter,
        "strided" => shared::strided,
        "exclusive" => shared::exclusive,
        "names" => names::names,
        "links" => names::links,
        "replace" => names::replace,
        super::RACER => racer::run,
        _ => return None,
    })
}

/// Runs a task in this process and prints its lines; gives the faults found.
pub fn work(task: &Task) -> io::Result<Vec<String>> {
    let count = task.workloads.len();
    let counters: Arc<Vec<AtomicU64>> = Arc::new((0..count).map(|_| AtomicU64::new(0)).collect());
    let deadline = Instant::now() + Duration::from_secs(task.seconds);
    let mut threads = Vec::new();
    for (thread, name) in task.workloads.iter().enumerate() {
        let Some(run) = workload(name) else {
            return Err(io::Error::other(format!("no workload {name}")));
        };
        let seed = mix(task.seed ^ mix(task.index << 16 | thread as u64));
        let mut context = Context {
            task: task.clone(),
            rng: StdRng::seed_from_u64(seed),
            thread,
            deadline,
            counters: Arc::clone(&counters),
            totals: BTreeMap::new(),
        };
        let name = name.clone();
        threads.push(std::thread::Builder::new().name(name.clone()).spawn(move || {
            let result = run(&mut context);
            let place = format!("process {} thread {thread} {name}", context.task.index);
            (context.totals, result.err().map(|f| format!("{place}: {}", f.0)))
        })?);
    }
    while threads.iter().any(|t| !t.is_finished()) {
        let seen = counters.iter().map(|c| c.load(Ordering::Relaxed)).collect();
        print(&Line::Progress(seen))?;
        let pause = Instant::now() + Duration::from_secs(1);
        while Instant::now() < pause && threads.iter().any(|t| !t.is_finished()) {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    let (mut totals, mut faults) = (BTreeMap::new(), Vec::new());
    for thread in threads {
        match thread.join() {
            Ok((mine, fault)) => {
                mine.into_iter().for_each(|(k, v)| *totals.entry(k).or_default() += v);
                faults.extend(fault);
            }
            Err(_) => faults.push(format!("process {}: a thread panicked", task.index)),
        }
    }
    let operations = counters.iter().map(|c| c.load(Ordering::Relaxed)).sum();
    totals.insert("operations".into(), operations);
    print(&Line::Done { totals, faults: faults.clone() })?;
    Ok(faults)
}

fn print(line: &Line) -> io::Result<()> {
    let mut out = io::stdout().lock();
    serde_json::to_writer(&mut out, line)?;
    out.write_all(b"\n")?;
    out.flush()
}
