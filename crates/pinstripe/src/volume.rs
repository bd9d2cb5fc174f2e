//! The data directory of `up`: what lies in it, made on first use, grown on demand.
//!
//! Layout: `pinstripe.json` (what there is), `key`, `mgs/`, `mdt0/`.., `ost0/`.., `run/`
//! (lock and socket), `log/`. `pinstripe.json` says first how many targets there shall be; each is
//! prepared beside its place and renamed into it; then `pinstripe.json` counts them, so that a
//! crash in between leaves something the next start finishes. All that can be refused is refused before anything is made or written down.
//! Assumption: the lock in `run/` is held while anything here is changed.

mod recover;

use std::fs::File;
use std::io::{Read, Seek, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::failure::{Doing, Failure, Outcome};
use crate::keyfile::{self, KeyFile};
use crate::label::fs_uuid;
use crate::locked::Locked;
use crate::places::{self, make_private};
use crate::process::ProcessId;
use crate::sealed::{replace, sync_dir};
use crate::targets::{self, Role};

/// Version of `pinstripe.json` and of the layout.
pub const VERSION: u32 = 1;
/// Targets of each kind where nobody says how many.
pub const DEFAULT_COUNTS: Counts = Counts { mdts: 1, osts: 4 };
/// Name of the file system where nobody chose one.
pub const DEFAULT_NAME: &str = "pin";

const FILE: &str = "pinstripe.json";
/// The cluster key in a data directory.
pub const KEY: &str = "key";

/// How many targets of each kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Metadata targets.
    pub mdts: u32,
    /// Object storage targets.
    pub osts: u32,
}

/// What `pinstripe.json` says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Facts {
    version: u32,
    name: String,
    /// Targets that are complete.
    counts: Counts,
    /// Targets there shall be, while some are being made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    making: Option<Counts>,
}

/// A data directory, locked.
#[derive(Debug)]
pub struct Volume {
    /// Where it is, without links.
    pub dir: PathBuf,
    facts: Facts,
    /// Whether `pinstripe.json` says what `facts` says.
    saved: bool,
    /// Held as long as anything here is served or checked.
    _lock: Option<Locked>,
}

/// A wish for a volume.
#[derive(Clone, Debug, Default)]
pub struct Wish {
    /// Name of the file system.
    pub name: Option<String>,
    /// Metadata targets.
    pub mdts: Option<u32>,
    /// Object storage targets.
    pub osts: Option<u32>,
}

impl Volume {
    /// Opens `dir` and makes what is missing. Tells what it made.
    pub fn prepare(dir: &Path, wish: &Wish) -> Outcome<(Volume, Vec<String>)> {
        Volume::examine(dir, wish)?;
        make_private(dir)?;
        let dir = dir.canonicalize().doing(|| format!("{}", dir.display()))?;
        let lock = lock(&dir)?;
        // Once more: before, others might have changed it.
        let (mut volume, want) = Volume::examine(&dir, wish)?;
        volume._lock = Some(lock);
        make_private(&dir.join("log"))?;
        let made = volume.grow(want)?;
        Ok((volume, made))
    }

    /// Refuses a wish that `dir` cannot come to, changing nothing. Answers with what there is and
    /// how many targets there shall be.
    pub fn examine(dir: &Path, wish: &Wish) -> Outcome<(Volume, Counts)> {
        let known = read_facts(dir)?;
        let saved = known.is_some();
        let facts = match known {
            Some(facts) => facts,
            None => recover::facts(dir, wish)?,
        };
        let volume = Volume { facts, saved, dir: dir.into(), _lock: None };
        let want = volume.check(wish)?;
        volume.check_targets(want)?;
        Ok((volume, want))
    }

