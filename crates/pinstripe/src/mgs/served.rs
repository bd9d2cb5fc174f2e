//! Whether a target that shall be listed at another address is still served at the one it has.
//!
//! Role: asks the process at the known address, so that a copy of a target's directory cannot take
//! the place of the one in use, also when this service was started a moment ago and nobody has
//! registered again. Assumption: servers can be reached from here, as `status` wants it, too.
//! Never: waits for long, so that what was served by a machine that is lost can move.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use net::{ClusterKey, Session};
use parking_lot::Mutex;
use proto::mgs::Target;
use serde_json::Value;

use crate::failure::Outcome;
use crate::label::uuid_text;
use crate::{address, control, host};

/// Time a server has to be there, and time it then has to say what it serves. One that is not there
/// is lost: its targets may move.
const PATIENCE: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(5));
/// An address where nobody was is not asked again for so long: all targets of a lost machine move
/// after one wait.
const SILENT: Duration = Duration::from_secs(10);

/// Asks servers.
#[derive(Debug, Default)]
pub(super) struct Served {
    key: Option<ClusterKey>,
    /// Addresses where nobody was, and when.
    silent: Mutex<HashMap<String, Instant>>,
}

impl Served {
    pub(super) fn new(key: Option<ClusterKey>) -> Served {
        Served { key, silent: Mutex::default() }
    }

    /// Who but `asker` (as it describes itself) serves `known` where it is listed.
    pub(super) fn by(&self, known: &Target, asker: &str) -> Option<String> {
        let session = self.reach(&known.address)?;
        let process = control::ask_status(&session);
        session.close();
        match process {
            Ok(process) => holder(&process, known, asker),
            Err(_) => Some("a server that does not tell what it serves".into()),
        }
    }

    fn reach(&self, address: &str) -> Option<std::sync::Arc<Session>> {
        let mut silent = self.silent.lock();
        silent.retain(|_, since| since.elapsed() < SILENT);
        if silent.contains_key(address) {
            return None;
        }
        match self.open(address) {
            Ok(session) => Some(session),
            Err(e) => {
                tracing::info!("targets may move away from {address}: {e}");
                silent.insert(address.into(), Instant::now());
                None
            }
        }
    }

    fn open(&self, address: &str) -> Outcome<std::sync::Arc<Session>> {
        control::open_within(&address::parse(address)?, self.key.as_ref(), PATIENCE)
    }
}

/// The process at a target's address, if it serves it and is not the one that asks.
fn holder(process: &Value, known: &Target, asker: &str) -> Option<String> {
    let uuid = uuid_text(&known.uuid);
    let mut targets = process["targets"].as_array().into_iter().flatten();
    targets.find(|t| t["uuid"] == uuid)?;
    let name = process["host"].as_str().unwrap_or("?");
    let pid = process["pid"].as_u64().unwrap_or(0);
    let it = |role| host::described(name, pid, role);
    // One process may listen at several addresses.
    let asks = asker == it("server");
    // Who has a management service of its own is not listed here: the whole file system was copied.
    let elsewhere = process["mgs"] == true && it("") != host::describe("");
    (!asks && !elsewhere).then(|| it("").trim_end().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proto::mgs::KIND_OST;
    use serde_json::json;

    #[test]
    fn only_another_process_of_this_file_system_is_in_the_way() {
        let known = Target { kind: KIND_OST, index: 0, uuid: [2; 16], address: "unix:/s".into() };
        let uuid = uuid_text(&known.uuid);
        let process = |mgs: bool, uuid: &str| json!({ "host": "h", "pid": 7, "mgs": mgs, "targets": [{ "uuid": uuid }] });
        let by = |process, asker| holder(&process, &known, asker);
        assert_eq!(by(process(false, &uuid), "h:8 server"), Some("h:7".into()));
        assert_eq!(by(process(false, &uuid), "g:7 server"), Some("h:7".into()));
        assert_eq!(by(process(false, &uuid), "h:7 server"), None, "itself, at two addresses");
        assert_eq!(by(process(true, &uuid), "h:8 server"), None, "another management service's");
        assert_eq!(by(process(false, &uuid_text(&[3; 16])), "h:8 server"), None, "another target");
        assert_eq!(by(json!({}), "h:8 server"), None);
        let (host, own) = (host::name(), std::process::id());
        let here = json!({ "host": host, "pid": own, "mgs": true, "targets": [{ "uuid": uuid }] });
        assert_eq!(by(here, "h:8 server"), Some(format!("{host}:{own}")), "this process");
    }

    #[test]
    fn where_nobody_is_nobody_is_asked_twice() {
        let served = Served::default();
        let address = "unix:/nowhere/socket";
        let known = Target { kind: KIND_OST, index: 0, uuid: [2; 16], address: address.into() };
        assert_eq!(served.by(&known, "h:8 server"), None);
        assert!(served.silent.lock().contains_key(address));
        assert_eq!(served.by(&known, "h:8 server"), None);
        assert_eq!(served.silent.lock().len(), 1);
    }
}
