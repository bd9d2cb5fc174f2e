//! What a running check has in hand. A check runs in a process of its own, so that one stuck in
//! the kernel can be given up without taking the runner with it.

use crate::proc::Cmd;
use anyhow::{Result, anyhow};
use serde::{Deserialize, Serialize};
use std::cell::{Cell, RefCell};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// The environment variable every process of a check carries; the sweep finds them by it.
pub const TAG: &str = "PINSTRIPE_XTASK";

/// The settings of one check, handed to its process as JSON.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Settings {
    pub name: String,
    /// Own directory, mode 0755 so that other users can reach a mount in it; removed afterwards.
    pub scratch: PathBuf,
    /// Where the tally is written after each case.
    pub tally: PathBuf,
    /// The program under test.
    pub pinstripe: PathBuf,
    pub seed: u64,
    pub quick: bool,
    pub jobs: usize,
    /// Packages and tools, for the steps that install them.
    pub wanted: Vec<String>,
    /// Build with the `release` profile instead of `ci`.
    pub release: bool,
    /// The crates' own tests are among the checks of this run.
    pub tests: bool,
    /// Mount options for mounts that are not given any.
    pub options: Option<String>,
    /// Only cases with this in their names.
    pub cases: Option<String>,
}

impl Settings {
    /// The words of the command line for these mount options.
    pub fn option_words(&self) -> Vec<String> {
        self.options.iter().flat_map(|o| ["-o".to_owned(), o.clone()]).collect()
    }
}

/// How many cases of a check passed and failed.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Tally {
    pub passed: u64,
    pub failed: u64,
    /// Names of the failed ones, at most [`Tally::NAMES`].
    pub failures: Vec<String>,
    /// Remarks for the report.
    pub notes: Vec<String>,
    /// Set when the check's function returned: anything else was cut short.
    pub ended: bool,
}

impl Tally {
    /// Limit of names kept of failed cases.
    pub const NAMES: usize = 200;

    pub fn read(path: &Path) -> Option<Self> {
        serde_json::from_slice(&std::fs::read(path).ok()?).ok()
    }
}

/// The context of one running check.
pub struct Cx {
    pub set: Settings,
    tally: RefCell<Tally>,
    /// Mount points to unmount when the check ends.
    mounts: RefCell<Vec<PathBuf>>,
    /// A case was run.
    tried: Cell<bool>,
}

impl Cx {
    pub fn new(set: Settings) -> Self {
        Self { set, tally: RefCell::default(), mounts: RefCell::default(), tried: Cell::default() }
    }

    /// The directory of this check.
    pub fn scratch(&self) -> &Path {
        &self.set.scratch
    }

    /// A new directory in the scratch directory, reachable by every user.
    pub fn dir(&self, name: &str) -> Result<PathBuf> {
        let dir = self.scratch().join(name);
        std::fs::create_dir_all(&dir)?;
        Ok(dir)
    }

    pub fn seed(&self) -> u64 {
        self.set.seed
    }

    /// `full`, or `quick` when a quick run was asked for.
    pub fn size<T>(&self, full: T, quick: T) -> T {
        if self.set.quick { quick } else { full }
    }

    /// A command of this check, limited in time.
    pub fn cmd(&self, program: impl AsRef<OsStr>) -> Cmd {
        Cmd::new(program)
    }

    /// A command of the program under test.
    pub fn pinstripe(&self) -> Cmd {
        Cmd::new(&self.set.pinstripe)
    }

    /// A command of the lab, built beside the program under test.
    pub fn lab(&self, command: &str) -> Cmd {
        Cmd::new(self.set.pinstripe.with_file_name("pinstripe-lab")).arg(command)
    }

    /// A command of a cargo tool.
    pub fn tool(&self, name: &str) -> Cmd {
        Cmd::new(crate::where_::tools().join("bin").join(name))
    }

    /// Has `mount` unmounted when the check ends, after everything else of it.
    pub fn on_end(&self, mount: PathBuf) {
        self.mounts.borrow_mut().push(mount);
    }

    /// Runs one named case, if it is wanted; a failure is printed and counted, and the check goes on.
    pub fn case(&self, name: &str, body: impl FnOnce() -> Result<()>) -> bool {
        if self.set.cases.as_ref().is_some_and(|part| !name.contains(part)) {
            return true;
        }
        self.tried.set(true);
        let start = Instant::now();
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body))
            .unwrap_or_else(|_| Err(anyhow!("the case panicked")));
        let at = start.elapsed().as_secs_f64();
        match &result {
            Ok(()) => println!("ok    {name} ({at:.2} s)"),
            Err(e) => println!("FAIL  {name} ({at:.2} s): {e:?}"),
        }
        match &result {
            Ok(()) => self.count(name, true),
            Err(e) => self.count(&format!("{name}: {}", one_line(e)), false),
        }
        result.is_ok()
    }

    /// Counts a case whose output is already shown.
    pub fn count(&self, name: &str, passed: bool) {
        let mut tally = self.tally.borrow_mut();
        if passed {
            tally.passed += 1;
        } else {
            tally.failed += 1;
            if tally.failures.len() < Tally::NAMES {
                tally.failures.push(name.to_owned());
            }
        }
        self.write(&tally);
    }

    /// Adds the totals of a suite that counts its own tests.
    pub fn add(&self, passed: u64, failed: u64) {
        let mut tally = self.tally.borrow_mut();
        tally.passed += passed;
        tally.failed += failed;
        self.write(&tally);
    }

    /// A remark for the report.
    pub fn note(&self, text: impl Into<String>) {
        let text = text.into();
        println!("note  {text}");
        let mut tally = self.tally.borrow_mut();
        tally.notes.push(text);
        self.write(&tally);
    }

    fn write(&self, tally: &Tally) {
        // A tally that cannot be written shows up as a check that did not end.
        if let Ok(text) = serde_json::to_vec(tally) {
            let _ = std::fs::write(&self.set.tally, text);
        }
    }

    /// Runs `body` to its end and settles the tally. Returns whether everything passed.
    pub fn settle(&self, body: fn(&Cx) -> Result<()>) -> bool {
        let result = body(self);
        for mount in self.mounts.take().into_iter().rev() {
            let _ = self.cmd("umount").arg(mount).run();
        }
        let bare = {
            let tally = self.tally.borrow();
            tally.passed + tally.failed == 0
        };
        match result {
            Err(e) => {
                println!("FAIL  {}: {e:?}", self.set.name);
                self.count(&format!("{}: {}", self.set.name, one_line(&e)), false);
            }
            // What is in no case's name proves nothing.
            Ok(()) if self.set.cases.is_some() && !self.tried.get() => {
                self.count("no case has that in its name", false);
            }
            Ok(()) if bare => self.count(&self.set.name, true),
            Ok(()) => {}
        }
        let mut tally = self.tally.borrow_mut();
        tally.ended = true;
        self.write(&tally);
        tally.failed == 0
    }
}

/// An error and its causes, short enough for a summary; the log has all of it.
fn one_line(e: &anyhow::Error) -> String {
    const SHOWN: usize = 1500;
    format!("{e:#}").replace('\n', " | ").chars().take(SHOWN).collect()
}