    /// Opens a stopped volume without changing it.
    pub fn open_stopped(dir: &Path) -> Outcome<Volume> {
        let dir = dir.canonicalize().doing(|| format!("{}", dir.display()))?;
        let Some(facts) = read_facts(&dir)? else {
            let text = format!(
                "{} is not a data directory of Pinstripe ({FILE} is missing)",
                dir.display()
            );
            return Err(Failure::usage(text));
        };
        if facts.counts.mdts == 0 {
            let text = format!(
                "the first start of {} was cut short before it held any file; `pinstripe up` \
                 finishes it",
                dir.display()
            );
            return Err(Failure::run(text));
        }
        let lock = lock_shared(&dir)?;
        Ok(Volume { facts, saved: true, dir, _lock: lock })
    }

    /// Name of the file system.
    pub fn name(&self) -> &str {
        &self.facts.name
    }

    /// Targets there are.
    pub fn counts(&self) -> Counts {
        self.facts.counts
    }

    /// The cluster key.
    pub fn key(&self) -> Outcome<KeyFile> {
        keyfile::need(&self.dir.join(KEY))
    }

    /// Directory of the management service.
    pub fn mgs(&self) -> PathBuf {
        self.dir.join("mgs")
    }

    /// Directories of the metadata targets.
    pub fn mdts(&self) -> Vec<PathBuf> {
        self.targets(Role::Mdt, self.facts.counts.mdts)
    }

    /// Directories of the object storage targets.
    pub fn osts(&self) -> Vec<PathBuf> {
        self.targets(Role::Ost, self.facts.counts.osts)
    }

    fn targets(&self, role: Role, count: u32) -> Vec<PathBuf> {
        (0..count).map(|i| self.place(role, i)).collect()
    }

    fn place(&self, role: Role, index: u32) -> PathBuf {
        match role {
            Role::Mgs => self.mgs(),
            Role::Mdt => self.dir.join(format!("mdt{index}")),
            Role::Ost => self.dir.join(format!("ost{index}")),
        }
    }

    /// Directory of the lock and the socket.
    pub fn run(&self) -> PathBuf {
        self.dir.join("run")
    }

    /// The socket for clients of the same user.
    pub fn socket(&self) -> Outcome<PathBuf> {
        places::socket(&self.run(), "pinstripe.sock")
    }

    /// Refuses what would leave something out; answers with how many targets there shall be.
    fn check(&self, wish: &Wish) -> Outcome<Counts> {
        let dir = self.dir.display();
        let have = self.facts.counts;
        let fewer = |what: &str, have: u32, want: u32| {
            Failure::usage(format!(
                "{dir} holds {have} {what}s; --{what}s {want} would leave out files. Leave the \
                 option away, or give another --data directory"
            ))
        };
        // What a start that was cut short was to make, this one makes.
        let usual = self.facts.making.unwrap_or(have);
        let want =
            Counts { mdts: wish.mdts.unwrap_or(usual.mdts), osts: wish.osts.unwrap_or(usual.osts) };
        if want.mdts < have.mdts {
            return Err(fewer("mdt", have.mdts, want.mdts));
        }
        if want.osts < have.osts {
            return Err(fewer("ost", have.osts, want.osts));
        }
        if self.named() && wish.name.as_ref().is_some_and(|n| *n != self.facts.name) {
            let text = format!(
                "{dir} holds the file system '{}'; --fsname cannot change that",
                self.facts.name
            );
            return Err(Failure::usage(text));
        }
        Ok(want)
    }

    /// Whether the file system has its name for good.
    fn named(&self) -> bool {
        self.saved || !is_free(&self.mgs())
    }

    fn grow(&mut self, want: Counts) -> Outcome<Vec<String>> {
        let mut made = Vec::new();
        let (key, _) = keyfile::load_or_make(&self.dir.join(KEY))?;
        let fs = fs_uuid(&key.text, &self.facts.name);
        let have = self.facts.counts;
        if !self.saved || want != self.facts.making.unwrap_or(have) {
            self.facts.making = Some(want);
            self.save()?;
        }
        // What the management service knows, servers tell it again: it can be made anew.
        self.make(Role::Mgs, 0, fs)?;
        for index in have.mdts..want.mdts {
            made.push(self.make(Role::Mdt, index, fs)?);
        }
        for index in have.osts..want.osts {
            made.push(self.make(Role::Ost, index, fs)?);
        }
        if self.facts.making.take().is_some() {
            self.facts.counts = want;
            self.save()?;
        }
        self.saved = true;
        Ok(made)
    }

