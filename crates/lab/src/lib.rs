//! Workloads that prove or measure a file system from outside: they work on any mounted directory
//! and know nothing of the servers behind it.
//!
//! - [`model`]: random operations compared with a local directory.

pub mod cli;
pub mod model;
pub(crate) mod sys;
