//! Runs steps and checks, as many beside each other as there are slots, each in a process of its
//! own, under a time limit each and a budget for all. A check that could not run has failed.

use crate::cx::{Settings, TAG, Tally};
use crate::guard::Guard;
use crate::plan::{Check, Need};
use crate::report::{Line, Report};
use crate::sweep::{Scope, sweep, sweep_net, tag};
use crate::{proc, steps, where_};
use anyhow::{Context, Result};
use std::collections::BTreeSet;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// What the command line asked for.
pub struct Options {
    pub seed: u64,
    pub quick: bool,
    pub jobs: usize,
    pub release: bool,
    /// A program to test instead of building one.
    pub pinstripe: Option<PathBuf>,
    pub keep: bool,
    pub budget: Duration,
    /// Parent of the scratch directory.
    pub scratch: PathBuf,
    /// Mount options.
    pub options: Option<String>,
    /// Only cases with this in their names.
    pub cases: Option<String>,
}

enum State {
    Waiting,
    Running { child: Child, start: Instant },
    Done { passed: bool },
}

struct Node {
    check: &'static Check,
    is_step: bool,
    after: Vec<usize>,
    state: State,
}

/// One run.
pub struct Runner {
    options: Options,
    nodes: Vec<Node>,
    packages: Vec<String>,
    /// The crates' own tests are among the checks.
    tests: bool,
    scratch: PathBuf,
    start: Instant,
    stop: Arc<AtomicBool>,
    guard: Guard,
    report: Report,
}

impl Runner {
    pub fn new(options: Options, checks: Vec<&'static Check>) -> Result<Self> {
        let scratch = options.scratch.join(format!("px-{}", std::process::id()));
        std::fs::create_dir_all(&scratch).with_context(|| scratch.display().to_string())?;
        std::fs::create_dir_all(where_::logs())?;
        let packages: BTreeSet<_> =
            checks.iter().flat_map(|c| c.needs_packages()).map(str::to_owned).collect();
        let stop = stop_flag()?;
        let guard = Guard::over(&scratch, options.keep)?;
        let nodes = nodes(&checks, options.pinstripe.is_some());
        let tests = checks.iter().any(|c| c.needs.contains(&Need::Tests));
        Ok(Self {
            nodes,
            tests,
            packages: packages.into_iter().collect(),
            scratch,
            start: Instant::now(),
            stop,
            guard,
            report: Report::default(),
            options,
        })
    }

    /// Runs everything; the report says how it went.
    pub fn run(mut self) -> Result<Report> {
        if let Some(program) = &self.options.pinstripe {
            steps::install(program, &self.program())?;
        }
        while self.unfinished() {
            if self.stop.load(Ordering::Relaxed) {
                self.abandon("interrupted");
                break;
            }
            self.collect();
            self.start_ready()?;
            std::thread::sleep(Duration::from_millis(20));
        }
        self.clear_up();
        self.guard.clear()?;
        Ok(self.report)
    }

    fn program(&self) -> PathBuf {
        self.scratch.join("bin/pinstripe")
    }

    fn unfinished(&self) -> bool {
        self.nodes.iter().any(|n| !matches!(n.state, State::Done { .. }))
    }

    fn free_slots(&self) -> usize {
        let used: usize = self
            .nodes
            .iter()
            .filter(|n| matches!(n.state, State::Running { .. }))
            .map(|n| n.check.weight)
            .sum();
        self.options.jobs.saturating_sub(used)
    }

    fn start_ready(&mut self) -> Result<()> {
        for i in 0..self.nodes.len() {
            if !matches!(self.nodes[i].state, State::Waiting) {
                continue;
            }
            if let Some(step) = self.failed_step(i) {
                self.give_up(i, &format!("{step} failed"));
            } else if !steps::allowed(self.nodes[i].check) {
                self.give_up(i, "needs root");
            } else if self.start.elapsed() > self.options.budget {
                self.give_up(i, "not started: the time budget is used up");
            } else if self.steps_done(i) && self.fits(i) {
                self.launch(i)?;
            }
        }
        Ok(())
    }

    fn fits(&self, i: usize) -> bool {
        let idle = !self.nodes.iter().any(|n| matches!(n.state, State::Running { .. }));
        idle || self.nodes[i].check.weight <= self.free_slots()
    }

    fn steps_done(&self, i: usize) -> bool {
        let done = |&s: &usize| matches!(self.nodes[s].state, State::Done { passed: true });
        self.nodes[i].after.iter().all(done)
    }

