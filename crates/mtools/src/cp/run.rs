//! What all parts of a run share, and a single item of it.

use super::attrs::Process;
use super::dir::Dir;
use super::links::{First, Links, Names};
use super::options::Options;
use super::output::{Notes, Output};
use super::ranks::Far;
use super::resume::{self, Again};
use super::stat::Stat;
use super::stats::Counts;
use super::stripes::Stripes;
use crate::engine::{Engine, interrupt};
use crate::gnu::quote;
use crate::journal::Journal;
use crate::journal::record::Key;
use parking_lot::Mutex;
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

pub struct Run {
    pub options: Options,
    pub process: Process,
    pub output: Arc<Output>,
    pub engine: Engine,
    pub links: Mutex<Links>,
    /// Destinations made for operands, so that none overwrites another. Only with several operands.
    pub made: Mutex<Option<Names>>,
    /// Operands met. Only with several.
    pub named: Mutex<Option<Names>>,
    pub counts: Counts,
    pub stripes: Stripes,
    /// Where it is noted how far the job has come (`--resume`).
    pub journal: Option<Journal>,
    /// What this run has begun, where only its looks tell what an earlier one did.
    pub begun: Mutex<HashSet<Key>>,
    /// Operands begun.
    pub operands: AtomicU64,
    /// Files that may be on their way under names the traversal can meet again.
    pub written: Mutex<HashSet<(u64, u64)>>,
    /// Other ranks.
    pub far: Option<Arc<Far>>,
}

/// One file that is not a directory, on its way.
pub struct Item {
    pub src: PathBuf,
    pub dst: PathBuf,
    /// Of the source.
    pub st: Stat,
    /// What the destination's name leads to, where it exists.
    pub dst_st: Option<Stat>,
    /// Where what was there has been moved to.
    pub backup: Option<PathBuf>,
    /// Named on the command line.
    pub operand: bool,
    /// This is the first copy of a file with several names.
    pub first: Option<Arc<First>>,
    pub parent: Arc<Dir>,
    pub notes: Notes,
    /// An earlier run has begun it.
    pub again: Option<Again>,
}

impl Item {
    pub fn new_dst(&self) -> bool {
        self.dst_st.is_none()
    }

    /// It is there.
    pub fn done(mut self, run: &Run) {
        resume::done(run, &self);
        self.announce_end(Some(()), run);
    }

    /// It was there before this run.
    pub fn done_before(mut self, run: &Run) {
        self.announce_end(Some(()), run);
    }

    /// It could not be made: what was moved out of its way comes back.
    pub fn failed(mut self, run: &Run) {
        self.notes.fail();
        if let Some(backup) = self.backup.take() {
            resume::forget(run, &self.dst);
            match std::fs::rename(&backup, &self.dst) {
                Ok(()) if run.options.verbose => self.notes.say(&format!(
                    "{} -> {} (unbackup)",
                    quote::always(&backup),
                    quote::always(&self.dst)
                )),
                Ok(()) => {}
                Err(e) => {
                    self.notes.errno(&format!("cannot un-backup {}", quote::always(&self.dst)), &e);
                }
            }
        }
        self.announce_end(None, run);
    }

    fn announce_end(&mut self, there: Option<()>, run: &Run) {
        if there.is_some() && self.operand {
            run.note_made(&self.dst);
        }
        if let Some(first) = self.first.take() {
            first.settle(there.map(|()| self.dst.clone()));
        }
        self.parent.clone().leave(run);
    }

    /// `'a' -> 'b' (backup: 'b~')`
    pub fn announce(&mut self, run: &Run) {
        if run.options.verbose {
            let line = arrow(&self.src, &self.dst, self.backup.as_deref());
            self.notes.say(&line);
        }
    }
}

pub fn arrow(src: &Path, dst: &Path, backup: Option<&Path>) -> String {
    let mut line = format!("{} -> {}", quote::always(src), quote::always(dst));
    if let Some(backup) = backup {
        line.push_str(&format!(" (backup: {})", quote::always(backup)));
    }
    line
}

impl Run {
    pub fn new(
        options: Options,
        process: Process,
        engine: Engine,
        journal: Option<Journal>,
        far: Option<Arc<Far>>,
    ) -> Self {
        Self {
            options,
            process,
            output: Output::new(),
            engine,
            links: Mutex::default(),
            made: Mutex::default(),
            named: Mutex::default(),
            counts: Counts::default(),
            stripes: Stripes::default(),
            journal,
            begun: Mutex::default(),
            operands: AtomicU64::new(0),
            written: Mutex::default(),
            far,
        }
    }

    /// The number of the operand that is walked.
    pub fn operand(&self) -> u64 {
        self.operands.load(Ordering::Relaxed)
    }

    /// A signal came, or what is done cannot be noted any more: nothing new is begun.
    pub fn stopped(&self) -> bool {
        interrupt::pending() || self.journal.as_ref().is_some_and(|j| j.whole().is_err())
    }

    /// A destination made for an operand, as it is now.
    pub fn note_made(&self, dst: &Path) {
        if let Some(made) = &mut *self.made.lock()
            && let Ok(st) = Stat::nofollow(dst)
        {
            made.note(dst, &st);
        }
    }

    /// Waits for what is on its way to one of these files, under whatever name.
    pub fn settle(&self, files: &[Option<(u64, u64)>]) {
        let met = |written: &HashSet<_>| files.iter().flatten().any(|id| written.contains(id));
        if met(&self.written.lock()) {
            self.engine.drain();
            self.written.lock().clear();
        }
    }

    pub fn was_made(&self, dst: &Path, st: &Stat) -> bool {
        self.made.lock().as_ref().is_some_and(|made| made.seen(dst, st))
    }
}
