//! Pages the kernel keeps of files that others may write.
//!
//! Role: what is read for read(2) of a file that others may write is kept by nobody ([`crate::caches`]), but a
//! mapping (mmap(2)) needs pages that stay, and of a file that was opened while this mount was alone the kernel
//! goes on keeping all it reads and writes. Those read under a lease are dropped when it is called back; for a
//! descriptor of before the client asks for one that also stands where several write ([`client::Client::watch`]).
//! Those that nothing vouches for are *doubtful*: others write without asking this mount, so these pages are dropped
//! again and again, [`LAG`] after they may have been read, and before fsync(2) or msync(2) of their file, or a
//! lock of it, is answered, or one is given back (invariant 3 for who calls it). Mapping a file anew drops them, too; the kernel does that.
//! What such a descriptor of before brought in and nothing vouches for is dropped at once ([`Pages::discard`]), where it
//! can be before it is answered ([`crate::prompt`]).
//! Order: a page is noted before it is read, and the kernel holds it locked until that is answered; so a
//! pass that begins after the note waits for the page and drops it.
//! Assumptions: the kernel names the owner of locks with what it reads for read(2), and with nothing else.
//! Bounded by the files that are open ([`crate::handles::MAX_HANDLES`]): those of closed ones go with the next
//! pass. Never does: let a handler wait for the kernel; the answer to fsync(2) is sent by the thread here.

use std::sync::Arc;
use std::time::{Duration, Instant};

use client::OpenFile;
use fuse::{Notifier, Reply};
use parking_lot::{Condvar, Mutex};
use rustc_hash::{FxHashMap as HashMap, FxHashSet as HashSet};

use crate::ends::Ends;
use crate::under_way::UnderWay;

/// How long doubtful pages are shown at most before they are dropped.
const LAG: Duration = Duration::from_millis(100);
/// How long pages that are called back wait for writes of this mount. Two mounts that both opened a file while
/// they were alone, write it, and wait for each other lose as much each time.
pub(crate) const HELD: Duration = Duration::from_secs(2);
/// How long a page that is called back is not read: those who drop it may have passed by already. Then they
/// surely wait for it, or come again.
const AHEAD: Duration = Duration::from_micros(500);
/// How often pages that are called back are dropped because some were read meanwhile (invariant 8).
const MAX_PASSES: u32 = 100;
/// Files remembered of which pages were read under a lease; one more, and their pages are dropped (invariant 8).
const MAX_KEPT: usize = 65_536;

/// Pages that are called back.
#[derive(Clone, Copy, Default)]
struct Recall {
    /// How often they were dropped, this time included.
    pass: u32,
    /// A page may have been read that this time does not meet.
    late: bool,
}

#[derive(Default)]
struct State {
    /// Nodes that may have doubtful pages, and when the last such page was noted.
    doubtful: HashMap<u64, u64>,
    clock: u64,
    /// Nodes that may have pages that were read under a lease, or were believed to be.
    kept: HashSet<u64>,
    /// Nodes whose pages are to be dropped now.
    drops: HashSet<u64>,
    /// What waits for that.
    waiting: Vec<Box<dyn FnOnce() + Send>>,
    /// Batches of those that were begun and ended.
    begun: u64,
    done: u64,
    /// Nodes whose pages are called back just now.
    recalled: HashMap<u64, Recall>,
    /// Writes under way that hold pages until they are told.
    writing: u64,
    ended: bool,
}

/// See the module.
#[derive(Default)]
pub struct Pages {
    state: Mutex<State>,
    /// Where files end of which there are such pages.
    pub ends: Arc<Ends>,
    /// For who drops them again and again.
    noted: Condvar,
    /// For who drops them when asked.
    asked: Condvar,
    /// For who waits until they are dropped.
    dropped: Condvar,
    /// For who reads one that is called back.
    passed: Condvar,
    /// What the kernel reads and writes of them just now.
    pub under_way: UnderWay,
}

/// A write that holds pages of the kernel until it is told; ends when dropped.
pub struct Writing<'a>(&'a Pages);

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        self.0.state.lock().writing -= 1;
    }
}

/// The threads that drop pages; they end with it.
pub struct Droppers(Arc<Pages>);

impl Drop for Droppers {
    fn drop(&mut self) {
        self.0.state.lock().ended = true;
        self.0.noted.notify_all();
        self.0.asked.notify_all();
        self.0.dropped.notify_all();
        self.0.passed.notify_all();
    }
}

