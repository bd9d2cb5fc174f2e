//! Files that are opened by a name the kernel keeps, when it may not know any more how long they are.
//!
//! Role: an open file tells the kernel nothing of its size, which sendfile(2) and mmap(2) go by; a look-up does. Where it
//! keeps the name there is none but for the question for permission, whose answer it ignores if pages were dropped
//! for it. So who opens a file whose attributes were dropped since it was told any is told ESTALE, upon which the kernel
//! looks the path up again and opens what it finds. Not if he was told so already ([`crate::retries`]): the kernel gives
//! up at the second. Never does: I/O.

use std::time::Instant;

use fuse::Request;

use crate::calls::Call;
use crate::fs::PinstripeFs;

impl PinstripeFs {
    /// Whether who opens a file is to look its name up first.
    pub(crate) fn opens_again(&self, req: &Request, node: u64) -> bool {
        let keeps = self.caches.takes_names_back() && !self.caches.keeps_unleased();
        let dropped = || self.caches.nodes.is_dropped(node);
        !self.client.is_sole() && keeps && dropped() && !self.was_sent_back(req)
    }

    /// Whether a thread was told ESTALE in this system call.
    fn was_sent_back(&self, req: &Request) -> bool {
        let (thread, now) = (req.pid(), Instant::now());
        self.retries.has(thread, now)
            && self.retries.has_call(thread, now, Call::of(thread).as_ref())
    }
}
