//! Attributes of files that others have made longer: the kernel hears of them when it cannot show zeros any more.
//!
//! Role: finds out which answers are concerned, and lets a thread of [`crate::ends`] go first. Who gets a signal meanwhile
//! is answered at once: he may be dying, and what is waited for is a server. Never does: let a handler wait.

use std::sync::Arc;

use fuse::Reply;
use parking_lot::Mutex;

use crate::caches::Caches;

/// An answer that is sent once.
struct Unsent<T, A>(Mutex<Option<(Reply<T>, A)>>);

impl<T, A: FnOnce(&Arc<Caches>, Reply<T>, bool)> Unsent<T, A> {
    fn send(&self, caches: &Arc<Caches>) {
        let unsent = self.0.lock().take();
        if let Some((reply, answer)) = unsent {
            answer(caches, reply, true);
        }
    }
}

impl Caches {
    /// Whether the kernel keeps pages of a file that others have made longer than it knows. Not of one that is written
    /// here, too: writes hold its pages while they wait for others.
    pub fn grows(&self, node: u64, size: u64) -> bool {
        !self.client.is_sole()
            && self.pages.ends.grows(node, size)
            && !self.client.writes(self.fid(node))
    }

    /// Answers with attributes of a node that is so long, once the kernel cannot show zeros behind the end it knew.
    /// `answer` hears whether that took time: then the kernel gets none for them, because they were not asked for just now.
    pub fn answer_size<T: Send + 'static>(
        self: &Arc<Caches>,
        told: Option<(u64, u64)>,
        reply: Reply<T>,
        answer: impl FnOnce(&Arc<Caches>, Reply<T>, bool) + Send + 'static,
    ) {
        let grown = told.filter(|(node, size)| self.grows(*node, *size));
        let (Some((node, size)), Some(notifier)) = (grown, self.notifier()) else {
            return answer(self, reply, false);
        };
        let unsent = Arc::new(Unsent(Mutex::new(None)));
        let (of, hook) = (Arc::clone(self), Arc::clone(&unsent));
        // Held until it is there: the signal may come now.
        let mut slot = unsent.0.lock();
        if !reply.on_interrupt(move || hook.send(&of)) {
            drop(slot);
            return answer(self, reply, true);
        }
        *slot = Some((reply, answer));
        drop(slot);
        let (caches, notifier) = (Arc::clone(self), notifier.clone());
        self.pages.ends.later(move || {
            caches.pages.ends.raise(&notifier, node, size);
            unsent.send(&caches);
        });
    }
}
