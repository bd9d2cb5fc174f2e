//! `mcp`: cp, by all threads at once; everything is in the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    mtools::cp::main(std::env::args_os().collect())
}
