//! What ends a running process: signals from outside, or word from within.

use std::sync::mpsc::{Receiver, Sender, channel};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::failure::{Doing, Outcome};

/// Why a process should end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Ctrl-C.
    Interrupt,
    /// SIGTERM, or the terminal went away.
    Terminate,
    /// The file system was unmounted.
    Unmounted,
}

/// Collects reasons to stop.
#[derive(Debug)]
pub struct Stops {
    sender: Sender<Stop>,
    receiver: Receiver<Stop>,
}

impl Stops {
    /// Listens to SIGINT, SIGTERM and SIGHUP from now on.
    pub fn listen() -> Outcome<Stops> {
        let (sender, receiver) = channel();
        let signals = Signals::new([SIGINT, SIGTERM, SIGHUP]);
        let mut signals = signals.doing(|| "cannot listen to signals".into())?;
        let to = sender.clone();
        let listen = move || {
            for signal in signals.forever() {
                let stop = if signal == SIGINT { Stop::Interrupt } else { Stop::Terminate };
                if to.send(stop).is_err() {
                    return;
                }
            }
        };
        let thread = std::thread::Builder::new().name("signals".into()).spawn(listen);
        thread.doing(|| "cannot start a thread".into())?;
        Ok(Stops { sender, receiver })
    }

    /// A way to tell from within.
    pub fn sender(&self) -> Sender<Stop> {
        self.sender.clone()
    }

    /// Waits for a reason.
    pub fn wait(&self) -> Stop {
        self.receiver.recv().unwrap_or(Stop::Terminate)
    }

    /// A reason that came up within `time`.
    pub fn wait_for(&self, time: std::time::Duration) -> Option<Stop> {
        self.receiver.recv_timeout(time).ok()
    }
}
