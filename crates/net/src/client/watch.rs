//! The thread that reads what no waiting thread reads.
//!
//! Role: hears of what comes on all connections of one home ([`super::runtime`]), except those that a
//! thread that waits for an answer reads just now. Assumptions: readiness is told once (edge-triggered),
//! and anew whenever it is asked for. Never does: read with a lock of its own held, keep a connection.

use super::intake::Intake;
use crate::NetError;
use parking_lot::Mutex;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;
use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};

/// Connections that are looked at with one call of the kernel.
const EVENTS: usize = 64;

/// What tells that nothing comes any more behind what is there.
const ENDS: EventFlags = EventFlags::RDHUP.union(EventFlags::HUP).union(EventFlags::ERR);

/// See the module.
pub(crate) struct Watch {
    epoll: OwnedFd,
    next: AtomicU64,
    intakes: Mutex<HashMap<u64, Weak<Intake>>>,
}

impl Watch {
    /// Starts the thread of home `number`; it lives as long as the process.
    pub(crate) fn start(number: usize) -> std::io::Result<Arc<Watch>> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let watch = Arc::new(Watch { epoll, next: AtomicU64::new(0), intakes: Mutex::default() });
        let mine = watch.clone();
        let thread = std::thread::Builder::new().name(format!("net-reader{number}"));
        thread.spawn(move || mine.run())?;
        Ok(watch)
    }

    fn run(&self) {
        let mut events = Vec::with_capacity(EVENTS);
        loop {
            events.clear();
            match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(e) => return tracing::error!("no connection is read any more: {e}"),
            }
            for event in &events {
                let intake = self.intakes.lock().get(&event.data.u64()).and_then(Weak::upgrade);
                if let Some(intake) = intake {
                    let flags = event.flags;
                    intake.ready(flags.intersects(ENDS));
                }
            }
        }
    }

    /// A number nobody else has.
    pub(crate) fn number(&self) -> u64 {
        self.next.fetch_add(1, Relaxed)
    }

    /// The thread hears of what comes on `socket`, and of what is there.
    pub(crate) fn add(
        &self,
        number: u64,
        socket: impl AsFd,
        intake: &Arc<Intake>,
    ) -> Result<(), NetError> {
        self.intakes.lock().insert(number, Arc::downgrade(intake));
        epoll::add(&self.epoll, socket, EventData::new_u64(number), flags(true))
            .map_err(|e| NetError::Lost(format!("the connection cannot be watched: {e}")))
    }

    /// Whether the thread hears of what comes; of what is there already, too.
    pub(crate) fn wake_for(&self, number: u64, socket: impl AsFd, what_comes: bool) {
        let data = EventData::new_u64(number);
        if let Err(e) = epoll::modify(&self.epoll, socket, data, flags(what_comes)) {
            tracing::error!("a connection is watched no longer: {e}");
        }
    }

    pub(crate) fn remove(&self, number: u64, socket: impl AsFd) {
        if self.intakes.lock().remove(&number).is_some() {
            // Fails only if adding it did.
            let _ = epoll::delete(&self.epoll, socket);
        }
    }
}

fn flags(what_comes: bool) -> EventFlags {
    let comes = if what_comes { EventFlags::IN | EventFlags::RDHUP } else { EventFlags::empty() };
    comes | EventFlags::ET
}
