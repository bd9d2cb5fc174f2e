//! Files that are opened by a name the kernel keeps, when it may not know any more how long they are.
//!
//! Role: an open file tells the kernel nothing of its size, which sendfile(2) and mmap(2) go by; a look-up does. Where it
//! keeps the name there is none but for the question for permission, whose answer it ignores if pages were dropped
//! for it. So who opens a file whose attributes were dropped since it was told any is told ESTALE, upon which the kernel
//! looks the path up again and opens the file once more. Once for each open: a file that is
//! opened by its number (/proc/PID/fd) is not looked up. Never does: I/O.

use std::collections::HashSet;

use fuse::Request;
use parking_lot::Mutex;

use crate::fs::PinstripeFs;

/// Opens that were sent back at a time; of more none is remembered (invariant 8).
const MAX: usize = 1024;

/// Nodes, and threads that were told to open them again.
#[derive(Default)]
pub struct Reopens(Mutex<HashSet<(u64, u32)>>);

impl Reopens {
    /// Whether this thread is to open the node again, if that is `wanted`; not twice.
    fn send_back(&self, node: u64, thread: u32, wanted: bool) -> bool {
        let mut sent = self.0.lock();
        if sent.remove(&(node, thread)) || !wanted {
            return false;
        }
        if sent.len() >= MAX {
            sent.clear();
        }
        sent.insert((node, thread))
    }
}

impl PinstripeFs {
    /// Whether who opens a file is to look its name up first.
    pub(crate) fn opens_again(&self, req: &Request, node: u64) -> bool {
        let keeps = self.caches.takes_names_back() && !self.caches.keeps_unleased();
        if self.client.is_sole() || !keeps {
            return false;
        }
        self.reopens.send_back(node, req.pid(), self.caches.nodes.is_dropped(node))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_sent_back_twice_for_one_open() {
        let reopens = Reopens::default();
        let again = |node, thread| reopens.send_back(node, thread, true);
        assert!(again(7, 1) && again(7, 2) && again(8, 1));
        assert!(!again(7, 1) && again(7, 1));
        assert!(!reopens.send_back(7, 1, false), "it came back, and all is well");
        assert!(again(7, 1), "the next open");
        for node in 0..2 * MAX as u64 {
            again(node, 3);
        }
        assert!(reopens.0.lock().len() <= MAX);
    }
}
