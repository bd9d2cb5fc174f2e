//! An object whose server may be killed: what was answered and not synced may be lost, from its end.
//!
//! Role: lays over an object what a kill -9 of its metadata target may do to it (invariants 1 and 2).
//! Operations that change the object are remembered until one of them is synced: that one, and all in front of
//! it, are durable then. At a kill the object goes back to a beginning of what is remembered; the operations
//! at its end may be done once more after that, because a client may not have sent them yet. So what is lost is
//! one piece out of the middle (a hole where what follows has its place), or nothing, and never anything a sync returned for. From then on it is one
//! object for everybody again: there is no value that comes back later.
//! Assumptions: what happened between the kill and the moment all clients were back is in the history with
//! that time as its end, and without the reads.

use super::linear::Object;
use std::collections::BTreeSet;
use std::hash::Hash;

/// An object that can be done to again what was done before.
pub trait Redo: Object {
    /// Whether an operation changes something for sure, even where the state stays the same.
    fn changes(&self, op: &Self::Op) -> bool;

    /// The state after a change that was answered before is done once more, as far as it still can be.
    fn redo(&self, state: &Self::State, op: &Self::Op) -> Self::State;

    /// The same where it was done when the state was `before`, whatever lay in front of it is gone.
    fn redo_there(&self, state: &Self::State, _before: &Self::State, op: &Self::Op) -> Self::State {
        self.redo(state, op)
    }
}

/// What happens to such an object.
#[derive(Clone, Debug)]
pub enum CrashOp<Op> {
    /// Something is done to it; changes have a number of their own.
    Done(u64, Op),
    /// A sync returned: the change of that number is durable.
    Synced(u64),
    /// Its server is killed and comes back.
    Killed,
}

/// See the module.
pub struct Mortal<'a, O: Object> {
    inner: &'a O,
    /// Changes that were synced: only of these it matters that they are lost.
    synced: BTreeSet<u64>,
}

/// A change that is not known to be durable, and what was before it.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Change<S, Op> {
    number: u64,
    before: S,
    op: Op,
}

/// A state, and what may be lost of it.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Volatile<S, Op> {
    now: S,
    unsynced: Vec<Change<S, Op>>,
    /// Changes that were lost and whose sync is still to come: it must not.
    lost: BTreeSet<u64>,
}

impl<'a, O: Redo> Mortal<'a, O>
where
    O::Op: Clone + Eq + Hash,
{
    /// An object to which this is done.
    pub fn of<'o>(inner: &'a O, ops: impl IntoIterator<Item = &'o CrashOp<O::Op>>) -> Self
    where
        O::Op: 'o,
    {
        let number =
            |op: &CrashOp<O::Op>| if let CrashOp::Synced(n) = op { Some(*n) } else { None };
        Mortal { inner, synced: ops.into_iter().filter_map(number).collect() }
    }

    fn done(
        &self,
        state: &Volatile<O::State, O::Op>,
        number: u64,
        op: &O::Op,
    ) -> Vec<Volatile<O::State, O::Op>> {
        let after = |now: O::State| {
            let mut next = state.clone();
            if self.inner.changes(op) || now != state.now {
                next.unsynced.push(Change { number, before: state.now.clone(), op: op.clone() });
            }
            next.now = now;
            next
        };
        self.inner.step(&state.now, op).into_iter().map(after).collect()
    }

    fn synced(
        &self,
        state: &Volatile<O::State, O::Op>,
        number: u64,
    ) -> Vec<Volatile<O::State, O::Op>> {
        if state.lost.contains(&number) {
            return Vec::new();
        }
        let mut next = state.clone();
        if let Some(at) = state.unsynced.iter().position(|c| c.number == number) {
            next.unsynced.drain(..=at);
        }
        vec![next]
    }

    /// Every beginning of what is not synced is kept; of the rest every end is done once more.
    fn killed(&self, state: &Volatile<O::State, O::Op>) -> Vec<Volatile<O::State, O::Op>> {
        let all = &state.unsynced;
        let mut outcomes: Vec<Volatile<O::State, O::Op>> = Vec::new();
        for kept in 0..=all.len() {
            let left = all.get(kept).map_or(&state.now, |c| &c.before);
            for again in kept..=all.len() {
                let mut begun =
                    Volatile { now: left.clone(), unsynced: Vec::new(), lost: state.lost.clone() };
                let lost = all[kept..again].iter().map(|c| c.number);
                begun.lost.extend(lost.filter(|n| self.synced.contains(n)));
                for there in [false, true] {
                    let mut next = begun.clone();
                    for change in &all[again..] {
                        let after = match there {
                            true => self.inner.redo_there(&next.now, &change.before, &change.op),
                            false => self.inner.redo(&next.now, &change.op),
                        };
                        let before = std::mem::replace(&mut next.now, after);
                        next.unsynced.push(Change { before, ..change.clone() });
                    }
                    if !outcomes.contains(&next) {
                        outcomes.push(next);
                    }
                }
            }
        }
        outcomes
    }
}

impl<O: Redo> Object for Mortal<'_, O>
where
    O::Op: Clone + Eq + Hash,
{
    type Op = CrashOp<O::Op>;
    type State = Volatile<O::State, O::Op>;

    fn start(&self) -> Self::State {
        Volatile { now: self.inner.start(), unsynced: Vec::new(), lost: BTreeSet::new() }
    }

    fn step(&self, state: &Self::State, op: &Self::Op) -> Vec<Self::State> {
        match op {
            CrashOp::Done(number, op) => self.done(state, *number, op),
            CrashOp::Synced(number) => self.synced(state, *number),
            CrashOp::Killed => self.killed(state),
        }
    }
}
