//! The checks, in the order they are started: what holds the build lock first, then the longest.

mod deny;
mod fmt;
mod fuzz;
mod hygiene;
mod lint;
mod unit;

use crate::plan::Check;

/// Every check of `cargo xtask test`.
pub const ALL: &[&Check] =
    &[&fmt::CHECK, &hygiene::CHECK, &unit::CHECK, &lint::CHECK, &deny::CHECK, &fuzz::CHECK];
