//! The target `CTL`: hands each request to a thread, so that a slow answer holds up nobody.

use std::sync::Arc;

use net::{Closed, Request, Responder, Response, Service, SessionRef};
use proto::mgs::Hello;
use proto::wire::{List, Wire};
use proto::{Errno, Fid};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{CHECK_PARAMS, CLUSTER, GET_PARAMS, PATHS, SET_PARAMS, STATUS, TARGET};
use crate::failure::Outcome;
use crate::mgs::refuse;
use crate::worker::Worker;

/// One parameter of a process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Param {
    /// Its name, with dots.
    pub name: String,
    /// Its value as text.
    pub value: String,
    /// Whether it can be set.
    pub writable: bool,
}

/// What a process can tell about itself. Called on a thread of the service; may block.
pub trait Inside: Send + Sync + 'static {
    /// Its state.
    fn status(&self) -> Value;
    /// State of the whole file system, as far as it can be had.
    fn cluster(&self) -> Value;
    /// Its parameters.
    fn params(&self) -> Vec<Param>;
    /// Checks (`apply` false) or sets one parameter.
    fn set_param(&self, name: &str, value: &str, apply: bool) -> Result<(), String>;
    /// The paths of a file.
    fn paths(&self, fid: Fid) -> Result<Vec<Vec<u8>>, Errno>;
}

/// The service.
pub struct Control {
    inside: Arc<dyn Inside>,
    worker: Worker,
}

impl Control {
    /// Serves what `inside` tells.
    pub fn new(inside: Arc<dyn Inside>) -> Outcome<Arc<Control>> {
        Ok(Arc::new(Control { inside, worker: Worker::start("control")? }))
    }
}

impl Service for Control {
    fn target(&self) -> String {
        TARGET.into()
    }

    fn fs(&self) -> [u8; 16] {
        [0; 16]
    }

    fn epoch(&self) -> u32 {
        1
    }

    fn open(&self, _: &SessionRef, _: &Hello, _: bool) -> Result<Vec<u8>, String> {
        Ok(Vec::new())
    }

    fn request(&self, _: &SessionRef, request: Request, reply: Responder) {
        let inside = self.inside.clone();
        let task = move || reply.send(answer(&*inside, &request));
        if !self.worker.give(task) {
            tracing::warn!("too many control requests wait; one was dropped");
        }
    }

    fn closed(&self, _: &SessionRef, _: Closed) {}
}

fn answer(inside: &dyn Inside, request: &Request) -> Response {
    match request.header.opcode.get() {
        STATUS => Response::ok(inside.status().to_string().into_bytes()),
        CLUSTER => Response::ok(inside.cluster().to_string().into_bytes()),
        GET_PARAMS => match serde_json::to_vec(&inside.params()) {
            Ok(json) => Response::ok(json),
            Err(e) => refuse(Errno::EIO, &e.to_string()),
        },
        SET_PARAMS => set(inside, &request.body, &[false, true]),
        CHECK_PARAMS => set(inside, &request.body, &[false]),
        PATHS => match paths(inside, &request.body) {
            Ok(body) => Response::ok(body),
            Err(e) => refuse(e, &e.to_string()),
        },
        other => refuse(Errno::EOPNOTSUPP, &format!("CTL knows no opcode {other:#06x}")),
    }
}

/// Goes over all of them as often as is said, to check or to apply.
fn set(inside: &dyn Inside, body: &[u8], passes: &[bool]) -> Response {
    let each = |wanted: Vec<(String, String)>| {
        let mut all = passes.iter().flat_map(|apply| wanted.iter().map(move |w| (w, *apply)));
        all.try_for_each(|((name, value), apply)| inside.set_param(name, value, apply))
    };
    match serde_json::from_slice(body).map_err(|e| e.to_string()).and_then(each) {
        Ok(()) => Response::ok(Vec::new()),
        Err(why) => refuse(Errno::EINVAL, &why),
    }
}

fn paths(inside: &dyn Inside, body: &[u8]) -> Result<Vec<u8>, Errno> {
    let text = std::str::from_utf8(body).map_err(|_| Errno::EINVAL)?;
    let fid = text.parse().map_err(|_| Errno::EINVAL)?;
    Ok(List(inside.paths(fid)?).to_bytes())
}

/// The parameters every process has.
#[derive(Clone, Copy, Debug, Default)]
pub struct ProcessParams;

impl ProcessParams {
    /// Their names and values.
    pub fn list() -> Vec<Param> {
        let fixed = |name: &str, value: String| Param { name: name.into(), value, writable: false };
        vec![
            Param { name: "log.level".into(), value: crate::logging::current(), writable: true },
            fixed("process.pid", std::process::id().to_string()),
            fixed("process.version", env!("CARGO_PKG_VERSION").into()),
            fixed("process.memory_kb", crate::host::memory_kb().to_string()),
        ]
    }

    /// Checks or sets one; names in `more` exist too, but cannot be set.
    pub fn set(name: &str, value: &str, apply: bool, more: &[Param]) -> Result<(), String> {
        if name == "log.level" {
            let filter: crate::logging::LogFilter =
                value.parse().map_err(|e| format!("'{value}' is no value of log.level: {e}"))?;
            return if apply { crate::logging::change(filter) } else { Ok(()) };
        }
        let known = ProcessParams::list();
        let names: Vec<&str> = known.iter().chain(more).map(|p| p.name.as_str()).collect();
        if names.contains(&name) {
            return Err(format!("the parameter {name} can only be read"));
        }
        let hint = crate::config::nearest(name, &names);
        let hint = hint.map(|n| format!("; did you mean {n}?")).unwrap_or_default();
        Err(format!("there is no parameter {name}{hint}"))
    }
}
