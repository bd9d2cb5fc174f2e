//! Waiting for several answers.
//!
//! Role: answers come on other threads, or, where all of them come from one target, on the very thread that
//! waits ([`Gather::asks`]). Never does: know what is asked.

use std::sync::Arc;
use std::time::Duration;

use net::Session;
use parking_lot::{Condvar, Mutex, MutexGuard};

/// How soon it is seen that waiting is of no use.
const LOOK: Duration = Duration::from_millis(100);

/// What is done with the answers when nobody waits for them.
type Then<T> = Box<dyn FnOnce(Vec<T>) + Send>;

struct Got<T> {
    values: Vec<T>,
    due: usize,
    then: Option<Then<T>>,
    asked: Asked,
}

/// Whose answers are waited for.
enum Asked {
    Nobody,
    One(Arc<Session>),
    Several,
}

struct Inner<T> {
    got: Mutex<Got<T>>,
    more: Condvar,
}

/// Collects answers that come on other threads.
pub(crate) struct Gather<T>(Arc<Inner<T>>);

/// Delivers one answer; dropped undelivered it counts as one that gave nothing.
pub(crate) struct Ticket<T>(Arc<Inner<T>>);

impl<T> Gather<T> {
    pub(crate) fn new() -> Gather<T> {
        let got = Got { values: Vec::new(), due: 0, then: None, asked: Asked::Nobody };
        Gather(Arc::new(Inner { got: Mutex::new(got), more: Condvar::new() }))
    }

    pub(crate) fn ticket(&self) -> Ticket<T> {
        self.0.got.lock().due += 1;
        Ticket(self.0.clone())
    }

    /// One of the answers will come by this session. If none comes by another, who waits takes them from there.
    pub(crate) fn asks(&self, session: &Arc<Session>) {
        let mut got = self.0.got.lock();
        got.asked = match &got.asked {
            Asked::Nobody => Asked::One(session.clone()),
            Asked::One(one) if Arc::ptr_eq(one, session) => return,
            _ => Asked::Several,
        };
    }

    fn is_complete(&self) -> bool {
        self.0.got.lock().due == 0
    }

    /// Waits until all tickets are gone, or it is of no use any more; whether they are gone.
    pub(crate) fn come_unless(&self, useless: impl Fn() -> bool) -> bool {
        let mut got = self.0.got.lock();
        while got.due > 0 {
            self.0.more.wait_for(&mut got, LOOK);
            if got.due > 0 && MutexGuard::unlocked(&mut got, &useless) {
                return false;
            }
        }
        true
    }

    /// What was delivered until now.
    pub(crate) fn so_far(self) -> Vec<T> {
        std::mem::take(&mut self.0.got.lock().values)
    }

    /// Waits for nothing: once all tickets are gone, whoever gives back the last one does this with what
    /// they delivered. It must not block.
    pub(crate) fn then(self, what: impl FnOnce(Vec<T>) + Send + 'static) {
        let mut got = self.0.got.lock();
        if got.due > 0 {
            got.then = Some(Box::new(what));
            return;
        }
        let values = std::mem::take(&mut got.values);
        drop(got);
        what(values);
    }

    /// Waits until all tickets are gone; what they delivered.
    pub(crate) fn wait(self) -> Vec<T> {
        let asked = std::mem::replace(&mut self.0.got.lock().asked, Asked::Nobody);
        if let Asked::One(session) = asked {
            session.attend(|| self.is_complete());
        }
        let mut got = self.0.got.lock();
        while got.due > 0 {
            self.0.more.wait(&mut got);
        }
        std::mem::take(&mut got.values)
    }
}

impl<T> Ticket<T> {
    pub(crate) fn put(self, value: T) {
        self.0.got.lock().values.push(value);
    }
}

impl<T> Drop for Ticket<T> {
    fn drop(&mut self) {
        let mut got = self.0.got.lock();
        got.due -= 1;
        if got.due > 0 {
            return;
        }
        self.0.more.notify_all();
        if let Some(then) = got.then.take() {
            let values = std::mem::take(&mut got.values);
            drop(got);
            then(values);
        }
    }
}