impl Pages {
    /// The kernel reads a page of a node to keep it, and nothing vouches for it. To be called before
    /// it is read.
    pub fn doubt(&self, node: u64) {
        let mut st = self.state.lock();
        st.clock += 1;
        let now = st.clock;
        let first = st.doubtful.is_empty();
        st.doubtful.insert(node, now);
        drop(st);
        if first {
            self.noted.notify_one();
        }
    }

    /// The kernel reads a page of a node to keep it, and a lease may vouch for it. To be called before that is
    /// looked at.
    pub fn keep(&self, node: u64) {
        let mut st = self.state.lock();
        if st.kept.len() >= MAX_KEPT && !st.kept.contains(&node) {
            drop(st);
            self.doubt_kept();
            st = self.state.lock();
        }
        st.kept.insert(node);
    }

    /// The kernel will keep pages of an open file; see [`Ends::follow`].
    pub fn follow(&self, node: u64, file: &Arc<OpenFile>, ends: (u64, u64)) {
        if let Some(other) = self.ends.follow(node, Arc::downgrade(file), ends) {
            self.discard(other);
        }
    }

    /// Whether the kernel may have kept pages of a node.
    pub fn keeps(&self, node: u64) -> bool {
        self.state.lock().kept.contains(&node)
    }

    /// Whether the kernel may have pages of a node that are to be dropped and are not yet.
    pub fn may_be_old(&self, node: u64) -> bool {
        let st = self.state.lock();
        st.doubtful.contains_key(&node) || st.recalled.contains_key(&node)
    }

    /// Whether the kernel may show pages of a node that were kept: also those that are called back just now, and may not be
    /// dropped yet.
    pub fn shows_kept(&self, node: u64) -> bool {
        let st = self.state.lock();
        st.kept.contains(&node) || st.recalled.contains_key(&node)
    }

    /// No lease is believed any more: what was read under one is dropped.
    pub fn doubt_kept(&self) {
        let kept = std::mem::take(&mut self.state.lock().kept);
        kept.into_iter().for_each(|node| self.discard(node));
    }

    /// Sends the answer to fsync(2) or a lock of a node once no doubtful page from before is left.
    pub fn settle(&self, node: u64, done: fuse::Result<()>, reply: Reply<()>) {
        match done {
            Ok(()) => self.when_settled(node, move || reply.ok(())),
            Err(e) => reply.err(e),
        }
    }

    /// Does something, which must not wait, once no doubtful page of a node from before is left; what was stored in such
    /// a page by a mapping is written then.
    pub fn when_settled(&self, node: u64, then: impl FnOnce() + Send + 'static) {
        let mut st = self.state.lock();
        if st.ended || !st.doubtful.contains_key(&node) {
            drop(st);
            return then();
        }
        st.drops.insert(node);
        st.waiting.push(Box::new(then));
        drop(st);
        self.asked.notify_one();
    }

    /// Pages of a node show what they must not, or soon may: they are dropped as soon as the reads and writes
    /// that hold them have ended.
    pub fn discard(&self, node: u64) {
        self.ask(node);
    }

    /// The batch in which pages of a node are dropped.
    fn ask(&self, node: u64) -> u64 {
        self.doubt(node);
        let mut st = self.state.lock();
        st.drops.insert(node);
        let batch = st.begun + 1;
        drop(st);
        self.asked.notify_one();
        batch
    }

    /// Pages of a node are called back: `drops` drops them. What is read meanwhile is dropped, too, or read when
    /// this has been answered: otherwise readers that come again and again would keep it for ever.
    /// Ends early where they could not be dropped. One at a time for a node: another that has begun to drop them, and
    /// waits for one that is read from a lost OST, may have all the others still before it. `unkeeps`: what was kept is
    /// nobody's any more, but for what is read from now on.
    pub fn recalled(&self, node: u64, unkeeps: bool, drops: impl Fn() -> bool) {
        let mut st = self.state.lock();
        while !st.ended && st.recalled.contains_key(&node) {
            self.passed.wait(&mut st);
        }
        // Together: who finds neither has nothing to drop.
        if unkeeps {
            st.kept.remove(&node);
        }
        st.recalled.insert(node, Recall::default());
        drop(st);
        for _ in 0..MAX_PASSES {
            if let Some(recall) = self.state.lock().recalled.get_mut(&node) {
                *recall = Recall { pass: recall.pass + 1, late: false };
            }
            self.passed.notify_all();
            if !drops() {
                break;
            }
            let mut st = self.state.lock();
            if st.recalled.get(&node).is_none_or(|recall| !recall.late) {
                st.recalled.remove(&node);
                drop(st);
                self.passed.notify_all();
                return;
            }
        }
        self.state.lock().recalled.remove(&node);
        self.passed.notify_all();
        tracing::debug!(node, "pages that are read all the time, or written, are dropped later");
        self.discard(node);
    }

