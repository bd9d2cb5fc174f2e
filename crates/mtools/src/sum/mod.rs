//! Checksums: computing, printing and checking them, in the place of md5sum, sha1sum, sha224sum,
//! sha256sum, sha384sum, sha512sum, b2sum and cksum, or as `msum`.
//!
//! Reference: coreutils 9.7; `docs/mtools.md` says where 9.1 differs. Never writes anything but
//! standard output and standard error.

pub mod budget;
mod check;
pub mod digest;
pub mod hash;
mod help;
mod lane;
mod line;
mod lines;
mod names;
mod options;
mod out;
mod own;
pub mod print;
mod program;
mod progress;
mod settle;
mod source;
mod stats;
mod weak;

use crate::gnu::{diag, fallback, start};
use check::{Checker, Lists};
use hash::Job;
use lane::{Lane, Shared};
use names::Names;
use options::Stop;
use out::Out;
use print::Printer;
use program::Program;
use settle::Settings;
use std::ffi::OsString;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

/// Whatever went wrong, as with the genuine programs.
const FAILURE: u8 = 1;

/// Does what the arguments say; returns the exit code.
pub fn main(args: Vec<OsString>) -> u8 {
    start::restore_sigpipe();
    let begin = Instant::now();
    let mut args = args.into_iter();
    let argv0 = args.next().unwrap_or_else(|| "msum".into());
    let program = Program::from_argv0(&argv0);
    diag::set_program(argv0);
    let args: Vec<OsString> = args.collect();
    let settings = options::read(program, args.clone()).and_then(|a| settle::settle(program, a));
    match settings {
        Ok(settings) => run(&settings, begin),
        Err(Stop::Wrong) => FAILURE,
        Err(Stop::Help) => say(&help::help(program)),
        Err(Stop::Version) => say(&help::version(program)),
        Err(Stop::Fallback(why)) => {
            // Returns only when it cannot hand over, and has told why.
            fallback::exec(program.name(), &args, &why);
            FAILURE
        }
    }
}

fn say(text: &str) -> u8 {
    let mut out = Out::new(false);
    out.print(text.as_bytes());
    code(out.close())
}

fn code(ok: bool) -> u8 {
    if ok { 0 } else { FAILURE }
}

fn run(settings: &Settings, begin: Instant) -> u8 {
    let shared = Shared::new(settings.own.clone());
    let end = AtomicBool::new(false);
    let mut names = Names::new(settings);
    let mut ok = std::thread::scope(|scope| {
        let known = if settings.check { &[][..] } else { &settings.operands };
        let _bar = progress::Bar::new(scope, &shared, &end, known);
        if settings.check {
            let mut lane = Lane::new(scope, &shared, Checker::new(settings));
            let mut lists = Lists::new(settings);
            for name in names.by_ref() {
                lists.check(&name, &mut lane);
            }
            let ok = lane.teller.ok;
            lane.into_teller().out.close() & ok
        } else {
            let named = !settings.operands.is_empty() || settings.own.read_stdin;
            let mut lane = Lane::new(scope, &shared, Printer::new(settings, named));
            print_all(settings, &mut names, &mut lane);
            let ok = lane.teller.ok;
            lane.into_teller().out.close() & ok
        }
    });
    if names.used_stdin && start::was_closed(0) {
        diag::error(&format!("standard input: {}", diag::strerror(libc::EBADF)));
        ok = false;
    }
    ok &= !names.failed;
    stats::print(settings, &shared, begin, ok);
    code(ok)
}

fn print_all(settings: &Settings, names: &mut Names, lane: &mut Lane<'_, '_, Printer<'_>>) {
    loop {
        // Who writes names into a pipe may wait for the sum of each.
        while lane.is_waiting() && names.would_wait() {
            lane.tell_first();
        }
        if names.would_wait() {
            lane.teller.out.flush();
        }
        let Some(name) = names.next() else { break };
        let job = Job { name, algorithm: settings.algorithm, split: settings.own.split };
        lane.put((), job, names.may_go_on());
    }
    lane.tell_all();
}
