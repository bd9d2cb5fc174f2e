//! The program `pinstripe`: command line, configuration, server start-up, status.
//!
//! Role: turns what a user asks into calls of the other crates, and their errors into one clear
//! line. Assumption: it is the only crate that knows all others. Never does: file system work of
//! its own.

pub mod address;
pub mod cli;
pub mod config;
pub mod control;
pub mod failure;
pub mod host;
pub mod keyfile;
pub mod label;
pub mod lfs;
pub mod logging;
mod man;
pub mod mgs;
mod out;
pub mod places;
pub mod process;
pub mod record;
mod run;
pub mod sealed;
pub mod signals;
mod worker;

pub use run::run;
