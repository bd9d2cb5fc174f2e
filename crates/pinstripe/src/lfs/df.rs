//! `lfs df`.

use crate::cli::{Common, DfArgs};
use crate::failure::Outcome;

pub fn run(_args: &DfArgs, _common: &Common) -> Outcome<()> {
    Ok(())
}
