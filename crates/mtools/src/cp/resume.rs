//! `--resume`: the same command again finishes what an earlier run of it did not.
//!
//! The journal says what that run made and completed. Complete files are not looked at again; what it
//! had only begun is its own and no obstacle, whatever `-n`, `-i`, `-u` or `--backup` say of files of
//! others. Without an earlier journal, where times are kept, a destination with its source's size and
//! times has all its bytes (times come last) and gets only its attributes once more.

use super::options::Options;
use super::run::{Item, Run};
use super::same;
use super::stat::Stat;
use super::target::Target;
use crate::engine::Marks;
use crate::gnu::quote;
use crate::journal::Journal;
use crate::journal::record::{Key, Record};
use crate::journal::replay::{Entry, Known, Stage, covers};
use rustix::fs::{AtFlags, CWD};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

/// Local file systems: what was written to them outlives the process in this system's memory (ext2 to 4,
/// XFS, btrfs, tmpfs, ramfs, ZFS, F2FS, overlay, bcachefs).
pub const LASTING: [u64; 9] = [
    0xef53,
    0x5846_5342,
    0x9123_683e,
    0x0102_1994,
    0x8584_58f6,
    0x2fc1_2fc1,
    0xf2f5_2010,
    0x794c_7630,
    0xca45_1a4e,
];

/// What is known of a destination that is met.
pub enum Past {
    Unknown,
    Done,
    /// This job has made it, but not completed it; nothing is there any more where it could go.
    Ours(Option<Stat>, Again),
}

/// How a file that was begun goes on.
#[derive(Clone, Copy, Debug)]
pub struct Again {
    /// Nothing had been there before this job.
    pub new: bool,
    /// What is in it stays.
    pub kept: bool,
    /// All its bytes are there.
    pub whole: bool,
    /// Its permissions when it was made.
    pub perm: u32,
}

/// Opens the journal, where `--resume` asks for one. An error is a message.
pub fn open(o: &Options, target: &Target) -> Result<Option<Journal>, String> {
    let Some(wish) = &o.own.resume else { return Ok(None) };
    let command = command(o);
    let path = match wish {
        Some(path) => PathBuf::from(path),
        None => default_path(&command)?,
    };
    let lasting = rustix::fs::statfs(standing(target.name()))
        .is_ok_and(|fs| LASTING.contains(&(fs.f_type as u64)));
    let journal = Journal::open(&path, command, lasting)?;
    let directory = matches!(target, Target::Into(..));
    if journal.known().directory.is_none() {
        journal.write(&Record::Target { directory });
    }
    Ok(Some(journal))
}

/// The nearest directory that is there.
fn standing(path: &Path) -> &Path {
    let mut at = path;
    while Stat::follow(at).is_err() {
        at = same::split(at).0;
        if at == Path::new(".") || at == Path::new("/") {
            break;
        }
    }
    at
}

/// A digest of everything that says what is copied where, and how.
fn command(o: &Options) -> [u8; 32] {
    let mut state = blake2b_simd::Params::new().hash_length(32).to_state();
    let cwd = std::env::current_dir().unwrap_or_default();
    let mut word = |bytes: &[u8]| {
        state.update(&(bytes.len() as u64).to_le_bytes());
        state.update(bytes);
    };
    word(cwd.as_os_str().as_bytes());
    for (name, value) in &o.own.said {
        word(name.as_bytes());
        word(value.as_deref().map_or(b"-", |value| value.as_bytes()));
    }
    for operand in &o.operands {
        word(operand.as_bytes());
    }
    let mut digest = [0; 32];
    digest.copy_from_slice(state.finalize().as_bytes());
    digest
}

/// Where the journal of a command lies that names none: `$XDG_STATE_HOME/mcp/`, by default
/// `~/.local/state/mcp/`.
fn default_path(command: &[u8; 32]) -> Result<PathBuf, String> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let state = set("XDG_STATE_HOME")
        .map(PathBuf::from)
        .or_else(|| set("HOME").map(|home| Path::new(&home).join(".local/state")))
        .ok_or(
            "--resume finds no place for its journal, because HOME is not set: give --resume=FILE",
        )?;
    let dir = state.join("mcp");
    std::fs::create_dir_all(&dir).map_err(|e| {
        format!(
            "cannot create directory {} for the journal: {}; give --resume=FILE",
            quote::always(&dir),
            crate::gnu::diag::reason(&e)
        )
    })?;
    Ok(dir.join(format!("{}.journal", crate::sum::digest::hex(&command[..8]))))
}

/// A file of the job, however its name is written.
fn key(dst: &Path) -> Key {
    let dst: PathBuf = dst.components().filter(|part| *part != Component::CurDir).collect();
    let digest = blake2b_simd::Params::new().hash_length(16).hash(dst.as_os_str().as_bytes());
    let mut key = [0; 16];
    key.copy_from_slice(digest.as_bytes());
    key
}

