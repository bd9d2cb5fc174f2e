//! Several processes, each with several threads, hammer one directory; contents are verified by
//! position and generation.
//!
//! ```text
//! pinstripe-lab exerciser --dir MOUNT [--seed 1] [--processes 3] [--seconds 30] [--json]
//!     [--only private,append,counter,strided,exclusive,names,links,replace] [--without-direct]
//! pinstripe-lab racer --dir MOUNT [--seed 1] [--processes 4] [--threads 3] [--seconds 30] [--json]
//! ```
//! From code: [`exercise`] with the path of the `pinstripe-lab` binary, whose hidden command
//! `exercise-worker` is what the processes run.
//!
//! The racer verifies nothing but that no errno is one that cannot follow from races between names,
//! that nothing hangs, and that the tree can be removed afterwards.

mod child;
mod names;
mod parent;
mod private;
mod racer;
mod shared;

pub use child::{Task, work};
pub use parent::{Options, Report, exercise};

/// The verified workloads, each a thread in each process.
pub const WORKLOADS: [&str; 8] =
    ["private", "append", "counter", "strided", "exclusive", "names", "links", "replace"];
/// The workload that verifies nothing.
pub const RACER: &str = "racer";
/// A thread that finishes no operation for so long hangs.
pub const HANG_SECONDS: u64 = 60;

#[cfg(test)]
mod tests;
