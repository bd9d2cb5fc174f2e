//! `pinstripe get_param` and `set_param`.

use serde_json::{Map, Value};

use crate::cli::{Common, GetParamArgs, SetParamArgs, WhichArgs};
use crate::failure::{Failure, Outcome};
use crate::status::{Place, which};
use crate::{control, out};

fn only(mut places: Vec<Place>) -> Outcome<Place> {
    match (places.pop(), places.is_empty()) {
        (Some(one), true) => Ok(one),
        _ => Err(Failure::usage("several file systems are mounted; name one with --mount")),
    }
}

/// Shows parameters.
pub fn get(args: &GetParamArgs, common: &Common) -> Outcome<()> {
    let meant = WhichArgs {
        mountpoint: args.mount.clone(),
        mgs_addr: args.mgs_addr.clone(),
        key: args.key.clone(),
    };
    let place = only(which(&meant)?)?;
    let session = place.open()?;
    let all = control::get_params(&session)?;
    let mut shown = Map::new();
    for pattern in &args.names {
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

/// Changes parameters, all or none.
pub fn set(args: &SetParamArgs, common: &Common) -> Outcome<()> {
    let mut settings = Vec::new();
    for text in &args.settings {
        let Some((name, value)) = text.split_once('=') else {
            return Err(Failure::usage(format!("'{text}' is not NAME=VALUE")));
        };
        settings.push((name.to_string(), value.to_string()));
    }
    let meant = WhichArgs {
        mountpoint: args.mount.clone(),
        mgs_addr: args.mgs_addr.clone(),
        key: args.key.clone(),
    };
    let session = only(which(&meant)?)?.open()?;
    control::set_params(&session, &settings)?;
    for (name, value) in settings.iter().filter(|_| !common.json) {
        out::line(&format!("{name}={value}"));
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
    use super::matches;

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
}
