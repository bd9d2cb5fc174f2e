//! Answers that tell the kernel of a file's size, or of what was written past its pages: they are sent when it cannot show
//! what is older, or zeros, any more.
//!
//! Role: finds out which answers are concerned, and lets a thread go first that waits for the kernel ([`crate::ends`]). Who gets
//! a signal meanwhile is answered at once: he may be dying, and what is waited for may be a server. Never does: let a handler wait.

use std::sync::Arc;

use fuse::{Notifier, Reply};
use parking_lot::Mutex;

use crate::caches::Caches;
use crate::ends::Ends;
use crate::tellers::Tellers;

/// An answer that is sent once.
struct Unsent<T, A>(Mutex<Option<(Reply<T>, A)>>);

impl<T, A: FnOnce(&Arc<Caches>, Reply<T>)> Unsent<T, A> {
    fn send(&self, caches: &Arc<Caches>) {
        let unsent = self.0.lock().take();
        if let Some((reply, answer)) = unsent {
            answer(caches, reply);
        }
    }
}

impl Caches {
    /// Whether the kernel keeps pages of a file that others have made longer than it knows.
    pub fn grows(&self, node: u64, size: u64) -> bool {
        !self.client.is_sole() && self.pages.ends.grows(node, size, self.stores(node))
    }

    /// Whether bytes may be stored in pages of a file: nobody writes through these.
    fn stores(&self, node: u64) -> bool {
        !self.handles.writes_through_pages(self.fid(node))
    }

    /// Notes that the kernel has pages of a file, as for who reads them; whether they are dropped in time.
    fn will_drop(&self, node: u64) -> bool {
        let fid = self.fid(node);
        self.pages.keep(node);
        self.client.vouches_for_data(fid) || self.client.watch(fid)
    }

    /// Answers with attributes of a node that is so long, once the kernel cannot show zeros behind the end it knew.
    /// `answer` hears whether that took time: then the kernel gets none for them, because they were not asked for just now.
    pub fn answer_size<T: Send + 'static>(
        self: &Arc<Caches>,
        told: Option<(u64, u64)>,
        reply: Reply<T>,
        answer: impl FnOnce(&Arc<Caches>, Reply<T>, bool) + Send + 'static,
    ) {
        let Some((node, size)) = told.filter(|(node, size)| self.grows(*node, *size)) else {
            return answer(self, reply, false);
        };
        let late = move |caches: &Arc<Caches>, reply: Reply<T>| answer(caches, reply, true);
        // Where those who ask servers wait for one that is away, files of others need not.
        if !self.stores(node) || self.pages.ends.raising.are_busy() {
            let of = Arc::clone(self);
            let fill = move |ends: &Ends, notifier: &Notifier| {
                if ends.fill(notifier, (node, size)) {
                    of.nodes.dropping(node);
                }
            };
            return self.answer_after(&self.pages.ends.dropping, reply, late, fill);
        }
        let of = Arc::clone(self);
        let raise = move |ends: &Ends, notifier: &Notifier| {
            if ends.raise(notifier, (node, size), || of.stores(node) && of.will_drop(node)) {
                of.nodes.dropping(node);
            }
        };
        self.answer_after(&self.pages.ends.raising, reply, late, raise);
    }

    /// Answers a write past the kernel's pages, from one byte to before another, once it keeps none that is older.
    pub fn answer_written<T: Send + 'static>(
        self: &Arc<Caches>,
        (node, range): (u64, (u64, u64)),
        reply: Reply<T>,
        answer: impl FnOnce(&Arc<Caches>, Reply<T>) + Send + 'static,
    ) {
        let drops = move |ends: &Ends, notifier: &Notifier| ends.written(notifier, node, range);
        match self.pages.ends.shows(node) {
            None => answer(self, reply),
            Some(true) => self.answer_after(&self.pages.ends.dropping, reply, answer, drops),
            Some(false) => {
                // Nobody reads them now, and who opens it waits until they are gone.
                self.pages.ends.forget(node);
                self.pages.discard(node);
                answer(self, reply);
            }
        }
    }

    /// Answers when something is done, or as soon as the caller gets a signal.
    fn answer_after<T: Send + 'static>(
        self: &Arc<Caches>,
        tellers: &Tellers,
        reply: Reply<T>,
        answer: impl FnOnce(&Arc<Caches>, Reply<T>) + Send + 'static,
        work: impl FnOnce(&Ends, &Notifier) + Send + 'static,
    ) {
        let Some(notifier) = self.notifier().cloned() else { return answer(self, reply) };
        let unsent = Arc::new(Unsent(Mutex::new(None)));
        let (of, hook) = (Arc::clone(self), Arc::clone(&unsent));
        // Held until it is there: the signal may come now.
        let mut slot = unsent.0.lock();
        if !reply.on_interrupt(move || hook.send(&of)) {
            drop(slot);
            return answer(self, reply);
        }
        *slot = Some((reply, answer));
        drop(slot);
        let caches = Arc::clone(self);
        tellers.run(move || {
            work(&caches.pages.ends, &notifier);
            unsent.send(&caches);
        });
    }
}