    fn make(&self, role: Role, index: u32, fs: [u8; 16]) -> Outcome<String> {
        let place = self.place(role, index);
        let name = targets::name(role, index);
        // A target that is there was finished by a start that was cut short.
        if is_free(&place) {
            let beside = self.dir.join(format!(".new-{name}"));
            if beside.exists() {
                let removed = std::fs::remove_dir_all(&beside);
                removed.doing(|| format!("cannot remove {}", beside.display()))?;
            }
            targets::format(role, &beside, fs, &self.facts.name, index)?;
            let moved = std::fs::rename(&beside, &place).and_then(|()| sync_dir(&self.dir));
            moved.doing(|| format!("cannot make {}", place.display()))?;
        }
        Ok(name)
    }

    /// Every target there is must be the one its name says, and nothing in the way of those that
    /// shall be made.
    fn check_targets(&self, want: Counts) -> Outcome<()> {
        let path = self.dir.join(KEY);
        let key = keyfile::load(&path)?;
        if key.is_none() && self.begun() {
            let text = format!(
                "the cluster key {} is missing; bring it back from a copy: the targets here belong \
                 to the file system of that key, a new one does not fit them",
                path.display()
            );
            return Err(Failure::run(text));
        }
        let fs = key.map(|key| fs_uuid(&key.text, &self.facts.name));
        let have = self.facts.counts;
        if !is_free(&self.mgs()) {
            self.check_known(Role::Mgs, 0, fs)?;
        }
        let mdts = (0..want.mdts).map(|i| (Role::Mdt, i, i < have.mdts));
        let osts = (0..want.osts).map(|i| (Role::Ost, i, i < have.osts));
        mdts.chain(osts).try_for_each(|(role, index, known)| match known {
            true => self.check_known(role, index, fs),
            false => self.check_new(role, index, fs),
        })
    }

    /// Whether anything here was made with a key.
    fn begun(&self) -> bool {
        let Counts { mdts, osts } = self.facts.counts;
        let first = [(Role::Mgs, 0), (Role::Mdt, 0), (Role::Ost, 0)];
        mdts + osts > 0 || first.iter().any(|(role, i)| !is_free(&self.place(*role, *i)))
    }

    fn check_known(&self, role: Role, index: u32, fs: Option<[u8; 16]>) -> Outcome<()> {
        let place = self.place(role, index);
        let name = targets::name(role, index);
        if !place.exists() {
            return Err(self.missing(role, index));
        }
        let who = targets::identify(role, &place)?;
        if Some(who.fs) != fs {
            let text = format!(
                "{} holds {name} of another file system; bring the right directory back",
                place.display()
            );
            return Err(Failure::run(text));
        }
        if who.index != index {
            let text = format!(
                "{} holds {}, not {name}; bring the right directory back",
                place.display(),
                targets::name(role, who.index)
            );
            return Err(Failure::run(text));
        }
        Ok(())
    }

    /// Names a target that is gone, and the others that are.
    fn missing(&self, role: Role, index: u32) -> Failure {
        let Counts { mdts, osts } = self.facts.counts;
        let all = (0..mdts).map(|i| (Role::Mdt, i)).chain((0..osts).map(|i| (Role::Ost, i)));
        let gone = all.filter(|(r, i)| (*r, *i) != (role, index) && !self.place(*r, *i).exists());
        let also: Vec<String> = gone.map(|(r, i)| targets::name(r, i)).collect();
        let mut text = format!(
            "{} is missing: there is no {}; bring the directory back, files have data in it",
            targets::name(role, index),
            self.place(role, index).display()
        );
        if !also.is_empty() {
            text += &format!(". Also missing: {}", also.join(", "));
        }
        if !self.saved {
            text += &format!(". {FILE}, which says what belongs here, is missing, too");
        }
        Failure::run(text)
    }

