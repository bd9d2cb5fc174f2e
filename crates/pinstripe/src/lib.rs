//! The program `pinstripe`: command line, configuration, server start-up, status.
//!
//! Role: turns what a user asks into calls of the other crates, and their errors into one clear
//! line. Assumption: it is the only crate that knows all others. Never does: file system work of
//! its own.

pub mod address;
pub mod cli;
mod cluster;
pub mod config;
pub mod control;
pub mod detach;
mod down;
pub mod failure;
mod format;
mod fsck;
mod helper;
pub mod host;
pub mod keyfile;
pub mod label;
mod later;
pub mod lfs;
mod locked;
pub mod logging;
mod man;
mod memory;
pub mod mgs;
mod mount_command;
mod mounting;
mod node;
mod out;
mod params;
pub mod places;
pub mod process;
pub mod record;
mod resident;
mod run;
pub mod sealed;
mod server;
mod settings;
pub mod signals;
mod status;
mod targets;
mod up;
mod volume;
mod watch;
mod worker;

pub use run::run;
