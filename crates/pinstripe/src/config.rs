//! The TOML file of options: the same names as the flags, in one table per command.
//!
//! Role: reads, refuses unknown names with a hint, gives typed values. Flags win over it. Never
//! does: look for a file nobody named.

use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::failure::{Doing, Failure, Outcome};

/// A whole configuration file.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// As `--log-level`.
    pub log_level: Option<String>,
    /// As `--log-file`.
    pub log_file: Option<PathBuf>,
    /// As `--key`.
    pub key: Option<PathBuf>,
    /// Options of `up`.
    pub up: UpConfig,
    /// Options of `server`.
    pub server: ServerConfig,
    /// Options of `mount`.
    pub mount: MountConfig,
}

/// Table `[up]`.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, default)]
pub struct UpConfig {
    pub data: Option<PathBuf>,
    pub mdts: Option<u32>,
    pub osts: Option<u32>,
    pub mdt_cache_mb: Option<u32>,
    pub detach: Option<bool>,
    pub options: Vec<String>,
    pub listen: Vec<String>,
    pub allow_remote: Option<bool>,
    pub fsname: Option<String>,
}

/// Table `[server]`.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, default)]
pub struct ServerConfig {
    pub mgs: Option<bool>,
    pub mgs_dir: Option<PathBuf>,
    pub mdt: Vec<PathBuf>,
    pub mdt_cache_mb: Option<u32>,
    pub ost: Vec<PathBuf>,
    pub listen: Vec<String>,
    pub allow_remote: Option<bool>,
    pub advertise: Option<String>,
    pub mgs_addr: Option<String>,
    pub mgs_wait: Option<u64>,
    pub format: Option<bool>,
    pub index: Option<u32>,
    pub fsname: Option<String>,
}

/// Table `[mount]`.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, default)]
pub struct MountConfig {
    pub options: Vec<String>,
    pub wait: Option<u64>,
}

/// Known names: of the file itself and of its tables. A test keeps them equal to the structs.
const TABLES: &[(&str, &[&str])] = &[
    ("", &["log_level", "log_file", "key", "up", "server", "mount"]),
    (
        "up",
        &[
            "data",
            "mdts",
            "osts",
            "mdt_cache_mb",
            "detach",
            "options",
            "listen",
            "allow_remote",
            "fsname",
        ],
    ),
    (
        "server",
        &[
            "mgs",
            "mgs_dir",
            "mdt",
            "mdt_cache_mb",
            "ost",
            "listen",
            "allow_remote",
            "advertise",
            "mgs_addr",
            "mgs_wait",
            "format",
            "index",
            "fsname",
        ],
    ),
    ("mount", &["options", "wait"]),
];

impl Config {
    /// Reads the file somebody named.
    pub fn load(path: &Path) -> Outcome<Config> {
        let read = std::fs::read_to_string(path);
        let text = read.doing(|| format!("cannot read the configuration {}", path.display()))?;
        Config::parse(&text)
            .map_err(|e| Failure::usage(format!("configuration {}: {e}", path.display())))
    }

    /// Reads a configuration; the error is one line.
    pub fn parse(text: &str) -> Result<Config, String> {
        let one_line = |e: toml::de::Error| {
            let line = e.span().map(|s| text[..s.start.min(text.len())].matches('\n').count() + 1);
            let place = line.map(|n| format!("line {n}: ")).unwrap_or_default();
            format!("{place}{}", e.message().replace('\n', " "))
        };
        let table: toml::Table = text.parse().map_err(one_line)?;
        refuse_unknown("", &table)?;
        for (name, value) in &table {
            if let toml::Value::Table(inner) = value {
                refuse_unknown(name, inner)?;
            }
        }
        toml::from_str(text).map_err(one_line)
    }
}

fn refuse_unknown(table: &str, found: &toml::Table) -> Result<(), String> {
    let Some((_, known)) = TABLES.iter().find(|(name, _)| *name == table) else {
        return Ok(());
    };
    let Some(bad) = found.keys().find(|k| !known.contains(&k.as_str())) else {
        return Ok(());
    };
    let place = if table.is_empty() { String::new() } else { format!(" in [{table}]") };
    let hint = match nearest(bad, known) {
        Some(name) => format!("did you mean '{name}'?"),
        None => format!("known are {}", known.join(", ")),
    };
    Err(format!("unknown option '{bad}'{place}; {hint}"))
}

/// The known name that looks most like `name`, if any does.
pub fn nearest<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    let score = |k: &str| strsim::jaro_winkler(&name.replace('-', "_"), k);
    let best = known.iter().copied().map(|k| (score(k), k)).max_by(|a, b| a.0.total_cmp(&b.0));
    best.filter(|(s, _)| *s > 0.8).map(|(_, k)| k)
}

#[cfg(test)]
mod tests;
