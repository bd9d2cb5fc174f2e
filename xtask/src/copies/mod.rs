//! `mcp` beside the genuine `cp`: the same random command on the same source and on equal destinations must
//! leave the same tree, print the same and end with the same code.

mod killed;
pub mod look;
mod words;
pub mod world;

use crate::proc::ends;
use crate::random::Random;
use anyhow::{Context, Result};
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Component, Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Commands tried on one source tree before a new one is made.
const COMMANDS: usize = 40;
/// No single copy of these small trees takes that long.
const LIMIT: Duration = Duration::from_secs(10);
/// In what both say of a directory that is copied into itself, between the two names.
const INTO_ITSELF: &str = ", into itself, ";
/// nobody
pub const PLAIN_USER: u32 = 65_534;

/// What one run left and said.
#[derive(PartialEq)]
struct Outcome {
    code: Option<i32>,
    out: Vec<u8>,
    err: Vec<u8>,
    tree: Vec<look::Entry>,
}

/// One command that did not do the same.
pub struct Difference {
    pub command: String,
    pub what: String,
}

/// Compares `cases` commands in `scratch`; the differences.
pub fn compare(programs: &Programs, scratch: &Path, seed: u64, cases: usize) -> Result<Found> {
    each(programs, scratch, seed, cases, |place, seed| place.case(seed))
}

/// The same with each command of `mcp` killed several times, and given again until it ends.
pub fn interrupt(programs: &Programs, scratch: &Path, seed: u64, cases: usize) -> Result<Found> {
    each(programs, scratch, seed, cases, |place, seed| place.killed(seed))
}

fn each(
    programs: &Programs,
    scratch: &Path,
    seed: u64,
    cases: usize,
    case: impl Fn(&Place, u64) -> Result<Option<Difference>>,
) -> Result<Found> {
    let mut differences = Vec::new();
    for start in (0..cases).step_by(COMMANDS) {
        let mut random = Random::new(seed.wrapping_add(start as u64));
        let user = random.below(3) == 0;
        let place = Place::new(scratch, programs, user)?;
        world::source(&place.root.join("src"), &mut random, user)?;
        for n in start..cases.min(start + COMMANDS) {
            let case_seed = seed.wrapping_mul(1_000_003).wrapping_add(n as u64);
            if let Some(difference) = case(&place, case_seed)? {
                differences.push(difference);
            }
        }
        place.clear()?;
    }
    Ok(differences)
}

/// What is compared.
pub struct Programs<'a> {
    pub mcp: &'a Path,
    pub genuine: &'a Path,
}

type Found = Vec<Difference>;

struct Place<'a> {
    root: PathBuf,
    programs: &'a Programs<'a>,
    user: bool,
}

impl<'a> Place<'a> {
    fn new(scratch: &Path, programs: &'a Programs<'a>, user: bool) -> Result<Self> {
        let place = Self { root: scratch.join("copies"), programs, user };
        place.clear()?;
        std::fs::create_dir_all(&place.root)?;
        world::give(&place.root, user)?;
        Ok(place)
    }

    fn clear(&self) -> Result<()> {
        if self.root.exists() {
            std::fs::remove_dir_all(&self.root).with_context(|| self.root.display().to_string())?;
        }
        Ok(())
    }

    fn case(&self, seed: u64) -> Result<Option<Difference>> {
        let words = words::command(&mut Random::new(seed), &self.root);
        let (own, own_words) = words::own(&mut Random::new(seed ^ 0x6d63_7000));
        let Some(theirs) = self.genuinely(seed, &words)? else {
            return Ok(None);
        };
        let ours = self
            .run(self.programs.mcp, seed, &words, &own_words)?
            .with_context(|| format!("mcp hangs: seed {seed}: {words:?} {own}"))?;
        // cp 9.1 writes such names wrongly now and then: with a wrong letter behind them, or unended.
        let unsure =
            [&theirs.out, &theirs.err].iter().any(|text| text.windows(3).any(|w| w == b"'''"));
        let ours = if unsure {
            Outcome { out: theirs.out.clone(), err: theirs.err.clone(), ..ours }
        } else {
            ours
        };
        let (theirs, mut ours) = (without_chance(theirs), without_chance(ours));
        if words.iter().any(|word| ["-L", "-H", "--deref"].iter().any(|w| word == w)) {
            look::forgive_kept_attributes(&theirs.tree, &mut ours.tree);
        }
        Ok((theirs != ours).then(|| self.difference(seed, &words, &own, &theirs, &ours)))
    }

    fn difference(
        &self,
        seed: u64,
        words: &[OsString],
        own: &str,
        theirs: &Outcome,
        ours: &Outcome,
    ) -> Difference {
        let shown: Vec<_> = words.iter().map(|w| w.to_string_lossy().into_owned()).collect();
        let command = format!(
            "seed {seed}{}: cp {} [{own}]",
            if self.user { " (user)" } else { "" },
            shown.join(" ")
        );
        Difference { command, what: tell(theirs, ours) }
    }

    fn destination(&self, seed: u64) -> Result<PathBuf> {
        let dir = self.root.join("w");
        std::fs::create_dir(&dir)?;
        world::destination(&dir, &mut Random::new(seed ^ 0xd5), self.user)?;
        Ok(dir)
    }

