//! The objects whose histories are checked: what their operations may answer.

use super::crash::Redo;
use super::linear::Object;
use std::fmt::{self, Debug, Formatter};

/// Parts of the workload that can be left out by name.
pub const FEATURES: &[&str] =
    &["bytes", "same-page", "kept", "mapped", "mode", "names", "append", "made", "strides"];

/// A value that is set and got: bytes in a file, the mode of a file.
pub struct Register {
    pub start: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum RegisterOp {
    Set(u64),
    /// Set, but whether it happened is not known.
    MaybeSet(u64),
    Get(u64),
}

impl Object for Register {
    type Op = RegisterOp;
    type State = u64;

    fn start(&self) -> u64 {
        self.start
    }

    fn step(&self, state: &u64, op: &RegisterOp) -> Vec<u64> {
        match op {
            RegisterOp::Set(v) => vec![*v],
            RegisterOp::MaybeSet(v) => vec![*v, *state],
            RegisterOp::Get(v) if v == state => vec![*v],
            RegisterOp::Get(_) => vec![],
        }
    }
}

impl Redo for Register {
    fn changes(&self, op: &RegisterOp) -> bool {
        matches!(op, RegisterOp::Set(_))
    }

    fn redo(&self, state: &u64, op: &RegisterOp) -> u64 {
        match op {
            RegisterOp::Set(v) | RegisterOp::MaybeSet(v) => *v,
            RegisterOp::Get(_) => *state,
        }
    }
}

/// Two names, in one directory or in two; each is absent or stands for a file, by its identity
/// (the inode number the creator saw; 0: a file whose creation was not answered).
pub struct Names;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum NamesOp {
    /// Exclusive creation: the new file, or none where the name was taken.
    Create(usize, Option<u64>),
    MaybeCreate(usize),
    /// Whether there was something to remove.
    Unlink(usize, bool),
    MaybeUnlink(usize),
    /// Rename of one name to the other: whether there was something to rename. A kernel that looked
    /// the old name up before another mount's rename and the new one after it finds one file under
    /// both and says that all is done; so it may also find nothing to do.
    Rename(usize, bool),
    MaybeRename(usize),
    /// What the name stands for.
    Stat(usize, Option<u64>),
}

type Pair = [Option<u64>; 2];

impl Object for Names {
    type Op = NamesOp;
    type State = Pair;

    fn start(&self) -> Pair {
        [None, None]
    }

    fn step(&self, state: &Pair, op: &NamesOp) -> Vec<Pair> {
        let with = |at: usize, what: Option<u64>| {
            let mut pair = *state;
            pair[at] = what;
            pair
        };
        let only_if = |ok: bool, pair: Pair| if ok { vec![pair] } else { vec![] };
        let moved = |from: usize| {
            let mut pair = *state;
            pair[1 - from] = pair[from].take();
            pair
        };
        match *op {
            NamesOp::Create(at, None) => only_if(state[at].is_some(), *state),
            NamesOp::Create(at, Some(id)) => only_if(state[at].is_none(), with(at, Some(id))),
            NamesOp::MaybeCreate(at) if state[at].is_none() => vec![with(at, Some(0)), *state],
            NamesOp::Unlink(at, was) => only_if(state[at].is_some() == was, with(at, None)),
            NamesOp::MaybeUnlink(at) => vec![with(at, None), *state],
            NamesOp::Rename(from, true) if state[from].is_some() => vec![moved(from)],
            NamesOp::Rename(from, true) => only_if(state[1 - from].is_some(), *state),
            NamesOp::Rename(from, false) => only_if(state[from].is_none(), *state),
            NamesOp::MaybeRename(from) if state[from].is_some() => vec![moved(from), *state],
            NamesOp::MaybeCreate(_) | NamesOp::MaybeRename(_) => vec![*state],
            NamesOp::Stat(at, None) => only_if(state[at].is_none(), *state),
            // A file whose creation was not answered is known from now on.
            NamesOp::Stat(at, Some(id)) => match state[at] {
                Some(0) => vec![with(at, Some(id))],
                known => only_if(known == Some(id), *state),
            },
        }
    }
}

impl Redo for Names {
    fn changes(&self, op: &NamesOp) -> bool {
        use NamesOp::{Create, Rename, Unlink};
        matches!(op, Create(_, Some(_)) | Unlink(_, true) | Rename(_, true))
    }

