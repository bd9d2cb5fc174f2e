//! The state of a whole file system: the list of targets, and what each process says of its own.
//!
//! Role: asks every process once, all at the same time, each for a bounded time. Never does: open
//! a session with an MDT, which would cost its clients their leases.

use std::collections::BTreeMap;

use net::{ClusterKey, Endpoint};
use proto::mgs::Config;
use serde_json::{Value, json};

use crate::control;
use crate::failure::Outcome;
use crate::label::{kind_name, uuid_text};

/// Processes asked at the same time.
const AT_ONCE: usize = 64;

/// What is known of a process without asking.
pub struct Own {
    /// Addresses under which its targets are registered.
    pub address: Option<String>,
    /// Its own state.
    pub status: Value,
}

/// Gathers the state of all targets in `config`.
pub fn gather(config: &Config, own: &Own, key: Option<&ClusterKey>) -> Value {
    let mut answers: BTreeMap<String, Outcome<Value>> = BTreeMap::new();
    let mut asked: Vec<String> = Vec::new();
    for t in &config.targets.0 {
        if own.address.as_ref() != Some(&t.address) && !asked.contains(&t.address) {
            asked.push(t.address.clone());
        }
    }
    for some in asked.chunks(AT_ONCE) {
        std::thread::scope(|s| {
            let ask = |a: &String| {
                (
                    a.clone(),
                    s.spawn({
                        let a = a.clone();
                        move || ask(&a, key)
                    }),
                )
            };
            let threads: Vec<_> = some.iter().map(ask).collect();
            for (address, thread) in threads {
                let failed = || Err(crate::failure::Failure::run("asking it failed"));
                answers.insert(address, thread.join().unwrap_or_else(|_| failed()));
            }
        });
    }
    if let Some(address) = &own.address {
        answers.insert(address.clone(), Ok(own.status.clone()));
    }
    assemble(config, own, &answers)
}

fn ask(address: &str, key: Option<&ClusterKey>) -> Outcome<Value> {
    let endpoint: Endpoint = crate::address::parse(address)?;
    let session = control::open(&endpoint, key)?;
    let status = control::ask_status(&session);
    session.close();
    status
}

fn assemble(config: &Config, own: &Own, answers: &BTreeMap<String, Outcome<Value>>) -> Value {
    let mut targets = Vec::new();
    let mut all_up = true;
    for t in &config.targets.0 {
        let mut shown = json!({
            "name": t.name(),
            "kind": kind_name(t.kind),
            "index": t.index,
            "uuid": uuid_text(&t.uuid),
            "address": t.address,
            "state": "down",
        });
        let found = match answers.get(&t.address) {
            Some(Ok(process)) => match target_of(process, &t.name(), &uuid_text(&t.uuid)) {
                Some(said) => Ok((said.clone(), process["pid"].clone())),
                None => Err("the process at its address does not serve it".to_string()),
            },
            Some(Err(e)) => Err(e.text.clone()),
            None => Err("not asked".to_string()),
        };
        match found {
            Ok((said, pid)) => {
                merge(&mut shown, &said);
                shown["pid"] = pid;
                shown["state"] = "up".into();
            }
            Err(e) => {
                shown["error"] = e.into();
                all_up = false;
            }
        }
        targets.push(shown);
    }
    let has = |kind: u8| config.targets.0.iter().any(|t| t.kind == kind);
    all_up &= has(proto::mgs::KIND_MDT) && has(proto::mgs::KIND_OST);
    let processes = processes(own, answers);
    let clients = clients(&processes);
    json!({
        "fs": { "name": config.name, "uuid": uuid_text(&config.fs) },
        "state": if all_up { "up" } else { "degraded" },
        "targets": targets,
        "pids": pids(&processes, &clients),
        "clients": clients,
        "processes": processes,
    })
}

fn target_of<'a>(process: &'a Value, name: &str, uuid: &str) -> Option<&'a Value> {
    let targets = process["targets"].as_array()?;
    targets.iter().find(|t| t["name"] == name && t["uuid"] == uuid)
}