    /// Waits for that long, or until pages of some node are called back, or no longer are.
    pub fn pause(&self, time: Duration) {
        self.passed.wait_for(&mut self.state.lock(), time);
    }

    /// The kernel holds a page of a node, to read it: whether it will be dropped before the call-back of the node's
    /// pages that is under way is answered. Otherwise none is under way (any more).
    pub fn read_while_recalled(&self, node: u64) -> bool {
        let mut st = self.state.lock();
        let Some(Recall { pass, .. }) = st.recalled.get(&node).copied() else { return false };
        let end = Instant::now() + AHEAD;
        loop {
            match st.recalled.get_mut(&node) {
                None => return false,
                // It began when the kernel held this page already.
                Some(recall) if recall.pass != pass => return true,
                Some(recall) if Instant::now() >= end => {
                    recall.late = true;
                    return true;
                }
                Some(_) => drop(self.passed.wait_until(&mut st, end)),
            }
        }
    }

    /// A write begins of which the kernel holds the pages, and which may have to be told before it ends.
    pub fn writing(&self) -> Writing<'_> {
        self.state.lock().writing += 1;
        self.dropped.notify_all();
        Writing(self)
    }

    /// Drops the pages of a node that is written here, too. Does not wait for ever for a page that a write holds:
    /// that may wait until it is told, which may wait for another mount that is called back just as this one is.
    /// Whether it has dropped them.
    pub fn give_up(&self, node: u64) -> bool {
        let batch = self.ask(node);
        let mut st = self.state.lock();
        let mut end = None;
        while st.done < batch && !st.ended {
            if st.writing == 0 {
                end = None;
                self.dropped.wait(&mut st);
                continue;
            }
            let end = *end.get_or_insert_with(|| Instant::now() + HELD);
            if self.dropped.wait_until(&mut st, end).timed_out() {
                return false;
            }
        }
        true
    }

    /// Starts the threads that tell the kernel.
    pub fn start(self: &Arc<Pages>, notifier: &Notifier) -> std::io::Result<Droppers> {
        let droppers = Droppers(Arc::clone(self));
        for (name, run) in
            [("pages", Pages::again as fn(&Pages, &Notifier)), ("pages-now", Pages::now)]
        {
            let (pages, notifier) = (Arc::clone(self), notifier.clone());
            let named = std::thread::Builder::new().name(name.into());
            named.spawn(move || run(&pages, &notifier))?;
        }
        Ok(droppers)
    }

    /// Drops what has become doubtful, [`LAG`] after it has.
    fn again(&self, notifier: &Notifier) {
        let mut st = self.state.lock();
        loop {
            while !st.ended && st.doubtful.is_empty() {
                self.noted.wait(&mut st);
            }
            let end = Instant::now() + LAG;
            while !st.ended && !self.noted.wait_until(&mut st, end).timed_out() {}
            if st.ended {
                return;
            }
            let nodes: Vec<(u64, u64)> = st.doubtful.iter().map(|(n, at)| (*n, *at)).collect();
            drop(st);
            nodes.into_iter().for_each(|noted| self.drop_pages(notifier, noted));
            st = self.state.lock();
        }
    }

    /// Drops what is asked for, and answers.
    fn now(&self, notifier: &Notifier) {
        loop {
            let mut st = self.state.lock();
            while !st.ended && st.drops.is_empty() {
                self.asked.wait(&mut st);
            }
            let (drops, waiting) = (std::mem::take(&mut st.drops), std::mem::take(&mut st.waiting));
            st.begun += 1;
            let ended = st.ended;
            let noted = |node: u64| Some((node, *st.doubtful.get(&node)?));
            let nodes: Vec<(u64, u64)> = drops.into_iter().filter_map(noted).collect();
            drop(st);
            nodes.into_iter().for_each(|noted| self.drop_pages(notifier, noted));
            waiting.into_iter().for_each(|then| then());
            st = self.state.lock();
            st.done = st.begun;
            drop(st);
            self.dropped.notify_all();
            if ended {
                return;
            }
        }
    }

    /// Drops a node's pages that were noted until `at`. Waits for those that are being read or written.
    fn drop_pages(&self, notifier: &Notifier, (node, at): (u64, u64)) {
        self.ends.dropping(node);
        if let Err(e) = notifier.inval_inode(node, 0, 0) {
            tracing::debug!(node, error = %e, "cannot drop pages");
        }
        let mut st = self.state.lock();
        if st.doubtful.get(&node) == Some(&at) {
            st.doubtful.remove(&node);
        }
    }
}

#[cfg(test)]
mod tests;
