//! `lfs`: stripes of files, in the words and with the output of Lustre's tool.
//!
//! Role: works on any mounted path through the extended attributes `lustre.lov` and `lustre.fid`.
//! Exit codes are Lustre's: an errno for what the file system refused, 4 for wrong usage.

mod df;
mod fids;
mod getstripe;
mod setstripe;
mod show;
mod whole;
mod xattr;

use crate::cli::{Common, LfsCommand};
use crate::failure::Outcome;

pub use show::{Show, ShowFlags};

/// Exit code of wrong usage, Lustre's CMD_HELP.
pub const HELP: u8 = 4;

/// Runs one `lfs` command.
pub fn run(command: &LfsCommand, common: &Common) -> Outcome<()> {
    match command {
        LfsCommand::Getstripe(a) => getstripe::run(a, common),
        LfsCommand::Setstripe(a) => setstripe::run(a),
        LfsCommand::Df(a) => df::run(a, common),
        LfsCommand::Path2fid(a) => fids::path2fid(a, common),
        LfsCommand::Fid2path(a) => fids::fid2path(a, common),
    }
}
