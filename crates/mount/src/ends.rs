//! Where files end that grow by writes of other mounts, while the kernel keeps pages of them.
//!
//! Role: the last page the kernel has of a file is filled with zeros behind the end, and it shows these as soon as it
//! hears that the file is longer. So before it hears, what it has from the earlier end on is dropped; and as that makes
//! it ignore the answer by which it would have heard (and so may the next write that is told, [`crate::caches`]), the
//! bytes of the new end are stored in its pages, which moves its own end ([`Notifier::store`]). Then the answer follows.
//! Order: a size was the truth before pages are dropped, so pages that are read after that have the bytes up to it;
//! what is stored was read since pages of the file were dropped last, and who drops them waits until it is stored.
//! Assumptions: reads are answered whatever happens here; so nothing here may be waited for by who answers one.
//! Writes of this mount that go past the kernel's pages drop those, too, before they are answered: the kernel drops them
//! before it asks only, and moves its end when it is answered. Nothing is stored in pages that are written through (by who
//! opened the file while this mount was alone): it could take the place of newer bytes.
//! Bounded by [`MAX_FILES`]. Never does: let a handler wait for the kernel.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Weak};
use std::time::Duration;

use client::OpenFile;
use fuse::Notifier;
use parking_lot::Mutex;
use proto::Errno;
use rustc_hash::FxHashMap as HashMap;

use crate::tellers::Tellers;

/// Files that are followed; one more, and one of them is not any longer (invariant 8).
const MAX_FILES: usize = 65_536;
/// Most bytes of whole pages that are stored with an end.
const TAIL: u64 = 64 << 10;
const PAGE: u64 = 4096;
/// How often a tail is read again because pages were dropped meanwhile.
const TRIES: u32 = 20;
/// How long who drops pages waits for what is being stored.
const STORING: Duration = Duration::from_secs(2);

/// A file by which tails are read.
pub trait Reads {
    /// Reads on nobody's behalf: the access time stays; how many bytes there are.
    fn peek(&self, at: u64, into: &mut [u8]) -> Result<usize, Errno>;
}

impl Reads for OpenFile {
    fn peek(&self, at: u64, into: &mut [u8]) -> Result<usize, Errno> {
        OpenFile::peek(self, at, into)
    }
}

/// What is known of one file.
struct End<F> {
    /// Where the kernel knows the file to end, or further.
    known: AtomicU64,
    /// All pages the kernel has of the file have the bytes up to there.
    filled: AtomicU64,
    /// A read was answered as if the file ended there: the kernel believes that.
    short: AtomicU64,
    /// How often its pages were dropped.
    drops: AtomicU64,
    /// Held while its tail is read and stored.
    turn: Mutex<()>,
    /// Held while it is stored.
    storing: Mutex<()>,
    /// By which it is read, and to read it with.
    readers: Mutex<Vec<Weak<F>>>,
}

impl<F: Reads> End<F> {
    /// The smallest of what the kernel was told.
    fn known(&self) -> u64 {
        self.cut(self.short.swap(u64::MAX, SeqCst))
    }

    /// It ends there, or before.
    fn cut(&self, size: u64) -> u64 {
        self.filled.fetch_min(size, SeqCst);
        self.known.fetch_min(size, SeqCst).min(size)
    }

    /// Whether somebody can read its pages through an open file.
    fn is_open(&self) -> bool {
        self.readers.lock().iter().any(|file| file.strong_count() > 0)
    }

    fn read_by(&self, file: Weak<F>) {
        let mut readers = self.readers.lock();
        if !readers.iter().any(|known| known.ptr_eq(&file)) {
            readers.retain(|known| known.strong_count() > 0);
            readers.push(file);
        }
    }

    /// Its last bytes up to `size`, and where they begin; none if it has become shorter, or nobody has it open.
    fn tail(&self, size: u64) -> Option<(u64, Vec<u8>)> {
        let file = self.readers.lock().iter().find_map(Weak::upgrade)?;
        let (known, last) = (self.known.load(SeqCst) / PAGE * PAGE, (size - 1) / PAGE * PAGE);
        // Little, where it may be long since anybody read there.
        let from = if known < last.saturating_sub(TAIL) { last } else { known };
        let mut bytes = vec![0; (size - from) as usize];
        let n = file.peek(from, &mut bytes).ok()?;
        (n == bytes.len()).then_some((from, bytes))
    }

    /// What is read after this has the bytes up to `size`, and the kernel knows of them if they are given. Whether it will
    /// ignore the answer that tells of them.
    fn show(
        &self,
        notifier: &Notifier,
        node: u64,
        size: u64,
        tail: Option<(u64, Vec<u8>)>,
    ) -> std::io::Result<bool> {
        let filled = self.filled.load(SeqCst);
        let drops = filled < size;
        if drops {
            notifier.inval_inode(node, (filled / PAGE * PAGE) as i64, 0)?;
            self.filled.fetch_max(size, SeqCst);
        }
        let Some((at, bytes)) = tail else { return Ok(drops) };
        notifier.store(node, at, &bytes)?;
        self.known.fetch_max(size, SeqCst);
        Ok(false)
    }
}

