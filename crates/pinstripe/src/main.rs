//! The program `pinstripe`: everything is in the library, so that tests and fuzzers reach it.

use std::process::ExitCode;

// Threads free what others allocated all the time, and bursts are to be given back.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    pinstripe_cli::run(std::env::args_os().collect())
}
