//! What was done, by kind of operation, for operators.

use rustc_hash::FxHashMap as HashMap;

/// Operations that ran to their end since the target was opened, by their verb; and those that failed.
#[derive(Debug, Default)]
pub struct Counts {
    done: HashMap<&'static str, u64>,
    failed: HashMap<&'static str, u64>,
}

impl Counts {
    /// One has ended.
    pub fn ended(&mut self, verb: &'static str, failed: bool) {
        let counts = if failed { &mut self.failed } else { &mut self.done };
        *counts.entry(verb).or_default() += 1;
    }

    /// Those that succeeded, and those that did not.
    pub fn all(&self) -> [&HashMap<&'static str, u64>; 2] {
        [&self.done, &self.failed]
    }
}
