//! What a running process tells about itself through `CTL`.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use net::{ClusterKey, Endpoint};
use proto::mgs::Config;
use proto::{Errno, Fid};
use serde_json::{Map, Value, json};

use crate::cluster::{Own, gather};
use crate::control::{Inside, Param, ProcessParams};
use crate::mgs;
use crate::node::Node;
use crate::targets::Target;

/// A process with servers, a mount, or both.
pub struct Resident {
    /// `up`, `server` or `mount`.
    pub role: &'static str,
    /// Its servers.
    pub node: Option<Arc<Node>>,
    /// Its client, once it has one.
    pub client: OnceLock<client::Client>,
    /// Where the list of targets is, if not here.
    pub mgs: Option<Endpoint>,
    /// For asking other servers.
    pub key: Option<ClusterKey>,
    /// Address under which its targets are registered.
    pub address: OnceLock<String>,
    /// Facts shown with the state of the file system: mount point, data directory, socket.
    pub facts: Map<String, Value>,
    /// When it started.
    pub since: Instant,
}

impl Resident {
    fn config(&self) -> Result<Config, String> {
        if let Some(mgs) = self.node.as_ref().and_then(|n| n.mgs()) {
            return Ok(mgs.config());
        }
        let endpoint = self.mgs.as_ref().ok_or("no management service is known")?;
        let wait = Duration::ZERO;
        let session = mgs::connect(endpoint, "MGS", self.key.as_ref(), wait).map_err(|e| e.text)?;
        let config = mgs::fetch(&session).map_err(|e| e.text);
        session.close();
        config
    }
}

impl Inside for Resident {
    fn status(&self) -> Value {
        let mut state = json!({
            "pid": std::process::id(),
            "host": crate::host::name(),
            "role": self.role,
            "version": env!("CARGO_PKG_VERSION"),
            "uptime_s": self.since.elapsed().as_secs(),
            "memory_kb": crate::host::memory_kb(),
            "address": self.address.get(),
        });
        if let Some(client) = self.client.get() {
            let (connected, stored) = (client.is_connected(), client.is_stored());
            state["mount"] = json!({ "connected": connected, "stored": stored });
        }
        let node = self.node.as_ref().map(|n| n.status());
        if let (Some(state), Some(Value::Object(node))) = (state.as_object_mut(), node) {
            state.extend(node);
        }
        state
    }

    fn cluster(&self) -> Value {
        let own = Own { address: self.address.get().cloned(), status: self.status() };
        let mut state = match self.config() {
            Ok(config) => gather(&config, &own, self.key.as_ref()),
            Err(e) => json!({
                "state": "degraded",
                "error": e,
                "targets": [],
                "clients": [],
                "pids": [own.status["pid"]],
                "processes": [own.status],
            }),
        };
        if let Some(state) = state.as_object_mut() {
            state.extend(self.facts.clone());
        }
        state
    }

    fn params(&self) -> Vec<Param> {
        let mut all = ProcessParams::list();
        all.extend(self.own_params());
        all.sort_by(|a, b| a.name.cmp(&b.name));
        all
    }

    fn set_param(&self, name: &str, value: &str, apply: bool) -> Result<(), String> {
        if let Some(done) = self.set_of_target(name, value, apply) {
            return done;
        }
        ProcessParams::set(name, value, apply, &self.own_params())
    }

    fn paths(&self, fid: Fid) -> Result<Vec<Vec<u8>>, Errno> {
        match (&self.node, self.client.get()) {
            // The mount may have changed names that the MDT has not heard of: its client sends them
            // first.
            (_, Some(client)) => client.fid_to_path(&own_cred(), fid),
            (Some(node), None) => node.paths(fid),
            (None, None) => Err(Errno::EOPNOTSUPP),
        }
    }
}

/// Parameter of an OST: writes from this size on go past its page cache, KiB; 0: none does.
const DIRECT_WRITE_MIN: &str = "direct_write_min_kb";
/// Parameter of an OST: KiB of large reads that its device is asked for at a time.
const READS_IN_FLIGHT: &str = "reads_in_flight_kb";
/// Least and most of it: one read is always under way.
const READS_IN_FLIGHT_RANGE: (u32, u32) = (64, 1 << 20);
/// Parameter of an MDT: how long a client may take to give back a lease before it is evicted, seconds.
const RECALL_TIMEOUT: &str = "recall_timeout_s";
/// Shortest and longest of them: clients that are cut off believe what they have for 18 seconds.
const RECALL_TIMEOUT_RANGE: (u32, u32) = (20, 600);

/// A value that is a whole number within a range.
fn number(name: &str, value: &str, range: (u32, u32), unit: &str) -> Result<u32, String> {
    let (least, most) = range;
    let found = value.parse().ok().filter(|n| (least..=most).contains(n));
    found
        .ok_or_else(|| format!("'{value}' is no value of {name}: it is {least} to {most} ({unit})"))
}

impl Resident {
    /// Checks or sets a parameter of a target; `None`: it is none.
    fn set_of_target(&self, name: &str, value: &str, apply: bool) -> Option<Result<(), String>> {
        let (target, parameter) = name.split_once('.')?;
        let targets = self.node.as_ref()?.targets();
        let target = targets.iter().find(|t| t.name() == target)?;
        let set = |range, unit, set: &dyn Fn(u32)| {
            let found = number(name, value, range, unit);
            Some(found.map(|n| {
                if apply {
                    set(n);
                }
            }))
        };
        match (parameter, target.mdt(), target.ost()) {
            (DIRECT_WRITE_MIN, _, Some(ost)) => {
                let most = proto::MAX_BULK >> 10;
                set((0, most), "KiB", &|kb| ost.set_direct_write_min((kb as usize) << 10))
            }
            (READS_IN_FLIGHT, _, Some(ost)) => set(READS_IN_FLIGHT_RANGE, "KiB", &|kb| {
                ost.set_reads_in_flight(u64::from(kb) << 10);
            }),
            (RECALL_TIMEOUT, Some(mdt), _) => set(RECALL_TIMEOUT_RANGE, "seconds", &|s| {
                mdt.set_recall_timeout(Duration::from_secs(s.into()));
            }),
            _ => None,
        }
    }

