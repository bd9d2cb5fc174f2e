//! `pinstripe get_param` and `set_param`.
//!
//! Role: asks the process that is meant; what names a target that is served by another process, that one. Never does: look
//! beyond the process that is meant for what names no target.

use std::collections::BTreeMap;
use std::sync::Arc;

use net::Session;
use serde_json::{Map, Value};

use crate::cli::{Common, GetParamArgs, KeyArgs, SetParamArgs, WhichArgs};
use crate::control::Param;
use crate::failure::{Failure, Outcome};
use crate::status::{Place, which};
use crate::{control, out};

fn only(mut places: Vec<Place>) -> Outcome<Place> {
    match (places.pop(), places.is_empty()) {
        (Some(one), true) => Ok(one),
        _ => Err(Failure::usage("several file systems are mounted; name one with --mount")),
    }
}

/// A process and its parameters.
struct Process {
    session: Arc<Session>,
    params: Vec<Param>,
}

impl Process {
    fn of(place: &Place) -> Outcome<Process> {
        let session = place.open()?;
        let params = control::get_params(&session)?;
        Ok(Process { session, params })
    }

    fn has(&self, pattern: &str) -> bool {
        self.params.iter().any(|p| matches(pattern, &p.name))
    }
}

/// The process that is meant, and those that serve targets which were named.
struct Reach<'a> {
    here: Process,
    key: &'a KeyArgs,
    /// Addresses by target, once asked for.
    targets: Option<BTreeMap<String, Option<String>>>,
    others: BTreeMap<String, Process>,
}

