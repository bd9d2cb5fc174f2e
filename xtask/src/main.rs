//! `cargo xtask`: everything that proves or measures the workspace.
//!
//! `cargo xtask test` installs what the checks need and runs them all; its last line is
//! `N passed, N failed`. It never touches anything outside the target directory and its own
//! scratch directory, apart from installing packages that are missing.

mod bench;
mod cable;
mod checks;
mod cli;
mod copies;
mod cx;
mod durable;
mod file_handle;
mod fs;
mod gnu;
mod guard;
mod holder;
mod locker;
mod plan;
mod probe;
mod proc;
mod random;
mod ranks;
mod report;
mod runner;
mod servers;
mod steps;
mod sweep;
mod tree;
mod user;
mod where_;

fn main() -> std::process::ExitCode {
    cli::main()
}