/// Changes when the source does.
fn version(st: &Stat) -> u64 {
    let mut state = blake2b_simd::Params::new().hash_length(8).to_state();
    for word in [st.ino, st.size, st.mtime.tv_sec as u64, st.mtime.tv_nsec as u64] {
        state.update(&word.to_le_bytes());
    }
    let mut version = [0; 8];
    version.copy_from_slice(state.finalize().as_bytes());
    u64::from_le_bytes(version)
}

/// What earlier runs say of a destination that the walk has come to.
pub fn look(run: &Run, src: &Path, st: &Stat, dst: &Path) -> Past {
    let Some(journal) = &run.journal else { return Past::Unknown };
    let Ok(there) = made_as(&run.options, st, dst) else { return Past::Unknown };
    let known = journal.known();
    let key = key(dst);
    match known.files.get(&key) {
        None if known.runs == 0
            && !run.begun.lock().contains(&key)
            && looks_whole(run, st, &there) =>
        {
            let again = Again { new: false, kept: true, whole: true, perm: there.perm() };
            Past::Ours(Some(there), again)
        }
        None => Past::Unknown,
        // A later operand had come to the same name, when this one was done with.
        Some(entry) if entry.operand > run.operand() && !st.is_dir() => Past::Done,
        Some(entry) if entry.operand != run.operand() => Past::Unknown,
        Some(entry) if entry.stage == Stage::Done && same_as(entry, st, &there) => Past::Done,
        Some(entry) if there.is_dir() && unmade(entry, dst) => {
            let again = Again { new: true, kept: false, whole: false, perm: 0 };
            Past::Ours(None, again)
        }
        Some(entry) if made_far(known, entry, dst, &there) => go_on(dst, entry, st, there, false),
        Some(entry) if !ours(&run.options, entry, (src, st), (dst, &there)) => Past::Unknown,
        Some(entry) => {
            let parts = known.parts.get(&key).is_some_and(|(ino, _)| *ino == there.ino);
            let kept = parts && entry.version == version(st) && st.is_file();
            go_on(dst, entry, st, there, kept)
        }
    }
}

fn same_as(entry: &Entry, st: &Stat, there: &Stat) -> bool {
    entry.version == version(st)
        && entry.ino == there.ino
        && (!st.is_file() || !there.is_file() || st.size == there.size)
}

/// Whether what is there is what this job had begun to make. Killed between making it and saying so, it
/// leaves what has no bytes yet, or a link that is as it should be.
fn ours(o: &Options, entry: &Entry, src: (&Path, &Stat), dst: (&Path, &Stat)) -> bool {
    let ((src, st), (dst, there)) = (src, dst);
    if entry.stage != Stage::Begun {
        return entry.ino == there.ino;
    }
    if o.hard_link {
        return there.same(st);
    }
    if o.symbolic_link {
        return std::fs::read_link(dst).is_ok_and(|target| target == src);
    }
    let linked = o.preserve.links && st.nlink > 1 && there.nlink > 1 && st.size == there.size;
    let empty = there.size == 0 || linked && entry.new;
    there.kind() == st.kind() && !there.is_dir() && (!there.is_file() || empty)
}

/// Whether it lies in a directory that this job made: what was begun there is ours, also where another
/// rank made it, who keeps no journal.
fn made_far(known: &Known, entry: &Entry, dst: &Path, there: &Stat) -> bool {
    if entry.stage != Stage::Begun || !entry.new || there.is_dir() {
        return false;
    }
    let (dir, _) = same::split(dst);
    let entry = known.files.get(&key(dir)).filter(|entry| entry.stage == Stage::Made);
    entry.is_some_and(|entry| Stat::nofollow(dir).is_ok_and(|there| there.ino == entry.ino))
}

/// The permissions of a directory when this job made it for this operand.
pub fn made_with(run: &Run, dst: &Path) -> Option<u32> {
    let known = run.journal.as_ref()?.known();
    let entry = known.files.get(&key(dst))?;
    let there = Stat::nofollow(dst).ok()?;
    let ours = entry.stage == Stage::Made && entry.operand == run.operand();
    (ours && entry.ino == there.ino).then_some(entry.perm)
}

/// Removes a directory whose maker was killed before it could say how it was made: nothing is in it yet.
fn unmade(entry: &Entry, dst: &Path) -> bool {
    entry.stage == Stage::Begun
        && entry.new
        && rustix::fs::unlinkat(CWD, dst, AtFlags::REMOVEDIR).is_ok()
}

/// The source's size and times: its bytes are all there, for times are set when they are.
fn looks_whole(run: &Run, st: &Stat, there: &Stat) -> bool {
    let time = |st: &Stat| (st.mtime.tv_sec, st.mtime.tv_nsec);
    run.options.preserve.timestamps
        && !run.options.own.engine.ranged()
        && st.is_file()
        && there.is_file()
        && !st.same(there)
        && st.size == there.size
        && time(st) == time(there)
}

