//! `pinstripe status`: what a process knows of its file system, as text or JSON.

use net::Endpoint;
use serde_json::Value;

use crate::cli::{Common, KeyArgs, StatusArgs, WhichArgs};
use crate::failure::{Doing, Failure, Outcome};
use crate::record::{Record, other_owner};
use crate::{address, control, keyfile, out, places};

/// Runs the command.
pub fn run(args: &StatusArgs, common: &Common) -> Outcome<()> {
    let mut wrong = Vec::new();
    let mut shown = Vec::new();
    let (places, dead) = match args.which.mountpoint.is_none() && args.which.mgs_addr.is_none() {
        true => (running()?, Record::dead().doing(|| "cannot list what ran".into())?),
        false => (which(&args.which)?, Vec::new()),
    };
    for record in dead {
        wrong.push(format!("{} is down", record.mountpoint.display()));
        shown.push(down(&record));
    }
    for place in places {
        let state = match place.ask() {
            Ok(state) => state,
            // What the others say is worth knowing.
            Err(e) => {
                wrong.push(format!("{}: {e}", place.name));
                continue;
            }
        };
        if state["state"] != "up" {
            wrong.push(format!("{} is {}", place.name, state["state"].as_str().unwrap_or("?")));
        }
        shown.push(state);
    }
    if shown.is_empty() {
        let text = if wrong.is_empty() { NOTHING.into() } else { wrong.join(", ") };
        return Err(Failure::run(text));
    }
    match (common.json, shown.as_slice()) {
        (true, [one]) => out::json_pretty(one),
        (true, all) => out::json_pretty(&Value::from(all.to_vec())),
        (false, all) => all.iter().for_each(|s| out::text(&text(s))),
    }
    if wrong.is_empty() { Ok(()) } else { Err(Failure::answered(wrong.join(", "))) }
}

const NOTHING: &str = "no Pinstripe of yours runs here; start one with `pinstripe up MOUNTPOINT`, \
    or name a server with --mgs-addr";

/// What is known of a mount whose process is gone.
fn down(record: &Record) -> Value {
    serde_json::json!({
        "state": "down",
        "mountpoint": record.mountpoint.display().to_string(),
        "data": record.data.as_ref().map(|d| d.display().to_string()),
        "targets": [],
        "clients": [],
        "pids": [],
        "processes": [],
    })
}

/// A process that can be asked.
pub struct Place {
    /// Its mount point or address, for messages.
    pub name: String,
    endpoint: Endpoint,
    key: Option<net::ClusterKey>,
}

impl Place {
    /// The process at an address; over TCP it wants the key.
    pub fn at(text: &str, key: &KeyArgs) -> Outcome<Place> {
        let endpoint = address::parse(text)?;
        let key = match &endpoint {
            Endpoint::Tcp(_) => Some(keyfile::need(&keyfile::path(key.key.as_deref()))?.key),
            _ => None,
        };
        Ok(Place { name: text.into(), endpoint, key })
    }

    /// A session with it.
    pub fn open(&self) -> Outcome<std::sync::Arc<net::Session>> {
        control::open(&self.endpoint, self.key.as_ref())
    }

    /// The state of its file system.
    pub fn ask(&self) -> Outcome<Value> {
        let session = self.open()?;
        let state = control::ask_cluster(&session);
        session.close();
        state
    }

    /// The process of a mount point.
    pub fn of_mount(mountpoint: &std::path::Path) -> Outcome<Place> {
        let mountpoint = places::mountpoint(mountpoint)?;
        let name = mountpoint.display().to_string();
        if let Some(uid) = other_owner(&mountpoint)? {
            return Err(Failure::run(format!(
                "the Pinstripe at {name} was mounted by user {uid}; only that user can ask its process"
            )));
        }
        match Record::of(&mountpoint)? {
            Some(r) if r.process().is_some() => {
                Ok(Place { name, endpoint: Endpoint::Unix(r.socket), key: None })
            }
            Some(r) => Err(Failure::run(format!(
                "{name} is down: its process {} is gone; `pinstripe up` or `pinstripe mount` \
                 brings it back",
                r.process.pid
            ))),
            None => Err(Failure::run(format!(
                "no Pinstripe of yours is mounted at {name}; `pinstripe status` lists those that are"
            ))),
        }
    }
}

/// The processes meant: of a mount point, at an address, or all of this user's.
pub fn which(args: &WhichArgs) -> Outcome<Vec<Place>> {
    if let Some(text) = &args.mgs_addr {
        return Ok(vec![Place::at(text, &args.key)?]);
    }
    if let Some(mountpoint) = &args.mountpoint {
        return Ok(vec![Place::of_mount(mountpoint)?]);
    }
    let all = running()?;
    if all.is_empty() { Err(Failure::run(NOTHING)) } else { Ok(all) }
}