fn merge(into: &mut Value, from: &Value) {
    if let (Some(into), Some(from)) = (into.as_object_mut(), from.as_object()) {
        for (k, v) in from {
            into.entry(k.clone()).or_insert_with(|| v.clone());
        }
    }
}

/// Every process once: this one, and those that answered.
fn processes(own: &Own, answers: &BTreeMap<String, Outcome<Value>>) -> Vec<Value> {
    let mut all = vec![own.status.clone()];
    for process in answers.values().filter_map(|a| a.as_ref().ok()) {
        let same = |p: &Value| p["pid"] == process["pid"] && p["host"] == process["host"];
        if !all.iter().any(same) {
            all.push(process.clone());
        }
    }
    for p in &mut all {
        if let Some(p) = p.as_object_mut() {
            p.remove("targets");
        }
    }
    all
}

/// Clients of all servers, each once, without those who only ask for the state.
fn clients(processes: &[Value]) -> Vec<Value> {
    let mut all: Vec<Value> = Vec::new();
    for client in processes.iter().filter_map(|p| p["sessions"].as_array()).flatten() {
        let said = client["description"].as_str().unwrap_or_default();
        // Servers and MDTs are sessions too, and so is who asks for the state.
        let role = said.rsplit(' ').next().unwrap_or_default();
        let other = matches!(role, "status" | "server") || role.starts_with("MDT");
        // One process may have a session of its own kind with each target.
        let known = all.iter().any(|c| c["description"] == client["description"]);
        if !known && !other {
            all.push(client.clone());
        }
    }
    all
}

/// Processes of this machine, servers and clients; those of others have numbers that mean nothing
/// here.
fn pids(processes: &[Value], clients: &[Value]) -> Vec<u64> {
    let here = crate::host::name();
    let of_client = |c: &Value| {
        let (host, rest) = c["description"].as_str()?.rsplit_once(':')?;
        let pid = rest.split(' ').next()?.parse::<u64>().ok()?;
        (host == here && c["connected"] != false).then_some(pid)
    };
    let servers = processes.iter().filter(|p| p["host"] == here.as_str());
    let mut pids: Vec<u64> = servers.filter_map(|p| p["pid"].as_u64()).collect();
    pids.extend(clients.iter().filter_map(of_client));
    pids.sort_unstable();
    pids.dedup();
    pids
}

#[cfg(test)]
mod tests {
    use super::*;
    use proto::mgs::{KIND_MDT, KIND_OST, Target};
    use proto::wire::List;

    fn target(kind: u8, index: u32, address: &str) -> Target {
        Target { kind, index, uuid: [index as u8 + kind; 16], address: address.into() }
    }

    #[test]
    fn what_does_not_answer_is_down_and_said_so() {
        let host = crate::host::name();
        let mdt = target(KIND_MDT, 0, "unix:/own");
        let said = json!({ "name": "MDT0000", "uuid": uuid_text(&mdt.uuid), "free": 5 });
        let status = json!({ "pid": 7, "host": host, "targets": [said], "sessions": [
            { "id": "a", "description": format!("{host}:1 mount"), "connected": true },
            { "id": "b", "description": "h:2 status" },
            { "id": "c", "description": "elsewhere:3 mount", "connected": true },
            { "id": "d", "description": format!("{host}:1 mount"), "connected": true },
        ] });
        let own = Own { address: Some("unix:/own".into()), status };
        let lost = target(KIND_OST, 0, "unix:/nonexistent/socket");
        let config = Config {
            fs: [1; 16],
            name: "pin".into(),
            generation: 1,
            targets: List(vec![mdt.clone(), lost]),
        };
        let all = gather(&config, &own, None);
        assert_eq!(all["state"], "degraded");
        assert_eq!(all["targets"][0]["state"], "up");
        assert_eq!(all["targets"][0]["free"], 5);
        assert_eq!(all["targets"][1]["state"], "down");
        assert!(all["targets"][1]["error"].as_str().unwrap().contains("/nonexistent/socket"));
        assert_eq!(all["pids"], json!([1, 7]));
        assert_eq!(all["clients"].as_array().unwrap().len(), 2);
    }
}
