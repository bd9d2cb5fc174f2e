//! Call-backs that are being worked on, while an OST is lost or slow.
//!
//! Role: what a lease protects goes to the OSTs before it is given back. While one of them is lost, or its
//! disk is slow, that takes as long as its requests do, and the MDT is told that it is worked on: it would take this client
//! for dead and evict it, with all it has not sent anywhere. Assumptions: each request ends, at the
//! latest after its timeout; the MDT lets itself be put off for a limited time only. Limits: what an MDT
//! calls back within [`LOOK`] is remembered, answered or not. Never does: answer.

use std::sync::Arc;
use std::time::{Duration, Instant};

use net::NotYet;
use parking_lot::{Condvar, Mutex};

use crate::core::Core;

/// How long a call-back is worked on before the MDT hears of it, and how often it does.
const LOOK: Duration = Duration::from_secs(1);

#[derive(Default)]
struct State {
    calls: Vec<(Instant, NotYet)>,
    end: bool,
}

/// See the module.
#[derive(Default)]
pub(crate) struct Awaited {
    state: Mutex<State>,
    changed: Condvar,
}

impl Awaited {
    /// A call-back came.
    pub(crate) fn add(&self, call: NotYet) {
        let mut state = self.state.lock();
        state.calls.push((Instant::now(), call));
        // Who looks after others already looks after this one, too.
        if state.calls.len() == 1 {
            self.changed.notify_one();
        }
    }

    /// Nobody is to be told any more.
    pub(crate) fn end(&self) {
        self.state.lock().end = true;
        self.changed.notify_one();
    }

    /// Tells the MDT of what is worked on while OSTs do not answer; until the end.
    pub(crate) fn watch(&self, core: &Arc<Core>) {
        let mut state = self.state.lock();
        while !state.end {
            if state.calls.is_empty() {
                self.changed.wait(&mut state);
            } else {
                self.changed.wait_for(&mut state, LOOK);
            }
            // Most are answered by then, whatever is lost.
            state.calls.retain(|(_, call)| call.is_awaited());
            if core.waits_for_osts(LOOK) {
                for (_, call) in state.calls.iter().filter(|(came, _)| came.elapsed() >= LOOK) {
                    call.send();
                }
            }
        }
    }
}
