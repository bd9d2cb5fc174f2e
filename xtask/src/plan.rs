//! What a check is, and what it may ask for.

use crate::cx::Cx;
use anyhow::Result;

/// A thing a check needs before it can start. Each is made by a step of the same name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Debian packages (one step installs the union of all that are missing).
    Apt(&'static str),
    /// A cargo tool from [`crate::steps::TOOLS`].
    Tool(&'static str),
    /// The `pinstripe` program under test.
    Binary,
    /// The fuzzing driver, built together with the program.
    Fuzz,
    /// The crates' own tests, built together with the program.
    Tests,
    /// Root, because it mounts, makes devices or changes users.
    Root,
}

/// One check: a function, a time limit, and what it costs to run.
pub struct Check {
    pub name: &'static str,
    pub about: &'static str,
    pub needs: &'static [Need],
    /// Hard limit in seconds; a check still running then is killed and counts as failed.
    pub limit: u64,
    /// How many of the `--jobs` slots it takes.
    pub weight: usize,
    /// Left out by `--quick` (which is never used in CI).
    pub slow: bool,
    pub run: fn(&Cx) -> Result<()>,
}

impl Check {
    pub fn needs_packages(&self) -> impl Iterator<Item = &'static str> + '_ {
        self.needs.iter().filter_map(|n| if let Need::Apt(p) = n { Some(*p) } else { None })
    }

    pub fn needs_tools(&self) -> impl Iterator<Item = &'static str> + '_ {
        self.needs.iter().filter_map(|n| if let Need::Tool(t) = n { Some(*t) } else { None })
    }

    pub fn needs_build(&self) -> bool {
        self.needs.iter().any(|n| matches!(n, Need::Binary | Need::Fuzz | Need::Tests))
    }
}
