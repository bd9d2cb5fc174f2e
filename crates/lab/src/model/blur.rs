//! A target whose answers leave out what a file system is known not to have, so that the rest can
//! be compared: birth times (`btime`), which need statx from the file system.

use super::op::{Outcome, StatView, Step, Value};
use super::target::{Stamp, Target};
use super::tree::Tree;
use std::io;

/// Hides birth times.
pub struct WithoutBirth<T: Target>(pub T);

impl<T: Target> Target for WithoutBirth<T> {
    fn apply(&mut self, step: &Step) -> Outcome {
        self.0.apply(step).map(|value| match value {
            Value::Stat(stat) => Value::Stat(StatView { btime: false, ..stat }),
            value => value,
        })
    }

    fn stamps(&mut self, step: &Step) -> Vec<Stamp> {
        self.0.stamps(step)
    }

    fn tree(&mut self) -> io::Result<Tree> {
        let mut tree = self.0.tree()?;
        tree.values_mut().for_each(|entry| entry.stat.btime = false);
        Ok(tree)
    }

    fn clean(&mut self) -> io::Result<()> {
        self.0.clean()
    }
}
