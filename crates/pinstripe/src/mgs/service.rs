//! The management service on the wire.
//!
//! Role: answers REGISTER and CONFIG. Reads are answered at once from memory; registrations go to
//! a thread of their own because they are made durable first. Refusals carry their reason as the
//! reply's body. Assumption: one process per directory, held by a lock on the label.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use net::{Closed, Request, Responder, Response, Service, SessionRef};
use parking_lot::Mutex;
use proto::mgs::{Config, Hello, Register};
use proto::wire::Wire;
use proto::{Errno, ops};

use super::state::{MgsState, RegisterError};
use crate::failure::{Doing, Failure, Outcome};
use crate::label::{LABEL_FILE, Label};
use crate::locked::Locked;
use crate::worker::Worker;

/// The management service of one file system.
#[derive(Debug)]
pub struct Mgs {
    label: Label,
    state: Arc<Mutex<MgsState>>,
    worker: Worker,
    /// Held as long as this directory is served.
    _lock: Locked,
}

impl Mgs {
    /// Opens a directory prepared by `format`.
    pub fn open(dir: &Path) -> Outcome<Arc<Mgs>> {
        let Some(label) = Label::read(dir)? else {
            let text = format!(
                "{} is not prepared for a management service; run `pinstripe format --mgs {}`",
                dir.display(),
                dir.display()
            );
            return Err(Failure::run(text));
        };
        let path = dir.join(LABEL_FILE);
        let lock = File::open(&path).doing(|| format!("cannot open {}", path.display()))?;
        let lock = Locked::exclusively(lock).map_err(|_| {
            let text = format!(
                "{} is in use by another server; stop it, or give this one another directory",
                dir.display()
            );
            Failure::run(text)
        })?;
        let state = MgsState::open(dir, label.fs, &label.name).map_err(Failure::run)?;
        let worker = Worker::start("mgs")?;
        Ok(Arc::new(Mgs { label, state: Arc::new(Mutex::new(state)), worker, _lock: lock }))
    }

    /// Who it is.
    pub fn label(&self) -> &Label {
        &self.label
    }

    /// All it knows.
    pub fn config(&self) -> Config {
        self.state.lock().config().clone()
    }

    /// Takes a registration from within the process.
    pub fn register(&self, r: &Register) -> Result<(), RegisterError> {
        register(&self.state, r)
    }
}

fn register(state: &Mutex<MgsState>, r: &Register) -> Result<(), RegisterError> {
    let done = state.lock().register(r);
    match &done {
        Ok(()) => tracing::info!(target = r.target.name(), at = r.target.address, "registered"),
        Err(e) => tracing::warn!("registration refused: {e}"),
    }
    done
}

/// A refusal with its reason.
pub fn refuse(errno: Errno, why: &str) -> Response {
    Response { body: why.as_bytes().to_vec(), ..Response::error(errno) }
}

impl Service for Mgs {
    fn target(&self) -> String {
        "MGS".into()
    }

    fn fs(&self) -> [u8; 16] {
        self.label.fs
    }

    fn epoch(&self) -> u32 {
        1
    }

    fn open(&self, _: &SessionRef, _: &Hello, _: bool) -> Result<Vec<u8>, String> {
        Ok(Vec::new())
    }

    fn request(&self, _: &SessionRef, request: Request, reply: Responder) {
        match request.header.opcode.get() {
            ops::mgs::CONFIG => {
                let config = self.state.lock().config().to_bytes();
                reply.send(Response::ok(config));
            }
            ops::mgs::REGISTER => {
                let state = self.state.clone();
                let taken = self.worker.give(move || {
                    let answer = match Register::from_bytes(&request.body) {
                        Err(e) => refuse(Errno::EPROTO, &format!("unreadable registration: {e}")),
                        Ok(r) => match register(&state, &r) {
                            Ok(()) => Response::ok(state.lock().config().to_bytes()),
                            Err(e) => refuse(errno(&e), &e.to_string()),
                        },
                    };
                    reply.send(answer);
                });
                if !taken {
                    tracing::warn!("too many registrations wait; one was dropped");
                }
            }
            other => {
                reply.send(refuse(
                    Errno::EOPNOTSUPP,
                    &format!("the MGS knows no opcode {other:#06x}"),
                ));
            }
        }
    }

    fn closed(&self, _: &SessionRef, _: Closed) {}
}

fn errno(e: &RegisterError) -> Errno {
    match e {
        RegisterError::OtherFs { .. } => Errno::EXDEV,
        RegisterError::Duplicate { .. } => Errno::EEXIST,
        RegisterError::Invalid(_) => Errno::EINVAL,
        RegisterError::Io(_) => Errno::EIO,
    }
}
