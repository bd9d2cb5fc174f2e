//! Making durable what OSTs have taken.
//!
//! Role: unstable -> committed. Bytes are kept until an OST said COMMIT with the verifier of their
//! write: after its restart they are sent again (invariant 1). Never does: keep a thread waiting for a
//! commit that nobody waits for; a slow OST would hold up those of all others.

use std::collections::BTreeMap;
use std::sync::Arc;

use proto::layout::ObjectId;
use proto::{Errno, Layout};

use crate::core::Core;
use crate::gather::Gather;
use crate::inode::{Inode, Place, State};
use crate::worker::Task;

/// Unstable bytes of one file that make a commit start in the background.
pub(crate) const COMMIT_AT: u64 = 32 << 20;
/// Rounds of write and commit before a restarting OST is given up.
const COMMIT_ROUNDS: u32 = 16;

/// What a commit is to make durable: objects by OST.
struct Due {
    objects: BTreeMap<u32, Vec<ObjectId>>,
    reach: Reach,
}

/// How far a commit goes: bytes taken before `upto` are meant, and no cut after `cuts`.
#[derive(Clone, Copy)]
struct Reach {
    upto: u64,
    cuts: u64,
}

/// What an OST said: its verifier.
type Answer = (u32, Result<u64, Errno>);

/// A commit on its way.
pub(crate) struct Committing {
    answers: Gather<Answer>,
    reach: Reach,
}

/// A commit behind everybody's back that was answered.
pub(crate) struct Answered {
    /// The OSTs that were asked.
    asked: Vec<u32>,
    answers: Vec<Answer>,
    reach: Reach,
}

impl Core {
    /// Makes durable what OSTs have taken of this file, sending again what a restart lost.
    pub(crate) fn commit(self: &Arc<Core>, inode: &Arc<Inode>) -> Result<(), Errno> {
        let begun = self.begin_commit(inode);
        self.end_commit(inode, begun)
    }

    /// Asks the OSTs to make durable what they have taken of this file; None if there is nothing of it.
    pub(crate) fn begin_commit(self: &Arc<Core>, inode: &Inode) -> Option<Committing> {
        let Due { objects, reach } = due(inode)?;
        Some(Committing { answers: self.ask_commit(objects), reach })
    }

    fn ask_commit(self: &Arc<Core>, due: BTreeMap<u32, Vec<ObjectId>>) -> Gather<Answer> {
        let answers = Gather::new();
        for (index, objects) in due {
            let ticket = answers.ticket();
            match self.ost(index) {
                Ok(ost) => {
                    answers.asks(&ost.session);
                    ost.commit(objects, move |r| ticket.put((index, r)));
                }
                Err(e) => ticket.put((index, Err(e))),
            }
        }
        answers
    }

    /// Waits until what was meant is durable, sending again what a restart lost.
    pub(crate) fn end_commit(
        self: &Arc<Core>,
        inode: &Arc<Inode>,
        mut begun: Option<Committing>,
    ) -> Result<(), Errno> {
        for _ in 0..COMMIT_ROUNDS {
            let Some(Committing { answers, reach }) = begun.take() else { return Ok(()) };
            if self.committed(inode, answers.wait(), reach)? {
                return Ok(());
            }
            self.drain(inode)?;
            begun = self.begin_commit(inode);
        }
        Err(Errno::EIO)
    }

    /// The end of one commit; whether nothing was lost by a restart: what was is dirty again.
    fn committed(&self, inode: &Inode, answers: Vec<Answer>, reach: Reach) -> Result<bool, Errno> {
        let mut all = true;
        for (index, answer) in answers {
            let verifier = answer?;
            let mut st = inode.st.lock();
            all &= !settle_commit(&mut st, index, reach.upto, verifier);
            st.unstable_since = (!st.unstable.is_empty()).then(|| self.tick_now());
            st.account(&self.budget);
        }
        // Only now: until then whoever else syncs finds the file not clean, and commits these, too.
        let mut st = inode.st.lock();
        if st.cuts == reach.cuts {
            st.cut.clear();
        }
        Ok(all)
    }