/// All of this user's that run.
fn running() -> Outcome<Vec<Place>> {
    let all = Record::running().doing(|| "cannot list what runs".into())?;
    let place = |r: Record| Place {
        name: r.mountpoint.display().to_string(),
        endpoint: Endpoint::Unix(r.socket),
        key: None,
    };
    Ok(all.into_iter().map(place).collect())
}

fn str_of(v: &Value) -> String {
    v.as_str().unwrap_or("-").to_string()
}

/// The state as people read it.
fn text(state: &Value) -> String {
    let mut t = String::new();
    let (name, is) = (str_of(&state["fs"]["name"]), str_of(&state["state"]));
    t += &format!("file system {name} is {is}\n");
    for (label, key) in [("mounted at", "mountpoint"), ("data", "data"), ("socket", "socket")] {
        if let Some(v) = state[key].as_str() {
            t += &format!("  {label:<11} {v}\n");
        }
    }
    let error = state["error"].as_str();
    if let Some(e) = error {
        t += &format!("  {:<11} {e}\n", "error");
    }
    if is == "down" {
        t += "  its process is gone; `pinstripe up` or `pinstripe mount` brings it back\n";
        return t;
    }
    // Who cannot be asked for the targets does not have none.
    if error.is_none() {
        t += &targets(state);
    }
    t += "processes:\n";
    for p in state["processes"].as_array().into_iter().flatten() {
        t += &format!(
            "  {} on {}: {}, {} of memory\n",
            p["pid"],
            str_of(&p["host"]),
            str_of(&p["role"]),
            size(p["memory_kb"].as_u64().unwrap_or(0) << 10)
        );
    }
    t
}

/// Targets and clients.
fn targets(state: &Value) -> String {
    let mut t = format!(
        "\n{:<9} {:<5} {:>9} {:>9} {:>5} {:>9}  {}\n",
        "target", "state", "size", "free", "use%", "inodes", "address"
    );
    for target in state["targets"].as_array().into_iter().flatten() {
        t += &line(target);
    }
    let clients = state["clients"].as_array().map_or(0, Vec::len);
    t += &format!("\nclients: {clients}\n");
    for c in state["clients"].as_array().into_iter().flatten() {
        let away = if c["connected"] == false { " (away)" } else { "" };
        t += &format!("  {}{away}\n", str_of(&c["description"]));
    }
    t
}

fn line(target: &Value) -> String {
    let number = |key: &str| target[key].as_u64();
    let (total, free) = (number("total"), number("free"));
    let used = total.zip(free).filter(|(t, _)| *t > 0);
    let percent =
        used.map(|(t, f)| format!("{}%", (t.saturating_sub(f) as f64 / t as f64 * 100.0).round()));
    let show = |n: Option<u64>| n.map_or("-".into(), size);
    let mut text = format!(
        "{:<9} {:<5} {:>9} {:>9} {:>5} {:>9}  {}\n",
        target["name"].as_str().unwrap_or("?"),
        target["state"].as_str().unwrap_or("?"),
        show(total),
        show(free),
        percent.unwrap_or("-".into()),
        number("inodes").map_or("-".into(), |n| n.to_string()),
        target["address"].as_str().unwrap_or("-"),
    );
    if let Some(e) = target["error"].as_str() {
        text += &format!("          {e}\n");
    }
    text
}

/// Bytes with a unit.
pub fn size(bytes: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1023.95 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{bytes} B") } else { format!("{value:.1} {}", units[unit]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_one_digit_after_the_point() {
        for (bytes, text) in [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (1 << 30, "1.0 GiB")]
        {
            assert_eq!(size(bytes), text);
        }
        assert_eq!(size((1 << 20) - 1), "1.0 MiB");
    }

    #[test]
    fn a_state_is_shown_line_by_line() {
        let state = serde_json::json!({
            "fs": { "name": "pin" }, "state": "degraded", "mountpoint": "/m",
            "targets": [
                { "name": "MDT0000", "state": "up", "total": 1024, "free": 512, "inodes": 3, "address": "a" },
                { "name": "OST0000", "state": "down", "error": "cannot reach it", "address": "b" },
            ],
            "clients": [{ "description": "h:1 mount", "connected": true }],
            "processes": [{ "pid": 4, "host": "h", "role": "up", "memory_kb": 1 }],
        });
        let text = text(&state);
        for part in ["is degraded", "mounted at  /m", "50%", "cannot reach it", "4 on h: up"] {
            assert!(text.contains(part), "{part} is missing in\n{text}");
        }
    }

    #[test]
    fn why_nothing_is_known_is_shown() {
        let state = serde_json::json!({
            "state": "degraded", "error": "cannot reach the management service at tcp:h:1",
            "targets": [], "clients": [], "processes": [{ "pid": 4, "host": "h", "role": "mount" }],
        });
        let text = text(&state);
        assert!(text.contains("  error       cannot reach the management service"), "{text}");
        assert!(text.contains("4 on h: mount") && !text.contains("clients: 0"), "{text}");
    }
}
