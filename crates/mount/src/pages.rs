//! Pages the kernel keeps of files that are mapped (mmap(2)) while others may write them.
//!
//! Role: what is read for read(2) of a file that others may write is kept by nobody ([`crate::caches`]), but a
//! mapping needs pages that stay. Those read under a lease are dropped when it is called back. Those that
//! nothing vouches for are *doubtful*: others write without asking this mount, so these pages are dropped
//! again and again, [`LAG`] after they may have been read, and before fsync(2) or msync(2) of their file is
//! answered (invariant 3 for who calls it). Mapping a file anew drops them, too; the kernel does that.
//! Order: a page is noted before it is read, and the kernel holds it locked until that is answered; so a
//! pass that begins after the note waits for the page and drops it.
//! Assumptions: the kernel names the owner of locks with what it reads for read(2), and with nothing else.
//! Bounded by the files that are open ([`crate::handles::MAX_HANDLES`]): those of closed ones go with the next
//! pass. Never does: let a handler wait for the kernel; the answer to fsync(2) is sent by the thread here.

use std::sync::Arc;
use std::time::{Duration, Instant};

use fuse::{Notifier, Reply};
use parking_lot::{Condvar, Mutex};
use rustc_hash::FxHashMap as HashMap;

/// How long doubtful pages are shown at most before they are dropped.
const LAG: Duration = Duration::from_millis(100);

#[derive(Default)]
struct State {
    /// Nodes that may have doubtful pages, and when the last such page was noted.
    doubtful: HashMap<u64, u64>,
    clock: u64,
    /// Nodes whose pages are to be dropped now, and who waits for that.
    waiting: Vec<(u64, Option<Reply<()>>)>,
    ended: bool,
}

/// See the module.
#[derive(Default)]
pub struct Pages {
    state: Mutex<State>,
    /// For who drops them again and again.
    noted: Condvar,
    /// For who drops them when asked.
    asked: Condvar,
}

/// The threads that drop pages; they end with it.
pub struct Droppers(Arc<Pages>);

impl Drop for Droppers {
    fn drop(&mut self) {
        self.0.state.lock().ended = true;
        self.0.noted.notify_all();
        self.0.asked.notify_all();
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

    /// Sends the answer to fsync(2) of a node once no doubtful page from before is left.
    pub fn settle(&self, node: u64, done: fuse::Result<()>, reply: Reply<()>) {
        if done.is_ok() {
            let mut st = self.state.lock();
            if !st.ended && st.doubtful.contains_key(&node) {
                st.waiting.push((node, Some(reply)));
                drop(st);
                self.asked.notify_one();
                return;
            }
        }
        reply.send(done);
    }

    /// The kernel has put something into pages of a node that does not belong there: they are dropped as soon as
    /// its write has ended.
    pub fn discard(&self, node: u64) {
        self.doubt(node);
        let mut st = self.state.lock();
        if !st.waiting.iter().any(|(n, reply)| *n == node && reply.is_none()) {
            st.waiting.push((node, None));
        }
        drop(st);
        self.asked.notify_one();
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
            while !st.ended && st.waiting.is_empty() {
                self.asked.wait(&mut st);
            }
            let waiting = std::mem::take(&mut st.waiting);
            let ended = st.ended;
            let noted =
                |(node, _): &(u64, Option<Reply<()>>)| Some((*node, *st.doubtful.get(node)?));
            let mut nodes: Vec<(u64, u64)> = waiting.iter().filter_map(noted).collect();
            drop(st);
            nodes.sort_unstable();
            nodes.dedup();
            nodes.into_iter().for_each(|noted| self.drop_pages(notifier, noted));
            waiting.into_iter().filter_map(|(_, reply)| reply).for_each(|reply| reply.ok(()));
            if ended {
                return;
            }
        }
    }

    /// Drops a node's pages that were noted until `at`. Waits for those that are being read or written.
    fn drop_pages(&self, notifier: &Notifier, (node, at): (u64, u64)) {
        if let Err(e) = notifier.inval_inode(node, 0, 0) {
            tracing::debug!(node, error = %e, "cannot drop pages");
        }
        let mut st = self.state.lock();
        if st.doubtful.get(&node) == Some(&at) {
            st.doubtful.remove(&node);
        }
    }
}