    /// A target that shall be made: a start that was cut short may have finished it.
    fn check_new(&self, role: Role, index: u32, fs: Option<[u8; 16]>) -> Outcome<()> {
        let place = self.place(role, index);
        let ours = |who: targets::Identity| Some(who.fs) == fs && who.index == index;
        if is_free(&place) || targets::identify(role, &place).is_ok_and(ours) {
            return Ok(());
        }
        let name = targets::name(role, index);
        Err(Failure::run(format!(
            "{} is in the way of {name}, which shall be made: it is neither an empty directory \
             nor that target; move it elsewhere",
            place.display()
        )))
    }

    fn save(&self) -> Outcome<()> {
        let path = self.dir.join(FILE);
        let mut json = serde_json::to_vec_pretty(&self.facts).doing(|| FILE.into())?;
        json.push(b'\n');
        replace(&path, &json, 0o644).doing(|| format!("cannot write {}", path.display()))
    }
}

fn read_facts(dir: &Path) -> Outcome<Option<Facts>> {
    let path = dir.join(FILE);
    let text = match std::fs::read(&path) {
        Ok(text) => text,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(Failure::run(format!("cannot read {}: {e}", path.display()))),
    };
    // The version first: a newer file may have other fields.
    #[derive(Deserialize)]
    struct Version {
        version: u32,
    }
    let bad = |e: serde_json::Error| {
        Failure::run(format!("{} is damaged ({e}); restore it from a copy", path.display()))
    };
    let Version { version } = serde_json::from_slice(&text).map_err(bad)?;
    if version != VERSION {
        let text = format!(
            "{} has format version {version}, this program knows {VERSION}; use the program that \
             wrote it",
            path.display()
        );
        return Err(Failure::run(text));
    }
    serde_json::from_slice(&text).map(Some).map_err(bad)
}

/// Whether a target can be renamed to `place`: it is absent, or an empty directory that is no mount
/// point.
fn is_free(place: &Path) -> bool {
    let device = |p: &Path| std::fs::symlink_metadata(p).map(|m| m.dev());
    match std::fs::symlink_metadata(place) {
        Err(e) => e.kind() == std::io::ErrorKind::NotFound,
        Ok(meta) => {
            let empty = || std::fs::read_dir(place).is_ok_and(|mut d| d.next().is_none());
            let above = place.parent().and_then(|p| device(p).ok());
            meta.is_dir() && above == Some(meta.dev()) && empty()
        }
    }
}

/// Makes sure that nobody serves it, changing nothing.
fn lock_shared(dir: &Path) -> Outcome<Option<Locked>> {
    let path = dir.join("run/lock");
    let file = match File::open(&path) {
        Ok(file) => file,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(Failure::run(format!("cannot open {}: {e}", path.display()))),
    };
    Locked::shared(file).map(Some).map_err(|mut file| in_use(dir, &mut file))
}

fn in_use(dir: &Path, lock: &mut File) -> Failure {
    let mut text = String::new();
    let _ = lock.take(64).read_to_string(&mut text);
    Failure::run(format!(
        "{} is in use by process {}; `pinstripe down` its mount point first",
        dir.display(),
        text.trim()
    ))
}

/// Takes the lock, or says who has it.
fn lock(dir: &Path) -> Outcome<Locked> {
    let run = dir.join("run");
    make_private(&run)?;
    let path = run.join("lock");
    let open = File::options().read(true).write(true).create(true).truncate(false).open(&path);
    let file = open.doing(|| format!("cannot open {}", path.display()))?;
    let locked = Locked::exclusively(file).map_err(|mut file| in_use(dir, &mut file))?;
    let mut file = locked.file();
    let own = format!("{}\n", ProcessId::own().pid);
    let written =
        file.set_len(0).and_then(|()| file.rewind()).and_then(|()| file.write_all(own.as_bytes()));
    written.doing(|| format!("cannot write {}", path.display()))?;
    Ok(locked)
}

#[cfg(test)]
mod tests;
