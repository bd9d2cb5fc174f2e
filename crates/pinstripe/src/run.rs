//! From arguments to an exit code.

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use clap::Parser;

use crate::cli::{Cli, Command, Common, Verbosity};
use crate::config::Config;
use crate::failure::{Failure, Outcome, USAGE};
use crate::helper::{self, HelperArgs};
use crate::logging::{self, LogFilter};
use crate::{detach, down, format, fsck, lfs, man, mount_command, out, params, server, status, up};

/// Runs the program with these arguments (the first is its name).
pub fn run(args: Vec<OsString>) -> ExitCode {
    if helper::is_called(&args) {
        return for_mount(args);
    }
    let args = as_lfs(args);
    let is_lfs = args.get(1).is_some_and(|a| a == "lfs");
    let cli = match Cli::try_parse_from(args) {
        Ok(cli) => cli,
        Err(e) => return ExitCode::from(not_read(&e, if is_lfs { lfs::HELP } else { USAGE })),
    };
    match carry_out(cli, is_lfs) {
        Ok(()) => ExitCode::SUCCESS,
        Err(code) => ExitCode::from(code),
    }
}

fn carry_out(cli: Cli, is_lfs: bool) -> Result<(), u8> {
    let common = cli.common.clone();
    dispatch(cli).map_err(|e| {
        if common.daemon_child {
            detach::failed(&e);
        }
        report(&e, common.json, is_lfs);
        e.code
    })
}

/// Called by mount(8).
fn for_mount(args: Vec<OsString>) -> ExitCode {
    let asked = match HelperArgs::try_parse_from(args) {
        Ok(asked) => asked.line(),
        Err(e) => return ExitCode::from(not_read(&e, helper::code(USAGE))),
    };
    let done = match asked {
        Ok(None) => Ok(()),
        Ok(Some(args)) => Cli::try_parse_from(args)
            .map_err(|e| not_read(&e, USAGE))
            .and_then(|cli| carry_out(cli, false)),
        Err(e) => {
            report(&e, false, false);
            Err(e.code)
        }
    };
    done.map_or_else(|code| ExitCode::from(helper::code(code)), |()| ExitCode::SUCCESS)
}

/// Says why arguments make no sense, or the help that was asked for; the exit code. `wrong`: of the former.
fn not_read(e: &clap::Error, wrong: u8) -> u8 {
    let _ = e.print();
    if e.use_stderr() { wrong } else { 0 }
}

/// Called by the name `lfs`, the program is `pinstripe lfs`.
fn as_lfs(mut args: Vec<OsString>) -> Vec<OsString> {
    let name = args.first().map(|a| Path::new(a).file_name().unwrap_or_default().to_os_string());
    if name.is_some_and(|n| n == "lfs") {
        args.insert(1, "lfs".into());
    }
    args
}

fn report(e: &Failure, json: bool, is_lfs: bool) {
    if json && !e.answered {
        out::json(&serde_json::json!({ "error": e.text, "code": e.code }));
    }
    match is_lfs {
        // Lustre's words already say who speaks.
        true if e.text.starts_with("lfs ") => eprintln!("{}", e.text),
        true => eprintln!("error: {}", e.text),
        false => eprintln!("pinstripe: {}", e.text),
    }
}

fn dispatch(cli: Cli) -> Outcome<()> {
    let config = match &cli.common.config {
        Some(path) => Config::load(path)?,
        None => Config::default(),
    };
    start_logging(&cli.common, &config, verbosity(&cli.command))?;
    let common = &cli.common;
    match cli.command {
        Command::Up(args) => up::run(args, common, &config),
        Command::Mount(args) => mount_command::run(args, common, &config),
        Command::Down(args) => down::run(&args, common),
        Command::Server(args) => server::run(args, common, &config),
        Command::Format(args) => format::run(&args, common, &config),
        Command::Status(args) => status::run(&args, common),
        Command::Lfs { command } => lfs::run(&command, common),
        Command::GetParam(args) => params::get(&args, common),
        Command::SetParam(args) => params::set(&args, common),
        Command::Man(args) => man::run(&args),
        Command::Version => {
            version(common.json);
            Ok(())
        }
        Command::Fsck(args) => fsck::run(&args, common),
    }
}

fn verbosity(command: &Command) -> Verbosity {
    match command {
        Command::Up(a) => a.log,
        Command::Down(a) => a.log,
        Command::Server(a) => a.log,
        Command::Mount(a) => a.log,
        Command::Format(a) => a.log,
        Command::Status(a) => a.log,
        Command::Fsck(a) => a.log,
        _ => Verbosity::default(),
    }
}

fn start_logging(common: &Common, config: &Config, v: Verbosity) -> Outcome<()> {
    let named = |text: &String| -> Outcome<LogFilter> {
        text.parse().map_err(|e| Failure::usage(format!("log_level = '{text}': {e}")))
    };
    let from_file = config.log_level.as_ref().map(named).transpose()?;
    let filter = logging::filter_of(common.log_level.as_ref().or(from_file.as_ref()), v.verbose);
    let file = common.log_file.as_deref().or(config.log_file.as_deref());
    logging::start(&filter, file)
}

fn version(json: bool) {
    let version = env!("CARGO_PKG_VERSION");
    let wire = proto::WIRE_VERSION;
    if json {
        out::json(&serde_json::json!({ "version": version, "wire": wire }));
    } else {
        out::line(&format!("pinstripe {version} (wire version {wire})"));
    }
}