    fn failed_step(&self, i: usize) -> Option<&'static str> {
        let failed = |&&s: &&usize| matches!(self.nodes[s].state, State::Done { passed: false });
        self.nodes[i].after.iter().find(failed).map(|&s| self.nodes[s].check.name)
    }

    fn settings(&self, i: usize) -> Settings {
        let check = self.nodes[i].check;
        Settings {
            name: check.name.to_owned(),
            scratch: self.scratch.join(check.name),
            tally: where_::logs().join(format!("{}.json", check.name)),
            pinstripe: self.program(),
            seed: self.options.seed,
            quick: self.options.quick,
            jobs: self.options.jobs,
            wanted: self.packages.clone(),
            release: self.options.release,
            tests: self.tests,
            options: self.options.options.clone(),
            cases: if self.nodes[i].is_step { None } else { self.options.cases.clone() },
        }
    }

    fn launch(&mut self, i: usize) -> Result<()> {
        let check = self.nodes[i].check;
        let settings = self.settings(i);
        std::fs::create_dir_all(&settings.scratch)?;
        let _ = std::fs::remove_file(&settings.tally);
        let log = std::fs::File::create(log_of(check))?;
        let child = Command::new(std::env::current_exe()?)
            .args(["one", &serde_json::to_string(&settings)?])
            .env(TAG, tag(&settings.scratch))
            .env("TMPDIR", &settings.scratch)
            .env("RUST_LIB_BACKTRACE", "0")
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()?;
        self.nodes[i].state = State::Running { child, start: Instant::now() };
        Ok(())
    }

    fn collect(&mut self) {
        for i in 0..self.nodes.len() {
            let limit = self.nodes[i].check.limit;
            let State::Running { child, start } = &mut self.nodes[i].state else { continue };
            let took = start.elapsed();
            match child.try_wait() {
                Ok(None) if took.as_secs() < limit => {}
                Ok(None) => {
                    proc::kill_group(child.id());
                    let why = format!("time limit of {limit} s reached");
                    self.finish(i, took, Some(why));
                }
                Ok(Some(_)) => self.finish(i, took, None),
                Err(e) => self.finish(i, took, Some(e.to_string())),
            }
        }
    }

    /// Settles a check whose process has ended or was killed.
    fn finish(&mut self, i: usize, took: Duration, killed: Option<String>) {
        let check = self.nodes[i].check;
        let settings = self.settings(i);
        let scope = Scope { dir: settings.scratch.clone(), tag: tag(&settings.scratch) };
        let left = sweep(&scope);
        if let State::Running { child, .. } = &mut self.nodes[i].state {
            // Swept by now; a process that even so cannot be collected is reported at the end.
            let _ = child.try_wait();
        }
        if !self.options.keep {
            let _ = std::fs::remove_dir_all(&settings.scratch);
        }
        let mut tally = Tally::read(&settings.tally).unwrap_or_default();
        if !tally.ended {
            tally.failed += 1;
            tally.notes.push(killed.unwrap_or_else(|| "its process died".to_owned()));
        } else if !left.is_empty() && !self.nodes[i].is_step {
            self.report.left_over(check.name, left);
        }
        let passed = tally.failed == 0;
        self.nodes[i].state = State::Done { passed };
        if self.nodes[i].is_step && passed {
            tally.passed = 0;
        }
        self.report.add(Line::new(check, tally, took, log_of(check)));
    }

    fn give_up(&mut self, i: usize, why: &str) {
        let check = self.nodes[i].check;
        let tally = Tally { failed: 1, notes: vec![why.to_owned()], ..Tally::default() };
        self.nodes[i].state = State::Done { passed: false };
        let _ = std::fs::write(log_of(check), format!("{why}\n"));
        self.report.add(Line::new(check, tally, Duration::ZERO, log_of(check)));
    }

    fn abandon(&mut self, why: &str) {
        for i in 0..self.nodes.len() {
            match &self.nodes[i].state {
                State::Running { child, start } => {
                    proc::kill_group(child.id());
                    let took = start.elapsed();
                    self.finish(i, took, Some(why.to_owned()));
                }
                State::Waiting => self.give_up(i, why),
                State::Done { .. } => {}
            }
        }
    }

    /// The last check: nothing of ours is left on the machine.
    fn clear_up(&mut self) {
        let scope = Scope { dir: self.scratch.clone(), tag: tag(&self.scratch) };
        let left = sweep(&scope);
        if !left.is_empty() {
            self.report.left_over("the whole run", left);
        }
        sweep_net(std::process::id());
        if self.options.keep {
            println!("kept: {}", self.scratch.display());
        } else {
            let _ = std::fs::remove_dir_all(&self.scratch);
        }
        self.report.judge_left_over();
    }
}

fn log_of(check: &Check) -> PathBuf {
    where_::logs().join(format!("{}.log", check.name))
}

/// The steps the checks need, and then the checks.
fn nodes(checks: &[&'static Check], built: bool) -> Vec<Node> {
    let all_steps =
        || [&steps::PACKAGES, &steps::BUILD].into_iter().chain(steps::TOOL_STEPS.iter());
    let wanted: BTreeSet<_> = checks.iter().flat_map(|c| steps::steps_of(c)).collect();
    let mut nodes: Vec<_> = all_steps()
        .filter(|s| wanted.contains(s.name) && !(built && s.name == steps::BUILD.name))
        .map(|check| Node { check, is_step: true, after: Vec::new(), state: State::Waiting })
        .collect();
    let names: Vec<_> = nodes.iter().map(|n| n.check.name).collect();
    for &check in checks {
        let step = |s: &&str| names.iter().position(|n| n == s);
        let after = steps::steps_of(check).iter().filter_map(step).collect();
        nodes.push(Node { check, is_step: false, after, state: State::Waiting });
    }
    nodes
}

/// Set by a signal that tells to end; nothing else happens by it any more.
pub fn stop_flag() -> Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, stop.clone())?;
    }
    Ok(stop)
}

/// How many jobs run at once unless told otherwise.
pub fn default_jobs() -> usize {
    std::thread::available_parallelism().map_or(2, std::num::NonZero::get).max(2)
}

/// Minutes until no check is started any more, unless told otherwise: with fewer processors than four all that takes
/// their time takes longer.
pub fn default_budget() -> u64 {
    if default_jobs() < 4 { 63 } else { 42 }
}

/// Runs the steps that install packages and build the program, in this process.
pub fn build_now(settings: &Settings, program: Option<&std::path::Path>) -> Result<()> {
    let cx = crate::cx::Cx::new(settings.clone());
    (steps::PACKAGES.run)(&cx)?;
    match program {
        None => (steps::BUILD.run)(&cx),
        Some(program) => steps::install(program, &settings.pinstripe),
    }
}
