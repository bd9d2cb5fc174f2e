//! A socket in front of a server's, whose bytes can be held back: messages are under way for as long as a
//! test wants.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use net::Endpoint;
use pinstripe_client::{Client, Mgs, Options};

use crate::common::World;

#[derive(Default)]
struct State {
    shut: bool,
    /// Who stands before it.
    held: usize,
}

#[derive(Default)]
struct Gate {
    state: Mutex<State>,
    changed: Condvar,
}

impl Gate {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait(&self, state: MutexGuard<'_, State>, until: impl Fn(&State) -> bool) {
        let done = self.changed.wait_while(state, |state| !until(state));
        drop(done.unwrap_or_else(PoisonError::into_inner));
    }

    fn pass(&self) {
        let mut state = self.state();
        state.held += 1;
        self.changed.notify_all();
        self.wait(state, |state| !state.shut);
        self.state().held -= 1;
    }
}

/// Passes on until both ends are closed; opens when it is dropped.
pub struct Relay(Arc<Gate>);

impl Relay {
    /// Listens at `here` for what is to go to `there`.
    fn new(here: &Path, there: &Path) -> Relay {
        let gate = Arc::new(Gate::default());
        let (listener, there, at) =
            (UnixListener::bind(here).unwrap(), there.to_owned(), gate.clone());
        std::thread::spawn(move || {
            for near in listener.incoming() {
                let Ok(near) = near else { return };
                let Ok(far) = UnixStream::connect(&there) else { continue };
                let ends = (near.try_clone().unwrap(), far.try_clone().unwrap());
                let gate = at.clone();
                std::thread::spawn(move || pass_on(near, far, &gate));
                let gate = Gate::default();
                std::thread::spawn(move || pass_on(ends.1, ends.0, &gate));
            }
        });
        Relay(gate)
    }

    /// A client whose messages to a target can be held back: the MDT is 0, OSTs come behind it.
    pub fn before(w: &World, target: usize, options: Options) -> (Client, Relay) {
        let mut config = w.config(options);
        let Mgs::Targets { targets, .. } = &mut config.mgs else { panic!("not by targets") };
        let here = Endpoint::Unix(w.dir.path().join("held.sock"));
        let there = std::mem::replace(&mut targets[target].1, here.clone());
        let (Endpoint::Unix(here), Endpoint::Unix(there)) = (&here, &there) else {
            panic!("the servers of these tests are on Unix sockets")
        };
        let relay = Relay::new(here, there);
        (Client::connect(config).unwrap(), relay)
    }

    /// From now on nothing comes to the server.
    pub fn hold(&self) {
        self.0.state().shut = true;
    }

    /// Waits until something is held.
    pub fn holds(&self) {
        self.0.wait(self.0.state(), |state| state.held > 0);
    }

    /// What was held goes on.
    pub fn go_on(&self) {
        self.0.state().shut = false;
        self.0.changed.notify_all();
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.go_on();
    }
}

fn pass_on(mut from: UnixStream, mut to: UnixStream, gate: &Gate) {
    let mut bytes = vec![0; 64 << 10];
    loop {
        match from.read(&mut bytes) {
            Ok(n) if n > 0 => {
                gate.pass();
                if to.write_all(&bytes[..n]).is_err() {
                    break;
                }
            }
            _ => break,
        }
    }
    // Both may be gone already.
    let _ = to.shutdown(std::net::Shutdown::Both);
    let _ = from.shutdown(std::net::Shutdown::Both);
}
