//! The checks, in the order they are started: what holds the build lock first, then the longest.

mod deny;
mod direct;
mod fmt;
mod fsx;
mod fuzz;
mod git;
mod holes;
mod hygiene;
mod lint;
mod names;
mod pjdfstest;
mod rights;
mod smoke;
mod sqlite;
mod tarball;
mod times;
mod unit;

use crate::plan::Check;

/// Every check of `cargo xtask test`.
pub const ALL: &[&Check] = &[
    &fmt::CHECK,
    &hygiene::CHECK,
    &unit::CHECK,
    &lint::CHECK,
    &deny::CHECK,
    &smoke::CHECK,
    &fsx::CHECK,
    &pjdfstest::CHECK,
    &git::CHECK,
    &tarball::CHECK,
    &sqlite::CHECK,
    &names::CHECK,
    &holes::CHECK,
    &rights::CHECK,
    &times::CHECK,
    &fuzz::CHECK,
];
