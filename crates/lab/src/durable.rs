//! Proof that synced means synced: a writer that logs each thing after its sync returned, and a
//! checker that compares the log with what is there after a crash or restart.
//!
//! ```text
//! pinstripe-lab durable-write --dir MOUNT --log /elsewhere/log [--seed 1] [--threads 4]
//!     [--seconds 30] [--ops N] [--seq-file FILE] [--without-syncfs] [--json]
//! pinstripe-lab durable-check --dir MOUNT --log /elsewhere/log [--until-seq K] [--json]
//! ```
//! The writer makes `MOUNT/durable-SEED` and works in it. When the file system fails under it (EIO,
//! ENOTCONN, timeouts) it logs that and stops with exit code 0; other errors are exit code 1. The
//! log is append-only text, one JSON object a line: `Begin` before a step, `Done` after its sync;
//! a torn last line is ignored, so the writer may be killed too.
//!
//! The checker accepts, for a step that began and was not done, the state before, the state after,
//! and for data any mixture byte by byte; nothing else. Everything done must be there, everything
//! removed and synced must stay away. fsync of a new file also makes its name durable, as on every
//! Linux local file system.
//!
//! With [`crate::forgetful`] below the file system, `--seq-file` makes the writer note the disk's
//! operation count with each line, and `--until-seq K` checks the image of cut K.

mod checker;
mod log;
mod step;
mod world;
mod writer;

pub use checker::{CheckReport, check};
pub use log::{LOG_VERSION, Line};
pub use step::{Step, Sync};
pub use writer::{WriteOptions, WriteReport, write};

#[cfg(test)]
mod tests;
