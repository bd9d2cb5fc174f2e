//! Reads and writes of the kernel's pages that are under way at the same time.
//!
//! Role: the kernel may be shown what was there before a write by a read that began before that was done, and keep it
//! longer than the write takes. So a write knows at its end which reads it met. Where it met one, the kernel has not
//! held the page locked for the write: it holds it for the read, or held it until the write found it there.
//! Order: a read is noted before it looks at anything, until the kernel has its answer; a write before it does anything.
//! Bounded by the requests being served. Never does: wait.

use parking_lot::Mutex;
use rustc_hash::FxHashMap as HashMap;

/// Bytes of a node: from, to.
type Bytes = (u64, u64);

/// Of a node, and of a request.
type Key = (u64, u64);

#[derive(Default)]
struct State {
    next: u64,
    reads: HashMap<Key, Bytes>,
    writes: HashMap<Key, Write>,
}

struct Write {
    bytes: Bytes,
    /// Of reads that it met, from the first to the last byte.
    met: Option<Bytes>,
}

/// See the module.
#[derive(Default)]
pub struct UnderWay(Mutex<State>);

/// A read under way; ends when dropped.
pub struct Reading<'a>(&'a UnderWay, Key);

/// A write under way; ends when dropped.
pub struct Writing<'a>(&'a UnderWay, Key);

fn meet(one: Bytes, other: Bytes) -> bool {
    one.0 < other.1 && other.0 < one.1
}

impl Write {
    fn meets(&mut self, read: Bytes) {
        if meet(self.bytes, read) {
            let met = self.met.unwrap_or(read);
            self.met = Some((met.0.min(read.0), met.1.max(read.1)));
        }
    }
}

impl State {
    fn key(&mut self, node: u64) -> Key {
        self.next += 1;
        (node, self.next)
    }
}

impl UnderWay {
    /// The kernel reads pages: these bytes.
    pub fn read(&self, node: u64, bytes: Bytes) -> Reading<'_> {
        let mut st = self.0.lock();
        let key = st.key(node);
        st.reads.insert(key, bytes);
        let writes = st.writes.iter_mut().filter(|(write, _)| write.0 == node);
        writes.for_each(|(_, write)| write.meets(bytes));
        Reading(self, key)
    }

    /// Whole pages around these bytes are written, which the kernel may show.
    pub fn write(&self, node: u64, bytes: Bytes) -> Writing<'_> {
        let mut st = self.0.lock();
        let key = st.key(node);
        let mut write = Write { bytes, met: None };
        let reads = st.reads.iter().filter(|(read, _)| read.0 == node);
        reads.for_each(|(_, read)| write.meets(*read));
        st.writes.insert(key, write);
        Writing(self, key)
    }
}

impl Writing<'_> {
    /// Whether a read of some of these bytes was under way at the same time.
    pub fn met(&self, bytes: Bytes) -> bool {
        let met = self.0.0.lock().writes.get(&self.1).and_then(|write| write.met);
        met.is_some_and(|met| meet(met, bytes))
    }
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        self.0.0.lock().reads.remove(&self.1);
    }
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        self.0.0.lock().writes.remove(&self.1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_knows_the_reads_it_met() {
        let all = UnderWay::default();
        let before = all.read(7, (0, 100));
        let write = all.write(7, (50, 300));
        assert!(write.met((0, 100)) && !write.met((100, 300)));
        drop(before);
        assert!(write.met((99, 100)), "it was met");
        drop(all.read(7, (300, 400)));
        drop(all.read(8, (200, 300)));
        assert!(!write.met((100, 400)), "no byte of this file's is written and read");
        drop(all.read(7, (250, 260)));
        assert!(write.met((250, 251)) && write.met((200, 210)), "between the two it may be");
        assert!(!write.met((260, 300)));
        drop(write);
        let later = all.write(7, (0, 1000));
        assert!(!later.met((0, 1000)));
        drop(later);
        let st = all.0.lock();
        assert!(st.reads.is_empty() && st.writes.is_empty());
    }
}
