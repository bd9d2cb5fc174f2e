//! Are several mounts of one file system one truth? Random operations from all of them, with the
//! real time of each, and a check that one order explains every answer (invariant 3).
//!
//! Role: each object (a register of bytes, an attribute, a pair of names, a log that is appended
//! to) has a history of its own, and linearizability is local: a system is linearizable if each
//! object is. An operation whose outcome is not known (a server or a mount died under it) may have
//! happened at any later time, or never. Where a metadata target is killed, what was answered and not synced
//! may be lost ([`crash`], [`kills`]). Assumptions: all mounts are on this machine, so that one
//! clock orders calls and returns. Never does: fault injection; whoever runs it may kill, stop and
//! cut what is under the mounts.

mod crash;
mod drive;
mod judge;
mod kills;
mod linear;
mod made;
mod mapped;
mod objects;
mod prepare;
mod strides;
#[cfg(test)]
mod tests;

pub use drive::{Options, Report, drive};
pub use linear::{Entry, Object, explain};
pub use objects::FEATURES;
