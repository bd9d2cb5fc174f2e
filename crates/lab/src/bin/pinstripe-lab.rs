//! The command line of the lab, for tests and people.

fn main() -> std::process::ExitCode {
    pinstripe_lab::cli::main()
}