impl<'a> Reach<'a> {
    fn new(meant: &WhichArgs, key: &'a KeyArgs) -> Outcome<Reach<'a>> {
        let here = Process::of(&only(which(meant)?)?)?;
        Ok(Reach { here, key, targets: None, others: BTreeMap::new() })
    }

    /// The address of the process that has what this name or pattern is about; `None`: the one that is meant.
    fn to(&mut self, pattern: &str) -> Outcome<Option<String>> {
        let Some(target) = target_in(pattern).filter(|_| !self.here.has(pattern)) else {
            return Ok(None);
        };
        if self.targets.is_none() {
            self.targets = Some(addresses(&control::ask_cluster(&self.here.session)?));
        }
        let known = self.targets.as_ref().and_then(|all| all.get(target));
        let Some(address) = known else {
            let text = format!("there is no target {target}; `pinstripe status` lists them");
            return Err(Failure::run(text));
        };
        let Some(address) = address else { return Ok(None) };
        if !self.others.contains_key(address) {
            let process = Process::of(&Place::at(address, self.key)?);
            let process = process.map_err(|e| Failure {
                text: format!("{pattern}: {target} is served elsewhere: {}", e.text),
                ..e
            })?;
            self.others.insert(address.clone(), process);
        }
        Ok(Some(address.clone()))
    }

    fn process(&self, address: Option<&String>) -> &Process {
        address.and_then(|a| self.others.get(a)).unwrap_or(&self.here)
    }
}

/// Where targets are served; those of the process that was asked have no address where it listens nowhere.
fn addresses(cluster: &Value) -> BTreeMap<String, Option<String>> {
    let targets = cluster["targets"].as_array().into_iter().flatten();
    let known = targets.filter_map(|t| {
        Some((t["name"].as_str()?.to_string(), t["address"].as_str().map(str::to_string)))
    });
    known.collect()
}

/// The target that a name or a pattern is about.
fn target_in(pattern: &str) -> Option<&str> {
    pattern.split('.').map(|part| part.strip_suffix('*').unwrap_or(part)).find(|part| {
        let number = part.strip_prefix("MDT").or(part.strip_prefix("OST"));
        number.is_some_and(|n| n.len() == 4 && n.bytes().all(|b| b.is_ascii_hexdigit()))
    })
}

/// Shows parameters.
pub fn get(args: &GetParamArgs, common: &Common) -> Outcome<()> {
    let meant = WhichArgs {
        mountpoint: args.mount.clone(),
        mgs_addr: args.mgs_addr.clone(),
        key: args.key.clone(),
    };
    let mut reach = Reach::new(&meant, &args.key)?;
    let mut shown = Map::new();
    for pattern in &args.names {
        let address = reach.to(pattern)?;
        let all = &reach.process(address.as_ref()).params;
        let before = shown.len();
        let found = all.iter().filter(|p| matches(pattern, &p.name));
        shown.extend(found.map(|p| (p.name.clone(), Value::from(p.value.clone()))));
        if shown.len() == before && !all.iter().any(|p| matches(pattern, &p.name)) {
            let names: Vec<&str> = all.iter().map(|p| p.name.as_str()).collect();
            let hint = crate::config::nearest(pattern, &names);
            let hint =
                hint.map_or("`get_param '*'` lists all".into(), |n| format!("did you mean {n}?"));
            return Err(Failure::run(format!("there is no parameter {pattern}; {hint}")));
        }
    }
    if common.json {
        out::json(&Value::Object(shown));
        return Ok(());
    }
    for (name, value) in &shown {
        match args.only_names {
            true => out::line(name),
            false => out::line(&format!("{name}={}", value.as_str().unwrap_or_default())),
        }
    }
    Ok(())
}

/// Changes parameters, all or none: every process is asked first whether it would.
pub fn set(args: &SetParamArgs, common: &Common) -> Outcome<()> {
    let meant = WhichArgs {
        mountpoint: args.mount.clone(),
        mgs_addr: args.mgs_addr.clone(),
        key: args.key.clone(),
    };
    let mut wanted = Vec::new();
    for text in &args.settings {
        let Some((name, value)) = text.split_once('=') else {
            return Err(Failure::usage(format!("'{text}' is not NAME=VALUE")));
        };
        wanted.push((name.to_string(), value.to_string()));
    }
    let mut reach = Reach::new(&meant, &args.key)?;
    let mut settings: BTreeMap<Option<String>, Vec<(String, String)>> = BTreeMap::new();
    for (name, value) in wanted {
        settings.entry(reach.to(&name)?).or_default().push((name, value));
    }
    for (address, settings) in &settings {
        control::check_params(&reach.process(address.as_ref()).session, settings)?;
    }
    let mut done = Vec::new();
    for (address, settings) in settings {
        let session = &reach.process(address.as_ref()).session;
        // One that was lost since.
        control::set_params(session, &settings).map_err(|e| match done.is_empty() {
            true => e,
            false => {
                Failure { text: format!("{}; set before that: {}", e.text, done.join(", ")), ..e }
            }
        })?;
        done.extend(settings.iter().map(|(name, value)| format!("{name}={value}")));
    }
    if !common.json {
        done.iter().for_each(|line| out::line(line));
    }
    Ok(())
}

/// Whether a name fits a pattern in which `*` stands for anything.
fn matches(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = name.strip_prefix(first) else { return false };
    let mut last = None;
    for part in parts {
        if let Some(middle) = last.replace(part) {
            let Some(at) = rest.find(middle) else { return false };
            rest = &rest[at + middle.len()..];
        }
    }
    match last {
        None => rest.is_empty(),
        Some(end) => rest.ends_with(end),
    }
}

#[cfg(test)]
mod tests {
    use super::{matches, target_in};

    #[test]
    fn patterns() {
        for (pattern, name, fits) in [
            ("a.b", "a.b", true),
            ("a.b", "a.bc", false),
            ("*", "a.b", true),
            ("a.*", "a.b", true),
            ("*.b", "a.b", true),
            ("a*c*e", "abcde", true),
            ("a*c*e", "abde", false),
            ("b*", "a.b", false),
            ("a*a", "a", false),
        ] {
            assert_eq!(matches(pattern, name), fits, "{pattern} {name}");
        }
    }

    #[test]
    fn targets_are_found_in_names_and_patterns() {
        for (pattern, target) in [
            ("OST0000.free", Some("OST0000")),
            ("ldlm.namespaces.MDT000a.*", Some("MDT000a")),
            ("OST0000*", Some("OST0000")),
            ("OST*.free", None),
            ("OST00001.free", None),
            ("log.level", None),
        ] {
            assert_eq!(target_in(pattern), target, "{pattern}");
        }
    }
}