/// The files whose ends are followed.
pub struct Ends<F = OpenFile> {
    files: Mutex<HashMap<u64, Arc<End<F>>>>,
    /// How many; a mount that is alone needs none, and no lock.
    count: AtomicUsize,
    /// Who raises them, and waits for servers, too.
    pub raising: Tellers,
    /// Who drops what was written here.
    pub dropping: Tellers,
}

impl<F> Default for Ends<F> {
    fn default() -> Ends<F> {
        Ends {
            files: Mutex::default(),
            count: AtomicUsize::new(0),
            raising: Tellers::default(),
            dropping: Tellers::default(),
        }
    }
}

impl<F: Reads> Ends<F> {
    fn find(&self, node: u64) -> Option<Arc<End<F>>> {
        if self.count.load(SeqCst) == 0 {
            return None;
        }
        self.files.lock().get(&node).cloned()
    }

    /// The kernel will keep pages of a file. It may know where the file ended a moment ago: at `known`. What it reads from
    /// now on has the bytes up to `filled`, and nothing it has had fewer. The node of a file that had to give way, whose
    /// pages must go.
    #[must_use]
    pub fn follow(&self, node: u64, file: Weak<F>, (known, filled): (u64, u64)) -> Option<u64> {
        let mut files = self.files.lock();
        if let Some(end) = files.get(&node) {
            end.read_by(file);
            return None;
        }
        let mut out = None;
        if files.len() >= MAX_FILES {
            out = files.keys().next().copied();
            out.iter().for_each(|node| drop(files.remove(node)));
        }
        let end = End {
            known: AtomicU64::new(known),
            filled: AtomicU64::new(filled),
            short: AtomicU64::new(u64::MAX),
            drops: AtomicU64::new(0),
            turn: Mutex::default(),
            storing: Mutex::default(),
            readers: Mutex::new(vec![file]),
        };
        files.insert(node, Arc::new(end));
        self.count.store(files.len(), SeqCst);
        out
    }

    /// The kernel knows the file no more.
    pub fn forget(&self, node: u64) {
        if self.count.load(SeqCst) == 0 {
            return;
        }
        let mut files = self.files.lock();
        files.remove(&node);
        self.count.store(files.len(), SeqCst);
    }

    /// Nothing is known any more of what the kernel knows.
    pub fn doubt(&self) {
        self.files.lock().values().for_each(|end| {
            end.cut(0);
        });
    }

    /// A read will be answered as if the file ended there.
    pub fn short(&self, node: u64, end: u64) {
        if let Some(file) = self.find(node) {
            file.short.fetch_min(end, SeqCst);
        }
    }

    /// Whether the kernel must be told by [`Ends::raise`] that a file is so long, before anything else tells it. `stores`:
    /// bytes may be stored. Of one that nobody has open the answer itself may tell it, once all pages have the bytes: if it
    /// ignores that, it asks again before anybody reads.
    pub fn grows(&self, node: u64, size: u64, stores: bool) -> bool {
        let Some(end) = self.find(node) else { return false };
        if size > end.known() {
            return size > end.filled.load(SeqCst) || stores && end.is_open();
        }
        end.cut(size);
        false
    }

    /// Whether the kernel may have pages of a file that somebody can read through an open file.
    pub fn shows(&self, node: u64) -> Option<bool> {
        self.find(node).map(|end| end.is_open())
    }

    /// A file is changed here, otherwise than by [`Ends::written`]: nothing is stored of it any more that was read before.
    /// To be called before that is answered, whereupon the kernel drops what it has of it.
    pub fn changed(&self, node: u64) {
        if let Some(end) = self.find(node) {
            end.drops.fetch_add(1, SeqCst);
        }
    }

    /// A file was written here past the kernel's pages, from one byte to before another. Drops what it has of them and,
    /// if the file has grown by that, behind the end that it knows. Not from a handler, as [`Ends::raise`].
    pub fn written(&self, notifier: &Notifier, node: u64, (from, to): (u64, u64)) {
        let Some(end) = self.find(node) else { return };
        end.drops.fetch_add(1, SeqCst);
        let _storing = end.storing.lock();
        end.known();
        let filled = end.filled.load(SeqCst);
        let (from, to_end) = (from.min(if to > filled { filled } else { from }), to > filled);
        let len = if to_end { 0 } else { (to - from) as i64 };
        match notifier.inval_inode(node, from as i64, len) {
            Ok(_) => {
                end.filled.fetch_max(to, SeqCst);
            }
            Err(error) => tracing::debug!(node, %error, "cannot drop pages that were written"),
        }
    }

    /// Pages of a node are about to be dropped: what is being stored is met by that.
    pub fn dropping(&self, node: u64) {
        if let Some(end) = self.find(node) {
            end.drops.fetch_add(1, SeqCst);
            // For ever only where a read is never answered, for which who drops them waits, too.
            drop(end.storing.try_lock_for(STORING));
        }
    }

