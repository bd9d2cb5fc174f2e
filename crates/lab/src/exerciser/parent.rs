//! The side of the exerciser that starts the processes, watches that each thread gets on, and
//! checks in the end what only all of them together can know.

use super::child::{Line, Task};
use super::{HANG_SECONDS, RACER, WORKLOADS, shared};
use crate::model::tree;
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

pub struct Options {
    /// Directory under test.
    pub dir: PathBuf,
    /// The same directory through other mounts; the processes take turns among all of them.
    pub beside: Vec<PathBuf>,
    /// The `pinstripe-lab` binary.
    pub exe: PathBuf,
    pub seed: u64,
    pub processes: u64,
    pub seconds: u64,
    /// Threads of each process, by workload.
    pub workloads: Vec<String>,
    /// Use O_DIRECT too.
    pub direct: bool,
    /// Seconds without any operation of a thread that count as a hang.
    pub hang_seconds: u64,
}

impl Options {
    /// All verified workloads.
    pub fn verified(dir: &Path, exe: &Path, seed: u64, seconds: u64) -> Self {
        Options {
            dir: dir.into(),
            beside: Vec::new(),
            exe: exe.into(),
            seed,
            processes: 3,
            seconds,
            workloads: WORKLOADS.map(String::from).to_vec(),
            direct: true,
            hang_seconds: HANG_SECONDS,
        }
    }

    /// The racer with `threads` threads in each process.
    pub fn racer(dir: &Path, exe: &Path, seed: u64, seconds: u64, threads: usize) -> Self {
        Options {
            processes: 4,
            workloads: vec![RACER.to_string(); threads],
            ..Self::verified(dir, exe, seed, seconds)
        }
    }
}

#[derive(Debug, Serialize)]
pub struct Report {
    pub seed: u64,
    /// Totals by name over all processes; "operations" counts everything.
    pub totals: BTreeMap<String, u64>,
    /// Empty if all is well.
    pub faults: Vec<String>,
}

struct Running {
    child: Child,
    seen: Vec<(u64, Instant)>,
    totals: Option<BTreeMap<String, u64>>,
}

/// Runs it all in a new subdirectory, removed in the end if nothing was wrong.
pub fn exercise(options: &Options) -> io::Result<Report> {
    let name = format!("exercise-{}-{}", std::process::id(), options.seed);
    let dir = options.dir.join(&name);
    std::fs::create_dir(&dir)?;
    let beside = options.beside.iter().map(|mount| mount.join(&name));
    let dirs: Vec<PathBuf> = std::iter::once(dir.clone()).chain(beside).collect();
    shared::prepare(&dir)?;
    let (send, lines) = channel();
    let mut running = Vec::new();
    for index in 0..options.processes {
        let dir = &dirs[index as usize % dirs.len()];
        running.push(start(options, dir, index, send.clone())?);
    }
    drop(send);
    let mut faults = Vec::new();
    watch(options, &mut running, &lines, &mut faults);
    let each: Vec<_> = running.iter().map(|r| r.totals.clone().unwrap_or_default()).collect();
    if faults.is_empty() && !options.workloads.iter().any(|w| w == RACER) {
        for dir in &dirs {
            faults.extend(shared::verify(dir, options.seed, &each, &options.workloads).err());
        }
    }
    let mut totals = BTreeMap::new();
    for (name, count) in each.into_iter().flatten() {
        *totals.entry(name).or_default() += count;
    }
    if faults.is_empty()
        && let Err(e) = tree::remove(&dir)
    {
        faults.push(format!("the tree cannot be removed: {e}"));
    }
    Ok(Report { seed: options.seed, totals, faults })
}

fn start(
    options: &Options,
    dir: &Path,
    index: u64,
    lines: Sender<(usize, Line)>,
) -> io::Result<Running> {
    let task = Task {
        dir: dir.into(),
        seed: options.seed,
        index,
        processes: options.processes,
        seconds: options.seconds,
        workloads: options.workloads.clone(),
        direct: options.direct,
        several_mounts: !options.beside.is_empty(),
    };
    let mut child = Command::new(&options.exe)
        .args(["exercise-worker", &serde_json::to_string(&task)?])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()?;
    let out = child.stdout.take().ok_or_else(|| io::Error::other("no pipe"))?;
    std::thread::spawn(move || {
        for line in BufReader::new(out).lines().map_while(Result::ok) {
            if let Ok(line) = serde_json::from_str(&line) {
                let _ = lines.send((index as usize, line));
            }
        }
    });
    let seen = options.workloads.iter().map(|_| (0, Instant::now())).collect();
    Ok(Running { child, seen, totals: None })
}

fn watch(
    options: &Options,
    running: &mut [Running],
    lines: &Receiver<(usize, Line)>,
    faults: &mut Vec<String>,
) {
    let hang = Duration::from_secs(options.hang_seconds);
    loop {
        match lines.recv_timeout(Duration::from_millis(500)) {
            Ok((index, Line::Progress(counts))) => {
                for (seen, count) in running[index].seen.iter_mut().zip(counts) {
                    if seen.0 != count {
                        *seen = (count, Instant::now());
                    }
                }
            }
            Ok((index, Line::Done { totals, faults: found })) => {
                running[index].totals = Some(totals);
                faults.extend(found);
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        for (index, process) in running.iter_mut().enumerate() {
            // Threads may end early; a hang is when none of them gets on.
            let newest = process.seen.iter().map(|s| s.1).max();
            if process.totals.is_none() && newest.is_some_and(|at| at.elapsed() > hang) {
                let stacks = stacks(process.child.id());
                faults.push(format!("process {index} hangs; its threads wait in:{stacks}"));
                let _ = process.child.kill();
                process.totals = Some(BTreeMap::new());
            }
        }
    }
    for (index, process) in running.iter_mut().enumerate() {
        let status = process.child.wait();
        if process.totals.is_none() {
            faults.push(format!("process {index} ended without a report: {status:?}"));
        }
    }
}

/// Where the kernel says the threads of a process wait.
fn stacks(pid: u32) -> String {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task"));
    let mut out = String::new();
    for task in tasks.into_iter().flatten().flatten() {
        let read = |file: &str| std::fs::read_to_string(task.path().join(file)).unwrap_or_default();
        let wait = read("stack").lines().take(8).collect::<Vec<_>>().join(" < ");
        out.push_str(&format!("\n  {} {wait}", read("comm").trim()));
    }
    out
}
