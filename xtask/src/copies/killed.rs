//! `mcp --resume`, killed at random moments and given again until it ends: the tree must be the one that the
//! genuine cp leaves in one go, whatever the options say of files that are there.

use super::{Difference, LIMIT, Outcome, Place, look, without_chance, words};
use crate::proc::ends;
use crate::random::Random;
use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};
use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

/// Times that one command is killed at most.
const KILLS: u64 = 6;
/// Microseconds that it is given, at least and at random; each time a little more.
const GIVEN: (u64, u64) = (300, 2500);

impl Place<'_> {
    pub(super) fn killed(&self, seed: u64) -> Result<Option<Difference>> {
        let words = words::command(&mut Random::new(seed), &self.root);
        let (own, mut own_words) = words::own(&mut Random::new(seed ^ 0x6d63_7000));
        // A source that the job itself makes or changes is another one the next time.
        if words.iter().any(|word| word.as_encoded_bytes().starts_with(b"dst/"))
            || words.iter().filter(|word| *word == "dst").count() > 1
        {
            return Ok(None);
        }
        let Some(theirs) = self.genuinely(seed, &words)? else {
            return Ok(None);
        };
        // What failed is tried again, and may do better when more has been copied.
        if theirs.err.split(|b| *b == b'\n').any(may_do_better) {
            return Ok(None);
        }
        let journal = self.root.join("journal");
        own_words.push(format!("--resume={}", journal.display()));
        let dir = self.destination(seed)?;
        let code = self.until_it_ends(&dir, seed, &own_words, &words)?;
        let tree = look::tree(&dir)?;
        std::fs::remove_dir_all(&dir)?;
        let left = journal.exists();
        if left {
            std::fs::remove_file(&journal)?;
        }
        let clean = Outcome { out: Vec::new(), err: Vec::new(), code, tree };
        // What was said is said in parts; only where it explains the tree it is needed.
        let ours = without_chance(Outcome { err: theirs.err.clone(), ..clean });
        let mut theirs = without_chance(theirs);
        theirs.out.clear();
        let (theirs, mut ours) = (theirs, Outcome { out: Vec::new(), ..ours });
        look::forgive_times_set_again(&theirs.tree, &mut ours.tree);
        if words.iter().any(|word| ["-L", "-H", "--deref"].iter().any(|w| word == w)) {
            look::forgive_kept_attributes(&theirs.tree, &mut ours.tree);
        }
        ensure!(!left || code != Some(0), "seed {seed}: a journal is left of what is complete");
        Ok((theirs != ours).then(|| self.difference(seed, &words, &own, &theirs, &ours)))
    }

    /// The exit code of the run that was not killed.
    fn until_it_ends(
        &self,
        dir: &Path,
        seed: u64,
        own: &[String],
        words: &[OsString],
    ) -> Result<Option<i32>> {
        let mut random = Random::new(seed ^ 0x6b69_6c6c);
        let before = look::tree(dir)?;
        let journal = self.root.join("journal");
        for kill in 0..=KILLS {
            let mut child = self.command(self.programs.mcp, dir, own, words)?.spawn()?;
            let given = GIVEN.0 + random.below(GIVEN.1) * (kill + 1);
            let last = kill == KILLS;
            if ends(&child, if last { LIMIT } else { Duration::from_micros(given) })? {
                let status = child.wait()?;
                return Ok(Some(status.code().context("ended by a signal nobody sent")?));
            }
            ensure!(!last, "mcp hangs: seed {seed}: {words:?} {own:?}");
            let signal = if random.below(4) == 0 { Signal::INT } else { Signal::KILL };
            kill_process(Pid::from_child(&child), signal)?;
            let status = child.wait()?;
            // It may have ended just before.
            if let Some(code) = status.code() {
                return Ok(Some(code));
            }
            // The journal goes when all is there; without one, something was made, or nothing was begun.
            if !journal.exists() && look::tree(dir)? != before {
                return Ok(Some(0));
            }
        }
        Ok(None)
    }
}

fn may_do_better(line: &[u8]) -> bool {
    let line = String::from_utf8_lossy(line);
    let same = ["cannot stat", "-r not specified", "warning: ", "into itself", "same file"];
    !line.is_empty() && !same.iter().any(|what| line.contains(what))
}
