//! What the model drives: something that applies steps and shows its tree. The real one is
//! [`super::posix::PosixDir`]; tests wrap it to make deliberately wrong ones.

use super::op::{Outcome, Step};
use super::tree::Tree;
use std::io;

/// Times of one watched file: (inode, mtime ns, ctime ns).
pub type Stamp = Option<(u64, i128, i128)>;

pub trait Target {
    /// Applies one step.
    fn apply(&mut self, step: &Step) -> Outcome;
    /// Times of the files a step names, before or after it, in an order that depends on the step
    /// only.
    fn stamps(&mut self, step: &Step) -> Vec<Stamp>;
    /// Everything there is, as the identity that started the run sees it.
    fn tree(&mut self) -> io::Result<Tree>;
    /// Forgets open files and removes what the run created.
    fn clean(&mut self) -> io::Result<()>;
}
