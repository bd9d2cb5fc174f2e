//! Several hosts: one rank walks, decides and finishes as without others, and hands out small files of fresh
//! directories and chunks of large files ([`manager`]); the other ranks copy them by name ([`worker`]).
//!
//! Assumes that all hosts see the same source and destination under the same names; where one does not, it
//! is told so, and rank 0 copies what that one could not. Ranks that have nothing to do sleep. What
//! carries the messages is behind [`link`]: MPI with the feature `mpi` ([`mpi`]), channels in tests.
//! Never starts MPI unless `--mpi` is given.

mod digest;
#[cfg(test)]
mod golden;
mod link;
mod manager;
mod message;
#[cfg_attr(not(feature = "mpi"), path = "without.rs")]
mod mpi;
mod pause;
mod queue;
mod seat;
#[cfg(test)]
mod tests;
mod wire;
mod worker;

pub use queue::{Far, offer};
pub use seat::{Role, Seat, role, silent};

/// Whether this program was built with MPI.
pub const BUILT: bool = cfg!(feature = "mpi");

/// What `--mpi` is refused with where it was not.
pub const REFUSED: &str = "option '--mpi': built without MPI; build with --features mpi, needs \
                           libopenmpi-dev and libclang-dev";

/// Seconds without a word from a rank that owes something, after which its work is given to others.
pub const SILENCE_DEFAULT: usize = 60;
pub const SILENCE_MOST: usize = 86_400;
