//! Reference-model test: random sequences of file system operations are applied to a directory
//! under test and to a local reference directory, and must give the same results, errnos, trees
//! and time changes.
//!
//! ```text
//! pinstripe-lab model --dir MOUNT --reference /tmp/ref --seed 1 [--seeds N] --ops 20000 \
//!     [--minutes N] [--without locks,acl] [--tree-every 200] [--json] [--save FILE]
//! pinstripe-lab model --dir MOUNT --reference /tmp/ref --replay FILE
//! ```
//! From code: [`compare_dirs`]. As root, steps also run as other users (per thread). What is not
//! compared, because file systems may differ: directory sizes and link counts, blocks, inode
//! numbers, readdir order, times nobody set (but that they change when they must is), where
//! holes begin, how much one copy_file_range copies.
//!
//! A step that does not return within [`HANG`] is a difference too, and ends the run.
//! On a difference the report has the seed, the step and a shortened list of steps that shows it.

mod apply;
mod blur;
mod holes;
mod op;
mod posix;
mod run;
mod source;
mod target;
pub mod tree;

pub use apply::pattern;
pub use blur::WithoutBirth;
pub use op::{At, LockOp, Op, Outcome, Raw, SLOTS, StatView, Step, Value, When};
pub use posix::{HANG, IDENTITIES, PosixDir};
pub use run::{Difference, Options, Report, SHRINK_RUNS, replay, run};
pub use source::{FEATURES, Source};
pub use target::{Stamp, Target};

use std::collections::BTreeSet;
use std::io;
use std::path::Path;

/// A seeded run of `dir` against `reference`, both existing directories; everything happens in
/// subdirectories of them, which are removed unless a difference was found.
pub fn compare_dirs(dir: &Path, reference: &Path, options: &Options) -> io::Result<Report> {
    run(&mut pairs(dir, reference, &options.without), options)
}

/// Runs stored steps on fresh subdirectories of both; of `without` only `btime` matters here.
pub fn replay_dirs(
    dir: &Path,
    reference: &Path,
    steps: &[Step],
    without: &BTreeSet<String>,
) -> io::Result<Option<(usize, String)>> {
    replay(&mut pairs(dir, reference, without), steps)
}

fn pairs(
    dir: &Path,
    reference: &Path,
    without: &BTreeSet<String>,
) -> impl FnMut() -> io::Result<(Box<dyn Target>, Box<dyn Target>)> {
    let mut count = 0;
    let birth = !without.contains("btime");
    let make = move |dir: &Path, name: &str| -> io::Result<Box<dyn Target>> {
        let target = PosixDir::create(dir, name)?;
        Ok(if birth { Box::new(target) } else { Box::new(WithoutBirth(target)) })
    };
    move || {
        count += 1;
        let name = format!("model-{}-{count}", std::process::id());
        Ok((make(dir, &name)?, make(reference, &name)?))
    }
}

#[cfg(test)]
mod tests;
