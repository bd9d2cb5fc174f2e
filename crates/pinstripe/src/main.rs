//! The program `pinstripe`: everything is in the library, so that tests and fuzzers reach it.

use std::process::ExitCode;

fn main() -> ExitCode {
    pinstripe_cli::run(std::env::args_os().collect())
}
