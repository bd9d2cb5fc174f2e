//! What cp promises: order, attributes, links, overwriting; the bytes are the engine's.
//!
//! One thread walks the source in cp's own order and decides ([`walk`], [`existing`]); what it decided on is
//! made by the engine's threads ([`dispatch`]); messages come out in the order of the walk
//! ([`output`]). Never does by half what it does not cover: that goes to the genuine program.

mod acl;
mod attrs;
mod backup;
mod dir;
mod dispatch;
mod existing;
mod help;
mod links;
mod options;
mod osts;
mod output;
mod own;
mod parents;
mod place;
mod progress;
mod prompt;
mod ranks;
mod regular;
mod resume;
mod run;
mod same;
mod special;
mod stat;
mod stats;
mod stripes;
mod target;
mod verify;
mod walk;
mod words;
mod xattr;

use crate::engine::{Engine, interrupt};
use crate::gnu::{diag, fallback, start};
use options::{Asked, Options};
use ranks::{Role, Seat};
use run::Run;
use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;

/// Runs `mcp`; the arguments begin with the program's name.
pub fn main(mut args: Vec<OsString>) -> ExitCode {
    start::restore_sigpipe();
    if !args.is_empty() {
        diag::set_program(args.remove(0));
    }
    let mut warnings = Vec::new();
    let asked = options::parse(&args, &mut warnings);
    if ranks::silent(&args) {
        // Rank 0 says it.
        match asked {
            Asked::Run(_) => {}
            Asked::Help | Asked::Version => return ExitCode::SUCCESS,
            Asked::Genuine(_) | Asked::Wrong(..) => return ExitCode::FAILURE,
        }
    } else {
        warnings.iter().for_each(|warning| diag::error(warning));
    }
    match asked {
        Asked::Help => print(&help::help()),
        Asked::Version => print(&help::version()),
        Asked::Genuine(why) => fallback::exec("cp", &args, &why),
        Asked::Wrong(message, hint) => wrong(&message, hint),
        Asked::Run(options) => match ranks::role(options, &args) {
            Role::Alone(options) => copy(*options, None),
            Role::First(options, seat) => copy(*options, Some(seat)),
            Role::Done(code) => code,
            Role::Failed(why) => wrong(&why, false),
        },
    }
}

fn wrong(message: &str, hint: bool) -> ExitCode {
    diag::error(message);
    if hint {
        diag::try_help();
    }
    ExitCode::FAILURE
}

fn print(text: &str) -> ExitCode {
    match std::io::stdout().write_all(text.as_bytes()).and_then(|()| std::io::stdout().flush()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            diag::error(&format!("write error: {}", diag::reason(&e)));
            ExitCode::FAILURE
        }
    }
}

fn copy(options: Options, seat: Option<Seat>) -> ExitCode {
    let mut options = options;
    if options.own.read_stdin
        && let Err(e) = target::read_names(&mut options)
    {
        return wrong(&format!("standard input: {}", diag::reason(&e)), false);
    }
    let target = match target::settle(&options) {
        Ok(target) => target,
        Err((message, hint)) => return wrong(&message, hint),
    };
    let journal = match resume::open(&options, &target) {
        Ok(journal) => journal,
        Err(message) => return wrong(&message, false),
    };
    let target = match &journal {
        Some(journal) => {
            interrupt::watch();
            target.restored(journal.known().directory.unwrap_or(true))
        }
        None => target,
    };
    let engine = match Engine::new(options.own.engine.clone()) {
        Ok(engine) => engine,
        Err(e) => return wrong(&format!("cannot start: {}", diag::reason(&e)), false),
    };
    let far = seat.as_ref().map(|seat| seat.far.clone());
    let run = Arc::new(Run::new(options, attrs::Process::new(), engine, journal, far));
    if let Some(seat) = &seat {
        seat.start(&run);
    }
    let progress = progress::Progress::start(&run);
    target::copy(&run, target);
    run.counts.found_all();
    run.engine.drain();
    drop(seat);
    drop(progress);
    walk::tell_panics(&run);
    run.output.end();
    stats::print(&run);
    resume::end(&run, !interrupt::pending());
    interrupt::end();
    let failed = run.output.failed();
    // Threads may still hold the run for a moment; nothing is left for them to do.
    std::process::exit(i32::from(failed));
}
