//! The copy engine and the drop-in tools: `mcp` for cp, `msum` for the checksum tools.
//!
//! Works on any file system; on Lustre and Pinstripe it sets stripes, through extended attributes alone.
//! Never talks to a server, and knows nothing of the crates of the file system.
//!
//! - [`gnu`]: what all GNU programs share: option grammar, quoting, messages, handing over to the
//!   genuine program.
//! - [`engine`]: moves the bytes of regular files, by all threads at once.
//! - [`cp`]: what cp promises: order, attributes, links, overwriting.
//! - [`journal`]: how far a job has come, for the run that finishes it.
//! - [`sum`]: checksums: computing, printing and checking them.

mod bar;
pub mod cp;
pub mod engine;
pub mod gnu;
pub mod journal;
pub mod sum;
