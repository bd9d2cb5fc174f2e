//! Files met before: hard links inside the copied set, files named twice, directories copied into
//! themselves.

use super::same;
use super::stat::Stat;
use parking_lot::Mutex;
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

type Id = (u64, u64);

/// What is to be done when the first copy of a file is there, or has failed.
type Then = Box<dyn FnOnce(Option<PathBuf>) + Send>;

enum State {
    /// The first copy is on its way; these wait for it.
    Pending(Vec<Then>),
    Copied(PathBuf),
    Failed,
}

/// The first copy of a file that has several names.
pub struct First {
    state: Mutex<State>,
}

impl First {
    pub fn new() -> Arc<Self> {
        Arc::new(Self { state: Mutex::new(State::Pending(Vec::new())) })
    }

    /// The copy is there under this name, or failed (None): whoever waits goes on. Where it failed the
    /// first of those tries anew, and the others wait for him.
    pub fn settle(&self, copied: Option<PathBuf>) {
        let mut state = self.state.lock();
        let State::Pending(waiting) = &mut *state else { return };
        match copied {
            Some(dst) => {
                let waiting = std::mem::take(waiting);
                *state = State::Copied(dst.clone());
                drop(state);
                for then in waiting {
                    then(Some(dst.clone()));
                }
            }
            None if waiting.is_empty() => *state = State::Failed,
            None => {
                let then = waiting.remove(0);
                drop(state);
                then(None);
            }
        }
    }

    /// Runs `then` with the name of the first copy, at once or later; with None where `then` is to make
    /// the first copy itself, and to settle it.
    pub fn when_there(&self, then: Then) {
        let mut state = self.state.lock();
        match &mut *state {
            State::Pending(waiting) => waiting.push(then),
            State::Copied(dst) => {
                let dst = dst.clone();
                drop(state);
                then(Some(dst));
            }
            State::Failed => {
                *state = State::Pending(Vec::new());
                drop(state);
                then(None);
            }
        }
    }
}

/// Whether a source was met before.
pub enum Met {
    First(Arc<First>),
    Again(Arc<First>),
}

/// By device and inode of the source.
#[derive(Default)]
pub struct Links {
    files: HashMap<Id, Arc<First>>,
    /// Directories of the command line, and the first directory made for each operand.
    dirs: HashMap<Id, PathBuf>,
}

impl Links {
    pub fn meet(&mut self, id: Id) -> Met {
        match self.files.entry(id) {
            std::collections::hash_map::Entry::Occupied(e) => Met::Again(e.get().clone()),
            std::collections::hash_map::Entry::Vacant(e) => {
                Met::First(e.insert(First::new()).clone())
            }
        }
    }

    pub fn met(&self, id: Id) -> bool {
        self.files.contains_key(&id)
    }

    /// The copy of a file that was met, once it is there.
    pub fn copied(&self, id: Id) -> Option<PathBuf> {
        match &*self.files.get(&id)?.state.lock() {
            State::Copied(dst) => Some(dst.clone()),
            _ => None,
        }
    }

    /// The destination a directory was copied to before, if any; else notes that it is copied to `dst`.
    pub fn meet_dir(&mut self, id: Id, dst: &Path) -> Option<PathBuf> {
        if let Some(before) = self.dirs.get(&id) {
            return Some(before.clone());
        }
        self.dirs.insert(id, dst.to_path_buf());
        None
    }

    pub fn dir(&self, id: Id) -> Option<PathBuf> {
        self.dirs.get(&id).cloned()
    }

    pub fn forget_dir(&mut self, id: Id) {
        self.dirs.remove(&id);
    }
}

/// Names that were met, with what they were.
#[derive(Default)]
pub struct Names {
    seen: HashSet<(Id, Vec<u8>, Id)>,
}

impl Names {
    /// A file is known by its inode, its last component and the directory it lies in.
    fn key(path: &Path, st: &Stat) -> (Id, Vec<u8>, Id) {
        let (dir, base) = same::split(path);
        let dir = Stat::follow(dir).map_or((0, 0), |st| st.id());
        (st.id(), base.to_vec(), dir)
    }

    pub fn seen(&self, path: &Path, st: &Stat) -> bool {
        !self.seen.is_empty() && self.seen.contains(&Self::key(path, st))
    }

    pub fn note(&mut self, path: &Path, st: &Stat) {
        self.seen.insert(Self::key(path, st));
    }
}