    /// In `dir`, with its output in the files beside it.
    fn command(
        &self,
        program: &Path,
        dir: &Path,
        own: &[String],
        words: &[OsString],
    ) -> Result<Command> {
        let mut command = Command::new(program);
        command.arg0("cp").args(own).args(words).current_dir(dir).env("LC_ALL", "C");
        command.env("PINSTRIPE_NO_FALLBACK", "1").env_remove("POSIXLY_CORRECT");
        command
            .stdin(Stdio::null())
            .stdout(std::fs::File::create(self.root.join("stdout"))?)
            .stderr(std::fs::File::create(self.root.join("stderr"))?);
        if self.user {
            command.uid(PLAIN_USER).gid(PLAIN_USER);
        }
        Ok(command)
    }

    /// What the genuine cp does; None for what waits for the other end of a FIFO, and where cp removes the
    /// file that it then wants to link to.
    fn genuinely(&self, seed: u64, words: &[OsString]) -> Result<Option<Outcome>> {
        let lost = |line: &[u8]| {
            line.starts_with(b"cp: cannot create hard link")
                && line.ends_with(b"No such file or directory")
        };
        let outcome = self.run(self.programs.genuine, seed, words, &[])?;
        Ok(outcome.filter(|o| !o.err.split(|b| *b == b'\n').any(lost)))
    }

    /// Runs one program in a destination that is made anew; links may lead to its name.
    fn run(
        &self,
        program: &Path,
        seed: u64,
        words: &[OsString],
        own: &[String],
    ) -> Result<Option<Outcome>> {
        let dir = self.destination(seed)?;
        let (out, err) = (self.root.join("stdout"), self.root.join("stderr"));
        let mut command = self.command(program, &dir, own, words)?;
        let mut child = command.spawn().with_context(|| program.display().to_string())?;
        if !ends(&child, LIMIT)? {
            child.kill()?;
            child.wait()?;
            std::fs::remove_dir_all(&dir)?;
            return Ok(None);
        }
        let status = child.wait()?;
        let outcome = Outcome {
            code: status.code(),
            out: std::fs::read(&out)?,
            err: without_wrong_names(&std::fs::read(&err)?),
            tree: look::tree(&dir)?,
        };
        std::fs::remove_dir_all(&dir)?;
        Ok(Some(outcome))
    }
}

/// Both take the names of a directory by their inodes' numbers, which the file system gives as it likes. A
/// directory that is copied into itself is left at the copy's own name, so how many names came before
/// it is chance: what lies in such a copy, and what was said on the way, is not compared.
fn without_chance(outcome: Outcome) -> Outcome {
    let into = copies_into_themselves(&outcome.err);
    if into.is_empty() {
        return outcome;
    }
    let told = |line: &&[u8]| String::from_utf8_lossy(line).contains(INTO_ITSELF);
    let err = outcome.err.split_inclusive(|b| *b == b'\n').filter(told).flatten().copied();
    let tree = outcome.tree.into_iter().filter(|entry| !into.iter().any(|dir| entry.below(dir)));
    let tree = tree.map(look::Entry::alone).collect();
    Outcome { code: outcome.code, out: Vec::new(), err: err.collect(), tree }
}

/// The second name in each `cannot copy a directory, 'A', into itself, 'A/A'`; all names, where it is
/// written with escapes.
fn copies_into_themselves(err: &[u8]) -> Vec<PathBuf> {
    let text = String::from_utf8_lossy(err);
    let names = text.lines().filter_map(|line| line.split_once(INTO_ITSELF)).map(|(_, name)| {
        let plain = name.strip_prefix('\'').and_then(|name| name.strip_suffix('\''));
        let plain = plain.filter(|name| !name.contains('\'')).unwrap_or("");
        Path::new(plain).components().filter(|c| *c != Component::CurDir).collect()
    });
    names.collect()
}

/// libattr names the attribute where it should name the file.
fn without_wrong_names(err: &[u8]) -> Vec<u8> {
    let wrong: [&[u8]; 2] = [b"cp: getting attribute ", b"cp: setting attribute "];
    let lines = err.split_inclusive(|b| *b == b'\n');
    lines.filter(|line| !wrong.iter().any(|w| line.starts_with(w))).flatten().copied().collect()
}

fn tell(theirs: &Outcome, ours: &Outcome) -> String {
    let mut what = String::new();
    if theirs.code != ours.code {
        what.push_str(&format!("exit code {:?}, here {:?}\n", theirs.code, ours.code));
    }
    for (name, a, b) in [("stdout", &theirs.out, &ours.out), ("stderr", &theirs.err, &ours.err)] {
        if a != b {
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            what.push_str(&format!("{name}:\n{}here:\n{}", text(a), text(b)));
        }
    }
    for entry in theirs.tree.iter().filter(|e| !ours.tree.contains(e)) {
        what.push_str(&format!("- {entry:?}\n"));
    }
    for entry in ours.tree.iter().filter(|e| !theirs.tree.contains(e)) {
        what.push_str(&format!("+ {entry:?}\n"));
    }
    what
}
