//! Workloads that prove or measure a file system from outside: they work on any mounted directory
//! and know nothing of the servers behind it.
//!
//! - [`model`]: random operations compared with a local directory.
//! - [`exerciser`]: many processes on shared and private files, contents verified; and a racer.
//! - [`coherence`]: several mounts, and one order that explains what all of them saw.
//! - [`durable`]: a writer that logs what it synced, and the checker for after a crash.
//! - [`forgetful`]: a disk that forgets what was not synced, and its images after power cuts.
//! - [`measure`]: interleaved rounds, medians, ratios, CPU and memory.

pub mod cli;
pub mod coherence;
pub mod durable;
pub mod exerciser;
pub mod forgetful;
pub mod measure;
pub mod model;
pub mod pattern;
pub(crate) mod sys;
