//! Logs: `tracing` to standard error or a file, with a level that can be changed while running.
//!
//! Never does: print what a command answers; that goes to standard output.

use std::fs::OpenOptions;
use std::io::IsTerminal;
use std::path::Path;
use std::str::FromStr;
use std::sync::{Mutex, OnceLock};

use tracing_subscriber::prelude::*;
use tracing_subscriber::{EnvFilter, Registry, fmt, reload};

use crate::failure::{Doing, Failure, Outcome};

/// A level or a filter, known to parse.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogFilter(String);

impl FromStr for LogFilter {
    type Err = String;
    fn from_str(s: &str) -> Result<LogFilter, String> {
        let plain = s.chars().all(|c| c.is_ascii_alphabetic());
        let known = ["off", "error", "warn", "info", "debug", "trace"];
        if s.is_empty() || plain && !known.contains(&s.to_ascii_lowercase().as_str()) {
            return Err(format!(
                "use one of {}, or a filter such as net=debug,info",
                known.join(", ")
            ));
        }
        EnvFilter::try_new(s).map_err(|e| e.to_string())?;
        Ok(LogFilter(s.to_string()))
    }
}

impl LogFilter {
    /// The filter as text.
    pub fn text(&self) -> &str {
        &self.0
    }
    fn build(&self) -> Result<EnvFilter, String> {
        EnvFilter::try_new(in_full(&self.0)).map_err(|e| e.to_string())
    }
}

/// The filter with our crates' own names: people write `mds=debug`.
fn in_full(filter: &str) -> String {
    let ours = ["proto", "net", "store", "mds", "oss", "client", "fuse", "mount"];
    let full = |directive: &str| match directive.split_once('=') {
        Some(("pinstripe", level)) => format!("pinstripe_cli={level}"),
        Some((name, level)) if ours.contains(&name) => format!("pinstripe_{name}={level}"),
        _ => directive.to_string(),
    };
    filter.split(',').map(full).collect::<Vec<_>>().join(",")
}

/// The level when nobody chose one: `-v` raises it.
pub fn filter_of(chosen: Option<&LogFilter>, verbose: u8) -> LogFilter {
    // The storage engine tells its own story one level later than we do ours.
    let text = match (chosen, verbose) {
        (Some(f), _) => return f.clone(),
        (None, 0) => "warn",
        (None, 1) => "info,fjall=warn,lsm_tree=warn",
        (None, 2) => "debug,fjall=info,lsm_tree=info",
        (None, _) => "trace",
    };
    LogFilter(text.into())
}

struct Running {
    handle: reload::Handle<EnvFilter, Registry>,
    filter: Mutex<LogFilter>,
}

static RUNNING: OnceLock<Running> = OnceLock::new();

/// Starts logging for this process; later calls change nothing.
pub fn start(filter: &LogFilter, file: Option<&Path>) -> Outcome<()> {
    if RUNNING.get().is_some() {
        return Ok(());
    }
    let (layer, handle) = reload::Layer::new(filter.build().map_err(Failure::usage)?);
    let registry = tracing_subscriber::registry().with(layer);
    let result = match file {
        None => {
            let colours = std::io::stderr().is_terminal();
            registry.with(fmt::layer().with_ansi(colours).with_writer(std::io::stderr)).try_init()
        }
        Some(path) => {
            let open = OpenOptions::new().create(true).append(true).open(path);
            let file = open.doing(|| format!("cannot open the log file {}", path.display()))?;
            registry.with(fmt::layer().with_ansi(false).with_writer(Mutex::new(file))).try_init()
        }
    };
    result.doing(|| "logging cannot start".into())?;
    let _ = RUNNING.set(Running { handle, filter: Mutex::new(filter.clone()) });
    Ok(())
}

/// The filter in use.
pub fn current() -> String {
    let lock = |r: &'static Running| r.filter.lock().map(|f| f.text().to_string()).ok();
    RUNNING.get().and_then(lock).unwrap_or_else(|| "off".into())
}

/// From now on the process stops: that its own sessions lose their other side is no news.
pub fn stopping() {
    let quieter = format!("{},pinstripe_net::client=error", current());
    if let Ok(filter) = quieter.parse() {
        let _ = change(filter);
    }
}

/// Changes the filter of the running process.
pub fn change(filter: LogFilter) -> Result<(), String> {
    let running = RUNNING.get().ok_or("this process does not log")?;
    running.handle.reload(filter.build()?).map_err(|e| e.to_string())?;
    if let Ok(mut f) = running.filter.lock() {
        *f = filter;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_and_filters_are_checked() {
        for good in ["info", "TRACE", "net=debug,info", "off"] {
            assert!(good.parse::<LogFilter>().is_ok(), "{good}");
        }
        for bad in ["", "loud", "net=loud"] {
            assert!(bad.parse::<LogFilter>().is_err(), "{bad}");
        }
        assert_eq!(in_full("net=debug,info,h2=warn"), "pinstripe_net=debug,info,h2=warn");
        assert_eq!(filter_of(None, 0).text(), "warn");
        let chosen = "error".parse().unwrap();
        assert_eq!(filter_of(Some(&chosen), 3).text(), "error");
    }
}
