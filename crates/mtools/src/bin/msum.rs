//! `msum`: the checksum programs, by the name it is called by; everything is in the library.
//!
//! The C library calls our main, not Rust's runtime: what that would set up (a handler for overflowing
//! stacks, /dev/null for closed streams, SIGPIPE ignored) takes longer than to hash a small file, and
//! most of it would have to be undone (see [`mtools::gnu::start`]).
#![no_main]

// SAFETY: the name is that of the program's entry, of which there is one.
#[unsafe(no_mangle)]
extern "C" fn main() -> std::ffi::c_int {
    mtools::sum::main(std::env::args_os().collect()).into()
}
