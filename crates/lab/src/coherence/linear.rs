//! Linearizability of one object's history: is there one order of its operations that agrees with
//! real time and with what each answered?
//!
//! The search of Wing and Gong with Lowe's memory of states already tried (G. Lowe, "Testing for
//! linearizability", 2017). Exponential in the number of operations that overlap, not in the length
//! of the history.

use std::collections::HashSet;
use std::fmt::{self, Debug, Formatter};
use std::hash::Hash;

/// What an object is when nothing overlaps.
pub trait Object {
    type Op;
    type State: Clone + Eq + Hash;

    fn start(&self) -> Self::State;

    /// The states in which an operation, with the answer it carries, may leave the object; none if
    /// it cannot have answered that in this state. An operation whose outcome is unknown gives all
    /// that are possible.
    fn step(&self, state: &Self::State, op: &Self::Op) -> Vec<Self::State>;
}

/// Who did an operation, counted from 0.
#[derive(Clone, Copy, Debug, Default)]
pub struct Who {
    pub mount: usize,
    pub thread: usize,
    /// Of several ways to do it the one that was taken, as the exerciser counts them.
    pub way: u32,
}

/// One operation.
#[derive(Clone)]
pub struct Entry<Op> {
    pub who: Who,
    /// When it was called.
    pub call: u64,
    /// When it returned; none: its outcome is not known.
    pub back: Option<u64>,
    pub op: Op,
}

impl<Op: Debug> Debug for Entry<Op> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Who { mount, thread, way } = self.who;
        let us = |nanos: u64| nanos / 1000;
        write!(f, "mount {mount} thread {thread} way {way}, {} to ", us(self.call))?;
        match self.back {
            Some(back) => write!(f, "{} us: {:?}", us(back), self.op),
            None => write!(f, "? us: {:?}", self.op),
        }
    }
}

/// Entries tried before a history counts as too tangled to decide.
pub const MAX_TRIES: u64 = 20_000_000;

/// What stands against an order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Violation {
    /// No order explains it: the longest that fits, and the entries that could not follow.
    Unexplained { fits: Vec<usize>, stuck: Vec<usize> },
    /// Given up.
    TooTangled,
}

struct Search<'a, O: Object> {
    object: &'a O,
    entries: &'a [Entry<O::Op>],
    /// Entries by the time of their call.
    order: Vec<usize>,
    /// Completed entries that are left.
    left: usize,
    done: Vec<u64>,
    path: Vec<usize>,
    best: Vec<usize>,
    seen: HashSet<(Vec<u64>, O::State)>,
    tries: u64,
}

/// An order that explains a history (unknown operations may be missing from it).
pub fn explain<O: Object>(object: &O, entries: &[Entry<O::Op>]) -> Result<Vec<usize>, Violation> {
    let mut order: Vec<usize> = (0..entries.len()).collect();
    order.sort_by_key(|i| entries[*i].call);
    let mut search = Search {
        object,
        entries,
        order,
        left: entries.iter().filter(|e| e.back.is_some()).count(),
        done: vec![0; entries.len().div_ceil(64)],
        path: Vec::new(),
        best: Vec::new(),
        seen: HashSet::new(),
        tries: 0,
    };
    match search.run(object.start()) {
        _ if search.tries >= MAX_TRIES => Err(Violation::TooTangled),
        true => Ok(search.path),
        false => {
            let fits = search.best.clone();
            search.done.fill(0);
            fits.iter().for_each(|i| search.done[i / 64] |= 1 << (i % 64));
            Err(Violation::Unexplained { stuck: search.candidates(), fits })
        }
    }
}

/// Where the search stands at one depth.
struct Frame<S> {
    state: S,
    /// What may come next, and the states it may lead to.
    next: Vec<(usize, S)>,
    /// What led here.
    by: Option<usize>,
}

impl<O: Object> Search<'_, O> {
    fn is_done(&self, i: usize) -> bool {
        self.done[i / 64] >> (i % 64) & 1 == 1
    }

    fn flip(&mut self, i: usize) {
        self.done[i / 64] ^= 1 << (i % 64);
    }

    /// Entries that may be the next: called before any that is left returned.
    fn candidates(&self) -> Vec<usize> {
        let open = || self.order.iter().copied().filter(|i| !self.is_done(*i));
        let first_back = open().filter_map(|i| self.entries[i].back).min().unwrap_or(u64::MAX);
        open().take_while(|i| self.entries[*i].call <= first_back).collect()
    }

    fn frame(&self, state: O::State, by: Option<usize>) -> Frame<O::State> {
        let mut next = Vec::new();
        for i in self.candidates() {
            let after = self.object.step(&state, &self.entries[i].op);
            next.extend(after.into_iter().map(|s| (i, s)));
        }
        // Tried from the back: those that returned first go first.
        next.sort_by_key(|(i, _)| std::cmp::Reverse(self.entries[*i].back.unwrap_or(u64::MAX)));
        Frame { state, next, by }
    }

    fn run(&mut self, start: O::State) -> bool {
        let mut stack = vec![self.frame(start, None)];
        while self.left > 0 {
            let Some(top) = stack.last_mut() else { return false };
            let Some((i, state)) = top.next.pop() else {
                let by = stack.pop().and_then(|f| f.by);
                if let Some(i) = by {
                    self.take_back(i);
                }
                continue;
            };
            self.tries += 1;
            if self.tries >= MAX_TRIES {
                return false;
            }
            self.flip(i);
            if !self.seen.insert((self.done.clone(), state.clone())) {
                self.flip(i);
                continue;
            }
            self.left -= usize::from(self.entries[i].back.is_some());
            self.path.push(i);
            if self.path.len() > self.best.len() {
                self.best.clone_from(&self.path);
            }
            let frame = self.frame(state, Some(i));
            stack.push(frame);
        }
        drop(stack.pop().map(|f| f.state));
        true
    }

    fn take_back(&mut self, i: usize) {
        self.flip(i);
        self.path.pop();
        self.left += usize::from(self.entries[i].back.is_some());
    }
}