    fn redo(&self, state: &Pair, op: &NamesOp) -> Pair {
        let mut pair = *state;
        match *op {
            NamesOp::Create(at, Some(id)) => pair[at] = pair[at].or(Some(id)),
            NamesOp::MaybeCreate(at) => pair[at] = pair[at].or(Some(0)),
            NamesOp::Unlink(at, _) | NamesOp::MaybeUnlink(at) => pair[at] = None,
            NamesOp::Rename(from, true) | NamesOp::MaybeRename(from) if pair[from].is_some() => {
                pair[1 - from] = pair[from].take();
            }
            _ => {}
        }
        pair
    }
}

/// A file that is only appended to, record by record.
#[derive(Default)]
pub struct Log {
    /// What the longest read found. Whatever explains the history went through each of its
    /// beginnings: appends that were under way together need not be tried in all their orders.
    longest: Vec<u64>,
}

impl Log {
    /// The log that these operations were done to.
    pub fn of<'a>(ops: impl IntoIterator<Item = &'a LogOp>) -> Log {
        let read = |op: &'a LogOp| if let LogOp::Read(all) = op { Some(all) } else { None };
        let longest = ops.into_iter().filter_map(read).max_by_key(|all| all.len());
        Log { longest: longest.cloned().unwrap_or_default() }
    }

    fn longer(&self, state: &[u64], v: u64) -> Option<Vec<u64>> {
        let longer: Vec<u64> = state.iter().copied().chain([v]).collect();
        let both = longer.len().min(self.longest.len());
        (longer[..both] == self.longest[..both]).then_some(longer)
    }
}

#[derive(Clone, PartialEq, Eq, Hash)]
pub enum LogOp {
    Append(u64),
    MaybeAppend(u64),
    /// Everything that is in it.
    Read(Vec<u64>),
}

/// How many records of a read a report shows.
const SHOWN: usize = 8;

impl Debug for LogOp {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            LogOp::Append(v) => write!(f, "Append({v})"),
            LogOp::MaybeAppend(v) => write!(f, "MaybeAppend({v})"),
            LogOp::Read(all) => {
                let last = &all[all.len().saturating_sub(SHOWN)..];
                write!(f, "Read({} records, at the end {last:?})", all.len())
            }
        }
    }
}

impl Object for Log {
    type Op = LogOp;
    type State = Vec<u64>;

    fn start(&self) -> Vec<u64> {
        Vec::new()
    }

    fn step(&self, state: &Vec<u64>, op: &LogOp) -> Vec<Vec<u64>> {
        match op {
            LogOp::Append(v) => self.longer(state, *v).into_iter().collect(),
            LogOp::MaybeAppend(v) => {
                self.longer(state, *v).into_iter().chain([state.clone()]).collect()
            }
            LogOp::Read(all) if all == state => vec![state.clone()],
            LogOp::Read(_) => vec![],
        }
    }
}

impl Redo for Log {
    fn changes(&self, op: &LogOp) -> bool {
        matches!(op, LogOp::Append(_))
    }

    fn redo(&self, state: &Vec<u64>, op: &LogOp) -> Vec<u64> {
        let mut longer = state.clone();
        if let LogOp::Append(v) | LogOp::MaybeAppend(v) = op {
            longer.push(*v);
        }
        longer
    }

    /// Bytes that a client gathered have their place: what others appended in front of them, and was lost,
    /// is a hole then, records of zeros.
    fn redo_there(&self, state: &Vec<u64>, before: &Vec<u64>, op: &LogOp) -> Vec<u64> {
        let mut padded = state.clone();
        padded.resize(state.len().max(before.len()), 0);
        self.redo(&padded, op)
    }
}
