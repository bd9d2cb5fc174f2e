//! The management service on the wire.
//!
//! Role: answers REGISTER and CONFIG. Reads are answered at once from memory; registrations go to
//! a thread of their own because they are made durable first, and one that would move a target waits
//! for what is served at its old address. Refusals carry their reason as the
//! reply's body. Assumption: one process per directory, held by a lock on the label.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use net::{Closed, ClusterKey, Request, Responder, Response, Service, SessionRef};
use parking_lot::Mutex;
use proto::mgs::{Config, Hello, Register};
use proto::wire::Wire;
use proto::{Errno, ops};

use super::served::Served;
use super::state::{MgsState, RegisterError};
use crate::failure::{Doing, Failure, Outcome};
use crate::label::{LABEL_FILE, Label};
use crate::locked::{self, Locked};
use crate::worker::Worker;

/// The management service of one file system.
#[derive(Debug)]
pub struct Mgs {
    label: Label,
    state: Arc<Mutex<MgsState>>,
    served: Arc<Served>,
    worker: Worker,
    /// Held as long as this directory is served.
    _lock: Locked,
}

impl Mgs {
    /// Opens a directory prepared by `format`. `key` is for asking servers over TCP.
    pub fn open(dir: &Path, key: Option<ClusterKey>) -> Outcome<Arc<Mgs>> {
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
            let (dir, other) = (dir.display(), locked::user(&path));
            Failure::run(format!(
                "{dir} is in use by another server{other}; stop it, or give this one another directory"
            ))
        })?;
        let state = MgsState::open(dir, label.fs, &label.name).map_err(Failure::run)?;
        let worker = Worker::start("mgs")?;
        let (state, served) = (Arc::new(Mutex::new(state)), Arc::new(Served::new(key)));
        Ok(Arc::new(Mgs { label, state, served, worker, _lock: lock }))
    }

    /// Who it is.
    pub fn label(&self) -> &Label {
        &self.label
    }

    /// All it knows.
    pub fn config(&self) -> Config {
        self.state.lock().config().clone()
    }
}

/// Takes a registration of the process that describes itself as `asker`.
fn register(
    state: &Mutex<MgsState>,
    served: &Served,
    r: &Register,
    asker: &str,
) -> Result<(), RegisterError> {
    let done = free(state, served, r, asker).and_then(|()| state.lock().register(r));
    match &done {
        Ok(()) => tracing::info!(target = r.target.name(), at = r.target.address, "registered"),
        Err(e) => tracing::warn!("registration refused: {e}"),
    }
    done
}

/// Refuses to move a target that is served where it is listed. The list can be read meanwhile.
fn free(
    state: &Mutex<MgsState>,
    served: &Served,
    r: &Register,
    asker: &str,
) -> Result<(), RegisterError> {
    let Some(known) = state.lock().moved(r)? else { return Ok(()) };
    match served.by(&known, asker) {
        None => Ok(()),
        Some(by) => {
            let (target, address) = (known.name(), known.address);
            Err(RegisterError::Served { target, address, by })
        }
    }
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

    fn request(&self, session: &SessionRef, request: Request, reply: Responder) {
        match request.header.opcode.get() {
            ops::mgs::CONFIG => {
                let config = self.state.lock().config().to_bytes();
                reply.send(Response::ok(config));
            }
            ops::mgs::REGISTER => {
                let (state, served) = (self.state.clone(), self.served.clone());
                let asker = session.description();
                let taken = self.worker.give(move || {
                    let answer = match Register::from_bytes(&request.body) {
                        Err(e) => refuse(Errno::EPROTO, &format!("unreadable registration: {e}")),
                        Ok(r) => match register(&state, &served, &r, &asker) {
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
        RegisterError::Served { .. } => Errno::EBUSY,
        RegisterError::Invalid(_) => Errno::EINVAL,
        RegisterError::Io(_) => Errno::EIO,
    }
}