    fn own_params(&self) -> Vec<Param> {
        let mut all = Vec::new();
        if let Some(client) = self.client.get() {
            all.extend(counted(&client.stats()).into_iter().map(|(n, v)| fixed(n, v.to_string())));
        }
        if let Some(node) = &self.node {
            let stats = node.server().stats();
            all.extend(
                stats.list().into_iter().map(|(n, v)| fixed(format!("net.{n}"), v.to_string())),
            );
            node.targets().iter().for_each(|target| all.extend(params_of(target)));
        }
        all
    }
}

fn fixed(name: String, value: String) -> Param {
    Param { name, value, writable: false }
}

/// What a target can be told, what it counts and what it knows of itself; counters and leases under the names Lustre's users
/// know.
fn params_of(target: &Target) -> Vec<Param> {
    let name = target.name();
    let settable = |parameter: &str, value: u64| Param {
        name: format!("{name}.{parameter}"),
        value: value.to_string(),
        writable: true,
    };
    let mut all = Vec::new();
    if let Some(ost) = target.ost() {
        all.push(settable(DIRECT_WRITE_MIN, ost.direct_write_min() as u64 >> 10));
        all.push(settable(READS_IN_FLIGHT, ost.reads_in_flight() >> 10));
        let counters = ost.stats().list().into_iter();
        all.extend(counters.map(|(n, v)| fixed(format!("obdfilter.{name}.{n}"), v.to_string())));
    }
    if let Some(mdt) = target.mdt() {
        all.push(settable(RECALL_TIMEOUT, mdt.recall_timeout().as_secs()));
    }
    let Value::Object(state) = target.status() else { return all };
    for (key, shown) in [("done", "stats"), ("failed", "failed")] {
        let counted = state.get("operations").and_then(|all| all[key].as_object());
        let counted = counted.into_iter().flatten();
        let shown = |verb: &str| format!("mdt.{name}.{shown}.{verb}");
        all.extend(counted.map(|(verb, n)| fixed(shown(verb), n.to_string())));
    }
    let leases = state.get("leases").map(|l| leases(&name, l));
    all.extend(leases.into_iter().flatten().map(|(n, v)| fixed(n, v)));
    for (k, v) in state.iter().filter(|(_, v)| !v.is_object() && !v.is_array()) {
        let text = v.as_str().map_or_else(|| v.to_string(), str::to_string);
        all.push(fixed(format!("{name}.{k}"), text));
    }
    all
}

/// A client's counters under the names Lustre's users know: `mdc` talks to the MDT, `osc` to the
/// OSTs, `llite` is the mount.
fn counted(stats: &client::Stats) -> Vec<(String, u64)> {
    let mut all = vec![
        ("mdc.messages".into(), stats.mds_messages),
        ("osc.messages".into(), stats.oss_messages.values().sum()),
        ("osc.bytes_written".into(), stats.bytes_written),
        ("osc.bytes_read".into(), stats.bytes_read),
        ("osc.cur_dirty_bytes".into(), stats.dirty_bytes),
        ("osc.uncommitted_bytes".into(), stats.uncommitted_bytes),
        ("llite.read_ahead_bytes".into(), stats.read_ahead_bytes),
        ("llite.inodes".into(), stats.inodes),
        ("ldlm.lock_count".into(), stats.leases),
        ("ldlm.callbacks".into(), stats.recalls),
    ];
    all.extend(stats.mds_ops.iter().map(|(verb, n)| (format!("mdc.stats.{verb}"), *n)));
    all.extend(stats.oss_messages.iter().map(|(kind, n)| (format!("osc.stats.{kind}"), *n)));
    all
}

/// Leases of a metadata target under the names Lustre's users know.
fn leases(target: &str, state: &Value) -> Vec<(String, String)> {
    let Some(state) = state.as_object() else { return Vec::new() };
    let name = |key: &str| match key {
        "count" => "lock_count".to_string(),
        "limit" => "lock_limit".to_string(),
        "limit_per_client" => "lru_size".to_string(),
        other => other.to_string(),
    };
    let text = |v: &Value| match v {
        Value::Array(list) => list.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" "),
        other => other.to_string(),
    };
    state.iter().map(|(k, v)| (format!("ldlm.namespaces.{target}.{}", name(k)), text(v))).collect()
}

/// The credentials of a process that asks for itself.
fn own_cred() -> proto::mds::Cred {
    proto::mds::Cred {
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        groups: proto::wire::List(Vec::new()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leases_are_shown_as_locks() {
        let state = json!({ "count": 3, "limit_per_client": 100, "hot": ["[0x1:0x2:0x0]", "b"] });
        let mut found = leases("MDT0000", &state);
        found.sort();
        let expect = [("hot", "[0x1:0x2:0x0] b"), ("lock_count", "3"), ("lru_size", "100")];
        let expect = expect.map(|(n, v)| (format!("ldlm.namespaces.MDT0000.{n}"), v.to_string()));
        assert_eq!(found, expect);
    }
}
