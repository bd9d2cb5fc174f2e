//! What GNU programs have in common, so that ours can stand in their place.
//!
//! Source of the behaviour: the GNU Coding Standards, glibc's manual (getopt_long), the coreutils
//! manual, and what the genuine programs print.

pub mod diag;
pub mod fallback;
pub mod getopt;
pub mod quote;
pub mod start;
