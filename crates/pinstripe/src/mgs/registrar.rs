//! The other side of the management service: announcing targets, and hearing of those of others.
//!
//! Role: one session per server process; a thread asks for the list when it may have changed.
//! Assumption: the MGS may go away and come back at any time; targets are announced again then.

use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use net::{ClusterKey, ConnectOptions, Endpoint, NetError, Session};
use proto::mgs::{Config, Register};
use proto::ops;
use proto::wire::Wire;

use crate::failure::{Doing, Failure, Outcome};
use crate::host::describe;

/// How often the list is read again.
const POLL: Duration = Duration::from_secs(2);
/// How often it is read while it still lacks something.
const POLL_FAST: Duration = Duration::from_millis(200);
/// Time one attempt to connect may take.
const ATTEMPT: Duration = Duration::from_secs(5);
/// Time one request may take.
const REQUEST: Duration = Duration::from_secs(10);
/// First and longest pause between attempts.
const PAUSES: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));

/// Connects to the target `target` at `endpoint`, trying again for `wait`. What no retry can heal
/// (a wrong key, another file system) ends it at once.
pub fn connect(
    endpoint: &Endpoint,
    target: &str,
    key: Option<&ClusterKey>,
    wait: Duration,
) -> Outcome<Arc<Session>> {
    let end = Instant::now() + wait;
    let mut pause = PAUSES.0;
    loop {
        let options = ConnectOptions {
            target: target.into(),
            description: describe("server"),
            key: key.cloned(),
            connect_timeout: ATTEMPT,
            request_timeout: Some(REQUEST),
            ..ConnectOptions::default()
        };
        let e = match Session::connect(endpoint, options) {
            Ok(session) => return Ok(session),
            Err(e) => e,
        };
        let what = format!("cannot reach {} at {endpoint}: {e}", long_name(target));
        if matches!(e, NetError::Refused(_) | NetError::Protocol(_) | NetError::Version { .. }) {
            return Err(Failure::run(what));
        }
        if Instant::now() + pause > end {
            let text = format!(
                "{what}; waited {} s. Is that server running, and is the address right?",
                wait.as_secs()
            );
            return Err(Failure::run(text));
        }
        tracing::debug!("{what}; trying again");
        std::thread::sleep(pause);
        pause = (pause * 2).min(PAUSES.1);
    }
}

fn long_name(target: &str) -> &str {
    if target == "MGS" { "the management service" } else { target }
}

/// Reads the list of targets.
pub fn fetch(session: &Session) -> Outcome<Config> {
    let reply = session.call(ops::mgs::CONFIG, Vec::new(), Vec::new());
    let reply = reply.doing(|| "cannot read the list of targets".into())?;
    reply.status().doing(|| "cannot read the list of targets".into())?;
    Config::from_bytes(&reply.body).doing(|| "the list of targets cannot be read".into())
}

/// Announces a target.
fn announce(session: &Session, r: &Register) -> Outcome<Config> {
    let name = r.target.name();
    let reply = session.call(ops::mgs::REGISTER, r.to_bytes(), Vec::new());
    let reply = reply.doing(|| format!("cannot register {name}"))?;
    if let Err(e) = reply.status() {
        let why = String::from_utf8_lossy(&reply.body);
        let why = if why.is_empty() { e.to_string() } else { why.into_owned() };
        return Err(Failure::run(format!("the management service refused {name}: {why}")));
    }
    Config::from_bytes(&reply.body).doing(|| "the list of targets cannot be read".into())
}

/// Keeps this process's targets announced and its view of the others fresh.
pub struct Registrar {
    stop: Sender<()>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Registrar {
    /// Announces `targets` and calls `changed` with the list, now and whenever it changes.
    pub fn start(
        session: Arc<Session>,
        targets: Vec<Register>,
        mut changed: impl FnMut(&Config) + Send + 'static,
    ) -> Outcome<Registrar> {
        let mut known = fetch(&session)?;
        for target in &targets {
            known = announce(&session, target)?;
        }
        changed(&known);
        let (stop, stopped) = channel();
        let watch = move || {
            loop {
                let pause = if complete(&known) { POLL } else { POLL_FAST };
                if stopped.recv_timeout(pause) != Err(RecvTimeoutError::Timeout) {
                    return session.close();
                }
                match fetch(&session) {
                    Ok(config) if config.generation != known.generation || config != known => {
                        known = refresh(&session, &targets, config);
                        changed(&known);
                    }
                    Ok(_) => {}
                    Err(e) => tracing::warn!("{e}"),
                }
            }
        };
        let thread = std::thread::Builder::new().name("registrar".into()).spawn(watch);
        let thread = thread.doing(|| "cannot start a thread".into())?;
        Ok(Registrar { stop, thread: Some(thread) })
    }
}

/// Announces again what an MGS that lost its list no longer knows.
fn refresh(session: &Session, targets: &[Register], config: Config) -> Config {
    let mut known = config;
    for r in targets.iter() {
        if !known.targets.0.contains(&r.target) {
            match announce(session, r) {
                Ok(config) => known = config,
                Err(e) => tracing::error!("{e}"),
            }
        }
    }
    known
}

/// Whether the list could serve a client.
fn complete(config: &Config) -> bool {
    let has = |kind| config.targets.0.iter().any(|t| t.kind == kind);
    has(proto::mgs::KIND_MDT) && has(proto::mgs::KIND_OST)
}

impl Drop for Registrar {
    fn drop(&mut self) {
        let _ = self.stop.send(());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