    /// Begins a commit that nobody waits for: asks, or leaves the file in the line of an OST that has
    /// enough to do. [`Task::Committed`] is its end.
    pub(crate) fn commit_behind(self: &Arc<Core>, inode: &Arc<Inode>) {
        // What an OST that is lost has is asked for when it is back.
        let Some(Due { objects, reach }) = due(inode).filter(|_| !self.lacks_osts_of(inode)) else {
            return self.end_behind(inode);
        };
        let asked: Vec<u32> = objects.keys().copied().collect();
        if !self.behind.lock().enter(&asked, inode.clone()) {
            return self.commit_next();
        }
        let (core, inode) = (self.clone(), inode.clone());
        self.ask_commit(objects).then(move |answers| {
            core.senders.commit(Task::Committed(inode, Answered { asked, answers, reach }));
        });
    }

    /// The end of a commit that nobody waits for. What was lost goes again, and is committed when it
    /// is due as other bytes are.
    pub(crate) fn committed_behind(self: &Arc<Core>, inode: &Arc<Inode>, answered: Answered) {
        self.behind.lock().leave(&answered.asked);
        match self.committed(inode, answered.answers, answered.reach) {
            Ok(true) => {}
            Ok(false) => {
                let mut st = inode.st.lock();
                st.push_all = true;
                self.want_push(inode, &mut st);
            }
            Err(e) => {
                tracing::warn!(fid = %inode.fid, error = %e, "commit failed, it is tried again");
            }
        }
        self.end_behind(inode);
    }

    fn end_behind(&self, inode: &Arc<Inode>) {
        inode.st.lock().committing = false;
        self.registry.rest(inode);
        self.commit_next();
    }

    /// Whoever stands in line and may try now does so.
    fn commit_next(&self) {
        let next = self.behind.lock().next();
        next.into_iter().for_each(|inode| self.senders.commit(Task::Commit(inode)));
    }

    /// An OST is back: what it may have lost in a restart goes again now, and what waited for it.
    pub(crate) fn resend(self: &Arc<Core>, index: u32) {
        if let Some(ost) = self.osts.read().get(&index) {
            ost.came_back();
        }
        for inode in self.registry.all() {
            let mut st = inode.st.lock();
            if st.unstable.runs().any(|(_, seg)| seg.tag.ost == index) {
                self.want_commit(&inode, &mut st);
            }
            let waits = |layout: &Layout| layout.osts.contains(&index) && !st.dirty.is_empty();
            if matches!(&st.place, Place::Striped(layout) if waits(layout)) {
                st.push_all = true;
                self.want_push(&inode, &mut st);
            }
        }
    }
}

/// What of a file waits for a commit; None: it has no objects.
fn due(inode: &Inode) -> Option<Due> {
    let mut st = inode.st.lock();
    let Place::Striped(layout) = &st.place else {
        st.cut.clear();
        return None;
    };
    let objects = unstable_objects(inode, &st, layout);
    Some(Due { objects, reach: Reach { upto: st.next_id, cuts: st.cuts } })
}

/// The objects with unstable bytes or an unstable end, by OST.
fn unstable_objects(inode: &Inode, st: &State, layout: &Layout) -> BTreeMap<u32, Vec<ObjectId>> {
    let mut wanted: BTreeMap<u32, Vec<ObjectId>> = BTreeMap::new();
    let written = st.unstable.runs().map(|(at, _)| layout.locate(at).0);
    for stripe in written.chain(st.cut.iter().copied()) {
        let Some(ost) = layout.osts.get(usize::from(stripe)) else { continue };
        let objects = wanted.entry(*ost).or_default();
        let object = layout.object(inode.fid, stripe);
        if !objects.contains(&object) {
            objects.push(object);
        }
    }
    wanted
}

/// Bytes taken before the commit are durable if the verifier is that of their write.
fn settle_commit(st: &mut State, ost: u32, upto: u64, verifier: u64) -> bool {
    let done = st.unstable.extract_runs(|_, seg| seg.tag.ost == ost && seg.tag.id < upto);
    let mut lost = Vec::new();
    for (at, seg) in done {
        if seg.tag.verifier != verifier {
            lost.push((at, seg.data));
        } else {
            st.ahead.invalidate(at, at + seg.data.len());
        }
    }
    let any = !lost.is_empty();
    st.again(lost);
    any
}