    /// Makes sure that the kernel has no zeros behind the end that it knows of a file that is so long; with what it is told then it
    /// moves that itself, if no page is dropped meanwhile. Not from a handler; waits for no server. Whether it will ignore what it
    /// is told now.
    pub fn fill(&self, notifier: &Notifier, (node, size): (u64, u64)) -> bool {
        let Some(end) = self.find(node) else { return false };
        let _storing = end.storing.lock();
        end.show(notifier, node, size, None).unwrap_or_else(|error| {
            tracing::debug!(node, size, %error, "cannot drop pages behind an end");
            true
        })
    }

    /// As [`Ends::fill`], and tells the kernel of the end, unless nothing `stores`. What is stored is as if it was read: `stores` makes sure that it is dropped when others write it.
    /// Not from a handler: this waits for reads that are under way.
    pub fn raise(
        &self,
        notifier: &Notifier,
        (node, size): (u64, u64),
        stores: impl Fn() -> bool,
    ) -> bool {
        let Some(end) = self.find(node) else { return false };
        let _turn = end.turn.lock();
        for _ in 0..TRIES {
            let known = end.known();
            if size <= known {
                return false;
            }
            let drops = end.drops.load(SeqCst);
            // In this order: what it rests on goes first, then pages are dropped.
            let tail = if stores() { end.tail(size) } else { None };
            let _storing = end.storing.lock();
            if end.drops.load(SeqCst) != drops {
                continue;
            }
            let ignored = end.show(notifier, node, size, tail).unwrap_or_else(|error| {
                tracing::debug!(node, size, %error, "cannot tell where a file ends");
                true
            });
            if end.drops.load(SeqCst) != drops {
                // It was changed here in this moment, or cut by another; who drops pages waits.
                let _ = notifier.inval_inode(node, (known / PAGE * PAGE) as i64, 0);
                end.cut(known);
                return true;
            }
            return ignored;
        }
        tracing::debug!(
            node,
            size,
            "a file that is written all the time: its end is told as it is"
        );
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file that is open.
    struct Open;

    impl Reads for Open {
        fn peek(&self, _: u64, into: &mut [u8]) -> Result<usize, Errno> {
            Ok(into.len())
        }
    }

    fn ends() -> Ends<Open> {
        Ends::default()
    }

    #[test]
    fn what_is_longer_than_the_kernel_knows_grows() {
        let ends = ends();
        assert!(!ends.grows(7, 100, true), "it has no pages of it");
        assert_eq!(ends.follow(7, Weak::new(), (100, 100)), None);
        assert!(!ends.grows(7, 100, true) && ends.grows(7, 101, true));
        assert!(!ends.grows(7, 50, true), "it was cut");
        assert!(ends.grows(7, 100, true), "and has grown since");
        assert_eq!(ends.follow(7, Weak::new(), (1000, 1000)), None);
        assert!(ends.grows(7, 100, true), "what was told before counts");
        ends.forget(7);
        assert!(!ends.grows(7, 1000, true));
        let open = Arc::new(Open);
        assert_eq!(ends.follow(8, Arc::downgrade(&open), (100, 500)), None);
        assert!(ends.grows(8, 300, true) && !ends.grows(8, 500, false), "all pages have the bytes");
        assert!(ends.grows(8, 501, false));
    }

    #[test]
    fn what_nobody_has_open_is_told_by_the_answer_itself() {
        let (ends, open) = (ends(), Arc::new(Open));
        assert_eq!(ends.follow(7, Arc::downgrade(&open), (0, 100)), None);
        assert!(
            ends.grows(7, 100, true),
            "who has it open reads up to the end that the kernel knows"
        );
        drop(open);
        assert!(!ends.grows(7, 100, true), "who opens it has it asked for");
        assert!(ends.grows(7, 101, true), "there may be zeros behind the end");
        let again = Arc::new(Open);
        assert_eq!(ends.follow(7, Arc::downgrade(&again), (0, 0)), None);
        assert!(ends.grows(7, 100, true) && ends.shows(7) == Some(true));
    }

    #[test]
    fn what_a_read_says_of_the_end_is_believed() {
        let ends = ends();
        assert_eq!(ends.follow(7, Weak::new(), (100, 100)), None);
        ends.short(7, 120);
        assert!(!ends.grows(7, 100, true), "behind it");
        ends.short(7, 60);
        assert!(ends.grows(7, 100, true));
        ends.short(8, 60);
        ends.doubt();
        assert!(ends.grows(7, 1, true), "nothing is known");
    }

    #[test]
    fn files_are_followed_up_to_a_limit() {
        let ends = ends();
        let out = |node| ends.follow(node, Weak::new(), (0, 0));
        assert!((0..MAX_FILES as u64).all(|node| out(node).is_none()));
        let gone = out(MAX_FILES as u64).unwrap();
        assert!(!ends.grows(gone, 1, true) && ends.grows(MAX_FILES as u64, 1, true));
    }
}
