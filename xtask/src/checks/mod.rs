//! The checks, in the order they are started: what holds the build lock first, then the longest.

mod believed;
mod coherence;
mod crash;
mod deny;
mod direct;
mod directory;
mod eviction;
mod fmt;
mod frozen;
mod fsx;
mod full;
mod fuzz;
mod git;
mod grows;
mod handles;
mod holes;
mod hung_servers;
mod hygiene;
mod inputs;
mod integrity;
mod interrupted;
mod kept;
mod kept_changes;
mod kept_names;
mod kill_servers;
mod kill_up;
mod late_mdt;
mod lint;
mod locks;
mod mcp;
mod mcp_lost;
mod mdt_kills;
mod model;
mod mpi;
mod names;
mod net;
mod orphans;
mod overlay;
mod own_changes;
mod paths;
mod pjdfstest;
mod rights;
mod sharing;
mod smoke;
mod sqlite;
mod strides;
mod tarball;
mod times;
mod two_mounts;
mod unit;
mod user_mount;

pub use direct::Aligned;

use crate::plan::Check;

/// Checks that are run only if they are named.
pub const BY_NAME: &[&Check] = &[&interrupted::HELD];

/// Every check of `cargo xtask test`.
pub const ALL: &[&Check] = &[
    &fmt::CHECK,
    &hygiene::CHECK,
    &unit::CHECK,
    &lint::CHECK,
    &deny::CHECK,
    &mcp::CHECK,
    &mcp_lost::CHECK,
    &mpi::CHECK,
    &smoke::CHECK,
    &directory::CHECK,
    &fsx::CHECK,
    &pjdfstest::CHECK,
    &git::CHECK,
    &tarball::CHECK,
    &sqlite::CHECK,
    &coherence::CHECK,
    &model::CHECK,
    &crash::CHECK,
    &kill_up::CHECK,
    &kill_servers::CHECK,
    &eviction::CHECK,
    &orphans::CHECK,
    &sharing::CHECK,
    &two_mounts::CHECK,
    &names::CHECK,
    &handles::CHECK,
    &holes::CHECK,
    &overlay::CHECK,
    &rights::CHECK,
    &times::CHECK,
    &locks::CHECK,
    &frozen::CHECK,
    &full::CHECK,
    &integrity::CHECK,
    &user_mount::CHECK,
    &inputs::CHECK,
    &net::CHECK,
    &interrupted::CHECK,
    &fuzz::CHECK,
];
