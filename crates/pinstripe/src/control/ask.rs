//! Asking a process's `CTL`.

use std::sync::Arc;
use std::time::Duration;

use net::{ClusterKey, ConnectOptions, Endpoint, Session};
use proto::wire::{List, Wire};
use proto::{Errno, Fid};
use serde_json::Value;

use super::{CHECK_PARAMS, CLUSTER, GET_PARAMS, PATHS, Param, SET_PARAMS, STATUS, TARGET};
use crate::failure::{Doing, Failure, Outcome};
use crate::host::describe;

/// Time to connect, and time for an answer.
const PATIENCE: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(15));

/// Opens a session with the process at `endpoint`.
pub fn open(endpoint: &Endpoint, key: Option<&ClusterKey>) -> Outcome<Arc<Session>> {
    open_within(endpoint, key, PATIENCE)
}

/// Opens one that is given other times to connect, and for an answer.
pub fn open_within(
    endpoint: &Endpoint,
    key: Option<&ClusterKey>,
    patience: (Duration, Duration),
) -> Outcome<Arc<Session>> {
    let options = ConnectOptions {
        target: TARGET.into(),
        description: describe("status"),
        key: key.cloned(),
        connect_timeout: patience.0,
        request_timeout: Some(patience.1),
        reconnect: false,
        ..ConnectOptions::default()
    };
    Session::connect(endpoint, options).doing(|| format!("cannot reach {endpoint}"))
}

fn call(session: &Session, opcode: u16, body: Vec<u8>) -> Outcome<bytes::Bytes> {
    let reply = session.call(opcode, body, Vec::new()).doing(|| "no answer".into())?;
    match reply.status() {
        Ok(()) => Ok(reply.body),
        Err(e) if reply.body.is_empty() => Err(Failure::run(e.to_string())),
        Err(_) => Err(Failure::run(String::from_utf8_lossy(&reply.body).into_owned())),
    }
}

/// Its state.
pub fn ask_status(session: &Session) -> Outcome<Value> {
    let body = call(session, STATUS, Vec::new())?;
    serde_json::from_slice(&body).doing(|| "unreadable state".into())
}

/// The state of the whole file system, as that process sees it.
pub fn ask_cluster(session: &Session) -> Outcome<Value> {
    let body = call(session, CLUSTER, Vec::new())?;
    serde_json::from_slice(&body).doing(|| "unreadable state".into())
}

/// Its parameters.
pub fn get_params(session: &Session) -> Outcome<Vec<Param>> {
    let body = call(session, GET_PARAMS, Vec::new())?;
    serde_json::from_slice(&body).doing(|| "unreadable parameters".into())
}

/// Asks whether parameters can be changed so.
pub fn check_params(session: &Session, settings: &[(String, String)]) -> Outcome<()> {
    give(session, CHECK_PARAMS, settings)
}

/// Changes parameters, all or none.
pub fn set_params(session: &Session, settings: &[(String, String)]) -> Outcome<()> {
    give(session, SET_PARAMS, settings)
}

fn give(session: &Session, opcode: u16, settings: &[(String, String)]) -> Outcome<()> {
    let body = serde_json::to_vec(settings).doing(|| "settings".into())?;
    call(session, opcode, body).map(|_| ())
}

/// The paths of a file.
pub fn ask_paths(session: &Session, fid: Fid) -> Result<Vec<Vec<u8>>, Errno> {
    let reply = session.call(PATHS, fid.to_string().into_bytes(), Vec::new());
    let reply = reply.map_err(|e| e.errno())?;
    reply.status()?;
    List::<Vec<u8>>::from_bytes(&reply.body).map(|l| l.0).map_err(|_| Errno::EPROTO)
}