fn go_on(dst: &Path, entry: &Entry, st: &Stat, there: Stat, kept: bool) -> Past {
    let again = Again { new: entry.new, kept, whole: false, perm: entry.perm };
    // What was made anew is made anew, unless much of it is there.
    let name = Stat::nofollow(dst);
    if entry.new && !kept && !st.is_dir() && name.is_ok_and(|name| name.ino == there.ino) {
        return match rustix::fs::unlinkat(CWD, dst, AtFlags::empty()) {
            Ok(()) => Past::Ours(None, again),
            // Writing over it will tell what is wrong.
            Err(_) => Past::Ours(Some(there), again),
        };
    }
    Past::Ours(Some(there), again)
}

/// What has been made of a source: a file perhaps behind a link that was there, anything else by its name.
fn made_as(o: &Options, st: &Stat, dst: &Path) -> std::io::Result<Stat> {
    if st.is_file() && !o.symbolic_link { Stat::follow(dst) } else { Stat::nofollow(dst) }
}

/// Says that it is about to be made; false, with the reason kept for the end, where that cannot be said.
pub fn begin(run: &Run, st: &Stat, dst: &Path, new: bool, kept: bool) -> bool {
    let Some(journal) = &run.journal else { return true };
    let (key, version, operand) = (key(dst), version(st), run.operand());
    if journal.known().runs == 0 {
        run.begun.lock().insert(key);
    }
    journal.write(&Record::Begun { key, version, operand, new, kept });
    journal.whole().is_ok()
}

/// Says that it is there, as this.
pub fn made(run: &Run, dst: &Path, there: &Stat) {
    let Some(journal) = &run.journal else { return };
    journal.note_device(there.dev, if there.is_dir() { dst } else { same::split(dst).0 });
    journal.write(&Record::Made { key: key(dst), ino: there.ino, perm: there.perm() });
}

/// Says that it is complete.
pub fn done(run: &Run, item: &Item) {
    let Some(journal) = &run.journal else { return };
    let st = &item.st;
    if let Ok(there) = made_as(&run.options, st, &item.dst) {
        let key = key(&item.dst);
        journal.note_device(there.dev, same::split(&item.dst).0);
        journal.write(&Record::Done { key, version: version(st), ino: there.ino });
    }
}

/// Says that what was there before is there again.
pub fn forget(run: &Run, dst: &Path) {
    if let Some(journal) = &run.journal {
        journal.write(&Record::Forget { key: key(dst) });
    }
}

/// The parts of a large file.
pub fn marks(run: &Arc<Run>, item: &Item, there: &Stat) -> Option<Arc<dyn Marks>> {
    let split = run.engine.settings().split_size;
    if run.journal.is_none() || split == 0 || item.st.size <= split {
        return None;
    }
    let key = key(&item.dst);
    let kept = item.again.is_some_and(|again| again.kept);
    Some(Arc::new(File { run: run.clone(), key, ino: there.ino, size: there.size, kept }))
}

struct File {
    run: Arc<Run>,
    key: Key,
    ino: u64,
    /// When it was opened: what somebody has cut off is not there.
    size: u64,
    kept: bool,
}

impl Marks for File {
    fn has(&self, from: u64, to: u64) -> bool {
        let journal = self.run.journal.as_ref().filter(|_| self.kept && to <= self.size);
        let parts = journal.and_then(|journal| journal.known().parts.get(&self.key));
        parts.is_some_and(|(ino, parts)| *ino == self.ino && covers(parts, from, to))
    }

    fn note(&self, from: u64, to: u64) {
        if let Some(journal) = &self.run.journal {
            journal.write(&Record::Part { key: self.key, ino: self.ino, from, to });
        }
    }
}

/// At the end: the journal goes when everything is there, else it is said how to go on.
pub fn end(run: &Run, ended: bool) {
    let Some(journal) = &run.journal else { return };
    let shown = quote::always(journal.path());
    if let Err(e) = journal.whole() {
        run.output.fail();
        crate::gnu::diag::error(&format!(
            "journal {shown} cannot be written: {}; the copy was stopped there; make room and run the same command \
             again",
            crate::gnu::diag::reason(e)
        ));
        return;
    }
    if ended && !run.output.failed() {
        if let Err(e) = journal.settle() {
            run.output.fail();
            crate::gnu::diag::error(&format!(
                "what was written cannot be synced and may be lost: {}; the same command again copies anew what was \
                 not synced (journal {shown})",
                crate::gnu::diag::reason(e)
            ));
            return;
        }
        if let Err(e) = journal.complete() {
            let why = crate::gnu::diag::reason(&e);
            crate::gnu::diag::error(&format!("cannot remove journal {shown}: {why}"));
        }
        return;
    }
    journal.keep();
    crate::gnu::diag::error(&format!(
        "not everything was copied: the same command again goes on from here (journal {shown})"
    ));
}
